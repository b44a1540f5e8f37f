//! Windows of tokens: integers, which may become wider.

use tierfeed_transform::{Dtype, Tokens};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokensError {
    #[error("the sample has {found} bytes, and {length} tokens of {stored} have {expected}")]
    Length { found: usize, length: u32, stored: &'static str, expected: u64 },
    #[error("the sample is a file of NumPy, whose header is no tokens; use the step `array`")]
    NumpyFile,
}

pub(super) fn apply(steps: Tokens, bytes: &[u8], row: &mut [u8]) -> Result<(), TokensError> {
    if bytes.starts_with(b"\x93NUMPY") {
        return Err(TokensError::NumpyFile);
    }
    let expected = u64::from(steps.length) * steps.stored.bytes();
    if bytes.len() as u64 != expected {
        let stored = steps.stored.name();
        let (found, length) = (bytes.len(), steps.length);
        return Err(TokensError::Length { found, length, stored, expected });
    }
    match (steps.stored, steps.dtype.bytes()) {
        (Dtype::Uint8, 2) => widen(bytes, row, |it: [u8; 1]| u16::from(it[0]).to_le_bytes()),
        (Dtype::Uint8, 4) => widen(bytes, row, |it: [u8; 1]| u32::from(it[0]).to_le_bytes()),
        (Dtype::Uint8, 8) => widen(bytes, row, |it: [u8; 1]| u64::from(it[0]).to_le_bytes()),
        (Dtype::Uint16, 4) => {
            widen(bytes, row, |it| u32::from(u16::from_le_bytes(it)).to_le_bytes());
        }
        (Dtype::Uint16, 8) => {
            widen(bytes, row, |it| u64::from(u16::from_le_bytes(it)).to_le_bytes());
        }
        (Dtype::Uint32, 8) => {
            widen(bytes, row, |it| u64::from(u32::from_le_bytes(it)).to_le_bytes());
        }
        (Dtype::Int32, 8) => {
            widen(bytes, row, |it| i64::from(i32::from_le_bytes(it)).to_le_bytes());
        }
        // As wide as before: the check of a pipeline lets nothing become narrower.
        _ => row.copy_from_slice(bytes),
    }
    Ok(())
}

fn widen<const N: usize, const M: usize>(
    from: &[u8],
    to: &mut [u8],
    wider: impl Fn([u8; N]) -> [u8; M],
) {
    for (to, from) in to.as_chunks_mut().0.iter_mut().zip(from.as_chunks().0) {
        *to = wider(*from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(stored: Dtype, dtype: Dtype) -> Tokens {
        Tokens { length: 2, stored, dtype }
    }

    #[test]
    fn tokens_keep_their_values_when_they_become_wider() {
        let check = |stored, dtype, bytes: &[u8], expected: &[u8]| {
            let mut row = vec![0xEE; expected.len()];
            apply(tokens(stored, dtype), bytes, &mut row).expect("two tokens");
            assert_eq!(row, expected, "{stored:?} to {dtype:?}");
        };
        check(
            Dtype::Uint16,
            Dtype::Int64,
            &[1, 2, 255, 255],
            &[1, 2, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 0, 0, 0, 0],
        );
        check(Dtype::Uint8, Dtype::Uint16, &[200, 3], &[200, 0, 3, 0]);
        check(Dtype::Uint8, Dtype::Int32, &[200, 3], &[200, 0, 0, 0, 3, 0, 0, 0]);
        check(
            Dtype::Int32,
            Dtype::Int64,
            &[255, 255, 255, 255, 1, 0, 0, 0],
            &[255, 255, 255, 255, 255, 255, 255, 255, 1, 0, 0, 0, 0, 0, 0, 0],
        );
        check(Dtype::Uint16, Dtype::Uint16, &[1, 2, 3, 4], &[1, 2, 3, 4]);
    }

    #[test]
    fn the_header_of_a_file_is_no_tokens() {
        let file = [b"\x93NUMPY\x01\0".as_slice(), &[0; 8]].concat();
        let steps = Tokens { length: 8, stored: Dtype::Uint16, dtype: Dtype::Uint16 };
        let refused = apply(steps, &file, &mut [0; 16]);
        assert!(matches!(refused, Err(TokensError::NumpyFile)), "{refused:?}");
    }

    #[test]
    fn a_window_of_another_length_is_refused() {
        for length in [0, 3, 5] {
            let refused =
                apply(tokens(Dtype::Uint16, Dtype::Uint16), &vec![0; length], &mut [0; 4]);
            assert!(refused.is_err(), "{length}");
        }
    }
}
