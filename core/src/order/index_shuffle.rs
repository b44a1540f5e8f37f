//! A permutation of `0..=max` that computes any single value without the others, as `index_shuffle`
//! of TensorFlow and Grain define it.
//!
//! A block cipher like Simon with few rounds, on the smallest even number of bits that holds `max`;
//! a result above `max` is enciphered again until it falls into the range. A dataset of `2^k + 1`
//! samples with an even `k` from 16 on needs one bit more than the frameworks use: there their
//! order, and so this one, has sample `of(0)` twice and lacks another.
//!
//! Source: `core/kernels/random_index_shuffle.cc` of TensorFlow 2.21, `grain/_src/cc/index_shuffle.cc`
//! of Grain 0.2.18; Beaulieu et al., "The Simon and Speck families", eprint 2013/404.

use alloc::{vec, vec::Vec};

const BLOCK_BITS_MIN: u32 = 16;
const GRAIN_ROUNDS: usize = 4;

#[derive(Debug, Clone)]
pub(super) struct IndexShuffle {
    /// Their number is even.
    keys: Vec<u64>,
    half_bits: u32,
    max: u64,
}

impl IndexShuffle {
    /// `rounds` is even and at least 4.
    pub(super) fn of_tensorflow(key: [u32; 3], max: u64, rounds: usize) -> Self {
        let half_bits = half_bits(max);
        let mask = (1 << half_bits) - 1;
        let mut keys: Vec<u64> = key.iter().map(|word| u64::from(*word) & mask).collect();
        let rotate = |word: u64, by: u32| (word >> by | word << (half_bits - by)) & mask;
        let mut bits = 0x7369_f885_192c_0ef5 & mask;
        while keys.len() < rounds {
            let (last, third) = (keys[keys.len() - 1], keys[keys.len() - 3]);
            let constant = 0xffff_fffc & mask ^ bits & 1;
            keys.push(constant ^ third ^ rotate(last, 3) ^ rotate(last, 4));
            bits >>= 1;
        }
        Self { keys, half_bits, max }
    }

    pub(super) fn of_grain(samples: u32, seed: u64, epoch: u32) -> Self {
        let seed = u32::try_from(seed & 0xffff_ffff).expect("masked to 32 bits");
        let max = u64::from(samples - 1);
        Self::of_grain_rounds(seed.wrapping_add(epoch), max, GRAIN_ROUNDS)
    }

    pub(super) fn of_grain_rounds(seed: u32, max: u64, rounds: usize) -> Self {
        let half_bits = half_bits(max);
        let mask = (1 << half_bits) - 1;
        let keys = seed_sequence(seed, rounds).into_iter().map(|word| u64::from(word) & mask);
        Self { keys: keys.collect(), half_bits, max }
    }

    /// `index` is at most `max`.
    pub(super) fn of(&self, index: u64) -> u64 {
        if self.max == 0 {
            return 0;
        }
        let mut value = self.encipher(index);
        while value > self.max {
            value = self.encipher(value);
        }
        value
    }

    fn encipher(&self, value: u64) -> u64 {
        let bits = self.half_bits;
        let mask = (1 << bits) - 1;
        let mixed = |word: u64| {
            let rotate = |by: u32| word << by | word >> (bits - by);
            (rotate(1) & rotate(8) ^ rotate(2)) & mask
        };
        let (mut left, mut right) = (value >> bits & mask, value & mask);
        for pair in self.keys.chunks_exact(2) {
            left ^= mixed(right) ^ pair[0];
            right ^= mixed(left) ^ pair[1];
        }
        left << bits | right
    }
}

/// Half of the bits that the frameworks give a block: `ceil(log2(max))`, rounded up to an even
/// number.
fn half_bits(max: u64) -> u32 {
    let bits = u64::BITS - max.saturating_sub(1).leading_zeros();
    bits.max(BLOCK_BITS_MIN).div_ceil(2)
}

/// `std::seed_seq{seed}.generate` for `len` words, from 4 to 8: the lag of the algorithm depends on
/// the count.
///
/// # Source
///
/// ISO/IEC 14882, `[rand.util.seedseq]`.
fn seed_sequence(seed: u32, len: usize) -> Vec<u32> {
    let lag = (len - 1) / 2;
    let (near, far) = ((len - lag) / 2, (len - lag) / 2 + lag);
    let fold = |word: u32| word ^ word >> 27;
    let mut words = vec![0x8b8b_8b8b_u32; len];
    for k in 0..len {
        let (here, before) = (words[k], words[(k + len - 1) % len]);
        let mix = fold(here ^ words[(k + near) % len] ^ before).wrapping_mul(1_664_525);
        let place = u32::try_from(k).expect("few words");
        let entropy = match k {
            0 => 1,
            1 => place.wrapping_add(seed),
            _ => place,
        };
        let out = mix.wrapping_add(entropy);
        words[(k + near) % len] = words[(k + near) % len].wrapping_add(mix);
        words[(k + far) % len] = words[(k + far) % len].wrapping_add(out);
        words[k] = out;
    }
    for k in 0..len {
        let (here, before) = (words[k], words[(k + len - 1) % len]);
        let sum = here.wrapping_add(words[(k + near) % len]).wrapping_add(before);
        let mix = fold(sum).wrapping_mul(1_566_083_941);
        let out = mix.wrapping_sub(u32::try_from(k).expect("few words"));
        words[(k + near) % len] ^= mix;
        words[(k + far) % len] ^= out;
        words[k] = out;
    }
    words
}
