//! Compares what the files of a dataset say about the elements of a sample with the first step of its
//! transform.
//!
//! The worker sees only the bytes of a sample, which are elements without a header: another type of the same
//! length would pass for the right one.

use tierfeed_core::id::SampleId;
use tierfeed_dataset::{
    Index,
    format::{Elements, Stated, litdata, npy},
};
use tierfeed_transform::{Dtype, Pipeline, Work, container::Column, output::ByteOrder};

#[derive(Debug, thiserror::Error)]
pub enum ElementsError {
    #[error(
        "{place}: its elements are `{stated}`, and {key}.dtype is `{typed}`; write there what the file holds"
    )]
    Dtype { place: String, stated: String, key: String, typed: &'static str },
    #[error(
        "{place}: its elements are `{stated}`, of the other byte order than {key}.dtype, `{typed}`; write the file \
         with the byte order of this machine, for example as `array.astype(\"{typed}\")`"
    )]
    Reversed { place: String, stated: String, key: String, typed: &'static str },
    #[error(
        "{place}: a sample has the shape {stated:?}, and {key}.shape is {typed:?}; write there what the file holds"
    )]
    Shape { place: String, stated: Vec<u64>, key: String, typed: Vec<u32> },
    #[error(
        "{dataset}: its files have chunks of several shapes, and {key}.shape is one; write the files alike"
    )]
    Shapes { dataset: String, key: String },
    #[error(
        "{place}: its chunks are stored by {filters}, which {key} does not undo; write them without, or decode in the \
         trainer (`decode=`)"
    )]
    Filtered { place: String, filters: String, key: String },
    #[error(
        "{place}: it is of `{encoding}`, whose bytes begin with a shape that {key} does not read; write it with a \
         fixed shape, such as `ndarray:float32:2,3`, or decode in the trainer (`decode=`)"
    )]
    OwnShape { place: String, encoding: String, key: String },
}

/// The statement of the first step of a pipeline about elements.
struct Step<'a> {
    key: String,
    dtype: Dtype,
    /// The shape of a sample; `None` if only the number of elements counts.
    shape: Option<&'a [u32]>,
}

impl<'a> Step<'a> {
    /// The step at the start of `pipeline`, whose key is `above`; `None` if it is for images.
    fn of(pipeline: &'a Pipeline, above: &str) -> Option<Self> {
        let (name, dtype, shape) = match pipeline.work() {
            Work::Images(_) => return None,
            Work::Arrays(arrays) => ("array", arrays.dtype, Some(arrays.shape.as_slice())),
            Work::Tokens(tokens) => ("tokens", tokens.stored, None),
        };
        Some(Self { key: format!("{above}.steps[0].{name}"), dtype, shape })
    }

    fn check_dtype(&self, place: &str, stated: &str) -> Result<(), ElementsError> {
        let (place, stated, key) = (place.to_owned(), stated.to_owned(), self.key.clone());
        let typed = self.dtype.name();
        match self.dtype.byte_order_in(&stated) {
            Some(ByteOrder::OfThisMachine) => Ok(()),
            Some(ByteOrder::Reversed) => Err(ElementsError::Reversed { place, stated, key, typed }),
            None => Err(ElementsError::Dtype { place, stated, key, typed }),
        }
    }

    /// Axes of one element in front do not count.
    fn check_shape(&self, place: &str, stated: &[u64]) -> Result<(), ElementsError> {
        let Some(typed) = self.shape else { return Ok(()) };
        let wide: Vec<u64> = typed.iter().map(|it| u64::from(*it)).collect();
        if without_ones(&wide) == without_ones(stated) {
            return Ok(());
        }
        let (place, key) = (place.to_owned(), self.key.clone());
        Err(ElementsError::Shape { place, stated: stated.to_vec(), key, typed: typed.to_vec() })
    }
}

fn without_ones(shape: &[u64]) -> &[u64] {
    let ones = shape.iter().take_while(|axis| **axis == 1).count();
    &shape[ones..]
}

/// Compares the files of a dataset with the first step of its transform, whose key is `above`.
pub(super) fn check(pipeline: &Pipeline, above: &str, index: &Index) -> Result<(), ElementsError> {
    let Some(Stated::Elements(Elements { dtype, shape, filters })) = index.stated() else {
        return Ok(());
    };
    let Some(step) = Step::of(pipeline, above) else { return Ok(()) };
    let place = index.extent(SampleId(0)).path.display().to_string();
    if !filters.is_empty() {
        let (filters, key) = (filters.join(" and "), step.key);
        return Err(ElementsError::Filtered { place, filters, key });
    }
    step.check_dtype(&place, &dtype)?;
    match shape {
        Some(shape) => step.check_shape(&place, &shape),
        None if step.shape.is_some() && index.format().starts_with("hdf5") => {
            Err(ElementsError::Shapes { dataset: index.source(), key: step.key })
        }
        None => Ok(()),
    }
}

/// Compares a field of MDS or LitData with the first step of the transform that takes it, whose key is
/// `above`.
pub(super) fn check_field(
    pipeline: &Pipeline,
    above: &str,
    dataset: &str,
    field: &Column,
) -> Result<(), ElementsError> {
    let Some(step) = Step::of(pipeline, above) else { return Ok(()) };
    let place = format!("{dataset}, field `{}`", field.name);
    let mut parts = field.encoding.splitn(3, ':');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("ndarray"), Some(dtype), Some(shape)) => {
            step.check_dtype(&place, &npy::code(dtype))?;
            let shape: Option<Vec<u64>> = shape.split(',').map(|it| it.parse().ok()).collect();
            shape.map_or(Ok(()), |shape| step.check_shape(&place, &shape))
        }
        (Some("ndarray" | "numpy" | "tensor"), ..) => {
            let (encoding, key) = (field.encoding.clone(), step.key);
            Err(ElementsError::OwnShape { place, encoding, key })
        }
        (Some("no_header_tensor" | "no_header_numpy"), ..) => litdata::type_of(&field.encoding)
            .map_or(Ok(()), |dtype| step.check_dtype(&place, dtype)),
        (Some("int"), None, None) => step.check_dtype(&place, "<i8"),
        (Some(name), None, None) if Dtype::ALL.iter().any(|it| it.name() == name) => {
            step.check_dtype(&place, &npy::code(name))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_one_name_are_one_type() {
        for dtype in Dtype::ALL.into_iter().filter(|it| *it != Dtype::Bfloat16) {
            let order = dtype.byte_order_in(&npy::code(dtype.name()));
            assert_eq!(order, Some(ByteOrder::OfThisMachine), "{}", dtype.name());
        }
    }
}
