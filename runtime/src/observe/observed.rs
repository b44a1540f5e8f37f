//! A node's observations of its links and trainers, as `status` and the log of schedules show them.

use serde::{Deserialize, Serialize};
use tierfeed_core::{
    fleet::schedule::{Offer, Schedule},
    latency_quantiles::PerMillion,
    session::{Cycle, Form, Observed, ObservedLink, Supply, staging_depth::Load},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

/// A node's observations in its last epochs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedEntry {
    pub planned_epoch: u32,
    /// The cold store and the tiers that are used, fastest first.
    pub links: Vec<LinkEntry>,
    /// The transforms, by the form of what arrived; none in a job without.
    #[serde(default)]
    pub transforms: Vec<TransformsEntry>,
    /// What a step reads from the cold store; `None` before there were enough steps.
    pub load: Option<Load>,
    /// The mean busy phase of the trainers and the idle phase after it; `None` if they do not pause.
    pub cycle: Option<Cycle>,
    /// The supply of the trainers; `None` while the rate of the cold store is not known, and where the job
    /// fixes the room for look-ahead.
    pub supply: Option<Supply>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkEntry {
    /// `cold-store`, or the kind of a tier.
    pub name: String,
    pub bytes: u64,
    pub operations: u64,
    /// The time in which at least one operation ran.
    pub busy_ns: u64,
    /// The rate over `busy_ns`.
    pub bytes_per_s: Option<u64>,
    /// The mean time of an operation.
    pub latency_ns: Option<u64>,
    /// The mean time of an operation that waits for no other.
    pub response_ns: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransformsEntry {
    /// `stored` or `prepared`.
    pub form: String,
    /// Samples that became rows.
    pub samples: u64,
    /// The mean time of a thread for a sample.
    pub mean_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

impl ObservedEntry {
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
            load: observed.load,
            cycle: observed.cycle,
            supply: observed.supply,
        }
    }

    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let link = |it: &LinkEntry| {
            let rate = it.bytes_per_s.map(|rate| BytesPerSecond(rate).to_string());
            let latency = it.latency_ns.map(|it| format!("{} an operation", Nanoseconds(it)));
            let known: Vec<String> = rate.into_iter().chain(latency).collect();
            format!("observed {:<12} {} in {}", it.name, Bytes(it.bytes), known.join(", "))
        };
        let used = self.links.iter().filter(|it| it.operations > 0);
        let load = self.load.map(|Load { reads, read_len, step_time, .. }| {
            format!(
                "observed steps        {step_time}, with up to {reads} cold reads of {read_len}"
            )
        });
        let cycle = self.cycle.map(|Cycle { consumed, busy, idle }| {
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
