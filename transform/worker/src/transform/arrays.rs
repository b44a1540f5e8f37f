//! Arrays in files of NumPy: npy, a member of an npz, and rows without a header.

use tierfeed_dataset::format::{Encoding, FormatError, npy, npz};
use tierfeed_transform::{Arrays, output::ByteOrder};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArrayError {
    #[error(
        "the sample has {found} bytes and is neither npy nor npz; a row without a header has {expected} bytes"
    )]
    NoArray { found: usize, expected: usize },
    #[error("the array cannot be read")]
    Format(#[from] FormatError),
    #[error("the npz has {0} arrays; name one, for example `array: {{ key: image }}`")]
    NoKey(usize),
    #[error("the elements of the array are `{found}`, and the job says {expected}")]
    Dtype { found: String, expected: &'static str },
    #[error("the array has the shape {found:?}, and the job says {expected:?}")]
    Shape { found: Vec<u64>, expected: Vec<u32> },
    /// A member that says it is longer than the row and its header.
    #[error("the member of the npz has {found} bytes, and the row {row}")]
    Long { found: u64, row: usize },
}

/// Bytes of a header that a deflated member may have beside its elements.
const HEADER_BYTES_MAX: u64 = 64 * 1024;

/// Writes the elements of a sample, in the byte order of this machine.
pub(super) fn apply(steps: &Arrays, bytes: &[u8], row: &mut [u8]) -> Result<(), ArrayError> {
    // A file may be as long as a row; elements may begin as an archive does, but do not end as one.
    let is_row = bytes.len() == row.len();
    if bytes.starts_with(b"\x93NUMPY") {
        array(steps, bytes, row)
    } else if bytes.starts_with(b"PK") && !(is_row && npz::ranges(&bytes, &[]).is_err()) {
        member(steps, bytes, row)
    } else if is_row {
        row.copy_from_slice(bytes);
        Ok(())
    } else {
        Err(ArrayError::NoArray { found: bytes.len(), expected: row.len() })
    }
}

fn member(steps: &Arrays, archive: &[u8], row: &mut [u8]) -> Result<(), ArrayError> {
    let key: Vec<String> = steps.key.iter().cloned().collect();
    let ranges = npz::ranges(&archive, &key)?;
    let [range] = ranges[..] else { return Err(ArrayError::NoKey(ranges.len())) };
    let start = usize::try_from(range.offset).expect("the member lies in memory");
    let length = usize::try_from(range.len).expect("the member lies in memory");
    let stored = &archive[start..start + length];
    let Encoding::Deflate { len, crc32 } = range.encoding else {
        return array(steps, stored, row);
    };
    if len > row.len() as u64 + HEADER_BYTES_MAX {
        return Err(ArrayError::Long { found: len, row: row.len() });
    }
    let mut inflated = vec![0; usize::try_from(len).expect("it is little more than a row")];
    npz::inflate(stored, len, crc32, &mut inflated)?;
    array(steps, &inflated, row)
}

fn array(steps: &Arrays, file: &[u8], row: &mut [u8]) -> Result<(), ArrayError> {
    let array = npy::records(&file)?;
    let order = steps.dtype.byte_order_in(&array.dtype).ok_or_else(|| ArrayError::Dtype {
        found: array.dtype.clone(),
        expected: steps.dtype.name(),
    })?;
    if !array.shape.iter().copied().eq(steps.shape.iter().map(|it| u64::from(*it))) {
        let expected = steps.shape.clone();
        return Err(ArrayError::Shape { found: array.shape, expected });
    }
    let start = usize::try_from(array.records.offset).expect("the elements lie in memory");
    row.copy_from_slice(&file[start..start + row.len()]);
    if order == ByteOrder::Reversed {
        let bytes = usize::try_from(steps.dtype.bytes()).expect("at most 8");
        row.chunks_exact_mut(bytes).for_each(<[u8]>::reverse);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tierfeed_transform::Dtype;

    use super::*;

    fn npy(dtype: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
        let mut header =
            format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
        header.push('\n');
        let length = u16::try_from(header.len()).expect("a short header");
        [b"\x93NUMPY\x01\0", &length.to_le_bytes()[..], header.as_bytes(), elements].concat()
    }

    fn steps(dtype: Dtype) -> Arrays {
        Arrays { shape: vec![2, 1], dtype, key: None }
    }

    fn read(dtype: Dtype, bytes: &[u8]) -> Result<Vec<u8>, ArrayError> {
        let mut row = vec![0; 2 * usize::try_from(dtype.bytes()).expect("small")];
        apply(&steps(dtype), bytes, &mut row).map(|()| row)
    }

    #[test]
    fn elements_have_the_byte_order_of_this_machine() {
        let expected = [0x0102_u16.to_ne_bytes(), 0x0304_u16.to_ne_bytes()].concat();
        let little = read(Dtype::Uint16, &npy("<u2", "(2, 1)", &[2, 1, 4, 3])).expect("an array");
        let big = read(Dtype::Uint16, &npy(">u2", "(2, 1)", &[1, 2, 3, 4])).expect("an array");
        assert_eq!((little, big), (expected.clone(), expected));
    }

    #[test]
    fn rows_without_a_header_are_taken_as_they_are() {
        assert_eq!(read(Dtype::Int8, &[7, 8]).expect("a row"), [7, 8]);
        assert!(matches!(read(Dtype::Int8, &[7, 8, 9]), Err(ArrayError::NoArray { .. })));
    }

    #[test]
    fn a_file_as_long_as_a_row_is_read_as_a_file() {
        let elements = [1; 16];
        let file = npy("|u1", "(16,)", &elements);
        let mut row = vec![0; file.len()];
        let rows =
            Arrays { shape: vec![u32::try_from(row.len()).expect("short")], ..steps(Dtype::Uint8) };
        let refused = apply(&rows, &file, &mut row);
        assert!(matches!(refused, Err(ArrayError::Shape { .. })), "{refused:?}");
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../dataset/tests/fixtures/npz/stored.npz");
        let archive = std::fs::read(path).expect("a fixture");
        row.resize(archive.len(), 0);
        let refused = apply(&rows, &archive, &mut row);
        assert!(matches!(refused, Err(ArrayError::NoKey(4))), "{refused:?}");
        assert_eq!(read(Dtype::Int8, b"PK").expect("a row"), b"PK");
    }

    #[test]
    fn another_type_or_shape_is_refused() {
        let refused = read(Dtype::Int16, &npy("<u2", "(2, 1)", &[2, 1, 4, 3]));
        assert!(matches!(refused, Err(ArrayError::Dtype { .. })), "{refused:?}");
        let refused = read(Dtype::Uint16, &npy("<u2", "(1, 2)", &[2, 1, 4, 3]));
        assert!(matches!(refused, Err(ArrayError::Shape { .. })), "{refused:?}");
        let refused = read(Dtype::Uint16, &npy("<u2", "(2, 1)", &[2, 1, 4]));
        assert!(matches!(refused, Err(ArrayError::Format(_))), "{refused:?}");
    }

    #[test]
    fn members_of_archives_are_read_stored_and_deflated() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dataset/tests/fixtures/npz");
        for name in ["stored", "deflated", "streamed", "streamed-deflated", "zip64"] {
            let archive = std::fs::read(format!("{folder}/{name}.npz")).expect("a fixture");
            let mut steps =
                Arrays { shape: vec![3, 4, 4], dtype: Dtype::Uint8, key: Some("images".into()) };
            let mut row = [0xEE; 48];
            apply(&steps, &archive, &mut row).expect("the member `images`");
            assert_eq!((&row[..4], row[47]), (&[4, 2, 8, 8][..], 6), "{name}");
            steps.key = None;
            let refused = apply(&steps, &archive, &mut row);
            assert!(matches!(refused, Err(ArrayError::NoKey(4))), "{name}: {refused:?}");
        }
    }
}
