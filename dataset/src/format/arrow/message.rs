//! Reads the metadata of one message.

use super::{flat::Table, schema};
use crate::format::{
    FormatError, Range, ReadAt,
    piece::{end_of, malformed, read, u32_at},
};

const WHAT: &str = "an Arrow message";

/// Precedes the length of a message since Arrow 0.15.
const CONTINUATION: u32 = 0xFFFF_FFFF;

/// Bytes that are read at once at the start of a message: most are shorter.
const EXPECTED_BYTES: u64 = 1024;

/// Longest metadata that is read: some bytes for each buffer of each column.
const METADATA_BYTES_MAX: u32 = 1 << 28;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    /// The whole message as framed: prefix, metadata, body.
    pub(super) range: Range,
    /// Bytes of prefix and metadata.
    pub(super) metadata_bytes: u64,
    pub(super) holds: Holds,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holds {
    Schema {
        /// Names and types.
        columns: Vec<(String, String)>,
    },
    Dictionary,
    Batch {
        rows: u64,
    },
}

/// Reads the message at `at`; `None` if the stream has its end mark there.
pub(super) fn read_message(object: &dyn ReadAt, at: u64) -> Result<Option<Message>, FormatError> {
    let left = object.len().saturating_sub(at);
    let mut bytes = read(object, WHAT, at, left.min(EXPECTED_BYTES), u32::MAX)?;
    let word = |place| u32_at(&bytes, place).ok_or_else(|| cut_off(object, at, place as u64 + 4));
    // Before Arrow 0.15 a message started with its length.
    let (len, prefix) = match word(0)? {
        CONTINUATION => (word(4)?, 8),
        len => (len, 4),
    };
    if len == 0 {
        return Ok(None);
    }
    let metadata_bytes = prefix + u64::from(len);
    if metadata_bytes > bytes.len() as u64 {
        bytes = read(object, WHAT, at, metadata_bytes, METADATA_BYTES_MAX)?;
    }
    let metadata = usize::try_from(prefix).ok().zip(usize::try_from(metadata_bytes).ok());
    let metadata = metadata.and_then(|(start, end)| bytes.get(start..end));
    let parsed = metadata.and_then(parse);
    let (holds, body_bytes) = parsed.ok_or_else(|| {
        let right = "Message.fbs says what a schema, dictionary or record batch looks like";
        malformed(WHAT, at, "damaged, or another kind of message", right)
    })?;
    let bytes = metadata_bytes.saturating_add(body_bytes);
    end_of(object, WHAT, at, bytes)?;
    Ok(Some(Message { range: Range::plain(at, bytes), metadata_bytes, holds }))
}

fn cut_off(object: &dyn ReadAt, at: u64, len: u64) -> FormatError {
    FormatError::Truncated { what: WHAT, at, needed: at.saturating_add(len), found: object.len() }
}

/// The content of the message, and the length of its body.
fn parse(metadata: &[u8]) -> Option<(Holds, u64)> {
    let message = Table::root(metadata)?;
    let body_bytes = unsigned(message.scalar(3, [0; 8])?)?;
    let header = message.table(2)?;
    let holds = match message.scalar(1, [0])? {
        [1] => Holds::Schema { columns: schema::columns(header)? },
        [2] => {
            check_buffers(header.table(1)?, body_bytes)?;
            Holds::Dictionary
        }
        [3] => {
            check_buffers(header, body_bytes)?;
            Holds::Batch { rows: unsigned(header.scalar(0, [0; 8])?)? }
        }
        _ => return None,
    };
    Some((holds, body_bytes))
}

/// Checks that the buffers of a record batch lie in its body.
fn check_buffers(batch: Table<'_>, body_bytes: u64) -> Option<()> {
    let mut buffers = batch.vector(2, 16)?.elements::<16>();
    buffers.try_for_each(|buffer| {
        let (start, len) = buffer.split_at(8);
        let end = unsigned(start.try_into().ok()?)?.checked_add(unsigned(len.try_into().ok()?)?)?;
        (end <= body_bytes).then_some(())
    })
}

fn unsigned(bytes: [u8; 8]) -> Option<u64> {
    u64::try_from(i64::from_le_bytes(bytes)).ok()
}
