//! Philox4x32-10, the counter-based generator of TensorFlow, which our own `block` order uses too.
//!
//! A block of four words is a pure function of key and counter, so any part of the stream can be
//! drawn without the earlier parts.
//! Source: Salmon et al., SC 2011, doi:10.1145/2063384.2063405; `tsl/lib/random/philox_random.h`.

const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const KEY_STEPS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];

/// The generator, positioned before its next word.
#[derive(Debug, Clone)]
pub(super) struct Philox {
    key: [u32; 2],
    /// The number of the next block, lowest word first.
    counter: [u32; 4],
    block: [u32; 4],
    next: usize,
}

impl Philox {
    /// The words of `key` from block `counter` on.
    pub(super) fn new(key: [u32; 2], counter: [u32; 4]) -> Self {
        Self { key, counter, block: [0; 4], next: 4 }
    }

    /// The stream that TensorFlow's `PhiloxRandom(seed, seed2)` draws.
    pub(super) fn of_seeds(seed: u64, seed2: u64) -> Self {
        Self::of_seeds_at(seed, seed2, 0)
    }

    /// The same stream from block `block` of four words on.
    pub(super) fn of_seeds_at(seed: u64, seed2: u64, block: u64) -> Self {
        let ([block_low, block_high], [low, high]) = (halves(block), halves(seed2));
        Self::new(halves(seed), [block_low, block_high, low, high])
    }

    #[inline]
    pub(super) fn word(&mut self) -> u32 {
        if self.next == 4 {
            self.block = block(self.key, self.counter);
            self.next = 0;
            let number =
                self.counter.iter().rev().fold(0, |sum, word| sum << 32 | u128::from(*word));
            self.counter = words(number.wrapping_add(1));
        }
        let word = self.block[self.next];
        self.next += 1;
        word
    }
}

/// The low 32 bits, then the high 32 bits.
pub(super) fn halves(value: u64) -> [u32; 2] {
    let low = u32::try_from(value & 0xffff_ffff).expect("masked to 32 bits");
    [low, u32::try_from(value >> 32).expect("shifted to 32 bits")]
}

fn words(value: u128) -> [u32; 4] {
    let half = |shift: u32| {
        let part = (value >> shift) & u128::from(u64::MAX);
        halves(u64::try_from(part).expect("masked to 64 bits"))
    };
    let ([a, b], [c, d]) = (half(0), half(64));
    [a, b, c, d]
}

fn block(mut key: [u32; 2], mut counter: [u32; 4]) -> [u32; 4] {
    for round in 0..ROUNDS {
        if round > 0 {
            key[0] = key[0].wrapping_add(KEY_STEPS[0]);
            key[1] = key[1].wrapping_add(KEY_STEPS[1]);
        }
        let [low0, high0] = halves(u64::from(MULTIPLIERS[0]) * u64::from(counter[0]));
        let [low1, high1] = halves(u64::from(MULTIPLIERS[1]) * u64::from(counter[2]));
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0];
    }
    counter
}
