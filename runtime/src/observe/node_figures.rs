//! What an agent did since its start and what it holds now: its metrics and the live view derive from this.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tierfeed_core::{
    id::TierId,
    session::{Busy, EpochProgress, Evictions, Refusals, Waits},
    tier::Kind,
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::read::page_cache::PageCacheFigures;
use tierfeed_prefetcher::{
    fetcher::ObjectFigures,
    plane::{Durations, Moves},
    recorder::Endpoint,
    transforms::Counts,
};

use super::report;

/// The cold store among the names of tiers.
pub(super) const COLD: &str = "cold";

/// Ranks are numbered on the node, and tiers of the session stand in its order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeFigures {
    pub job: String,
    pub policy: String,
    /// The kind of source: `file`, `s3` and so on.
    pub source: String,
    /// The engine that reads the cold store.
    pub backend: String,
    /// The sums over all epochs.
    pub total: EpochProgress,
    pub fault_count: u64,
    pub tier_faults: u64,
    pub refusals: Refusals,
    /// Bytes read for batches that no trainer took.
    pub wasted: Bytes,
    pub copyouts: u64,
    pub waits: BTreeMap<u32, Waits>,
    pub leads: Waits,
    pub holds: Waits,
    pub leases: BTreeMap<u32, u64>,
    /// Batches that are complete and not taken yet.
    pub ready: BTreeMap<u32, u64>,
    /// Batches that each rank may have staged now.
    pub batches_max: u32,
    pub kinds: Vec<Kind>,
    /// The capacity and the use of each tier.
    pub levels: Vec<(Bytes, Bytes)>,
    pub evictions: Vec<Evictions>,
    pub tiers_busy: Vec<Busy>,
    pub cold_busy: Busy,
    /// Reads of the cold store that may be in flight now.
    pub cold_window: u64,
    pub moves: Vec<Moves>,
    pub transform_durations: Durations,
    /// The chunks of tiers and the staging memory of all ranks.
    pub held: Vec<(Kind, Bytes)>,
    pub staging_held: Bytes,
    /// Memory of the job, of the agent itself, and the budget of the job.
    pub job_memory: Bytes,
    pub own_memory: Bytes,
    /// The CPU time of the agent since its start.
    pub own_cpu: Nanoseconds,
    pub memory_budget: Bytes,
    /// The requests to a bucket; `None` if the cold store is files.
    pub requests: Option<ObjectFigures>,
    /// What the page cache holds and served, which the live view does not show; `None` if reads leave nothing there.
    #[serde(skip)]
    pub page_cache: Option<PageCacheFigures>,
    /// What the workers that transform did; `None` without a transform.
    pub transforms: Option<Counts>,
    /// The times for which the loop took no event.
    pub pauses: Waits,
    /// The most processor time that the loop took for one event.
    pub ran_max: Nanoseconds,
}

impl NodeFigures {
    /// The waits by the names of their causes. Tiers of one kind have one name.
    pub(super) fn stalls(&self) -> impl Iterator<Item = (&'static str, Nanoseconds)> {
        let kinds: Vec<_> = self.kinds.iter().map(|kind| kind.name()).collect();
        self.total
            .causes
            .parts()
            .map(move |(cause, part)| (report::cause_name(cause, &kinds), part))
    }

    /// Bytes that were copied down into tiers of this name.
    pub(super) fn demoted_to(&self, name: &str) -> Bytes {
        let into = |moves: &&Moves| is_down(moves) && self.end_name(moves.to) == name;
        Bytes(self.moves.iter().filter(into).map(|moves| moves.bytes.0).sum())
    }

    pub(super) fn end_name(&self, end: Endpoint) -> &'static str {
        match end {
            Endpoint::Cold => COLD,
            Endpoint::Staging => "staging",
            Endpoint::Tier(TierId(tier)) => {
                self.kinds.get(usize::from(tier)).map_or("unknown", |kind| kind.name())
            }
        }
    }
}

/// Whether they went from a tier into staging or into a faster one.
pub(super) fn is_up(moves: &Moves) -> bool {
    match (moves.from, moves.to) {
        (Endpoint::Tier(_), Endpoint::Staging) => true,
        (Endpoint::Tier(from), Endpoint::Tier(to)) => to < from,
        _ => false,
    }
}

/// Whether they went from staging into a tier, or into a slower one.
pub(super) fn is_down(moves: &Moves) -> bool {
    let into_tier = matches!(moves.to, Endpoint::Tier(_));
    into_tier && moves.from != Endpoint::Cold && !is_up(moves)
}
