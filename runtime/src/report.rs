//! What a run did: the `report.json` of design and documentation.

mod advice;
mod attendance;
mod digest;
mod direct;
mod facts;
mod page;
mod tier;
mod verdict;

pub use advice::Advice;
pub use attendance::Attendance;
pub use digest::{Published, order_digest};
pub use direct::DirectEntry;
pub use facts::Facts;
pub use tier::{StagingEntry, TierEntry, WritersEntry};
pub use verdict::{Readership, by_name, name};

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::Serialize;
use tierfeed_core::{
    session::Fault,
    units::{Bytes, Nanoseconds},
};
use tierfeed_prefetcher::fetcher::ObjectFigures;

use crate::{
    expansion::Expansion, footprint::Footprint, pauses::PauseEntry, scratch::ScratchEntry,
};

/// The report as it stands in the file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What the agent served of what was used, how long training waited and for what, in a sentence.
    pub verdict: String,
    /// What would help, the most important first.
    pub advice: Vec<Advice>,
    /// The name of the job.
    pub job: String,
    /// Which node of the world this agent was.
    pub node: u32,
    /// How many processes worked as this node before.
    pub generation: u32,
    /// Which of its ranks came, and who was turned away.
    pub ranks: Attendance,
    /// The rule of retention.
    pub policy: &'static str,
    /// Batches that the ranks of this node used: `steps` and `self_read_batches`.
    pub used_batches: u64,
    /// Those of them that the agent served.
    pub steps: u64,
    /// Samples in what it served.
    pub samples: u64,
    /// Bytes in it.
    pub bytes: u64,
    /// Batches that trainers read from the cold store themselves.
    pub self_read_batches: u64,
    /// Samples of the batches that trainers read themselves.
    pub self_read_samples: u64,
    /// Bytes of the batches that trainers read themselves.
    pub self_read_bytes: u64,
    /// Samples of the order that are in none of these batches, because the job skips what cannot be read.
    pub skipped_samples: u64,
    /// Connections that read batches at a time, at most.
    pub readers: u32,
    /// Whether loader workers were among them, so that training itself may have waited less.
    pub readers_are_workers: bool,
    /// From the first connection of a trainer to the last sign of one.
    pub wall_s: f64,
    /// For how long each reader waited from wanting a batch to having it decoded, as a mean over them.
    pub stall_s: f64,
    /// The same by what they waited for: `start`, `staging-room`, `cold-store`, the tiers, `chunk`,
    /// `keep`, `turn`, `hand-off`, `unanswered`, `self-read` and `decoding`.
    pub stall_for_s: BTreeMap<&'static str, f64>,
    /// The part of it that was for the first batch of each rank.
    pub first_stall_s: f64,
    /// For how long the main thread of each training process could have run and had no processor, waiting
    /// or not, as a mean over them; absent where that cannot be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_processor_s: Option<f64>,
    /// Samples by the tier that they were read from.
    pub tier_hits: BTreeMap<&'static str, u64>,
    /// Bytes by the tier that they were read from.
    pub tier_read_bytes: BTreeMap<&'static str, u64>,
    /// Samples of them that trainers read where they lay, so that nobody copied them.
    pub direct_samples: u64,
    /// Bytes of these.
    pub direct_bytes: u64,
    /// Bytes read from the cold store.
    pub cold_read_bytes: u64,
    /// Bytes read for batches that no trainer took.
    pub wasted_bytes: u64,
    /// For how long anything was read from the cold store, and copied from or to each tier.
    pub busy_s: BTreeMap<&'static str, f64>,
    /// What no policy can undercut: the longer of computing with decoding, and reading what must be read
    /// cold.
    pub lower_bound_s: f64,
    /// How long trainers waited for a batch, decoding left out.
    pub batch_wait_s: BatchWait,
    /// [`order_digest`] of this node's ranks, in hexadecimal digits.
    pub order_digest: Option<String>,
    /// Samples that could not be read, the first thousand.
    pub faults: Vec<FaultEntry>,
    /// All faults of samples.
    pub fault_count: u64,
    /// Writes to tiers that failed.
    pub tier_fault_count: u64,
    /// The tiers as they were used.
    pub tiers: Vec<TierEntry>,
    /// Staging memory as it was used.
    pub staging: StagingEntry,
    /// Whether the cold store was slowed down for an experiment.
    pub cold_store_emulated: bool,
    /// How it was read, and why so.
    pub cold_engine: String,
    /// Reads of it that ran at a time at the end, at most.
    pub cold_reads_at_a_time: u64,
    /// What the requests to a bucket came to, if that is what was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_requests: Option<RequestsEntry>,
    /// Batches that trainers went on with as copies, because they kept too many.
    pub lease_copyouts: u64,
    /// Epoch by epoch.
    pub epochs: Vec<EpochEntry>,
    /// For how long the agent's loop did not look at its events.
    pub loop_pauses: PauseEntry,
    /// What the agent held at most.
    pub memory: Footprint,
    /// The scratch of the job, if it asked for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_scratch: Option<ScratchEntry>,
    /// How the trainers' memory was spread, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expanded_memory: Option<Expansion>,
}

/// Requests to a bucket, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RequestsEntry {
    /// Of every kind.
    pub requests: u64,
    /// Those that repeat one that failed.
    pub retries: u64,
    /// Those that were sent because another was late.
    pub hedges: u64,
    /// Hedges that brought the last byte.
    pub hedges_won: u64,
    /// Samples that were read by several requests.
    pub split: u64,
    /// Bytes that came and were of no use.
    pub discarded_bytes: u64,
}

/// Percentiles of the waits, at most 1/16 too high.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BatchWait {
    /// Half of the waits were no longer.
    pub p50: f64,
    /// 99 of 100 were no longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// A sample that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FaultEntry {
    /// Its number.
    pub sample: u32,
    /// The object that holds it.
    pub object: String,
    /// What went wrong.
    pub fault: &'static str,
}

/// One pass over the dataset.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EpochEntry {
    /// Which one.
    pub epoch: u32,
    /// Batches that the agent served.
    pub batches: u64,
    /// Batches that trainers read themselves.
    pub self_read_batches: u64,
    /// Bytes in those that the agent served.
    pub demand_bytes: u64,
    /// Bytes read from the cold store.
    pub cold_read_bytes: u64,
    /// Bytes by the tier that they were read from.
    pub tier_read_bytes: BTreeMap<&'static str, u64>,
    /// Bytes by the tier that they were copied to.
    pub tier_written_bytes: BTreeMap<&'static str, u64>,
    /// The share of the demand that needed no cold read.
    pub hit_ratio: f64,
    /// The share of the demand that was ready when it was asked for.
    pub ready_ratio: f64,
    /// The mean over the readers.
    pub stall_s: f64,
    /// The same by what they waited for.
    pub stall_for_s: BTreeMap<&'static str, f64>,
    /// Bytes that no policy can avoid to read from the cold store.
    pub minimal_cold_bytes: u64,
}

impl Report {
    /// Sums up a run. `object_name` names the object of a sample.
    #[must_use]
    pub fn of(
        facts: Facts<'_>,
        object_name: impl Fn(tierfeed_core::id::SampleId) -> String,
    ) -> Self {
        let progress = facts.progress;
        let epochs: Vec<_> = facts.epochs().collect();
        let sum = |of: fn(&EpochEntry) -> u64| epochs.iter().map(of).sum::<u64>();
        let fault_entry = |(sample, fault): &(tierfeed_core::id::SampleId, Fault)| FaultEntry {
            sample: sample.0,
            object: object_name(*sample),
            fault: fault.name(),
        };
        let waiting = facts.waiting();
        Self {
            verdict: waiting.sentence(facts.session_tiers),
            advice: advice::advise(&facts.grounds(&waiting, &epochs)),
            job: facts.job.to_owned(),
            node: facts.node,
            generation: facts.generation,
            ranks: facts.ranks.clone(),
            policy: facts.policy,
            used_batches: sum(|epoch| epoch.batches + epoch.self_read_batches),
            steps: sum(|epoch| epoch.batches),
            self_read_batches: sum(|epoch| epoch.self_read_batches),
            self_read_samples: progress.epochs.iter().map(|it| it.self_read_samples).sum(),
            self_read_bytes: progress.epochs.iter().map(|it| it.self_read.0).sum(),
            skipped_samples: progress.epochs.iter().map(|it| it.skipped).sum(),
            readers: facts.readership.readers_max,
            readers_are_workers: facts.readership.has_workers,
            samples: progress.epochs.iter().map(|epoch| epoch.samples).sum(),
            bytes: sum(|epoch| epoch.demand_bytes),
            wall_s: seconds(facts.wall),
            stall_s: waiting.stall_s,
            stall_for_s: facts.stall_for(&facts.causes(), waiting.readers),
            first_stall_s: waiting.first_s,
            no_processor_s: waiting.starved_s,
            tier_hits: facts.by_tier(|epoch, tier| epoch.hits[tier]),
            tier_read_bytes: facts.by_tier(|epoch, tier| epoch.from_tier[tier].0),
            direct_samples: progress.epochs.iter().map(|epoch| epoch.in_place_samples).sum(),
            direct_bytes: progress.epochs.iter().map(|epoch| epoch.in_place.0).sum(),
            cold_read_bytes: sum(|epoch| epoch.cold_read_bytes),
            wasted_bytes: facts.wasted.0,
            busy_s: facts.busy(),
            lower_bound_s: facts.lower_bound(&epochs, &waiting),
            batch_wait_s: BatchWait {
                p50: seconds(progress.waits.percentile(50)),
                p99: seconds(progress.waits.percentile(99)),
                max: seconds(progress.waits.max()),
            },
            order_digest: facts.order_digest.map(|digest| format!("{digest:016x}")),
            faults: progress.faults.iter().map(fault_entry).collect(),
            fault_count: progress.fault_count,
            tier_fault_count: progress.tier_faults,
            cold_store_emulated: facts.cold_store_emulated,
            cold_engine: facts.cold_engine.to_owned(),
            cold_reads_at_a_time: facts.cold_reads_at_a_time,
            object_requests: facts.requests.map(RequestsEntry::from),
            lease_copyouts: facts.copyouts,
            tiers: facts.tiers,
            staging: facts.staging,
            epochs,
            loop_pauses: facts.pauses,
            memory: facts.memory,
            job_scratch: facts.scratch,
            expanded_memory: None,
        }
    }

    /// What the data plane chose, line by line, for people.
    #[must_use]
    pub fn choices(&self) -> Vec<String> {
        let at_a_time = self.cold_reads_at_a_time;
        let mut lines =
            vec![format!("cold store: {}; read depth settled at {at_a_time}", self.cold_engine)];
        lines.extend(self.object_requests.map(|it| {
            let RequestsEntry { requests, retries, hedges, hedges_won, .. } = it;
            format!(
                "requests: {requests}, {retries} repeated, {hedges} hedged, {hedges_won} of these in time"
            )
        }));
        lines.extend(self.staging.choice());
        lines.extend(self.tiers.iter().filter_map(TierEntry::choice));
        lines.extend(self.tiers.iter().filter_map(TierEntry::direct_use));
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

    /// Writes the report so that no reader sees half of it.
    ///
    /// # Errors
    ///
    /// [`WriteError`] if the folder cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), WriteError> {
        let text = serde_json::to_string_pretty(self);
        let failed =
            |error: serde_json::Error| WriteError { path: path.to_owned(), source: error.into() };
        put(path, &(text.map_err(failed)? + "\n"))
    }

    /// Writes the report as a page for a browser, likewise.
    ///
    /// # Errors
    ///
    /// [`WriteError`] if the folder cannot be written.
    pub fn write_page(&self, path: &Path) -> Result<(), WriteError> {
        put(path, &self.page())
    }
}

fn put(path: &Path, text: &str) -> Result<(), WriteError> {
    let failed = |source| WriteError { path: path.to_owned(), source };
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    fs::write(&beside, text).map_err(failed)?;
    fs::rename(&beside, path).map_err(failed)
}

/// A report that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the report {}: {source}", .path.display())]
pub struct WriteError {
    /// Where it should be.
    pub path: PathBuf,
    /// As the system says.
    pub source: io::Error,
}

impl From<ObjectFigures> for RequestsEntry {
    fn from(it: ObjectFigures) -> Self {
        let ObjectFigures { requests, retries, hedges, hedges_won, split, discarded } = it;
        Self { requests, retries, hedges, hedges_won, split, discarded_bytes: discarded.0 }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a report needs no more than 53 bits")]
fn seconds(time: Nanoseconds) -> f64 {
    time.0 as f64 / 1e9
}

#[cfg(test)]
mod tests;
