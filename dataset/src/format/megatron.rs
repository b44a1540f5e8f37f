//! Megatron's indexed datasets: a `.bin` of tokens, and an `.idx` with the positions of the
//! sequences.
//!
//! The index is `MMIDIDX\0\0`, `u64` version 1, `u8` type of the tokens, `u64` number of sequences,
//! `u64` number of document borders; then for each sequence `i32` number of tokens, then for each
//! `i64` start in the `.bin`, then `i64` for each border; then, in datasets of several modes, `i8`
//! for each sequence. All are little endian. A sample is a sequence, the bytes that
//! `IndexedDataset[i]` returns. Training on windows of tokens across sequences reads the `.bin` as
//! records instead.
//!
//! 1. The index has exactly the length that its counts require.
//! 2. The sequences are consecutive, from the start of the `.bin` to its end.
//!
//! Source: `megatron/core/datasets/indexed_dataset.py` of megatron-core 0.16.

use std::collections::BTreeSet;

use super::{
    DatasetFormat, Format, FormatError, Found, Kind, Parsed, Range, ReadAt, Stated, Told,
    objects::{Candidates, Objects, ObjectsError, is_index},
    read_ahead::ReadAhead,
    shard_index::wrong,
};
use crate::source::{Opened, names::ends_in};

const MAGIC: [u8; 9] = *b"MMIDIDX\0\0";
const HEAD_BYTES: u64 = 34;
const LENGTH_BYTES: u64 = 4;
const POINTER_BYTES: u64 = 8;
/// The type of a token by its code, from code 1 on, in NumPy's spelling; each ends with its bytes.
const TOKEN_TYPES: [&str; 8] = ["|u1", "|i1", "<i2", "<i4", "<i8", "<f8", "<f4", "<u2"];

pub(super) static KIND: Kind = Kind {
    is_beside: is_index,
    told: Told::Together(|names| {
        let stems = |end: &'static [u8]| names.iter().filter_map(move |it| it.strip_suffix(end));
        let tokens: BTreeSet<&[u8]> = stems(b".idx").collect();
        stems(b".bin").filter(|stem| tokens.contains(stem)).count()
    }),
    ..Kind::new(
        "megatron",
        |_| Ok(Format::Megatron),
        |name| ends_in(name, &[".bin"]),
        ".bin with an .idx beside",
    )
};

pub(super) struct Megatron;

impl DatasetFormat for Megatron {
    fn objects(&self, found: Candidates<'_>) -> Result<Objects, ObjectsError> {
        Ok(found.with_indexes())
    }

    fn parse(&self, object: &dyn Opened, index: Option<&[u8]>) -> Result<Parsed, FormatError> {
        let index = index.ok_or_else(|| FormatError::Unsupported {
            what: "no .idx of the same name is beside it".to_owned(),
            instead: "bring both files that Megatron-LM's preprocess_data.py writes",
        })?;
        let found = Found::Ranges(ranges(&index, object)?);
        Ok(Parsed::new(found, Some(Stated::tokens(dtype(&index)?))))
    }
}

struct Head {
    dtype: &'static str,
    sequences: u64,
    /// Offset of the table of starts.
    pointers_at: u64,
}

/// The positions of the sequences of a `.bin`, in the order of its `.idx`.
///
/// # Errors
///
/// [`FormatError::Index`] if `index` is invalid, or not that of `object`.
pub fn ranges(index: &dyn ReadAt, object: &dyn ReadAt) -> Result<Vec<Range>, FormatError> {
    let head = head(index)?;
    let token_bytes = head.dtype[2..].parse().expect("each type ends with its bytes");
    let mut lengths = ReadAhead::new(index);
    let mut pointers = ReadAhead::new(index);
    let mut ranges = Vec::new();
    let mut end = 0;
    for sequence in 0..head.sequences {
        let tokens = i32::from_le_bytes(lengths.array(HEAD_BYTES + sequence * LENGTH_BYTES)?);
        let place = head.pointers_at + sequence * POINTER_BYTES;
        let start = i64::from_le_bytes(pointers.array(place)?);
        let range = range(tokens, start, token_bytes);
        let range = range.filter(|range| range.offset == end).ok_or_else(|| {
            let found = format!("{tokens} tokens at byte {start}, the one before ends at {end}");
            wrong(
                format!("sequence {sequence}"),
                found,
                "sequences follow one another without gaps",
            )
        })?;
        end = range.offset + range.len;
        ranges.push(range);
    }
    if end != object.len() {
        let found = format!("byte {end}, but the .bin ends at byte {}", object.len());
        let right = "index and .bin must be of one dataset, and whole";
        return Err(wrong("the end of the last sequence".into(), found, right));
    }
    Ok(ranges)
}

/// The type of the tokens that `index` states, in NumPy's spelling.
///
/// # Errors
///
/// [`FormatError::Index`] if `index` is invalid.
pub fn dtype(index: &dyn ReadAt) -> Result<&'static str, FormatError> {
    Ok(head(index)?.dtype)
}

fn range(tokens: i32, start: i64, token_bytes: u64) -> Option<Range> {
    let offset = u64::try_from(start).ok()?;
    let len = u64::try_from(tokens).ok()?.checked_mul(token_bytes)?;
    offset.checked_add(len).map(|_| Range::plain(offset, len))
}

/// Reads the header of an index, and checks that both tables fit.
fn head(index: &dyn ReadAt) -> Result<Head, FormatError> {
    let mut bytes = [0; 34];
    if index.len() < HEAD_BYTES {
        let found = format!("{} bytes long", index.len());
        return Err(wrong("the index".into(), found, "its head has 34 bytes"));
    }
    index.read_exact_at(&mut bytes, 0)?;
    let word = |at: usize| {
        let bytes = bytes[at..at + 8].try_into().expect("a word in the head");
        u64::from_le_bytes(bytes)
    };
    let (version, code) = (word(9), bytes[17]);
    if bytes[..9] != MAGIC || version != 1 {
        let found = format!("{} of version {version}", bytes[..9].escape_ascii());
        return Err(wrong("the index".into(), found, "MMIDIDX of version 1 is known"));
    }
    let dtype = TOKEN_TYPES.get(usize::from(code).wrapping_sub(1)).copied();
    let dtype = dtype.ok_or_else(|| {
        wrong("the type of the tokens".into(), code.to_string(), "types have codes from 1 to 8")
    })?;
    let (sequences, borders) = (word(18), word(26));
    let pointers_at =
        sequences.checked_mul(LENGTH_BYTES).and_then(|len| len.checked_add(HEAD_BYTES));
    let tables = || {
        let borders_at = sequences.checked_mul(POINTER_BYTES)?.checked_add(pointers_at?)?;
        let end = borders.checked_mul(POINTER_BYTES)?.checked_add(borders_at)?;
        (index.len() == end || index.len() == end.checked_add(sequences)?).then_some(pointers_at?)
    };
    let pointers_at = tables().ok_or_else(|| {
        let found =
            format!("{} bytes long for {sequences} sequences and {borders} borders", index.len());
        wrong("the index".into(), found, "write the dataset again, the index is cut off or damaged")
    })?;
    Ok(Head { dtype, sequences, pointers_at })
}
