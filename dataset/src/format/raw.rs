//! Records of one size, behind each other in files without structure, such as tokens or CIFAR's binary version.

use tierfeed_core::units::Bytes;
use tierfeed_transform::Dtype;

use super::{
    DatasetFormat, Format, FormatError, Found, Kind, Records,
    keys::{Given, Key, KeyConflict, KeyError, conflict},
};

pub(super) static KIND: Kind = Kind {
    keys: &[&RECORD_BYTES, &DTYPE, &SEQUENCE_LENGTH, &HEADER_BYTES],
    ..Kind::new(
        "raw",
        of_keys,
        |_| true,
        "files that no dot hides, with at least one record in them",
    )
};

static RECORD_BYTES: Key =
    Key::new("record_bytes", "SIZE", "the size of a record, such as 3073 or \"4 KiB\"");
static DTYPE: Key = Key::new("dtype", "NAME", "what a token is, such as uint16, instead of a size");
/// Of chunks of tokens of `LitData` too.
pub(super) static SEQUENCE_LENGTH: Key =
    Key::new("sequence_length", "NUMBER", "tokens in a sample");
static HEADER_BYTES: Key = Key::new(
    "header_bytes",
    "SIZE",
    "what stands in each file before its first record [default: nothing]",
);

fn of_keys(given: &Given<'_>) -> Result<Format, KeyError> {
    let header_bytes = given.size(&HEADER_BYTES, Bytes(0))?.unwrap_or(Bytes(0));
    let types = Dtype::ALL.map(|it| (it.name(), it.bytes()));
    let record_bytes = given.size(&RECORD_BYTES, Bytes(1))?;
    let dtype = given.one_of(&DTYPE, &types[1..])?;
    let (record_bytes, rest) = match (record_bytes, dtype, given.count(&SEQUENCE_LENGTH)?) {
        (Some(bytes), None, None) => (bytes, Rest::Refuse),
        (Some(_), dtype, _) => {
            let key = if dtype.is_some() { &DTYPE } else { &SEQUENCE_LENGTH };
            return Err(conflict(key.name, KeyConflict::Beside { other: RECORD_BYTES.name }));
        }
        (None, Some(bytes), Some(length)) => (Bytes(bytes * length.get()), Rest::Drop),
        (None, Some(_), None) => {
            return Err(given.needs(&SEQUENCE_LENGTH, "how many tokens a sample has"));
        }
        (None, None, Some(_)) => {
            return Err(given.needs(&DTYPE, "what a token is, for example `uint16`"));
        }
        (None, None, None) => {
            let what = "the size of a record; for tokens, `dtype` and `sequence_length`";
            return Err(given.needs(&RECORD_BYTES, what));
        }
    };
    Ok(Format::Raw(Raw { record_bytes, header_bytes, rest }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raw {
    /// The size of a record, at least 1; for tokens the sequence length times the bytes of one.
    pub record_bytes: Bytes,
    /// Bytes before the first record of each file.
    pub header_bytes: Bytes,
    /// What happens to the end of a file that is no whole record.
    pub rest: Rest,
}

/// How the end of a file that is shorter than a record is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// As an error: a file of records has no remainder.
    Refuse,
    /// Ignored, as usual for tokens.
    Drop,
}

impl Raw {
    /// Whole records from the first byte of each file on.
    #[must_use]
    pub const fn of_records(record_bytes: Bytes) -> Self {
        Self { record_bytes, header_bytes: Bytes(0), rest: Rest::Refuse }
    }
}

impl DatasetFormat for Raw {
    fn settings(&self) -> String {
        let after = match self.header_bytes.0 {
            0 => String::new(),
            bytes => format!(" after {bytes} B"),
        };
        let rest = match self.rest {
            Rest::Refuse => "",
            Rest::Drop => ", without the rest",
        };
        format!("records of {} B{after}{rest}", self.record_bytes.0)
    }

    fn of_size(&self, size: u64) -> Result<Option<Found>, FormatError> {
        let Self { record_bytes: Bytes(record_bytes), header_bytes: Bytes(offset), rest } = *self;
        let bytes = size.checked_sub(offset).ok_or(FormatError::Truncated {
            what: "the header",
            at: 0,
            needed: offset,
            found: size,
        })?;
        if rest == Rest::Refuse && !bytes.is_multiple_of(record_bytes) {
            return Err(FormatError::PartialRecord { size: bytes, record_bytes });
        }
        let count = bytes / record_bytes;
        Ok(Some(Found::Records(Records { offset, record_bytes, count })))
    }
}
