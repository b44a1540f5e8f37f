//! The schedule of a node as `plan --schedule` and `status` show it.

use std::{fmt::Write as _, num::NonZeroU32};

use serde::{Deserialize, Serialize};
use tierfeed_core::{
    fleet::{
        Applied, Origin,
        schedule::{
            Figures, FoundTier, LinkWindows, Offer, Role, Schedule, ScheduledTier,
            TransformSchedule, Transforming,
        },
    },
    retention::form::{Form, SampleTime},
    session::SetPoints,
    tier::Kind,
    units::{Bytes, Nanoseconds},
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleEntry {
    /// Counts the schedules of the node, from 0.
    pub generation: u32,
    /// The first epoch that it holds for.
    pub first_epoch: u32,
    /// Why it replaced the one before; empty for the first.
    pub reason: String,
    /// The tiers, fastest first, then those that are left out.
    pub tiers: Vec<ScheduledTierEntry>,
    pub cold_store: Figures,
    /// The unit in which tiers grow.
    pub chunk_bytes: u64,
    pub arena_bytes_per_rank: u64,
    /// Batches staged ahead of each rank, the one in use included.
    pub staged_batches: u32,
    pub staged_batches_reason: String,
    /// The most that a later generation may stage: staging memory is laid out for so many.
    pub staged_batches_max: u32,
    /// Room of the tiers that is kept free for samples to come.
    pub look_ahead_bytes: u64,
    pub windows: LinkWindows,
    /// `None` in a job without a transform.
    #[serde(default)]
    pub transform: Option<TransformEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransformEntry {
    /// The form in which tiers hold samples: `stored` or `prepared`.
    pub form: Form,
    /// The samples that the node transforms at a time, one in each transform worker.
    pub threads: NonZeroU32,
    pub reason: String,
    /// The time of a thread for a sample until its prepared form; `None` if it was not measured.
    pub prepare_ns: Option<u64>,
    /// The time from there to the row.
    pub rest_ns: Option<u64>,
    pub times_from: String,
    /// The mean length of prepared samples that have lengths of their own, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepared_mean_bytes: Option<u64>,
}

impl TransformEntry {
    fn of(schedule: &TransformSchedule, offer: &Offer) -> Self {
        let found = offer.transform.as_ref();
        let each = found.and_then(|found| found.each);
        Self {
            form: schedule.form,
            threads: schedule.threads,
            reason: schedule.reason.clone(),
            prepare_ns: each.map(|each| each.prepare.0),
            rest_ns: each.map(|each| each.rest.0),
            times_from: found.map_or_else(String::new, |found| found.from.clone()),
            prepared_mean_bytes: found.and_then(|found| found.own).map(|own| own.mean.0),
        }
    }

    #[must_use]
    pub fn transforming(&self) -> Transforming {
        let times = self.prepare_ns.zip(self.rest_ns);
        let each = times.map(|(prepare, rest)| SampleTime {
            prepare: Nanoseconds(prepare),
            rest: Nanoseconds(rest),
        });
        let own_mean = self.prepared_mean_bytes.map(Bytes);
        Transforming { form: self.form, threads: self.threads, each, own_mean }
    }

    fn lines(&self) -> [String; 2] {
        let each = match (self.prepare_ns, self.rest_ns) {
            (Some(prepare), Some(rest)) => format!(
                "{} until the prepared form and {} from there for each sample, {}",
                Nanoseconds(prepare),
                Nanoseconds(rest),
                self.times_from
            ),
            _ => "the time of a transform was not measured".to_owned(),
        };
        let Self { form, threads, reason, .. } = self;
        let restriction = form.restriction().map(|it| format!("; {it}")).unwrap_or_default();
        [
            format!("tiers hold samples {}: {reason}{restriction}", form.name()),
            format!("{threads} threads; {each}"),
        ]
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GenerationEntry {
    pub generation: u32,
    /// The first epoch that it was made for.
    pub first_epoch: u32,
    /// The first epoch in which it was applied; `None` if it came too late, or another one came before.
    pub applied_epoch: Option<u32>,
    pub look_ahead_bytes: u64,
    pub staged_batches: u32,
    /// Why it replaced the one before; empty for the first.
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledTierEntry {
    pub name: Kind,
    /// Where its bytes lie: `memory`, a NUMA node or a directory.
    pub location: String,
    /// Whether its speed is imposed, or other hardware plays it.
    pub emulated: bool,
    #[serde(rename = "use")]
    pub role: Role,
    pub budget_bytes: u64,
    /// The part of the budget that caches samples.
    pub cache_bytes: u64,
    #[serde(flatten)]
    pub figures: Figures,
    pub copy_threads: u32,
    /// Whether trainers read samples in place; `None` of files, which they cannot.
    pub direct: Option<bool>,
    pub decision: String,
}

impl ScheduleEntry {
    #[must_use]
    pub fn of(schedule: &Schedule, offer: &Offer) -> Self {
        Self {
            generation: schedule.generation,
            first_epoch: schedule.first_epoch.0,
            reason: schedule.reason.clone(),
            tiers: schedule.with(offer).map(|(tier, found)| entry(tier, found)).collect(),
            cold_store: offer.cold.clone(),
            chunk_bytes: schedule.chunk.0,
            arena_bytes_per_rank: schedule.arena.0,
            staged_batches: schedule.depth,
            staged_batches_reason: schedule.depth_reason.clone(),
            staged_batches_max: schedule.depth_max,
            look_ahead_bytes: schedule.look_ahead.0,
            windows: schedule.windows,
            transform: schedule.transform.as_ref().map(|it| TransformEntry::of(it, offer)),
        }
    }

    /// The part that a session applies at the plan of an epoch.
    #[must_use]
    pub fn points(&self) -> SetPoints {
        SetPoints { room: Bytes(self.look_ahead_bytes), depth: self.staged_batches }
    }

    /// As a report lists it, with the epoch in which it was applied, according to `applied`.
    #[must_use]
    pub fn generation(&self, applied: &[Applied]) -> GenerationEntry {
        let Self { generation, first_epoch, reason, .. } = self;
        GenerationEntry::with(*generation, *first_epoch, self.points(), reason).applied(applied)
    }

    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        let mut line = |it: &str| writeln!(text, "{it}").expect("a string takes every line");
        line(&format!("schedule generation {}, from epoch {}", self.generation, self.first_epoch));
        if !self.reason.is_empty() {
            line(&format!("  because {}", self.reason));
        }
        for tier in &self.tiers {
            let mark = if tier.emulated { ", emulated" } else { "" };
            let (budget, cache) = (Bytes(tier.budget_bytes), Bytes(tier.cache_bytes));
            let ScheduledTierEntry { name, location, .. } = tier;
            let role = tier.role.name();
            line(&format!("  {name:<12} {role}: cache {cache} of {budget} in {location}{mark}"));
            line(&format!("  {:<12} {}", "", tier.decision));
            line(&format!("  {:<12} {}", "", words(&tier.figures)));
        }
        line(&format!("  {:<12} {}", "cold store", words(&self.cold_store)));
        line(&format!(
            "  {:<12} {} of at most {} batches of each rank in {}: {}",
            "staging",
            self.staged_batches,
            self.staged_batches_max,
            Bytes(self.arena_bytes_per_rank),
            self.staged_batches_reason
        ));
        let room = Bytes(self.look_ahead_bytes);
        line(&format!("  {:<12} {room} kept free for samples to come", "look-ahead"));
        let LinkWindows { cold, cold_max, cold_threads, tier } = self.windows;
        line(&format!(
            "  {:<12} cold store {cold} to {cold_max} reads by {cold_threads} threads, each tier {tier} \
             copies; chunks of {}",
            "windows",
            Bytes(self.chunk_bytes)
        ));
        if let Some(transform) = &self.transform {
            let [form, threads] = transform.lines();
            line(&format!("  {:<12} {form}", "transform"));
            line(&format!("  {:<12} {threads}", ""));
        }
        text
    }
}

impl GenerationEntry {
    #[must_use]
    pub fn of(schedule: &Schedule) -> Self {
        Self::with(schedule.generation, schedule.first_epoch.0, schedule.points(), &schedule.reason)
    }

    fn with(generation: u32, first_epoch: u32, points: SetPoints, reason: &str) -> Self {
        Self {
            generation,
            first_epoch,
            applied_epoch: None,
            look_ahead_bytes: points.room.0,
            staged_batches: points.depth,
            reason: reason.to_owned(),
        }
    }

    /// With the epoch in which it was applied, according to `applied`.
    #[must_use]
    pub fn applied(self, applied: &[Applied]) -> Self {
        let epoch = applied.iter().find(|it| it.generation == self.generation);
        Self { applied_epoch: epoch.map(|it| it.epoch.0), ..self }
    }

    #[must_use]
    pub fn line(&self) -> String {
        let Self { generation, staged_batches: depth, .. } = self;
        let applied = match self.applied_epoch {
            Some(epoch) => format!("applied from epoch {epoch}"),
            None => "never applied".to_owned(),
        };
        let room = Bytes(self.look_ahead_bytes);
        let reason = if self.reason.is_empty() { "the first" } else { &self.reason };
        format!(
            "generation {generation}: {room} for samples to come, {depth} staged batches, {applied}: {reason}"
        )
    }
}

fn words(figures: &Figures) -> String {
    let rate = figures.bandwidth.map(|rate| rate.to_string());
    let latency = figures.latency.map(|latency| format!("{latency} latency"));
    let known: Vec<String> = rate.into_iter().chain(latency).collect();
    if known.is_empty() {
        return "no figures".to_owned();
    }
    format!("{} ({})", known.join(", "), figures.from)
}

fn entry(tier: &ScheduledTier, found: &FoundTier) -> ScheduledTierEntry {
    ScheduledTierEntry {
        name: found.kind,
        location: found.location.to_string(),
        emulated: found.origin == Origin::Emulated,
        role: tier.role,
        budget_bytes: found.budget.0,
        cache_bytes: tier.cache.0,
        figures: found.figures.clone(),
        copy_threads: tier.copy_threads,
        direct: tier
            .direct
            .map(|it| it.path == tierfeed_core::retention::in_place::ReadPath::Direct),
        decision: tier.reason.clone(),
    }
}
