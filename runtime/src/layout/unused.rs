//! Says which tiers of a job keep no sample, and why.

use std::fmt;

use tierfeed_core::{tier::Kind, units::Bytes};
use tierfeed_workload_analyzer::Job;

use super::Layout;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnusedTier {
    pub kind: Kind,
    budget: Bytes,
    /// The part of `budget` that is staging memory.
    staged: Bytes,
    chunk: Bytes,
}

impl fmt::Display for UnusedTier {
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
    /// one of them only if no other tier keeps any, because it may serve for staging alone.
    #[must_use]
    pub fn unused_tiers(&self, job: &Job) -> Vec<UnusedTier> {
        if !job.policy.keeps() {
            return Vec::new();
        }
        let keeps_any = self.tiers.iter().any(|tier| tier.cache.0 > 0);
        let ranks = u64::from(job.world.ranks_per_node);
        let is_idle = |kind: Kind| kind != Kind::MainMemory || !keeps_any;
        let empty = self.tiers.iter().filter(|tier| tier.cache.0 == 0);
        let unused = empty.filter(|tier| is_idle(tier.settings.kind)).map(|tier| {
            let staged = match tier.settings.kind {
                Kind::MainMemory => self.staged.arena.0.saturating_mul(ranks).min(tier.budget.0),
                _ => 0,
            };
            let (kind, budget) = (tier.settings.kind, tier.budget);
            UnusedTier { kind, budget, staged: Bytes(staged), chunk: self.chunk }
        });
        unused.collect()
    }
}
