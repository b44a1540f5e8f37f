//! FNV-1a with 64 bits over little-endian words, so that machines of any width and byte order agree.

use core::hash::Hasher;

#[derive(Debug)]
pub(crate) struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv1a {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u16(&mut self, value: u16) {
        self.word(value.into(), 2);
    }

    fn write_u32(&mut self, value: u32) {
        self.word(value.into(), 4);
    }

    fn write_u64(&mut self, value: u64) {
        self.word(value, 8);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value.cast_unsigned() as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    }
}

const PRIME: u64 = 0x0100_0000_01b3;

/// The powers of the prime, from 0 to 8.
const POWERS: [u64; 9] = {
    let mut powers = [1_u64; 9];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1].wrapping_mul(PRIME);
        at += 1;
    }
    powers
};

impl Fnv1a {
    /// Adds the bytes of a word, the lowest first. Most words are small, and a byte that is zero only
    /// multiplies, so all high zero bytes are added at once.
    fn word(&mut self, value: u64, bytes: usize) {
        let mut left = value;
        let mut done = 0;
        while left > 0 {
            self.0 = (self.0 ^ left & 0xff).wrapping_mul(PRIME);
            left >>= 8;
            done += 1;
        }
        self.0 = self.0.wrapping_mul(POWERS[bytes - done]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_word_counts_as_its_bytes(words in prop::collection::vec((any::<u64>(), 0_u32..64), 1..9)) {
            let (mut by_word, mut by_byte) = (Fnv1a::default(), Fnv1a::default());
            for (word, shift) in words {
                let word = word >> shift;
                by_word.write_u64(word);
                by_byte.write(&word.to_le_bytes());
                let half = u32::try_from(word & 0xffff_ffff).unwrap();
                let quarter = u16::try_from(word & 0xffff).unwrap();
                by_word.write_u32(half);
                by_byte.write(&half.to_le_bytes());
                by_word.write_u16(quarter);
                by_byte.write(&quarter.to_le_bytes());
            }
            prop_assert_eq!(by_word.finish(), by_byte.finish());
        }
    }
}
