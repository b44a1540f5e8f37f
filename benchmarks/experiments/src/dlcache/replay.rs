//! Runs one pattern with one policy, and sums the time of preparing chunks.
//!
//! As the published simulation: job after job, chunk after chunk. A chunk that is not stored is prepared and
//! stored, and chunks of the least worth are evicted until there is room.
//!
//! 1. Never more is stored than the capacity.
//! 2. Of chunks of equal worth, the one that was stored first is evicted first.
//! 3. A chunk that several jobs share is prepared once for all of them, stored or not.

use tierfeed_core::units::Nanoseconds;

use super::{
    chunks::{ChunkId, Chunks},
    policies::{Moment, Policy},
    workload::Pattern,
};

pub(super) fn preparation(
    chunks: &Chunks,
    pattern: &Pattern,
    policy: &mut dyn Policy,
) -> Nanoseconds {
    let mut store = Store { chunks, stored: Vec::new(), free: pattern.capacity.0 };
    let mut spent_ns = 0;
    let mut now = Moment::default();
    for (job, uses) in pattern.jobs.iter().enumerate() {
        now.job = job;
        policy.handle_job(uses, now);
        let mut last = None;
        for chunk in uses {
            if last.replace(*chunk) != Some(*chunk) && !store.stored.contains(chunk) {
                spent_ns += chunks.get(*chunk).cost.0;
                policy.handle_miss(*chunk);
                store.take(*chunk, now, policy);
            }
            policy.handle_use(*chunk, now);
            now.used += 1;
        }
    }
    Nanoseconds(spent_ns)
}

#[derive(Debug)]
struct Store<'a> {
    chunks: &'a Chunks,
    /// In the order in which they were stored.
    stored: Vec<ChunkId>,
    free: u64,
}

impl Store<'_> {
    /// Stores `chunk`, unless the policy prefers to keep the chunks that would be evicted for it.
    fn take(&mut self, chunk: ChunkId, now: Moment, policy: &mut dyn Policy) {
        let size = self.size(chunk);
        if size > self.free {
            let Some(victims) = self.victims(size - self.free, now, policy) else { return };
            if !policy.admits(chunk, &victims, now) {
                return;
            }
            self.stored.retain(|it| !victims.contains(it));
            self.free += victims.iter().map(|it| self.size(*it)).sum::<u64>();
        }
        self.stored.push(chunk);
        self.free -= size;
    }

    /// The chunks of the least worth that have `bytes` together; `None` if all stored chunks have less.
    fn victims(&self, bytes: u64, now: Moment, policy: &mut dyn Policy) -> Option<Vec<ChunkId>> {
        let ranked = self.stored.iter().map(|it| (policy.worth(*it, now), *it));
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort_by(|(one, _), (other, _)| one.compare(other));
        let mut freed = 0;
        let mut victims = Vec::new();
        for (_, chunk) in ranked {
            freed += self.size(chunk);
            victims.push(chunk);
            if freed >= bytes {
                return Some(victims);
            }
        }
        None
    }

    fn size(&self, chunk: ChunkId) -> u64 {
        self.chunks.get(chunk).size.0
    }
}
