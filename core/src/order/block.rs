//! `block`, tierfeed's own order for cold stores that seek slowly: shards are read whole, one after
//! another in a random order, and samples are mixed within windows of shards.
//!
//! The definition (`docs/orders.md` gives it in words):
//!
//! 1. Samples `k * shard .. (k + 1) * shard` are shard `k`; the last may be shorter.
//! 2. The shards are shuffled, and their samples laid out in a row, ascending in each shard.
//! 3. Positions `w * window .. (w + 1) * window` of the row are window `w`; each is shuffled by itself.
//!
//! Both shuffles go from the first place to the last and swap place `i` with `i + (word * left >>
//! 32)`, where `left` counts the places from `i` to the end. The words are Philox4x32-10 with the
//! seed as key, low half first, from counter `[0, w, epoch, kind]` on; `kind` is 0 and `w` is 0 for
//! the shards, `kind` is 1 for window `w`. So a window needs the order of the shards, but no
//! earlier window.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{
    philox::{Philox, halves},
    swaps,
};

/// The parameters of a `block` order beside its seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// Samples that lie together in the cold store.
    #[serde(rename = "shard_samples")]
    pub shard: u32,
    /// Samples that are mixed with one another.
    pub window: u32,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Shards = 0,
    Window = 1,
}

impl Block {
    /// With room for `spare` more samples.
    pub(super) fn order(self, samples: u32, seed: u64, epoch: u32, spare: usize) -> Vec<u32> {
        let mut shards: Vec<u32> = (0..samples.div_ceil(self.shard)).collect();
        shuffle(&mut shards, seed, [0, epoch], Kind::Shards);
        let mut order = Vec::with_capacity(samples as usize + spare);
        for shard in shards {
            let first = shard * self.shard;
            order.extend(first..first.saturating_add(self.shard).min(samples));
        }
        for (number, window) in (0..).zip(order.chunks_mut(self.window as usize)) {
            shuffle(window, seed, [number, epoch], Kind::Window);
        }
        order
    }
}

fn shuffle(items: &mut [u32], seed: u64, [number, epoch]: [u32; 2], kind: Kind) {
    let mut words = Philox::new(halves(seed), [0, number, epoch, kind as u32]);
    let len = u32::try_from(items.len()).expect("samples are counted in 32 bits");
    let draw = |place| {
        let [_, offset] = halves(u64::from(words.word()) * u64::from(len - place));
        (place, place + offset)
    };
    swaps::apply(items, (0..len.saturating_sub(1)).map(draw));
}
