//! Reads the bits of a scan.
//!
//! The bytes of a scan are copied a part at a time, without the zeros that stand behind each 0xFF, so
//! that eight can be loaded at once. A part ends at a marker.

use super::{BLOCKS_MAX, Unsound};

/// Bytes that are copied at a time.
const PART: usize = 16 << 10;

/// More bytes than an MCU has, of which each coefficient takes up to 16 bits of code and 15 of value,
/// with the bytes behind it that the last loads read.
const MCU: usize = BLOCKS_MAX * 64 * 31 / 8 + 16;

/// Bytes that are tested for 0xFF at once.
const STRIDE: usize = 16;

/// The bits of a scan.
pub(super) struct Bits {
    part: Box<[u8; PART + MCU]>,
    /// How many bytes of the part are valid. What is behind them is old.
    length: usize,
    /// How many bytes of the scan were read, those included that were not copied.
    copied: usize,
    /// Whether a marker or the end of the bytes follows the part.
    has_ended: bool,
    window: Window,
}

/// The bits that are loaded, and where in the part the next ones are.
#[derive(Clone, Copy, Default)]
pub(super) struct Window {
    /// The next bit is the highest. Behind the valid bits are zeros, or the bits that follow, which the next
    /// load sets once more.
    buffer: u64,
    /// How many bits are valid.
    count: u32,
    /// The first byte of the part that has no valid bits in the buffer.
    next: usize,
}

impl Window {
    /// The number of the next bit, from the beginning of the part.
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

    /// How many bytes of the scan were read.
    pub(super) fn read(&self) -> usize {
        self.copied
    }

    /// Copies bytes, unless all of the next MCU are there.
    #[inline]
    pub(super) fn fill(&mut self, bytes: &[u8]) {
        if self.length < self.window.next + MCU && !self.has_ended {
            self.fill_part(bytes);
        }
    }

    #[cold]
    fn fill_part(&mut self, bytes: &[u8]) {
        // The valid bits in the buffer are of up to eight bytes.
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

    /// Goes on behind the restart marker of a number, which must come next. Bits before it are skipped.
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

    /// Reads from the next bit on: one MCU for each [`Self::fill`].
    #[inline]
    pub(super) fn cursor(&self) -> Cursor<'_> {
        Cursor { part: &self.part, window: self.window }
    }

    /// Goes on where a cursor ended, which must not be beyond the end of the data.
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
    /// Loads bits, so that 56 or more are valid.
    #[inline]
    pub(super) fn refill(&mut self) {
        // An MCU begins in the part, and `MCU` bytes are more than one reads: the limit changes nothing.
        let at = self.window.next.min(PART + MCU - 8);
        let loaded = self.part[at..at + 8].try_into().map_or(0, u64::from_be_bytes);
        self.window.buffer |= loaded >> self.window.count;
        self.window.next += (63 - self.window.count as usize) / 8;
        self.window.count = 56 + self.window.count % 8;
    }

    /// The next bits, the first in the highest place. After a refill 64 are right, less what was skipped
    /// since.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.window.buffer
    }

    /// Skips bits, of which as many must be valid.
    #[inline]
    pub(super) fn skip(&mut self, count: u32) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Data of a scan, and what it is in a file.
    fn data(length: usize) -> (Vec<u8>, Vec<u8>) {
        let byte = |number: usize| {
            let mixed = number.wrapping_mul(0x9E37_79B1);
            if mixed % 37 < 3 { 0xFF } else { mixed.to_le_bytes()[3] }
        };
        let plain: Vec<u8> = (0..length).map(byte).collect();
        let stuffed =
            plain.iter().flat_map(|it| if *it == 0xFF { vec![0xFF, 0] } else { vec![*it] });
        (plain.clone(), stuffed.collect())
    }

    fn bits(bytes: &[u8], at: usize, count: usize) -> u64 {
        let bit = |at: usize| u64::from(bytes[at / 8] >> (7 - at % 8) & 1);
        (at..at + count).fold(0, |bits, at| bits << 1 | bit(at))
    }

    #[test]
    fn bits_across_parts_are_those_of_the_data() {
        let (plain, stuffed) = data(5 * PART);
        let mut reader = Bits::default();
        let (mut at, mut mcus) = (0_usize, 0);
        while at / 8 + MCU < plain.len() {
            reader.fill(&stuffed);
            let mut cursor = reader.cursor();
            for count in (1..32).cycle().take(mcus % 300) {
                cursor.refill();
                let expected = bits(&plain, at, count as usize);
                assert_eq!(cursor.next() >> (64 - count), expected, "bit {at}");
                cursor.skip(count);
                at += count as usize;
            }
            let window = cursor.end();
            reader.advance(window).expect("there is more");
            mcus += 1;
        }
        assert!(mcus > 100, "{mcus}");
    }

    #[test]
    fn bits_beyond_the_end_are_unsound() {
        for length in [3, 40, PART] {
            let (_, mut stuffed) = data(length);
            stuffed.extend([0xFF, 0xD9, 1, 2, 3, 4, 5, 6, 7, 8]);
            let mut reader = Bits::default();
            for bit in 0..=length * 8 {
                reader.fill(&stuffed);
                let mut cursor = reader.cursor();
                cursor.refill();
                cursor.skip(1);
                let window = cursor.end();
                let expected = if bit < length * 8 { Ok(()) } else { Err(Unsound) };
                assert_eq!(reader.advance(window), expected, "bit {bit} of {length} bytes");
            }
        }
    }

    #[test]
    fn only_the_restart_marker_that_is_due_is_passed() {
        let bytes = [0xAA, 0xFF, 0xD0, 0x55, 0x33, 0xFF, 0xD1, 0x0F, 0xFF, 0xD9];
        let mut reader = Bits::default();
        for (number, expected) in [(0, 0x55), (1, 0x0F)] {
            assert_eq!(reader.restart(&bytes, number + 1), Err(Unsound));
            reader.restart(&bytes, number).expect("it is due");
            reader.fill(&bytes);
            let mut cursor = reader.cursor();
            cursor.refill();
            assert_eq!(cursor.next() >> 56, expected);
        }
        assert_eq!(reader.restart(&bytes, 2), Err(Unsound));
    }
}
