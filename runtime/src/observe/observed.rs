//! What a node observed of its links and trainers, as `status` and the log of schedules show it.

use serde::{Deserialize, Serialize};
use tierfeed_core::{
    fleet::schedule::{Offer, Schedule},
    latency_quantiles::PerMillion,
    session::{Form, Observed, ObservedLink},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

/// What a node observed in its last epochs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedEntry {
    /// The latest epoch that is planned.
    pub planned_epoch: u32,
    /// The cold store and the tiers that are used, fastest first.
    pub links: Vec<LinkEntry>,
    /// The transforms, by the form of what arrived; none in a job without.
    #[serde(default)]
    pub transforms: Vec<TransformsEntry>,
    /// What a step reads from the cold store; `None` before there were enough steps.
    pub load: Option<LoadEntry>,
    /// The mean busy phase of the trainers and the idle phase after it; `None` if they do not pause.
    pub cycle: Option<CycleEntry>,
    /// What there is to feed them with; `None` while the rate of the cold store is not known, and where the job
    /// says how much room samples to come get.
    pub supply: Option<SupplyEntry>,
}

/// A link as it was observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkEntry {
    /// `cold-store`, or the kind of a tier.
    pub name: String,
    /// Bytes that were moved over it.
    pub bytes: u64,
    /// The operations that moved them.
    pub operations: u64,
    /// For how long at least one ran.
    pub busy_ns: u64,
    /// What it gave while anything ran.
    pub bytes_per_s: Option<u64>,
    /// The mean time of an operation.
    pub latency_ns: Option<u64>,
    /// The mean time of an operation that waits for no other.
    pub response_ns: Option<u64>,
}

/// Transforms of samples in one form, as they were observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransformsEntry {
    /// `stored` or `prepared`.
    pub form: String,
    /// Samples that became rows.
    pub samples: u64,
    /// The mean time of a thread for one.
    pub mean_ns: u64,
    /// The time that half of them did not exceed.
    pub p50_ns: u64,
    /// The time that 99 % of them did not exceed.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// What the steps of a node ask of the cold store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadEntry {
    /// The reads of nearly every step.
    pub reads: u32,
    /// The mean length of a read.
    pub read_bytes: u64,
    /// How long a step takes, waiting and pauses excluded.
    pub step_ns: u64,
}

/// Busy and idle phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleEntry {
    /// Bytes that the node consumes in a busy phase.
    pub consumed_bytes: u64,
    /// How long the busy phase is.
    pub busy_ns: u64,
    /// How long the idle phase is.
    pub idle_ns: u64,
}

/// What a node feeds its trainers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupplyEntry {
    /// Bytes that the node reads in an epoch.
    pub epoch_bytes: u64,
    /// Bytes that all tiers hold.
    pub capacity_bytes: u64,
    /// Bytes that are staged ahead in any case.
    pub staged_bytes: u64,
    /// The part of what was read in this epoch that was hit in the tiers, in millionths.
    pub hits_per_million: u32,
    /// The rate of the cold store.
    pub cold_bytes_per_s: u64,
}

impl ObservedEntry {
    /// What a node observed that works by this schedule.
    #[must_use]
    pub fn of(observed: &Observed, schedule: &Schedule, offer: &Offer) -> Self {
        let names = schedule.used(offer).map(|(_, found)| found.kind.name());
        let tiers = names.zip(&observed.tiers);
        let cold = [("cold-store", &observed.cold)].into_iter();
        Self {
            planned_epoch: observed.planned.0,
            links: cold.chain(tiers).map(|(name, it)| link(name, it)).collect(),
            transforms: Form::ALL
                .into_iter()
                .filter_map(|form| transforms(form, observed))
                .collect(),
            load: observed.load.map(|load| LoadEntry {
                reads: load.reads,
                read_bytes: load.read_len.0,
                step_ns: load.step_time.0,
            }),
            cycle: observed.cycle.map(|cycle| CycleEntry {
                consumed_bytes: cycle.consumed.0,
                busy_ns: cycle.busy.0,
                idle_ns: cycle.idle.0,
            }),
            supply: observed.supply.map(|supply| SupplyEntry {
                epoch_bytes: supply.epoch.0,
                capacity_bytes: supply.capacity.0,
                staged_bytes: supply.staged.0,
                hits_per_million: supply.hits,
                cold_bytes_per_s: supply.cold.0,
            }),
        }
    }

    /// The observations as lines of text.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let link = |it: &LinkEntry| {
            let rate = it.bytes_per_s.map(|rate| BytesPerSecond(rate).to_string());
            let latency = it.latency_ns.map(|it| format!("{} an operation", Nanoseconds(it)));
            let known: Vec<String> = rate.into_iter().chain(latency).collect();
            format!("observed {:<12} {} in {}", it.name, Bytes(it.bytes), known.join(", "))
        };
        let used = self.links.iter().filter(|it| it.operations > 0);
        let load = self.load.map(|load| {
            let (step, len) = (Nanoseconds(load.step_ns), Bytes(load.read_bytes));
            format!("observed steps        {step}, with up to {} cold reads of {len}", load.reads)
        });
        let cycle = self.cycle.map(|cycle| {
            let (busy, idle) = (Nanoseconds(cycle.busy_ns), Nanoseconds(cycle.idle_ns));
            let consumed = Bytes(cycle.consumed_bytes);
            format!("observed trainers     {consumed} in {busy}, then a pause of {idle}")
        });
        let transforms = |it: &TransformsEntry| {
            let [mean, p50, p99, max] =
                [it.mean_ns, it.p50_ns, it.p99_ns, it.max_ns].map(Nanoseconds);
            format!(
                "observed transforms    of {} {} samples: {mean} on average, half within {p50}, 99 % within {p99}, \
                 at most {max}",
                it.samples, it.form
            )
        };
        let transforms = self.transforms.iter().map(transforms);
        used.map(link).chain(transforms).chain(load).chain(cycle).collect()
    }
}

fn transforms(form: Form, observed: &Observed) -> Option<TransformsEntry> {
    let of = &observed.transforms[form as usize];
    let spread = of.spread()?;
    Some(TransformsEntry {
        form: form.name().to_owned(),
        samples: of.samples,
        mean_ns: of.mean()?.0,
        p50_ns: spread.at(PerMillion(500_000)).0,
        p99_ns: spread.at(PerMillion(990_000)).0,
        max_ns: spread.at(PerMillion::ALL).0,
    })
}

fn link(name: &str, it: &ObservedLink) -> LinkEntry {
    LinkEntry {
        name: name.to_owned(),
        bytes: it.bytes.0,
        operations: it.operations,
        busy_ns: it.busy.0,
        bytes_per_s: it.rate().map(|rate| rate.0),
        latency_ns: it.latency().map(|latency| latency.0),
        response_ns: it.response().map(|response| response.0),
    }
}
