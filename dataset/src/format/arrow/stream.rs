//! Reads a stream from message to message.

use super::{
    Layout,
    message::{Holds, Message, read_message},
};
use crate::format::{FormatError, ReadAt, piece::malformed};

pub(super) fn layout(object: &dyn ReadAt) -> Result<Layout, FormatError> {
    let right = "an Arrow stream starts with a schema";
    let first = read_message(object, 0)?;
    let Some(Message { range: schema, holds: Holds::Schema { columns }, .. }) = first else {
        return Err(malformed("the first message", 0, "no schema", right));
    };
    let mut layout = Layout { schema: Some(schema), ..Layout::of(columns) };
    let mut at = schema.len;
    // A writer that was not closed omits the end mark; readers then stop at the end of the file.
    while at < object.len() {
        let Some(message) = read_message(object, at)? else {
            refuse_more(object, at)?;
            break;
        };
        at += message.range.len;
        layout.add(&message)?;
    }
    Ok(layout)
}

impl Layout {
    fn add(&mut self, message: &Message) -> Result<(), FormatError> {
        let at = message.range.offset;
        match message.holds {
            Holds::Batch { rows } => {
                self.batches.push(message.range);
                self.rows.push(rows);
            }
            Holds::Dictionary if self.batches.is_empty() => self.dictionaries.push(message.range),
            Holds::Dictionary => {
                return Err(FormatError::Unsupported {
                    what: format!("a dictionary at byte {at}, between record batches"),
                    instead: "write an Arrow file, or columns that are not dictionary-encoded",
                });
            }
            Holds::Schema { .. } => {
                return Err(malformed("a message", at, "a second schema", "a stream has one"));
            }
        }
        Ok(())
    }
}

/// Refuses bytes behind the end mark at `at`: readers never see them.
fn refuse_more(object: &dyn ReadAt, at: u64) -> Result<(), FormatError> {
    let left = object.len() - at;
    if left <= 8 {
        return Ok(());
    }
    let found = format!("followed by {} bytes", left - 8);
    Err(malformed("the end of the stream", at, found, "keep one stream in each file"))
}
