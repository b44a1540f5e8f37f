//! NumPy's `default_rng`: a `SeedSequence` that seeds a PCG64, and what `Generator` draws from it.
//!
//! Source: `numpy/random/bit_generator.pyx`, `src/pcg64/pcg64.h`,
//! `src/distributions/distributions.c`; O'Neill, HMC-CS-2014-0905. `core/tests/vectors/` proves
//! equality with NumPy 2.4.

use super::{philox::halves, swaps};

const POOL_WORDS: usize = 4;
const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;

/// The generator, positioned before its next draw.
#[derive(Debug, Clone)]
pub(super) struct Pcg64 {
    state: u128,
    increment: u128,
    /// The high half of a 64-bit word whose low half was already drawn.
    spare: Option<u32>,
}

impl Pcg64 {
    /// `numpy.random.default_rng(seed)`.
    pub(super) fn new(seed: u128) -> Self {
        let [a, b, c, d] = seed_words(seed);
        let join = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        let mut rng = Self { state: 0, increment: join(c, d) << 1 | 1, spare: None };
        rng.step();
        rng.state = rng.state.wrapping_add(join(a, b));
        rng.step();
        rng
    }

    /// `Generator.shuffle` of an array or a list.
    ///
    /// The draws do not depend on `items`, and other types can be swapped alike: see
    /// [`Self::places`].
    pub(super) fn shuffle(&mut self, items: &mut [u32]) {
        let len = u32::try_from(items.len()).expect("samples are counted in 32 bits");
        swaps::apply(items, self.places(len));
    }

    /// The places that a shuffle of `len` things swaps, one pair after the other.
    pub(super) fn places(&mut self, len: u32) -> impl Iterator<Item = (u32, u32)> {
        (1..len).rev().map(|last| (last, self.up_to(last)))
    }

    /// `Generator.integers(low, high)`, which excludes `high`. Lemire's method on 32 bits.
    ///
    /// # Source
    ///
    /// `buffered_bounded_lemire_uint32` in `distributions.c`.
    pub(super) fn integer(&mut self, low: u32, high: u32) -> u32 {
        let span = high - low;
        if span == 1 {
            return low;
        }
        let scaled = |word: u32| halves(u64::from(word) * u64::from(span));
        let [mut rest, mut value] = scaled(self.word());
        if rest < span {
            let threshold = span.wrapping_neg() % span;
            while rest < threshold {
                [rest, value] = scaled(self.word());
            }
        }
        low + value
    }

    /// `Generator.uniform(low, high)`.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are all that a double holds")]
    pub(super) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        let unit = (self.double_word() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0);
        low + (high - low) * unit
    }

    /// A number from 0 to `max`: draws masked words until one is at most `max`.
    fn up_to(&mut self, max: u32) -> u32 {
        let mask = u32::MAX >> max.leading_zeros();
        loop {
            let value = self.word() & mask;
            if value <= max {
                return value;
            }
        }
    }

    fn word(&mut self) -> u32 {
        if let Some(word) = self.spare.take() {
            return word;
        }
        let [low, high] = halves(self.double_word());
        self.spare = Some(high);
        low
    }

    fn double_word(&mut self) -> u64 {
        self.step();
        let half = |shift: u32| {
            let part = (self.state >> shift) & u128::from(u64::MAX);
            u64::try_from(part).expect("masked to 64 bits")
        };
        let turn = u32::try_from(self.state >> 122).expect("six bits");
        (half(64) ^ half(0)).rotate_right(turn)
    }

    fn step(&mut self) {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
    }
}

/// `SeedSequence(seed).generate_state(4, uint64)`.
fn seed_words(seed: u128) -> [u64; 4] {
    let entropy = [0, 32, 64, 96].map(|shift| {
        let part = (seed >> shift) & u128::from(u32::MAX);
        u32::try_from(part).expect("masked to 32 bits")
    });
    // A shorter seed is padded with zeros, so four words serve for every 128-bit seed.
    let mut constant = 0x43b0_d7e5;
    let mut hash = |word: u32| {
        let word = word ^ constant;
        constant = constant.wrapping_mul(0x931e_8875);
        folded(word.wrapping_mul(constant))
    };
    let mut pool = entropy.map(&mut hash);
    for from in 0..POOL_WORDS {
        for to in (0..POOL_WORDS).filter(|to| *to != from) {
            pool[to] = mixed(pool[to], hash(pool[from]));
        }
    }
    let mut constant = 0x8b51_f9dd_u32;
    let mut draw = |place: usize| {
        let word = pool[place % POOL_WORDS] ^ constant;
        constant = constant.wrapping_mul(0x58f3_8ded);
        folded(word.wrapping_mul(constant))
    };
    [0, 2, 4, 6].map(|place| {
        let low = draw(place);
        u64::from(draw(place + 1)) << 32 | u64::from(low)
    })
}

fn mixed(one: u32, other: u32) -> u32 {
    folded(one.wrapping_mul(0xca01_f9dd).wrapping_sub(other.wrapping_mul(0x4973_f715)))
}

fn folded(word: u32) -> u32 {
    word ^ word >> 16
}
