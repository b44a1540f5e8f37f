//! The 32-bit Mersenne Twister, as PyTorch's CPU generator and NumPy's `RandomState` run it.
//!
//! Here because the order must equal theirs bit for bit; not a source of randomness for anything else.
//! Source: Matsumoto and Nishimura, ACM TOMACS 8(1), 1998, doi:10.1145/272991.272995.

const STATE_WORDS: usize = 624;
const SHIFT_WORDS: usize = 397;

/// The generator, positioned before its next word.
#[derive(Debug, Clone)]
pub(super) struct Mt19937 {
    state: [u32; STATE_WORDS],
    next: usize,
}

impl Mt19937 {
    /// Starts from the low 32 bits of `seed`, which is all that PyTorch uses of it.
    pub(super) fn new(seed: u64) -> Self {
        let mut state = [0; STATE_WORDS];
        state[0] = u32::try_from(seed & 0xffff_ffff).expect("masked to 32 bits");
        for i in 1..STATE_WORDS {
            let previous = state[i - 1];
            let index = u32::try_from(i).expect("624 fits");
            state[i] =
                1_812_433_253_u32.wrapping_mul(previous ^ (previous >> 30)).wrapping_add(index);
        }
        Self { state, next: STATE_WORDS }
    }

    /// The next 32 random bits.
    pub(super) fn word(&mut self) -> u32 {
        if self.next == STATE_WORDS {
            self.twist();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    fn twist(&mut self) {
        for i in 0..STATE_WORDS {
            let upper = self.state[i] & 0x8000_0000;
            let lower = self.state[(i + 1) % STATE_WORDS] & 0x7fff_ffff;
            let joined = upper | lower;
            let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + SHIFT_WORDS) % STATE_WORDS] ^ (joined >> 1) ^ odd;
        }
        self.next = 0;
    }
}
