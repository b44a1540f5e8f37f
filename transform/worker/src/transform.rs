//! Applies a pipeline to the bytes of a sample.

mod arrays;
mod geometry;
mod images;
mod tokens;

use std::ops::Range;

use tierfeed_dataset::format::fields::{self, FieldError};
use tierfeed_images::DecodeError;
use tierfeed_transform::{
    Arrays, DrawKey, Pipeline, Tokens, Work,
    draw::SmallerThanCrop,
    output::Rest,
    worker_protocol::{DatasetPipeline, Defect, DefectKind, InputForm},
};

use self::{arrays::ArrayError, images::ImageSteps, tokens::TokensError};
use crate::{Apply, Input};

/// The steps of a job, applied to one sample after another.
pub struct Transform {
    pipeline: Pipeline,
    seed: u64,
    steps: Steps,
}

enum Steps {
    Images(Box<ImageSteps>),
    Arrays(Arrays),
    Tokens(Tokens),
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransformError {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Smaller(#[from] SmallerThanCrop),
    #[error(
        "a step would make an image of {width} x {height} pixels of it, and {pixels_max} in all are allowed (`limits: {{ pixels }}`)"
    )]
    TooLarge { width: u32, height: u32, pixels_max: u64 },
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error(transparent)]
    Array(#[from] ArrayError),
    #[error(transparent)]
    Tokens(#[from] TokensError),
    #[error("the prepared form has {found} bytes, and {expected} are right")]
    Prepared { found: usize, expected: u64 },
    #[error(
        "the prepared form has {found} bytes, which are not those of an image with its size before it"
    )]
    NotPrepared { found: usize },
}

impl TransformError {
    fn kind(&self) -> DefectKind {
        match self {
            Self::Decode(DecodeError::TooLarge { .. }) | Self::TooLarge { .. } => {
                DefectKind::TooLarge
            }
            Self::Decode(DecodeError::NoMemory) => DefectKind::OutOfMemory,
            Self::Decode(_) | Self::Prepared { .. } | Self::NotPrepared { .. } => {
                DefectKind::Damaged
            }
            Self::Smaller(_) | Self::Field(_) | Self::Array(_) | Self::Tokens(_) => {
                DefectKind::Unsuitable
            }
        }
    }
}

impl Transform {
    #[must_use]
    pub fn new(pipeline: Pipeline, seed: u64) -> Self {
        let steps = match pipeline.work() {
            Work::Images(images) => Steps::Images(Box::new(ImageSteps::new(images, &pipeline))),
            Work::Arrays(arrays) => Steps::Arrays(arrays.clone()),
            Work::Tokens(tokens) => Steps::Tokens(*tokens),
        };
        Self { pipeline, seed, steps }
    }

    /// Writes the row of a sample, and its prepared form if a place is given for it.
    ///
    /// The bytes of `row` behind the row become 0.
    ///
    /// # Errors
    ///
    /// [`TransformError`]; `row` and `prepared` may then hold a part.
    ///
    /// # Panics
    ///
    /// If `row` is shorter than a row of the pipeline.
    pub fn apply(
        &mut self,
        input: &Input<'_>,
        row: &mut [u8],
        prepared: Option<&mut Vec<u8>>,
    ) -> Result<(), TransformError> {
        let length = usize::try_from(self.pipeline.row_bytes()).expect("a row fits into memory");
        let (row, behind) = row.split_at_mut(length);
        behind.fill(0);
        let is_row = self.pipeline.prepared().is_some_and(|it| it.rest == Rest::Nothing);
        if is_row && input.form == InputForm::Prepared {
            return take(input.bytes, row);
        }
        let bytes = match self.pipeline.container() {
            Some(container) => fields::transformed(container, input.bytes, self.pipeline.field())?,
            None => input.bytes,
        };
        match &mut self.steps {
            Steps::Images(images) => {
                let key = DrawKey { seed: self.seed, epoch: input.epoch, sample: input.sample };
                return images.apply(key, (input.form, bytes), row, prepared);
            }
            Steps::Arrays(arrays) => arrays::apply(arrays, bytes, row)?,
            Steps::Tokens(tokens) => tokens::apply(*tokens, bytes, row)?,
        }
        prepared.into_iter().for_each(|it| it.extend_from_slice(row));
        Ok(())
    }
}

impl Apply for Transform {
    fn apply(
        &mut self,
        input: &Input<'_>,
        row: &mut [u8],
        prepared: Option<&mut Vec<u8>>,
    ) -> Result<(), Defect> {
        let applied = self.apply(input, row, prepared);
        applied.map_err(|error| Defect { kind: error.kind(), message: with_causes(&error) })
    }
}

/// The transforms of the datasets of a job, each with the samples of its dataset.
pub struct Transforms {
    of: Vec<(Range<u64>, Transform)>,
}

impl Transforms {
    #[must_use]
    pub fn new(pipelines: Vec<DatasetPipeline>, seed: u64) -> Self {
        let of = pipelines.into_iter().map(|it| {
            let DatasetPipeline { first, end, pipeline } = it;
            (first..end, Transform::new(pipeline, seed))
        });
        Self { of: of.collect() }
    }
}

impl Apply for Transforms {
    fn apply(
        &mut self,
        input: &Input<'_>,
        row: &mut [u8],
        prepared: Option<&mut Vec<u8>>,
    ) -> Result<(), Defect> {
        let of = self.of.iter_mut().find(|(samples, _)| samples.contains(&input.sample));
        let (samples, transform) = of.ok_or_else(|| Defect {
            kind: DefectKind::Unsuitable,
            message: "its dataset has no transform".to_owned(),
        })?;
        let input = Input { sample: input.sample - samples.start, ..*input };
        Apply::apply(transform, &input, row, prepared)
    }
}

/// Copies a prepared form that is the row itself.
fn take(bytes: &[u8], row: &mut [u8]) -> Result<(), TransformError> {
    if bytes.len() != row.len() {
        let expected = row.len() as u64;
        return Err(TransformError::Prepared { found: bytes.len(), expected });
    }
    row.copy_from_slice(bytes);
    Ok(())
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |it| it.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests;
