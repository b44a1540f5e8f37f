//! Takes a sample apart into its columns: the sizes of those that have none of their own stand at its head.

use tierfeed_transform::container::Column;

use crate::format::{FormatError, piece::malformed};

/// The columns of a sample, in the order of `columns`.
///
/// # Errors
///
/// [`FormatError::Malformed`] if they are not exactly the bytes of the sample.
pub fn columns<'a>(sample: &'a [u8], columns: &[Column]) -> Result<Vec<&'a [u8]>, FormatError> {
    let right = "the sizes of its columns must be those of its bytes";
    let misfit = |found: String| malformed("a sample", 0, found, right);
    let unsized_columns = columns.iter().filter(|column| column.size.is_none()).count();
    let head = sample.split_at_checked(4 * unsized_columns);
    let (sizes, mut rest) =
        head.ok_or_else(|| misfit("shorter than the sizes of its columns".to_owned()))?;
    let (sizes, _) = sizes.as_chunks::<4>();
    let mut sizes = sizes.iter().map(|size| u64::from(u32::from_le_bytes(*size)));
    let mut found = Vec::with_capacity(columns.len());
    for column in columns {
        let size = column.size.or_else(|| sizes.next());
        let size = size.and_then(|size| usize::try_from(size).ok());
        let split = size.and_then(|size| rest.split_at_checked(size));
        let (bytes, behind) =
            split.ok_or_else(|| misfit(format!("cut off in its column {}", column.name)))?;
        found.push(bytes);
        rest = behind;
    }
    if !rest.is_empty() {
        return Err(misfit(format!("{} bytes longer than its columns", rest.len())));
    }
    Ok(found)
}
