//! The xxh3-64 of bytes in shared memory, computed while they are copied.
//!
//! A copy is bound by memory, and a sum by the processor: in one pass the sum costs next to
//! nothing, and it is the sum of exactly the bytes that were stored, even if another process writes
//! to the origin meanwhile. A slice would require that no process does, so this works on addresses,
//! and a library for slices cannot be used.
//!
//! Invariants, checked by `mod tests` against another implementation:
//!
//! 1. The sum is that of XXH3 with 64 bits and without seed, however the bytes were split into
//!    pieces.
//! 2. Each byte of the origin is read once, by an access that the compiler may not repeat: the
//!    summed bytes are the stored bytes.
//!
//! Source: the specification of XXH3 in `doc/xxhash_spec.md` of xxHash.

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "as below, with the vectors of the processor")]
mod avx2;
#[expect(unsafe_code, reason = "bytes that another process may write are no slice")]
mod stripes;

use xxhash_rust::xxh3::xxh3_64;

use self::stripes::Accumulators;
pub(crate) use self::stripes::feed;

/// Up to this length XXH3 is another function, which is left to the library: a faster one gains
/// nothing.
const SHORT_MAX: usize = 240;

/// Bytes that are added to the lanes at once.
const STRIPE: usize = 64;

/// Stripes between two scrambles.
const STRIPES_PER_BLOCK: usize = (SECRET.len() - STRIPE) / 8;

const PRIME32_1: u64 = 0x9E37_79B1;
const PRIME64_1: u64 = 0x9E37_79B1_85EB_CA87;

/// The kind of store instruction for copied bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stores {
    /// Stores through the caches.
    Cached,
    /// Stores past the caches, if the processor can: no line is read before it is written.
    NonTemporal,
}

/// The state of a running checksum.
#[derive(Debug, Clone)]
pub struct Checksum {
    len: u64,
    /// All bytes of a short input.
    short: [u8; SHORT_MAX],
    done: u64,
    lanes: Accumulators,
    /// Stripes of the current block that were added to the lanes.
    stripes: usize,
    /// The last stripe that was added to the lanes.
    last: [u8; STRIPE],
    /// The bytes after it: at least one once there was any, because the end is treated differently.
    tail: [u8; STRIPE],
    tail_len: usize,
}

impl Checksum {
    /// A checksum over `len` bytes, none of which was added yet.
    #[must_use]
    pub fn of_len(len: u64) -> Self {
        Self {
            len,
            short: [0; SHORT_MAX],
            done: 0,
            lanes: Accumulators::new(),
            stripes: 0,
            last: [0; STRIPE],
            tail: [0; STRIPE],
            tail_len: 0,
        }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        stripes::feed_slice(self, bytes);
    }

    /// The sum of the added bytes. It is meaningless if their number differs from the announced
    /// length.
    #[must_use]
    pub fn finish(&self) -> u64 {
        if let Some(short) = self.short_len() {
            return xxh3_64(&self.short[..short]);
        }
        let mut end = [0; STRIPE];
        let (from_last, from_tail) = end.split_at_mut(STRIPE - self.tail_len);
        from_last.copy_from_slice(&self.last[self.tail_len..]);
        from_tail.copy_from_slice(&self.tail[..self.tail_len]);
        let mut lanes = self.lanes.clone();
        lanes.accumulate(&end, &SECRET[SECRET.len() - STRIPE - 7..]);
        lanes.merge(&SECRET[11..], self.len.wrapping_mul(PRIME64_1))
    }

    /// The length, if it is that of a short input.
    fn short_len(&self) -> Option<usize> {
        usize::try_from(self.len).ok().filter(|len| *len <= SHORT_MAX)
    }

    /// Adds the stripe in `tail` to the lanes, because more bytes follow.
    fn take_tail(&mut self) {
        let tail = self.tail;
        self.take_stripe(&tail);
        self.tail_len = 0;
    }

    fn take_stripe(&mut self, stripe: &[u8; STRIPE]) {
        self.lanes.accumulate(stripe, &SECRET[self.stripes * 8..]);
        self.last = *stripe;
        self.stripes += 1;
        if self.stripes == STRIPES_PER_BLOCK {
            self.lanes.scramble();
            self.stripes = 0;
        }
    }
}

/// The default secret of XXH3.
#[rustfmt::skip]
static SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
];

#[cfg(test)]
mod tests;
