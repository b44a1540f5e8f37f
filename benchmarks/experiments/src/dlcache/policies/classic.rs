//! The baselines of the paper: least recently used, least frequently used, random, cheapest.

use tierfeed_core::order::mt19937::Mt19937;

use super::{Moment, Policy, Worth, number};
use crate::dlcache::chunks::{ChunkId, Chunks};

#[derive(Debug)]
pub(super) struct Lru {
    last_use: Vec<usize>,
}

impl Lru {
    pub(super) fn new(chunks: &Chunks) -> Self {
        Self { last_use: vec![0; chunks.len()] }
    }
}

impl Policy for Lru {
    fn handle_use(&mut self, chunk: ChunkId, now: Moment) {
        self.last_use[chunk.0] = now.used;
    }

    fn worth(&mut self, chunk: ChunkId, _now: Moment) -> Worth {
        Worth(number(self.last_use[chunk.0]), 0.0)
    }
}

/// Evicts the chunk with the fewest uses since it was stored; of equals, the least recently used.
#[derive(Debug)]
pub(super) struct Lfu {
    recency: Lru,
    uses: Vec<u32>,
}

impl Lfu {
    pub(super) fn new(chunks: &Chunks) -> Self {
        Self { recency: Lru::new(chunks), uses: vec![0; chunks.len()] }
    }
}

impl Policy for Lfu {
    fn handle_miss(&mut self, chunk: ChunkId) {
        self.uses[chunk.0] = 0;
    }

    fn handle_use(&mut self, chunk: ChunkId, now: Moment) {
        self.recency.handle_use(chunk, now);
        self.uses[chunk.0] += 1;
    }

    fn worth(&mut self, chunk: ChunkId, now: Moment) -> Worth {
        Worth(f64::from(self.uses[chunk.0]), self.recency.worth(chunk, now).0)
    }
}

#[derive(Debug)]
pub(super) struct Random(Mt19937);

impl Random {
    /// The published draws cannot be repeated, so each pattern has a generator of its own.
    pub(super) fn new(pattern: usize) -> Self {
        Self(Mt19937::new(pattern as u64))
    }
}

impl Policy for Random {
    fn worth(&mut self, _chunk: ChunkId, _now: Moment) -> Worth {
        Worth(f64::from(self.0.word()), 0.0)
    }
}

#[derive(Debug)]
pub(super) struct Greedy<'a>(pub(super) &'a Chunks);

impl Policy for Greedy<'_> {
    fn worth(&mut self, chunk: ChunkId, _now: Moment) -> Worth {
        Worth(number(self.0.get(chunk).cost.0), 0.0)
    }
}
