//! The report of a run, `report.json`; docs/report.md explains its figures.

mod advice;
mod agent_cpu;
mod digest;
mod direct;
mod expansion;
mod job;
mod page;
mod page_cache;
mod peers;
mod ranks;
mod run;
mod scratch;
mod tier;
mod transform;
mod verdict;

pub use advice::Advice;
pub use agent_cpu::AgentCpuEntry;
pub use digest::{Published, order_digest};
pub use direct::DirectEntry;
pub use expansion::ExpansionEntry;
pub use job::{JobReport, NodeSummary, RankWaits};
pub use page_cache::PageCacheEntry;
pub use peers::PeerEntry;
pub use ranks::RanksEntry;
pub use run::RunFigures;
pub use scratch::{HeldBy, ScratchEntry};
pub use tier::{RankPlacementEntry, StagingEntry, StagingPartEntry, TierEntry};
pub use transform::TransformEntry;
pub use verdict::{ReaderStats, cause_name, seconds_by_cause};

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use serde::Serialize;
use tierfeed_core::{
    fleet::schedule::Figures,
    session::{Waits, assignment::Stages},
    units::{Bytes, seconds},
};
use tierfeed_prefetcher::fetcher::ObjectFigures;

use super::{footprint::Footprint, pauses::PauseEntry, schedule::GenerationEntry, total::total};
use crate::whole_file;

pub const GENERATIONS_KEPT: usize = 256;

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// A sentence: how many of the used batches the agent served, how long training waited and for what.
    pub verdict: String,
    /// Changes that would shorten the waits, the most important first.
    pub advice: Vec<Advice>,
    pub job: String,
    pub node: u32,
    /// The number of processes that worked as this node before.
    pub generation: u32,
    pub ranks: RanksEntry,
    pub policy: &'static str,
    /// Batches that the ranks of this node used: `steps` and `self_read_batches`.
    pub used_batches: u64,
    /// Batches that the agent served.
    pub steps: u64,
    /// Samples in the batches that the agent served.
    pub samples: u64,
    /// Bytes in the batches that the agent served.
    pub bytes: u64,
    /// Batches that trainers read from the cold store themselves.
    pub self_read_batches: u64,
    pub self_read_samples: u64,
    pub self_read_bytes: u64,
    /// Samples of the order that are in none of these batches, because the job skips what cannot be read.
    pub skipped_samples: u64,
    /// The most connections that read batches at a time.
    pub readers: u32,
    /// Whether loader workers were among them, so that training itself may have waited less.
    pub readers_are_workers: bool,
    /// For how long the agent read before the first trainer connected, in seconds.
    pub head_start_s: f64,
    /// From the first connection of a trainer to the last event of one, in seconds.
    pub wall_s: f64,
    /// The time that a reader waited, from requesting a batch to having it decoded; the mean over readers.
    pub stall_s: f64,
    /// `stall_s` by cause: `start`, `staging-room`, `cold-store`, `peers`, the tiers, `chunk`, `keep`,
    /// `turn`, `hand-off`, `agent`, `unanswered`, `self-read` and `decoding`.
    pub stall_for_s: BTreeMap<&'static str, f64>,
    /// The part of `stall_s` for the first batch of each rank.
    pub first_stall_s: f64,
    /// Threads that decoded for a rank at the end, the maximum over ranks; 0 if the training's own threads
    /// decoded.
    pub decode_threads: u32,
    /// How threads were divided last; absent unless `prefetch.assignment` is `lobster`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<Stages>,
    /// How long the main thread of a training process was runnable without a processor, waiting for data or
    /// not; the mean over processes, absent if they are not visible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_processor_s: Option<f64>,
    pub tier_hits: BTreeMap<&'static str, u64>,
    pub tier_read_bytes: BTreeMap<&'static str, u64>,
    /// Samples of `tier_hits` that trainers read in place, without a copy.
    pub direct_samples: u64,
    /// Bytes of `tier_read_bytes` that trainers read in place.
    pub direct_bytes: u64,
    /// Bytes that no tier held and that were read from the cold store, page cache included.
    pub cold_read_bytes: u64,
    /// `cold_read_bytes` by dataset; empty if the job has one dataset only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub datasets: Vec<DatasetEntry>,
    pub peer_read_bytes: u64,
    /// Samples that another node was expected to have and did not give in time; they were read cold.
    pub peer_missed_samples: u64,
    /// Empty if nodes do not share what they keep.
    pub peers: Vec<PeerEntry>,
    /// Bytes read for batches that no trainer took, or into tiers and then not used from there.
    pub wasted_bytes: u64,
    /// The time in which at least one read of the cold store, and one copy from or to each tier, was in
    /// flight.
    pub busy_s: BTreeMap<&'static str, f64>,
    /// A lower bound for every policy that keeps samples in the same form: the longest of computing with decoding,
    /// of reading the minimal cold bytes, and of transforming.
    pub lower_bound_s: f64,
    /// Quantiles of the waits for a batch, without decoding.
    pub batch_wait_s: BatchWait,
    pub rank_waits: Vec<RankWaits>,
    /// [`order_digest`] of this node's ranks, in hexadecimal digits.
    pub order_digest: Option<String>,
    /// A number for all decisions on where samples were read from and where they stayed, in hexadecimal digits:
    /// a replay with the recorded schedules gives the same.
    pub decisions_digest: String,
    /// The generations of the schedule that this process got, the last [`GENERATIONS_KEPT`].
    pub generations: Vec<GenerationEntry>,
    /// Samples that could not be read, the first thousand.
    pub faults: Vec<FaultEntry>,
    /// All faults of samples.
    pub fault_count: u64,
    /// Writes to tiers that failed.
    pub tier_fault_count: u64,
    pub tiers: Vec<TierEntry>,
    pub staging: StagingEntry,
    /// Whether the cold store was slowed down for an experiment.
    pub cold_store_emulated: bool,
    /// The speed of the cold store, as far as it was known when the run began.
    pub cold_store: Figures,
    /// The engine that read the cold store, and why it was chosen.
    pub cold_engine: String,
    /// The most reads of the cold store in flight, at the end.
    pub cold_reads_at_a_time: u64,
    /// The page cache of the files; absent if the cold store is a bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_cache: Option<PageCacheEntry>,
    /// The transform; absent if trainers get samples as they are stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transform: Option<TransformEntry>,
    /// The requests to a bucket; absent if the cold store is files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_requests: Option<ObjectFigures>,
    /// Batches that trainers went on with as copies, because they kept too many.
    pub lease_copyouts: u64,
    pub epochs: Vec<EpochEntry>,
    pub agent_cpu: AgentCpuEntry,
    pub loop_pauses: PauseEntry,
    pub memory: Footprint,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_scratch: Option<ScratchEntry>,
    /// The memory policy of the trainers, if `--expand-memory` was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expanded_memory: Option<ExpansionEntry>,
}

/// Percentiles of the waits in seconds, at most 1/16 too high.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct BatchWait {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FaultEntry {
    pub sample: u32,
    pub object: String,
    pub fault: &'static str,
    /// The full message, if it is still known.
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DatasetEntry {
    /// Its name below `datasets`; `dataset` for the first one.
    pub name: String,
    pub batches: u64,
    pub demand_bytes: u64,
    pub cold_read_bytes: u64,
    /// The time that the ranks of this node waited for its batches, summed up.
    pub waited_s: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EpochEntry {
    /// Counted from 0.
    pub epoch: u32,
    /// Batches that the agent served.
    pub batches: u64,
    pub self_read_batches: u64,
    pub demand_bytes: u64,
    pub cold_read_bytes: u64,
    pub peer_read_bytes: u64,
    /// The part of `cold_read_bytes` that was read into tiers, ahead of staging.
    pub ahead_bytes: u64,
    /// The room of the tiers that was kept free of retained samples, for what is read ahead; `null` if the
    /// epoch was never planned.
    pub look_ahead_room_bytes: Option<u64>,
    pub tier_read_bytes: BTreeMap<&'static str, u64>,
    pub tier_written_bytes: BTreeMap<&'static str, u64>,
    /// The share of the demand that needed no cold read.
    pub hit_ratio: f64,
    /// The share of the demand that was ready when it was requested.
    pub ready_ratio: f64,
    /// The stall in this epoch; the mean over readers.
    pub stall_s: f64,
    pub stall_for_s: BTreeMap<&'static str, f64>,
    /// Bytes that no policy can avoid to read from the cold store.
    pub minimal_cold_bytes: u64,
}

impl BatchWait {
    fn of(waits: &Waits) -> Self {
        Self {
            p50: seconds(waits.percentile(50)),
            p99: seconds(waits.percentile(99)),
            max: seconds(waits.max()),
        }
    }
}

impl Report {
    #[must_use]
    pub fn of(run: RunFigures<'_>) -> Self {
        let progress = run.progress;
        let total = total(progress);
        let waiting = run.waiting(&total);
        let epochs = run.epochs(waiting.readers);
        Self {
            verdict: waiting.sentence(run.kinds),
            advice: advice::advise(&run, &total, &waiting, &epochs),
            used_batches: total.batches + total.self_read_batches,
            steps: total.batches,
            samples: total.samples,
            bytes: total.demand.0,
            self_read_batches: total.self_read_batches,
            self_read_samples: total.self_read_samples,
            self_read_bytes: total.self_read.0,
            skipped_samples: total.skipped,
            readers: run.reader_stats.readers_max,
            readers_are_workers: run.reader_stats.has_workers,
            wall_s: waiting.wall_s,
            stall_s: waiting.stall_s,
            stall_for_s: run.stall_for(&total.causes, waiting.readers),
            first_stall_s: waiting.first_s,
            decode_threads: progress.decode_threads_max(),
            threads: progress.threads.clone(),
            no_processor_s: waiting.starved_s,
            tier_hits: run.by_tier(&total.hits, |hits| *hits),
            tier_read_bytes: run.by_tier(&total.from_tier, |bytes| bytes.0),
            direct_samples: total.in_place_samples,
            direct_bytes: total.in_place.0,
            cold_read_bytes: total.cold.0,
            datasets: run::datasets(&run.further, progress),
            peer_read_bytes: total.received.0,
            peer_missed_samples: total.unreceived,
            busy_s: run.busy(),
            lower_bound_s: run.lower_bound(&total, &epochs, &waiting),
            batch_wait_s: BatchWait::of(&progress.waits),
            rank_waits: progress.waits_by_rank.iter().map(run::rank_waits).collect(),
            decisions_digest: format!("{:016x}", progress.decisions()),
            fault_count: progress.fault_count,
            tier_fault_count: progress.tier_faults,
            epochs,
            ..run.facts
        }
    }

    fn ahead_bytes(&self) -> u64 {
        self.epochs.iter().map(|epoch| epoch.ahead_bytes).sum()
    }

    #[must_use]
    pub fn choices(&self) -> Vec<String> {
        let at_a_time = self.cold_reads_at_a_time;
        let mut lines =
            vec![format!("cold store: {}; read depth settled at {at_a_time}", self.cold_engine)];
        lines.extend(self.object_requests.map(|it| {
            let ObjectFigures { requests, retries, hedges, hedges_won, .. } = it;
            format!(
                "requests: {requests}, {retries} repeated, {hedges} hedged, {hedges_won} of these in time"
            )
        }));
        lines.extend(self.page_cache.and_then(|it| it.line(Bytes(self.cold_read_bytes))));
        lines.extend(self.transform.as_ref().map(TransformEntry::line));
        lines.extend(peers::line(&self.peers, self.peer_missed_samples));
        lines.extend(self.staging.places());
        lines.extend(self.staging.choice());
        lines.extend(self.tiers.iter().filter_map(TierEntry::choice));
        lines.extend(self.tiers.iter().filter_map(TierEntry::direct_use));
        lines.extend((self.ahead_bytes() > 0).then(|| {
            let (ahead, cold) = (Bytes(self.ahead_bytes()), Bytes(self.cold_read_bytes));
            let room = self.epochs.iter().filter_map(|epoch| epoch.look_ahead_room_bytes).max();
            let room = Bytes(room.unwrap_or(0));
            format!("look-ahead: {ahead} of {cold} were read into tiers, ahead of staging; room kept free for it: at most {room}")
        }));
        lines.extend((self.direct_samples > 0).then(|| {
            let (samples, bytes) = (self.direct_samples, Bytes(self.direct_bytes));
            format!("read in place: {samples} samples, {bytes}")
        }));
        lines.extend((self.loop_pauses.events > 0).then(|| self.loop_pauses.line()));
        lines.extend((self.lease_copyouts > 0).then(|| {
            format!("{} batches were copied for trainers that keep too many", self.lease_copyouts)
        }));
        lines
    }

    /// Writes the report atomically.
    pub fn write(&self, path: &Path) -> Result<(), WriteError> {
        put_json(path, self)
    }

    /// Writes the report as an HTML page, atomically.
    pub fn write_page(&self, path: &Path) -> Result<(), WriteError> {
        put(path, &self.page())
    }
}

fn put_json(path: &Path, report: &impl Serialize) -> Result<(), WriteError> {
    let failed =
        |error: serde_json::Error| WriteError { path: path.to_owned(), source: error.into() };
    let text = serde_json::to_string_pretty(report).map_err(failed)?;
    put(path, &(text + "\n"))
}

fn put(path: &Path, text: &str) -> Result<(), WriteError> {
    whole_file::write(path, text).map_err(|source| WriteError { path: path.to_owned(), source })
}

#[derive(Debug, thiserror::Error)]
#[error("cannot write the report {}: {source}", .path.display())]
pub struct WriteError {
    pub path: PathBuf,
    pub source: io::Error,
}

#[cfg(test)]
mod tests;
