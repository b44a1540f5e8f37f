//! The inputs of a report, and sums over them.

use std::collections::{BTreeMap, BTreeSet};

use tierfeed_core::{
    id::{Epoch, SampleId},
    order::Spec,
    session::{Cycle, EpochProgress, LookAhead, Progress, StallBreakdown, StallCause},
    tier::Kind,
    units::{Bytes, BytesPerSecond, Nanoseconds, share},
};
use tierfeed_prefetcher::fetcher::ObjectFigures;

use super::{
    ColdStoreEntry, EpochEntry, PageCacheEntry, PeerEntry, RanksEntry, ScratchEntry, StagingEntry,
    TierEntry, TransformEntry, TransformFacts,
    advice::{RunFigures, Shrunk},
    seconds,
    verdict::{self, Batches, ReaderStats, StallSummary},
};
use crate::observe::{footprint::Footprint, pauses::PauseEntry, schedule::GenerationEntry};

#[derive(Debug)]
pub struct Facts<'a> {
    pub job: &'a str,
    pub node: u32,
    /// The number of processes that worked as this node before.
    pub generation: u32,
    pub ranks: RanksEntry,
    pub policy: &'static str,
    pub order: Spec,
    /// The names of the datasets beside the first.
    pub further: Vec<&'a str>,
    pub progress: &'a Progress,
    /// [`super::order_digest`] of what was handed over, if there was time for it.
    pub order_digest: Option<u64>,
    pub reader_stats: ReaderStats,
    /// Bytes read for batches that no trainer took.
    pub wasted: Bytes,
    /// Batches staged ahead for each rank.
    pub staged_batches: u32,
    pub generations: Vec<GenerationEntry>,
    pub look_ahead: LookAhead,
    /// The mean cycle of the training, if idle phases were observed.
    pub cycle: Option<Cycle>,
    /// The unit in which tiers take memory.
    pub chunk: Bytes,
    pub session_tiers: &'a [Kind],
    pub tiers: Vec<TierEntry>,
    pub staging: StagingEntry,
    /// The declared rate of the cold store; zero if it is not declared.
    pub cold: BytesPerSecond,
    pub cold_store_emulated: bool,
    pub cold_engine: &'a str,
    pub cold_store: ColdStoreEntry,
    /// The most reads of the cold store in flight, at the end.
    pub cold_reads_at_a_time: u64,
    /// The page cache; `None` if the cold store is a bucket.
    pub page_cache: Option<PageCacheEntry>,
    pub transform: Option<TransformFacts>,
    /// Why samples could not be handed over, as far as it is known in full.
    pub reasons: BTreeMap<SampleId, String>,
    pub peers: Vec<PeerEntry>,
    pub requests: Option<ObjectFigures>,
    pub copyouts: u64,
    /// The declared time of a training step.
    pub step_time: Option<Nanoseconds>,
    pub wall: Nanoseconds,
    pub pauses: PauseEntry,
    /// The time for which the agent read before the first trainer connected.
    pub head_start: Nanoseconds,
    /// Bytes read from the cold store before the training began.
    pub cold_before: Bytes,
    /// The time for which threads transformed before the training began, all together.
    pub transformed_before: Nanoseconds,
    /// Processors that trainers and agent share.
    pub processors: u64,
    pub memory: Footprint,
    pub scratch: Option<ScratchEntry>,
}

impl Facts<'_> {
    pub(super) fn epochs(&self) -> impl Iterator<Item = EpochEntry> {
        let readers = self.waiting().readers;
        let cached: u64 = self.tiers.iter().map(|tier| tier.cache_bytes).sum();
        let reached = self.progress.epochs.iter().rposition(|epoch| {
            let batches = epoch.batches + epoch.self_read_batches + epoch.refused_batches();
            batches + epoch.cold.0 + epoch.ahead.0 > 0
        });
        let epochs = self.progress.epochs.iter().take(reached.map_or(0, |last| last + 1));
        (0..).zip(epochs).map(move |(number, epoch)| {
            let reads = (0..).zip(&epoch.from_tier);
            let mut tier_read_bytes = self.no_tier_read();
            for (tier, bytes) in reads {
                *tier_read_bytes.entry(self.tier_name(tier)).or_default() += bytes.0;
            }
            let mut tier_written_bytes = self.no_tier_read();
            for (tier, bytes) in (0..).zip(&epoch.written) {
                *tier_written_bytes.entry(self.tier_name(tier)).or_default() += bytes.0;
            }
            let avoidable = if number == 0 { 0 } else { cached };
            let look_ahead_room = self.progress.look_ahead_room.get(&Epoch(number));
            EpochEntry {
                epoch: number,
                batches: epoch.batches,
                self_read_batches: epoch.self_read_batches,
                demand_bytes: epoch.demand.0,
                cold_read_bytes: epoch.cold.0,
                peer_read_bytes: epoch.received.0,
                ahead_bytes: epoch.ahead.0,
                look_ahead_room_bytes: look_ahead_room.map(|room| room.0),
                tier_read_bytes,
                tier_written_bytes,
                hit_ratio: hit_ratio(epoch.cold, epoch.demand),
                ready_ratio: share(epoch.ready.0, epoch.demand.0),
                stall_s: seconds(epoch.causes.total()) / readers,
                stall_for_s: self.stall_for(&epoch.causes, readers),
                minimal_cold_bytes: epoch.demand.0.saturating_sub(avoidable).min(epoch.cold.0),
            }
        })
    }

    pub(super) fn causes(&self) -> StallBreakdown {
        let mut sum = StallBreakdown::none(self.session_tiers.len());
        self.progress.epochs.iter().for_each(|epoch| sum.add(&epoch.causes));
        sum
    }

    pub(super) fn waiting(&self) -> StallSummary {
        let (first, batches) = (self.progress.first_stall, self.batches());
        StallSummary::of(&self.causes(), first, self.wall, self.reader_stats, batches)
    }

    fn batches(&self) -> Batches {
        let epochs = self.progress.epochs.iter();
        let ranks = self.order.world.ranks_per_node;
        let present: BTreeSet<_> =
            self.progress.handed.keys().chain(self.progress.waits_by_rank.keys()).collect();
        let present = u32::try_from(present.len()).unwrap_or(u32::MAX);
        Batches {
            served: epochs.clone().map(|epoch| epoch.batches).sum(),
            self_read: epochs.clone().map(|epoch| epoch.self_read_batches).sum(),
            beyond: self.progress.beyond_batches(),
            refused: epochs.map(EpochProgress::refused_batches).sum(),
            absent_ranks: ranks.saturating_sub(present),
            ranks,
        }
    }

    pub(super) fn stall_for(
        &self,
        causes: &StallBreakdown,
        readers: f64,
    ) -> BTreeMap<&'static str, f64> {
        let kinds: Vec<_> = self.session_tiers.iter().map(|kind| kind.name()).collect();
        verdict::seconds_by_cause(causes, &kinds, readers)
    }

    pub(super) fn busy(&self) -> BTreeMap<&'static str, f64> {
        let mut busy = BTreeMap::from([("cold-store", seconds(self.progress.cold_busy.time()))]);
        for (tier, link) in self.progress.tiers_busy.iter().enumerate() {
            *busy.entry(self.tier_name(tier)).or_default() += seconds(link.time());
        }
        let peers = self.progress.peers_busy.time();
        if peers.0 > 0 {
            busy.insert("peers", seconds(peers));
        }
        busy
    }

    pub(super) fn run_figures<'g>(
        &'g self,
        waiting: &'g StallSummary,
        epochs: &[EpochEntry],
    ) -> RunFigures<'g> {
        let last = epochs.iter().rev().find(|epoch| epoch.batches > 0);
        RunFigures {
            waiting,
            progress: self.progress,
            kinds: self.session_tiers,
            adapting: self.tiers.iter().filter(|it| it.adapts).map(|it| it.name).collect(),
            processors: self.processors,
            shrunk: self.shrunk(),
            loop_busy_share: self.pauses.busy_share,
            loop_ran_share: self.pauses.ran_share,
            transform: self.transform_entry(),
            ranks: self.order.world.ranks_per_node,
            policy: self.policy,
            staged_batches: self.staged_batches,
            look_ahead: self.look_ahead,
            cycle: self.cycle,
            chunk: self.chunk,
            cached: Bytes(self.tiers.iter().map(|tier| tier.cache_bytes).sum()),
            minimal_cold: Bytes(last.map_or(0, |epoch| epoch.minimal_cold_bytes)),
        }
    }

    fn shrunk(&self) -> Option<Shrunk> {
        let lost = |tier: &&TierEntry| tier.cache_bytes.saturating_sub(tier.cache_least_bytes);
        let in_memory = self.tiers.iter().filter(|tier| tier.name != Kind::Storage.name());
        let most = in_memory.max_by_key(lost).filter(|tier| lost(tier) > 0)?;
        let (cache, least) = (Bytes(most.cache_bytes), Bytes(most.cache_least_bytes));
        Some(Shrunk { tier: most.name, cache, least })
    }

    pub(super) fn transform_entry(&self) -> Option<TransformEntry> {
        let facts = self.transform.clone()?;
        Some(TransformEntry::of(facts, self.progress, self.wall))
    }

    pub(super) fn by_tier(
        &self,
        of: impl Fn(&EpochProgress, usize) -> u64,
    ) -> BTreeMap<&'static str, u64> {
        let mut sums = self.no_tier_read();
        for epoch in &self.progress.epochs {
            for tier in 0..epoch.from_tier.len() {
                *sums.entry(self.tier_name(tier)).or_default() += of(epoch, tier);
            }
        }
        sums
    }

    pub(super) fn no_tier_read(&self) -> BTreeMap<&'static str, u64> {
        self.tiers.iter().map(|tier| (tier.name, 0)).collect()
    }

    pub(super) fn tier_name(&self, tier: usize) -> &'static str {
        self.session_tiers.get(tier).map_or("unknown", |kind| kind.name())
    }

    /// The longest of computing with decoding, of reading the minimal cold bytes after training had begun, and of
    /// what each thread of the agent had to transform.
    /// If the job declares a longer step time or a slower cold store than observed, the run itself counts, so
    /// the bound never exceeds the time of the run.
    pub(super) fn lower_bound(&self, epochs: &[EpochEntry], waiting: &StallSummary) -> f64 {
        let observed = (waiting.wall_s - waiting.stall_s).max(0.0);
        let ranks = u64::from(self.order.world.ranks_per_node.max(1));
        let declared = |step: Nanoseconds| {
            let used = |epoch: &EpochEntry| epoch.batches + epoch.self_read_batches;
            let batches: u64 = epochs.iter().map(used).sum();
            seconds(Nanoseconds(step.0.saturating_mul(batches / ranks)))
        };
        let compute = self.step_time.map_or(observed, declared).min(observed);
        let minimal: u64 = epochs.iter().map(|epoch| epoch.minimal_cold_bytes).sum();
        let reading = self.cold.time_for(Bytes(minimal.saturating_sub(self.cold_before.0)));
        let decoding = waiting.seconds_for(StallCause::Decoding);
        (compute + decoding).max(seconds(reading)).max(self.transforming()).min(waiting.wall_s)
    }
}

impl Facts<'_> {
    /// For how long each thread of the agent worked at transforms while the job trained.
    fn transforming(&self) -> f64 {
        let Some(transform) = &self.transform else { return 0.0 };
        let counts = self.progress.epochs.iter().flat_map(|epoch| &epoch.transforms);
        let time = counts.fold(0_u64, |sum, count| sum.saturating_add(count.time.0));
        let time = time.saturating_sub(self.transformed_before.0);
        seconds(Nanoseconds(time / u64::from(transform.threads.max(1))))
    }
}

/// The share of the demand that needed no cold read; 0 without demand.
fn hit_ratio(cold: Bytes, demand: Bytes) -> f64 {
    if demand.0 == 0 { 0.0 } else { 1.0 - share(cold.0, demand.0).min(1.0) }
}
