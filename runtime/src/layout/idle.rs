//! Says which tiers of a job keep no sample, and why.

use std::fmt;

use tierfeed_core::{policy, tier::Kind, units::Bytes};
use tierfeed_workload_analyzer::Job;

use super::Layout;

/// A tier that keeps no sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    /// What it is.
    pub kind: Kind,
    /// What the job may use of it.
    budget: Bytes,
    /// What of that is for staging.
    staged: Bytes,
    chunk: Bytes,
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, budget, staged, chunk } = self;
        let left = Bytes(budget.0 - staged.0);
        write!(f, "tiers.{kind} keeps no sample: of {budget} ")?;
        if *kind == Kind::MainMemory {
            write!(f, "staging takes {staged}, and ")?;
        }
        let least = Bytes::mib(staged.0.saturating_add(chunk.0).div_ceil(1 << 20));
        write!(f, "{left} are less than a chunk of {chunk}; give it at least {least}")?;
        f.write_str(", or a smaller chunk")
    }
}

impl Layout {
    /// The tiers that keep no sample although the policy of `job` would keep some there. Main memory is
    /// one of them only where no other tier keeps any, for it may be there for staging alone.
    #[must_use]
    pub fn idle(&self, job: &Job) -> Vec<Idle> {
        if job.policy == policy::Kind::None {
            return Vec::new();
        }
        let keeps_any = self.places.iter().any(|place| place.cache.0 > 0);
        let ranks = u64::from(job.world.ranks_per_node);
        let is_idle = |kind: Kind| kind != Kind::MainMemory || !keeps_any;
        let empty = self.places.iter().filter(|place| place.cache.0 == 0);
        let idle = empty.filter(|place| is_idle(place.settings.kind)).map(|place| {
            let staged = match place.settings.kind {
                Kind::MainMemory => self.arena.0.saturating_mul(ranks).min(place.budget.0),
                _ => 0,
            };
            let (kind, budget) = (place.settings.kind, place.budget);
            Idle { kind, budget, staged: Bytes(staged), chunk: self.chunk }
        });
        idle.collect()
    }
}
