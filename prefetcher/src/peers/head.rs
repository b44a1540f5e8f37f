//! Assembles the heads of messages from the bytes of a connection, and checks their tags.

use std::io;

use crate::peers::{
    access::{TAG_BYTES, Tags},
    channel::Channel,
    wire::{HEADER_BYTES, Header, WireError},
};

#[derive(Debug, Default)]
pub(crate) struct HeadReader {
    bytes: Vec<u8>,
    done: usize,
    header: Option<Header>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum HeadError {
    /// [`io::ErrorKind::WouldBlock`]: the rest is not there yet.
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("a message was inserted, changed, repeated or left out")]
    Tag,
    #[error("a message does not fit those before it")]
    Unexpected,
}

impl HeadReader {
    /// The next head: its header, and the bytes of its entries.
    pub(crate) fn receive(
        &mut self,
        channel: &mut Channel,
        tags: &mut Tags,
    ) -> Result<(Header, Vec<u8>), HeadError> {
        loop {
            let wanted = HEADER_BYTES
                + self.header.as_ref().map_or(0, |header| header.entries_bytes() + TAG_BYTES);
            self.bytes.resize(wanted, 0);
            while self.done < wanted {
                self.done += channel.receive(&mut self.bytes[self.done..])?;
            }
            let Some(header) = self.header.take() else {
                let (bytes, _) = self.bytes.as_chunks::<HEADER_BYTES>();
                self.header = Some(Header::parse(&bytes[0])?);
                continue;
            };
            let mut head = std::mem::take(&mut self.bytes);
            self.done = 0;
            let tag = head.split_off(wanted - TAG_BYTES);
            if !tags.is_next(&head, &tag) {
                return Err(HeadError::Tag);
            }
            return Ok((header, head.split_off(HEADER_BYTES)));
        }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.done > 0
    }
}
