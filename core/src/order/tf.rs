//! The orders of TensorFlow: the buffered shuffle of `tf.data`, and `index_shuffle`.
//!
//! Source: `core/kernels/data/shuffle_dataset_op.cc`, `python/framework/random_seed.py`,
//! `core/kernels/random_index_shuffle.cc`; `core/tests/vectors/` proves equality with TensorFlow
//! 2.21.

use super::{index_shuffle::IndexShuffle, philox::Philox, swaps};

/// The global seed that TensorFlow uses if `tf.random.set_seed` was not called.
pub const DEFAULT_GRAPH_SEED: u64 = 87_654_321;

/// The modulus that reduces seeds.
const SEED_MODULUS: u64 = (1 << 31) - 1;

/// The first word of the key that `tf.random.experimental.index_shuffle` puts before its seed.
const INDEX_SHUFFLE_SALT: u32 = 498_247_692;
const INDEX_SHUFFLE_ROUNDS: usize = 4;

/// What fixes `ds.shuffle(buffer, seed)` beside its seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Buffered {
    /// `buffer_size` of the shuffle, in samples.
    pub buffer: u32,
    /// The argument of `tf.random.set_seed`, else [`DEFAULT_GRAPH_SEED`].
    pub global_seed: u64,
    /// `reshuffle_each_iteration` of the dataset.
    pub reshuffle: Reshuffle,
}

/// Whether the epochs of a dataset object differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reshuffle {
    /// Each iteration of the same object, or of its `repeat`, has its own order.
    EachIteration,
    /// All iterations have the same order.
    Never,
}

/// What fixes an epoch read through `tf.random.experimental.index_shuffle(i, [seed, second], n - 1)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Index {
    /// The second number of the seed.
    pub second: SecondSeed,
}

/// The second number of a seed of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SecondSeed {
    /// The number of the epoch, from 0.
    Epoch,
    /// The same in all epochs.
    Fixed(u32),
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
