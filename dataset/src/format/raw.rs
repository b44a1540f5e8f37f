//! Records of one size, behind each other in files without structure, such as tokens or CIFAR's binary version.

use tierfeed_core::units::Bytes;

use super::{DatasetFormat, FormatError, Found, Kind, Records};

pub(super) static KIND: Kind =
    Kind::new("raw", |_| true, "files that no dot hides, with at least one record in them");

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
