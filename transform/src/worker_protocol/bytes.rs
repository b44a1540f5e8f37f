//! Numbers and texts in the bytes of a packet.

use std::time::Duration;

use super::{
    AfterTransform, ArenaId, InputForm, MESSAGE_BYTES_MAX, PIPELINE_BYTES_MAX, Part, Request, Setup,
};

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A message, at most as long as a packet may carry it.
pub(super) fn cut(message: &str) -> &str {
    let end =
        (0..=message.len().min(MESSAGE_BYTES_MAX)).rev().find(|at| message.is_char_boundary(*at));
    &message[..end.unwrap_or(0)]
}

pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn new(kind: u8) -> Self {
        Self(vec![kind])
    }

    pub(super) fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// The rest of the packet.
    pub(super) fn text(mut self, value: &str) -> Self {
        self.0.extend(value.as_bytes());
        self
    }
}

/// What is left to read of a packet.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// The rest of the packet, if it is UTF-8 of at most `bytes_max`.
    pub(super) fn text(&mut self, bytes_max: usize) -> Option<String> {
        let bytes = std::mem::take(&mut self.0);
        let text = str::from_utf8(bytes).ok().filter(|text| text.len() <= bytes_max);
        text.map(str::to_owned)
    }

    pub(super) fn setup(&mut self) -> Option<Setup> {
        Some(Setup {
            parent: self.u32()?,
            seed: self.u64()?,
            pixels_max: self.u64()?,
            time_limit: Duration::from_nanos(self.u64()?),
            niceness: self.u8().filter(|it| *it <= 19)?,
            pipeline: self.text(PIPELINE_BYTES_MAX)?,
        })
    }

    pub(super) fn part(&mut self) -> Option<Part> {
        Some(Part { offset: self.u64()?, len: self.u64()? })
    }

    pub(super) fn request(&mut self) -> Option<Request> {
        let (id, arena, slot, input_len) =
            (self.u64()?, ArenaId(self.u32()?), self.part()?, self.u64()?);
        let form = match self.u8()? {
            0 => InputForm::Stored,
            1 => InputForm::Prepared,
            _ => return None,
        };
        let after = match (self.u8()?, self.u64()?, self.u64()?) {
            (0, 0, 0) => AfterTransform::Unused,
            (1, len, input_sum) => AfterTransform::Prepared { len, input_sum },
            _ => return None,
        };
        let (row, sample, epoch) = (self.part()?, self.u64()?, self.u32()?);
        Some(Request { id, arena, slot, input_len, form, after, row, sample, epoch })
    }
}
