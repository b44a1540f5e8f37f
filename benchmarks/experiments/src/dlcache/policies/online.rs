//! tierfeed's policy without knowledge of future jobs: it knows the past, and what the running job has
//! registered for.
//!
//! Around it, [`super::registered::Registered`] keeps what the running job needs. Of the rest:
//!
//! 1. A chunk that was used once may never be used again: such chunks are evicted before all others, the
//!    oldest first, so that a dataset that is read once evicts no chunk that was used repeatedly.
//! 2. Of the others, the one that saves least is evicted first: cost per byte, times the uses so far.
//! 3. A chunk is used and not stored if chunks of more worth would have to be evicted for it.
//!
//! # Source
//!
//! (1) is the probation of segmented LRU (Karedla et al., Computer 27(3), 1994), (2) the value of
//! GreedyDual-Size-Frequency (Cherkasova, HPL-98-69, 1998) without its ageing: a count outlives an
//! eviction, as in DLCache.

use super::{Moment, Policy, Worth, number};
use crate::dlcache::{
    chunks::{ChunkId, Chunks},
    workload::Job,
};

#[derive(Debug, Clone, Copy, Default)]
struct History {
    /// By all jobs so far, with all that the running one has registered for.
    uses: u32,
    last_job: usize,
}

/// Evicts chunks that were used once, then those that save least.
#[derive(Debug)]
pub(super) struct Online<'a> {
    chunks: &'a Chunks,
    histories: Vec<History>,
}

impl<'a> Online<'a> {
    pub(super) fn new(chunks: &'a Chunks) -> Self {
        Self { chunks, histories: vec![History::default(); chunks.len()] }
    }
}

impl Policy for Online<'_> {
    fn handle_job(&mut self, job: &Job, now: Moment) {
        for chunk in job {
            let history = &mut self.histories[chunk.0];
            history.uses += 1;
            history.last_job = now.job;
        }
    }

    fn worth(&mut self, chunk: ChunkId, _now: Moment) -> Worth {
        let History { uses, last_job } = self.histories[chunk.0];
        let density = self.chunks.get(chunk).density();
        if uses > 1 {
            Worth(f64::INFINITY, density * f64::from(uses))
        } else {
            Worth(number(last_job), density)
        }
    }

    fn admits(&mut self, chunk: ChunkId, victims: &[ChunkId], now: Moment) -> bool {
        let worth = self.worth(chunk, now);
        victims.iter().all(|it| self.worth(*it, now).compare(&worth).is_le())
    }
}
