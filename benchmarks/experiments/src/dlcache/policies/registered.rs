//! Any policy, with the chunks that the running job has registered for kept until they are used.
//!
//! A job registers what it reads before it starts: DLCache's manager evicts no chunk that is in use, its
//! simulation does.

use super::{Moment, Policy, Worth};
use crate::dlcache::{
    chunks::{ChunkId, Chunks},
    workload::Job,
};

/// Applies `rule` to the chunks that the running job does not need.
#[derive(Debug)]
pub(super) struct Registered<P> {
    rule: P,
    /// Uses of each chunk by the running job that are still to come.
    due: Vec<u32>,
}

impl<P> Registered<P> {
    pub(super) fn new(chunks: &Chunks, rule: P) -> Self {
        Self { rule, due: vec![0; chunks.len()] }
    }

    fn is_due(&self, chunk: ChunkId) -> bool {
        self.due[chunk.0] > 0
    }
}

impl<P: Policy> Policy for Registered<P> {
    fn handle_job(&mut self, job: &Job, now: Moment) {
        for chunk in job {
            self.due[chunk.0] += 1;
        }
        self.rule.handle_job(job, now);
    }

    fn handle_miss(&mut self, chunk: ChunkId) {
        self.rule.handle_miss(chunk);
    }

    fn handle_use(&mut self, chunk: ChunkId, now: Moment) {
        self.due[chunk.0] -= 1;
        self.rule.handle_use(chunk, now);
    }

    fn worth(&mut self, chunk: ChunkId, now: Moment) -> Worth {
        if self.is_due(chunk) {
            return Worth(f64::INFINITY, f64::INFINITY);
        }
        self.rule.worth(chunk, now)
    }

    fn admits(&mut self, chunk: ChunkId, victims: &[ChunkId], now: Moment) -> bool {
        !victims.iter().any(|it| self.is_due(*it)) && self.rule.admits(chunk, victims, now)
    }
}
