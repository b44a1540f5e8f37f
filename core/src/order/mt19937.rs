//! The 32-bit Mersenne Twister, as PyTorch's CPU generator and NumPy's `RandomState` run it.
//!
//! Reimplemented because the order must equal theirs bit for bit; not a source of randomness for
//! anything else.
//! Source: Matsumoto and Nishimura, ACM TOMACS 8(1), 1998, doi:10.1145/272991.272995.

const STATE_WORDS: usize = 624;
const SHIFT_WORDS: usize = 397;
/// The index from which the recurrence reads words that this round has already written.
const WRAP: usize = STATE_WORDS - SHIFT_WORDS;

/// The generator, positioned before its next word.
#[derive(Debug, Clone)]
pub struct Mt19937 {
    state: [u32; STATE_WORDS],
    /// The words of the current state, tempered all at once: the loop has no branch and vectorises.
    words: [u32; STATE_WORDS],
    next: usize,
}

impl Mt19937 {
    /// Starts from the low 32 bits of `seed`, which is all that PyTorch uses of it.
    pub fn new(seed: u64) -> Self {
        let mut state = [0; STATE_WORDS];
        state[0] = u32::try_from(seed & 0xffff_ffff).expect("masked to 32 bits");
        for i in 1..STATE_WORDS {
            let previous = state[i - 1];
            let index = u32::try_from(i).expect("624 fits");
            state[i] =
                1_812_433_253_u32.wrapping_mul(previous ^ (previous >> 30)).wrapping_add(index);
        }
        Self { state, words: [0; STATE_WORDS], next: STATE_WORDS }
    }

    #[inline]
    pub fn word(&mut self) -> u32 {
        if self.next == STATE_WORDS {
            self.refill();
        }
        let word = self.words[self.next];
        self.next += 1;
        word
    }

    /// The next 64 random bits: the first word is the high half, as in PyTorch.
    #[inline]
    pub(super) fn double_word(&mut self) -> u64 {
        let high = self.word();
        u64::from(high) << 32 | u64::from(self.word())
    }

    /// Skips `words` words, at a fraction of the cost of drawing them.
    pub(super) fn skip(&mut self, words: u64) {
        let left = (STATE_WORDS - self.next) as u64;
        let Some(beyond) = words.checked_sub(left) else {
            self.next += usize::try_from(words).expect("less than a state");
            return;
        };
        for _ in 0..beyond / STATE_WORDS as u64 {
            self.twist();
        }
        self.refill();
        self.next = usize::try_from(beyond % STATE_WORDS as u64).expect("less than a state");
    }

    fn refill(&mut self) {
        self.twist();
        for (word, state) in self.words.iter_mut().zip(&self.state) {
            *word = temper(*state);
        }
        self.next = 0;
    }

    fn twist(&mut self) {
        let state = &mut self.state;
        for i in 0..WRAP {
            state[i] = state[i + SHIFT_WORDS] ^ mixed(state[i], state[i + 1]);
        }
        for i in WRAP..STATE_WORDS - 1 {
            state[i] = state[i - WRAP] ^ mixed(state[i], state[i + 1]);
        }
        let last = STATE_WORDS - 1;
        state[last] = state[SHIFT_WORDS - 1] ^ mixed(state[last], state[0]);
    }
}

fn mixed(upper: u32, lower: u32) -> u32 {
    let joined = upper & 0x8000_0000 | lower & 0x7fff_ffff;
    (joined >> 1) ^ (0x9908_b0df & (joined & 1).wrapping_neg())
}

fn temper(mut word: u32) -> u32 {
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c_5680;
    word ^= (word << 15) & 0xefc6_0000;
    word ^ (word >> 18)
}
