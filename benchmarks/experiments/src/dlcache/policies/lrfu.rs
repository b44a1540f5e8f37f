//! LRFU, and the cost-aware LRFU of DLCache: as the paper simulates it, and as its code deploys it.
//!
//! Combined recency and frequency (CRF) is the sum of `(1/p)^(step * age)` over all uses of a chunk,
//! kept after an eviction. All uses of a job have one time, so the sum is carried from job to job instead of
//! being added up anew: chunks of equal history stay equal to the bit, and cost decides between them.
//!
//! # Source
//!
//! The paper, section III-C (2); its simulation, for p and step and for [`JOB_PUBLISHED_S`].

use super::{Moment, Policy, Worth, number};
use crate::dlcache::chunks::{ChunkId, Chunks};

const ATTENUATION: f64 = 2.0;
const STEP: f64 = 0.5;
/// The published ages are wall-clock times of the simulation, which takes a tenth of a millisecond or so
/// for a job: almost all that is left of age is that it breaks ties.
pub(super) const JOB_PUBLISHED_S: f64 = 1e-4;

/// The rule for which of two chunks with the same CRF is evicted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ties {
    /// The one that was stored first: LRFU.
    Age,
    /// The cheaper: cost-aware LRFU.
    Cost,
}

/// Evicts the chunk with the least CRF.
#[derive(Debug)]
pub(super) struct Lrfu<'a> {
    chunks: &'a Chunks,
    /// The CRF of each chunk, and the job as of which it holds.
    crf: Vec<(f64, usize)>,
    /// The weight of a use one job later.
    decay: f64,
    ties: Ties,
}

impl<'a> Lrfu<'a> {
    /// A job takes `job_s` seconds.
    pub(super) fn new(chunks: &'a Chunks, job_s: f64, ties: Ties) -> Self {
        let decay = ATTENUATION.powf(-STEP * job_s);
        Self { chunks, crf: vec![(0.0, 0); chunks.len()], decay, ties }
    }

    fn crf(&self, chunk: ChunkId, now: Moment) -> f64 {
        let (crf, job) = self.crf[chunk.0];
        crf * self.decay.powf(number(now.job - job))
    }
}

impl Policy for Lrfu<'_> {
    fn handle_use(&mut self, chunk: ChunkId, now: Moment) {
        self.crf[chunk.0] = (self.crf(chunk, now) + 1.0, now.job);
    }

    fn worth(&mut self, chunk: ChunkId, now: Moment) -> Worth {
        let tie = match self.ties {
            Ties::Age => 0.0,
            Ties::Cost => number(self.chunks.get(chunk).cost.0),
        };
        Worth(self.crf(chunk, now), tie)
    }
}

/// The ranking of the deployed manager: the sum of `cost/age * (1/p)^(p * age)`, the least first.
///
/// A job takes a second. Chunks that the running job has used are evicted last. The
/// deployed code also removes all chunks instead of as many as are needed, which is not repeated here.
#[derive(Debug)]
pub(super) struct Deployed<'a> {
    chunks: &'a Chunks,
    /// The jobs in which each chunk was used.
    uses: Vec<Vec<usize>>,
}

impl<'a> Deployed<'a> {
    pub(super) fn new(chunks: &'a Chunks) -> Self {
        Self { chunks, uses: vec![Vec::new(); chunks.len()] }
    }
}

impl Policy for Deployed<'_> {
    fn handle_use(&mut self, chunk: ChunkId, now: Moment) {
        self.uses[chunk.0].push(now.job);
    }

    fn worth(&mut self, chunk: ChunkId, now: Moment) -> Worth {
        let cost = number(self.chunks.get(chunk).cost.0);
        let term = |job: &usize| match number(now.job - job) {
            0.0 => f64::INFINITY,
            age => cost / age * ATTENUATION.powf(-ATTENUATION * age),
        };
        Worth(self.uses[chunk.0].iter().map(term).sum(), 0.0)
    }
}
