//! Policies that know all future jobs: a reference, and the possible gain where jobs are queued.
//!
//! A chunk is worth more the sooner it is used next, and nothing if never; with weighing, more the more
//! time each of its bytes saves. A chunk is not stored if it is worth less than a chunk that would be
//! evicted for it.
//!
//! # Source
//!
//! Belady, IBM Systems Journal 5(2), 1966. With unequal sizes and costs neither rule is optimal.

use super::{Moment, Policy, Worth, number};
use crate::dlcache::{
    chunks::{ChunkId, Chunks},
    workload::Pattern,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weighing {
    /// Only the next use does.
    Alike,
    /// The cost per byte, over the uses that it has to be kept for.
    ByDensity,
}

/// Evicts the chunk whose next use is last.
#[derive(Debug)]
pub(super) struct Known<'a> {
    chunks: &'a Chunks,
    /// When each chunk is used, in [`Moment::used`]; by jobs that share it, when the first uses it.
    uses: Vec<Vec<usize>>,
    weighing: Weighing,
}

impl<'a> Known<'a> {
    pub(super) fn new(chunks: &'a Chunks, pattern: &Pattern, weighing: Weighing) -> Self {
        let mut uses = vec![Vec::new(); chunks.len()];
        let mut place = 0;
        for job in &pattern.jobs {
            for shared in job.chunk_by(PartialEq::eq) {
                uses[shared[0].0].push(place);
                place += shared.len();
            }
        }
        Self { chunks, uses, weighing }
    }

    /// The number of uses, of any chunk, before the next one of `chunk`.
    fn distance(&self, chunk: ChunkId, now: Moment) -> Option<usize> {
        let uses = &self.uses[chunk.0];
        let next = uses.get(uses.partition_point(|it| *it <= now.used))?;
        Some(next - now.used)
    }
}

impl Policy for Known<'_> {
    fn worth(&mut self, chunk: ChunkId, now: Moment) -> Worth {
        let Some(distance) = self.distance(chunk, now) else { return Worth(0.0, 0.0) };
        let gain = match self.weighing {
            Weighing::Alike => 1.0,
            Weighing::ByDensity => self.chunks.get(chunk).density(),
        };
        Worth(gain / number(distance), 0.0)
    }

    fn admits(&mut self, chunk: ChunkId, victims: &[ChunkId], now: Moment) -> bool {
        let worth = self.worth(chunk, now);
        victims.iter().all(|it| self.worth(*it, now).compare(&worth).is_lt())
    }
}
