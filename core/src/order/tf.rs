//! The orders of TensorFlow: the buffered shuffle of `tf.data`, and `index_shuffle`.
//!
//! Source: `core/kernels/data/shuffle_dataset_op.cc`, `python/framework/random_seed.py`,
//! `core/kernels/random_index_shuffle.cc`; `core/tests/vectors/` proves equality with TensorFlow
//! 2.21.

use serde::{Deserialize, Serialize};

use super::{index_shuffle::IndexShuffle, philox::Philox, swaps};

/// The global seed that TensorFlow uses if `tf.random.set_seed` was not called.
pub const DEFAULT_GRAPH_SEED: u64 = 87_654_321;

const SEED_MODULUS: u64 = (1 << 31) - 1;

/// The first word of the key that `tf.random.experimental.index_shuffle` puts before its seed.
const INDEX_SHUFFLE_SALT: u32 = 498_247_692;
const INDEX_SHUFFLE_ROUNDS: usize = 4;

/// The parameters of `ds.shuffle(buffer, seed)` beside its seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffered {
    /// `buffer_size` of the shuffle, in samples.
    pub buffer: u32,
    /// The argument of `tf.random.set_seed`, else [`DEFAULT_GRAPH_SEED`].
    pub global_seed: u64,
    /// `reshuffle_each_iteration` of the dataset.
    pub reshuffle: Reshuffle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Reshuffle {
    /// Each iteration of the same object, or of its `repeat`, has its own order.
    EachIteration,
    Never,
}

impl From<bool> for Reshuffle {
    fn from(reshuffle: bool) -> Self {
        if reshuffle { Self::EachIteration } else { Self::Never }
    }
}

impl From<Reshuffle> for bool {
    fn from(reshuffle: Reshuffle) -> Self {
        reshuffle == Reshuffle::EachIteration
    }
}

/// The parameters of an epoch that is read through `tf.random.experimental.index_shuffle(i, [seed, second],
/// n - 1)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    #[serde(rename = "second_seed")]
    pub second: SecondSeed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Option<u32>", into = "Option<u32>")]
pub enum SecondSeed {
    /// The number of the epoch, from 0.
    Epoch,
    Fixed(u32),
}

impl From<Option<u32>> for SecondSeed {
    fn from(seed: Option<u32>) -> Self {
        seed.map_or(Self::Epoch, Self::Fixed)
    }
}

impl From<SecondSeed> for Option<u32> {
    fn from(seed: SecondSeed) -> Self {
        match seed {
            SecondSeed::Epoch => None,
            SecondSeed::Fixed(seed) => Some(seed),
        }
    }
}

impl Buffered {
    /// Shuffles ascending `items` as iteration `epoch` of the dataset object does.
    ///
    /// The buffer is a ring: after each draw, slot `start % B` is refilled with sample `start + B`.
    /// In terms of samples, slot `start % B` is place `start` of the dataset: a draw is a swap with
    /// one of the next `B` places, and the array itself is the buffer.
    pub(super) fn shuffle(&self, items: &mut [u32], seed: u64, epoch: u32) {
        let (seed, seed2) = effective_seeds(self.global_seed, seed);
        let mut words = match self.reshuffle {
            Reshuffle::Never => Philox::of_seeds(seed, seed2),
            Reshuffle::EachIteration => {
                // Two words an iteration, so two iterations a block of four.
                let mut generator = Philox::of_seeds_at(seed, seed2, u64::from(epoch / 2));
                for _ in 0..epoch % 2 * 2 {
                    generator.word();
                }
                let (seed, seed2) = (generator.word(), generator.word());
                Philox::of_seeds(u64::from(seed), u64::from(seed2))
            }
        };
        let len = u32::try_from(items.len()).expect("samples are counted in 32 bits");
        let draw = |start| (start, start + words.word() % self.buffer.min(len - start));
        swaps::apply(items, (0..len).map(draw));
    }
}

/// The seeds of an operation, as `random_seed.get_seed` derives them from the global one and its
/// own.
pub(super) fn effective_seeds(global: u64, own: u64) -> (u64, u64) {
    match (global % SEED_MODULUS, own % SEED_MODULUS) {
        (0, 0) => (0, SEED_MODULUS),
        seeds => seeds,
    }
}

impl Index {
    /// The order of `epoch`: sample `shuffle.of(i)` at place `i`.
    pub(super) fn shuffle(self, samples: u32, seed: u64, epoch: u32) -> IndexShuffle {
        let second = match self.second {
            SecondSeed::Epoch => epoch,
            SecondSeed::Fixed(second) => second,
        };
        let seed = u32::try_from(seed & 0xffff_ffff).expect("masked to 32 bits");
        let key = [INDEX_SHUFFLE_SALT, seed, second];
        IndexShuffle::of_tensorflow(key, u64::from(samples - 1), INDEX_SHUFFLE_ROUNDS)
    }
}
