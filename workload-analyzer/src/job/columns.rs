//! Completes a job by the indexes of its datasets: those of MDS and LitData say which fields a sample has,
//! others what its elements are.

use tierfeed_dataset::{Catalog, Index};
use tierfeed_transform::{Container, Pipeline, Work, container::Column};

use super::{
    Job,
    elements::{self, ElementsError},
};

#[derive(Debug, thiserror::Error)]
pub enum ColumnsError {
    #[error(
        "{dataset}: it is not known which fields its samples have, and {key} takes one of them; give all shards the \
         same columns, or write the dataset with a newer version of its own writer, and build the index again"
    )]
    Unknown { dataset: String, key: String },
    #[error("{dataset}: samples have no field `{named}` ({key}.field); they have {}", listed(.columns))]
    Missing { dataset: String, key: String, named: String, columns: Vec<Column> },
    #[error(
        "{dataset}: field `{field}` is of `pil`, pixels and no image file, which {key} cannot decode; write it as \
         `jpeg`, `png` or the bytes of an image file, or decode in the trainer (`decode=`)"
    )]
    Pixels { dataset: String, key: String, field: String },
    #[error(transparent)]
    Elements(#[from] ElementsError),
    #[error(
        "{dataset}: {images} of the fields of a sample are images; name one of them as {key}.field: {}", listed(.columns)
    )]
    Unclear { dataset: String, key: String, images: usize, columns: Vec<Column> },
}

fn listed(columns: &[Column]) -> String {
    let of = columns.iter().map(|it| format!("{} ({})", it.name, it.encoding));
    of.collect::<Vec<_>>().join(", ")
}

impl Job {
    /// Adds the columns of samples that have them, which the indexes of the datasets know.
    ///
    /// # Errors
    ///
    /// [`ColumnsError`] if an index knows none, or a transform needs others.
    pub fn with_columns_of(mut self, catalog: &Catalog) -> Result<Self, ColumnsError> {
        let first = self.transform.as_mut().map(|it| ("transform".to_owned(), &mut it.pipeline));
        let further = self.further.iter_mut().map(|it| {
            let key = format!("datasets.{}.transform", it.name);
            it.transform.as_mut().map(|pipeline| (key, pipeline))
        });
        let indexes = std::iter::once(catalog.first()).chain(catalog.further());
        for (transform, index) in std::iter::once(first).chain(further).zip(indexes) {
            let Some((key, pipeline)) = transform else { continue };
            elements::check(pipeline, &key, index)?;
            if matches!(pipeline.container(), Some(Container::Columns { .. })) {
                let columns = columns_for(pipeline, key, index)?;
                *pipeline = pipeline.clone().inside(Container::Columns { columns });
            }
        }
        Ok(self)
    }
}

/// The columns of a dataset, one of which its pipeline takes.
fn columns_for(
    pipeline: &Pipeline,
    key: String,
    index: &Index,
) -> Result<Vec<Column>, ColumnsError> {
    let dataset = index.source();
    let Some(columns) = index.columns() else { return Err(ColumnsError::Unknown { dataset, key }) };
    let count = |wanted: &[&str]| {
        let is_wanted = |it: &&Column| wanted.contains(&it.encoding.as_str());
        columns.iter().filter(is_wanted).count()
    };
    let decoded = |it: &Column| it.encoding == "pil" && matches!(pipeline.work(), Work::Images(_));
    if let Some(named) = pipeline.field() {
        return match columns.iter().find(|it| it.name == named) {
            None => {
                let named = named.to_owned();
                Err(ColumnsError::Missing { dataset, key, named, columns })
            }
            Some(it) if decoded(it) => {
                Err(ColumnsError::Pixels { dataset, key, field: it.name.clone() })
            }
            Some(it) => {
                elements::check_field(pipeline, &key, &dataset, it)?;
                Ok(columns)
            }
        };
    }
    match (count(&["jpeg", "png"]), columns.iter().find(|it| decoded(it))) {
        (1, _) => Ok(columns),
        // The first bytes of a sample say whether it is an image.
        (0, _) if count(&["bytes"]) > 0 => Ok(columns),
        (0, Some(it)) => Err(ColumnsError::Pixels { dataset, key, field: it.name.clone() }),
        (images, _) => Err(ColumnsError::Unclear { dataset, key, images, columns }),
    }
}
