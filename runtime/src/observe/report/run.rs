//! What a report follows from, and the figures that follow from the progress of the session.

use std::collections::{BTreeMap, BTreeSet};

use tierfeed_core::{
    id::{Epoch, Rank},
    session::{
        Cycle, DatasetProgress, EpochProgress, LookAhead, Progress, StallBreakdown, StallCause,
        Waits,
    },
    tier::Kind,
    units::{Bytes, BytesPerSecond, Nanoseconds, share},
};

use super::{
    DatasetEntry, EpochEntry, RankWaits, Report, seconds,
    verdict::{Batches, ReaderStats, StallSummary, seconds_by_cause},
};

/// What an agent knows of a run. Times are of the session's clock.
#[derive(Debug)]
pub struct RunFigures<'a> {
    /// The part of the report that does not follow from the progress.
    pub facts: Report,
    pub progress: &'a Progress,
    /// The tiers of the session.
    pub kinds: &'a [Kind],
    /// Ranks of the node.
    pub ranks: u32,
    /// The names of the datasets beside the first.
    pub further: Vec<&'a str>,
    pub reader_stats: ReaderStats,
    /// Batches staged ahead for each rank.
    pub staged_batches: u32,
    pub look_ahead: LookAhead,
    /// The mean cycle of the training, if idle phases were observed.
    pub cycle: Option<Cycle>,
    /// The unit in which tiers take memory.
    pub chunk: Bytes,
    /// The declared rate of the cold store; zero if it is not declared.
    pub cold: BytesPerSecond,
    /// The declared time of a training step.
    pub step_time: Option<Nanoseconds>,
    pub wall: Nanoseconds,
    /// Bytes read from the cold store before the training began.
    pub cold_before: Bytes,
    /// The time for which threads transformed before the training began, all together.
    pub transformed_before: Nanoseconds,
    /// Processors that trainers and agent share.
    pub processors: u64,
}

impl RunFigures<'_> {
    /// Bytes that all tiers may cache.
    pub(super) fn cached(&self) -> Bytes {
        Bytes(self.facts.tiers.iter().map(|tier| tier.cache_bytes).sum())
    }

    pub(super) fn waiting(&self, total: &EpochProgress) -> StallSummary {
        let first = self.progress.first_stall;
        let batches = self.batches(total);
        StallSummary::of(&total.causes, first, self.wall, self.reader_stats, batches)
    }

    fn batches(&self, total: &EpochProgress) -> Batches {
        let Progress { handed, waits_by_rank, .. } = self.progress;
        let present: BTreeSet<_> = handed.keys().chain(waits_by_rank.keys()).collect();
        let present = u32::try_from(present.len()).unwrap_or(u32::MAX);
        Batches {
            served: total.batches,
            self_read: total.self_read_batches,
            beyond: self.progress.beyond_batches(),
            refused: total.refused_batches(),
            absent_ranks: self.ranks.saturating_sub(present),
            ranks: self.ranks,
        }
    }

    /// The epochs up to the last in which anything was read.
    pub(super) fn epochs(&self, readers: f64) -> Vec<EpochEntry> {
        let reached = self.progress.epochs.iter().rposition(|epoch| {
            let batches = epoch.batches + epoch.self_read_batches + epoch.refused_batches();
            batches + epoch.cold.0 + epoch.ahead.0 > 0
        });
        let epochs = self.progress.epochs.iter().take(reached.map_or(0, |last| last + 1));
        let entry = |(number, epoch): (u32, &EpochProgress)| {
            let avoidable = if number == 0 { 0 } else { self.cached().0 };
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
                tier_read_bytes: self.by_tier(&epoch.from_tier, |bytes| bytes.0),
                tier_written_bytes: self.by_tier(&epoch.written, |bytes| bytes.0),
                hit_ratio: hit_ratio(epoch.cold, epoch.demand),
                ready_ratio: share(epoch.ready.0, epoch.demand.0),
                stall_s: seconds(epoch.causes.total()) / readers,
                stall_for_s: self.stall_for(&epoch.causes, readers),
                minimal_cold_bytes: epoch.demand.0.saturating_sub(avoidable).min(epoch.cold.0),
            }
        };
        (0..).zip(epochs).map(entry).collect()
    }

    pub(super) fn stall_for(
        &self,
        causes: &StallBreakdown,
        readers: f64,
    ) -> BTreeMap<&'static str, f64> {
        let kinds: Vec<_> = self.kinds.iter().map(|kind| kind.name()).collect();
        seconds_by_cause(causes, &kinds, readers)
    }

    /// Sums by the names of tiers, those that are left out included.
    pub(super) fn by_tier<T>(
        &self,
        parts: &[T],
        of: impl Fn(&T) -> u64,
    ) -> BTreeMap<&'static str, u64> {
        let mut sums: BTreeMap<_, _> = self.facts.tiers.iter().map(|it| (it.name, 0)).collect();
        for (kind, part) in self.kinds.iter().zip(parts) {
            *sums.entry(kind.name()).or_default() += of(part);
        }
        sums
    }

    pub(super) fn busy(&self) -> BTreeMap<&'static str, f64> {
        let Progress { cold_busy, peers_busy, tiers_busy, .. } = self.progress;
        let mut busy = BTreeMap::from([("cold-store", seconds(cold_busy.time()))]);
        for (kind, link) in self.kinds.iter().zip(tiers_busy) {
            *busy.entry(kind.name()).or_default() += seconds(link.time());
        }
        let peers = peers_busy.time();
        busy.extend((peers.0 > 0).then(|| ("peers", seconds(peers))));
        busy
    }

    /// The longest of computing with decoding, of reading the minimal cold bytes after training had begun, and of
    /// what each thread of the agent had to transform.
    /// If the job declares a longer step time or a slower cold store than observed, the run itself counts, so
    /// the bound never exceeds the time of the run.
    pub(super) fn lower_bound(
        &self,
        total: &EpochProgress,
        epochs: &[EpochEntry],
        waiting: &StallSummary,
    ) -> f64 {
        let observed = (waiting.wall_s - waiting.stall_s).max(0.0);
        let declared = |step: Nanoseconds| {
            let batches = total.batches + total.self_read_batches;
            let steps = batches / u64::from(self.ranks.max(1));
            seconds(Nanoseconds(step.0.saturating_mul(steps)))
        };
        let compute = self.step_time.map_or(observed, declared).min(observed);
        let minimal: u64 = epochs.iter().map(|epoch| epoch.minimal_cold_bytes).sum();
        let reading = self.cold.time_for(Bytes(minimal.saturating_sub(self.cold_before.0)));
        let decoding = waiting.seconds_for(StallCause::Decoding);
        let transforming = self.transforming(total);
        (compute + decoding).max(seconds(reading)).max(transforming).min(waiting.wall_s)
    }

    /// For how long each thread of the agent worked at transforms while the job trained.
    fn transforming(&self, total: &EpochProgress) -> f64 {
        let Some(transform) = &self.facts.transform else { return 0.0 };
        let time = total.transforms.iter().fold(0, |sum: u64, it| sum.saturating_add(it.time.0));
        let time = time.saturating_sub(self.transformed_before.0);
        seconds(Nanoseconds(time / u64::from(transform.threads.max(1))))
    }
}

/// The share of the demand that needed no cold read; 0 without demand.
fn hit_ratio(cold: Bytes, demand: Bytes) -> f64 {
    if demand.0 == 0 { 0.0 } else { 1.0 - share(cold.0, demand.0).min(1.0) }
}

pub(super) fn datasets(further: &[&str], progress: &Progress) -> Vec<DatasetEntry> {
    if further.is_empty() {
        return Vec::new();
    }
    let names = std::iter::once(&"dataset").chain(further);
    let entry = |(name, it): (&&str, &DatasetProgress)| DatasetEntry {
        name: (*name).to_owned(),
        batches: it.batches,
        demand_bytes: it.demand.0,
        cold_read_bytes: it.cold.0,
        waited_s: seconds(it.stall),
    };
    names.zip(&progress.datasets).map(entry).collect()
}

pub(super) fn rank_waits((rank, waits): (&Rank, &Waits)) -> RankWaits {
    RankWaits {
        rank: rank.0,
        batches: waits.count(),
        waited_s: seconds(waits.sum()),
        p99_s: seconds(waits.percentile(99)),
        max_s: seconds(waits.max()),
    }
}
