//! Reads the footer of a file, and the messages that it lists.

use super::{
    FILE_MAGIC, Layout,
    flat::Table,
    message::{Holds, Message, read_message},
    schema,
};
use crate::format::{
    FormatError, Range, ReadAt,
    piece::{Window, array, end_of, malformed, read, read_array, refuse_overlap},
};

/// The magic, padded to eight bytes.
const START_BYTES: u64 = 8;

/// Length of the footer, and the magic.
const TAIL_BYTES: u64 = 10;

/// The longest footer that is read: ten million batches.
const FOOTER_BYTES_MAX: u32 = 1 << 28;

/// Bytes that are read at once, at the end of the file.
const FOOTER_BYTES_EXPECTED: u32 = 1 << 16;

/// The position of a message according to the footer.
#[derive(Debug, Clone, Copy)]
struct Block {
    at: u64,
    metadata_bytes: u64,
    body_bytes: u64,
}

pub(super) fn layout(object: &dyn ReadAt) -> Result<Layout, FormatError> {
    let (bytes, footer) = footer(object)?;
    let listed = Table::root(&bytes).and_then(|root| {
        // Field 1 is the schema.
        Some((schema::columns(root.table(1)?)?, blocks(root, 2)?, blocks(root, 3)?))
    });
    let Some((columns, dictionaries, batches)) = listed else {
        let right = "File.fbs says what a footer looks like";
        return Err(malformed("the footer", footer, "damaged", right));
    };
    let mut layout = Layout {
        schema: framed_schema(object)?,
        footer: Some(Range::plain(footer, bytes.len() as u64)),
        ..Layout::of(columns)
    };
    for block in dictionaries {
        match block_message(object, block, footer)? {
            Message { range, holds: Holds::Dictionary, .. } => layout.dictionaries.push(range),
            _ => return Err(another_kind(block)),
        }
    }
    for block in batches {
        match block_message(object, block, footer)? {
            Message { range, holds: Holds::Batch { rows }, .. } => {
                layout.batches.push(range);
                layout.rows.push(rows);
            }
            _ => return Err(another_kind(block)),
        }
    }
    let all = layout.schema.iter().chain(&layout.dictionaries).chain(&layout.batches);
    refuse_overlap("a message", all)?;
    Ok(layout)
}

/// The schema at the start, if it is framed as a message.
///
/// Readers of files ignore it, and the one that Polars (2.1) writes has no length.
fn framed_schema(object: &dyn ReadAt) -> Result<Option<Range>, FormatError> {
    match read_message(object, START_BYTES) {
        Ok(Some(Message { range, holds: Holds::Schema { .. }, .. })) => Ok(Some(range)),
        Err(FormatError::Read(error)) => Err(FormatError::Read(error)),
        _ => Ok(None),
    }
}

/// The bytes of the footer, and its offset.
fn footer(object: &dyn ReadAt) -> Result<(Vec<u8>, u64), FormatError> {
    let object = &Window::tail(object, FOOTER_BYTES_EXPECTED)?;
    let what = "the end of the file";
    let end = object.len();
    let tail_at = end.saturating_sub(TAIL_BYTES);
    let tail: [u8; 10] = read_array(object, what, tail_at)?;
    let (len, magic) = tail.split_at(4);
    if magic != FILE_MAGIC {
        let right = "an Arrow file ends with ARROW1; it may be cut off";
        return Err(malformed(what, end - 6, format!("`{}`", magic.escape_ascii()), right));
    }
    let len = u64::from(u32::from_le_bytes(array(len, 0).expect("it has four bytes")));
    match tail_at.checked_sub(len) {
        Some(at) if at >= START_BYTES => {
            Ok((read(object, "the footer", at, len, FOOTER_BYTES_MAX)?, at))
        }
        _ => {
            let found = format!("of {len} bytes");
            Err(malformed("the footer", tail_at, found, "it fits between the two magics"))
        }
    }
}

fn blocks(footer: Table<'_>, number: usize) -> Option<Vec<Block>> {
    let blocks = footer.vector(number, 24)?.elements::<24>();
    let block = |bytes: &[u8; 24]| {
        let at = i64::from_le_bytes(array(bytes, 0)?);
        let metadata_bytes = i32::from_le_bytes(array(bytes, 8)?);
        let body_bytes = i64::from_le_bytes(array(bytes, 16)?);
        Some(Block {
            at: u64::try_from(at).ok()?,
            metadata_bytes: u64::try_from(metadata_bytes).ok()?,
            body_bytes: u64::try_from(body_bytes).ok()?,
        })
    };
    blocks.map(block).collect()
}

/// Reads the message of `block`, and checks that it matches the footer.
fn block_message(object: &dyn ReadAt, block: Block, footer: u64) -> Result<Message, FormatError> {
    let Block { at, metadata_bytes, body_bytes } = block;
    let right = "footer and message say the same in a sound file";
    let bytes = metadata_bytes.saturating_add(body_bytes);
    if at < START_BYTES || end_of(object, "a message", at, bytes)? > footer {
        let found = format!("of {bytes} bytes, and the footer starts at byte {footer}");
        return Err(malformed("a message", at, found, "messages lie between magic and footer"));
    }
    match read_message(object, at)? {
        Some(it) if it.range.len == bytes && it.metadata_bytes == metadata_bytes => Ok(it),
        _ => Err(malformed("a message", at, "not as long as the footer says", right)),
    }
}

fn another_kind(block: Block) -> FormatError {
    let right = "the footer lists dictionaries and record batches apart";
    malformed("a message", block.at, "of another kind than its block", right)
}
