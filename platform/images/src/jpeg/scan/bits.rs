//! Reads the bits of a scan.
//!
//! The bytes of a scan are copied a part at a time, without the zeros that stand behind each 0xFF, so
//! that eight can be loaded at once. A part ends at a marker.

use super::{BLOCKS_MAX, Unsound};

/// Bytes that are copied at a time.
const PART: usize = 16 << 10;

/// More bytes than an MCU has: each coefficient has up to 16 bits of code and 15 of value. And those
/// that a load reads beyond.
const MCU: usize = BLOCKS_MAX * 64 * 31 / 8 + 16;

/// Bytes that are tested for 0xFF at once.
const STRIDE: usize = 16;

/// The bits of a scan.
pub(super) struct Bits {
    part: Box<[u8; PART + MCU]>,
    /// How many bytes of the part are of the scan. Behind them is what was there before.
    length: usize,
    /// How many bytes of the scan were copied or left out.
    copied: usize,
    /// Whether a marker or the end of the bytes follows the part.
    has_ended: bool,
    window: Window,
}

/// The next bits, and where those behind them are.
#[derive(Clone, Copy, Default)]
pub(super) struct Window {
    /// The next bits, from the highest on. Behind those that count are bits that come there.
    buffer: u64,
    /// How many count.
    count: u32,
    /// Which byte of the part is the first whose bits do not count.
    next: usize,
}

impl Window {
    /// Which bit of the part comes next.
    fn position(self) -> usize {
        self.next * 8 - self.count as usize
    }
}

impl Default for Bits {
    fn default() -> Self {
        let part = vec![0; PART + MCU].into_boxed_slice();
        Self {
            part: part.try_into().unwrap_or_else(|_| unreachable!("its length is the type's")),
            length: 0,
            copied: 0,
            has_ended: false,
            window: Window::default(),
        }
    }
}

impl Bits {
    /// Begins at the first byte of a scan.
    pub(super) fn begin(&mut self) {
        self.length = 0;
        self.copied = 0;
        self.has_ended = false;
        self.window = Window::default();
    }

    /// Copies bytes, so that all of an MCU are there.
    #[inline]
    pub(super) fn fill(&mut self, bytes: &[u8]) {
        if self.length < self.window.next + MCU && !self.has_ended {
            self.fill_part(bytes);
        }
    }

    #[cold]
    fn fill_part(&mut self, bytes: &[u8]) {
        // The bits that count are of up to eight bytes.
        let kept = self.window.next.saturating_sub(8).min(self.length);
        self.part.copy_within(kept..self.length, 0);
        self.length -= kept;
        self.window.next -= kept;
        let rest = bytes.get(self.copied..).unwrap_or_default();
        let (read, written, has_ended) = unstuff(rest, &mut self.part[self.length..PART]);
        self.copied += read;
        self.length += written;
        self.has_ended = has_ended;
    }

    /// Goes on behind the restart marker of a number, which must come next. Bits before it are passed.
    pub(super) fn restart(&mut self, bytes: &[u8], number: u8) -> Result<(), Unsound> {
        self.fill(bytes);
        let marker = [0xFF, 0xD0 + number];
        if bytes.get(self.copied..self.copied + 2) != Some(&marker) {
            return Err(Unsound);
        }
        let copied = self.copied + 2;
        self.begin();
        self.copied = copied;
        Ok(())
    }

    /// For reading an MCU, once it was filled.
    #[inline]
    pub(super) fn cursor(&self) -> Cursor<'_> {
        Cursor { part: &self.part, window: self.window }
    }

    /// Goes on where a cursor ended, if that is not beyond the end.
    #[inline]
    pub(super) fn advance(&mut self, window: Window) -> Result<(), Unsound> {
        self.window = window;
        if window.position() > self.length * 8 { Err(Unsound) } else { Ok(()) }
    }
}

/// Reads bits.
pub(super) struct Cursor<'a> {
    part: &'a [u8; PART + MCU],
    window: Window,
}

impl Cursor<'_> {
    /// Makes 56 bits or more count.
    #[inline]
    pub(super) fn refill(&mut self) {
        // It is at most where an MCU began and as far as one goes, in which case all is loaded.
        let at = self.window.next.min(PART + MCU - 8);
        let loaded = self.part[at..at + 8].try_into().map_or(0, u64::from_be_bytes);
        self.window.buffer |= loaded >> self.window.count;
        self.window.next += (63 - self.window.count as usize) / 8;
        self.window.count = 56 + self.window.count % 8;
    }

    /// The next bits, from the highest on: 64 after a refill, and less by what was passed then.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.window.buffer
    }

    /// Passes bits, of which there must be as many as that.
    #[inline]
    pub(super) fn pass(&mut self, count: u32) {
        self.window.buffer <<= count;
        self.window.count -= count;
    }

    pub(super) fn end(self) -> Window {
        self.window
    }
}

/// Copies bytes without the zeros behind each 0xFF, up to a marker, as many as there is room for, and
/// returns how many were read and written, and whether no more can be.
fn unstuff(bytes: &[u8], room: &mut [u8]) -> (usize, usize, bool) {
    let (mut read, mut written) = (0, 0);
    while let (Some(from), Some(to)) =
        (bytes.get(read..read + STRIDE), room.get_mut(written..written + STRIDE))
    {
        to.copy_from_slice(from);
        if from.iter().fold(0, |found, byte| found | u8::from(*byte == 0xFF)) == 0 {
            read += STRIDE;
            written += STRIDE;
            continue;
        }
        let plain = from.iter().take_while(|it| **it != 0xFF).count();
        read += plain;
        written += plain;
        if bytes.get(read + 1) != Some(&0) {
            return (read, written, true);
        }
        read += 2;
        written += 1;
    }
    while written < room.len() {
        match bytes.get(read..) {
            Some([0xFF, 0, ..]) => read += 2,
            Some([0xFF, ..] | []) | None => return (read, written, true),
            Some([byte, ..]) => {
                room[written] = *byte;
                read += 1;
                written += 1;
                continue;
            }
        }
        room[written] = 0xFF;
        written += 1;
    }
    (read, written, false)
}
