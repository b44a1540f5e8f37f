//! The schedule of a node as `plan --schedule` and `status` show it.

use std::{fmt::Write as _, num::NonZeroU32};

use serde::{Deserialize, Serialize};
use tierfeed_core::{
    fleet::{
        Applied, Origin,
        schedule::{FoundTier, Offer, Schedule, ScheduledTier, TransformSchedule, Transforming},
    },
    retention::form::{Form, SampleTime},
    session::SetPoints,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

/// The schedule of a node.
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
    /// The figures of the cold store.
    pub cold_store: FiguresEntry,
    /// The unit in which tiers grow.
    pub chunk_bytes: u64,
    /// Staging memory of each rank.
    pub arena_bytes_per_rank: u64,
    /// Batches staged ahead of each rank, the one in use included.
    pub staged_batches: u32,
    /// Why so many.
    pub staged_batches_reason: String,
    /// The most that a later generation may stage: staging memory is laid out for so many.
    pub staged_batches_max: u32,
    /// Room of the tiers that is kept free for samples to come.
    pub look_ahead_bytes: u64,
    /// Operations at a time.
    pub windows: WindowsEntry,
    /// Of a job with a transform.
    #[serde(default)]
    pub transform: Option<TransformEntry>,
}

/// How a node transforms samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransformEntry {
    /// The form in which tiers hold samples: `stored` or `prepared`.
    pub form: String,
    /// The samples that the node transforms at a time, one in each transform worker.
    pub threads: u32,
    /// Why this form, in a sentence.
    pub reason: String,
    /// What a thread needs for a sample until its prepared form; `None` if it was not measured.
    pub prepare_ns: Option<u64>,
    /// What it needs from there to the row.
    pub rest_ns: Option<u64>,
    /// Where these times come from.
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
            form: schedule.form.name().to_owned(),
            threads: schedule.threads.get(),
            reason: schedule.reason.clone(),
            prepare_ns: each.map(|each| each.prepare.0),
            rest_ns: each.map(|each| each.rest.0),
            times_from: found.map_or_else(String::new, |found| found.from.clone()),
            prepared_mean_bytes: found.and_then(|found| found.own).map(|own| own.mean.0),
        }
    }

    /// What a node works by; `None` if this version does not know the form.
    #[must_use]
    pub fn transforming(&self) -> Option<Transforming> {
        let form = Form::ALL.into_iter().find(|form| form.name() == self.form)?;
        let times = self.prepare_ns.zip(self.rest_ns);
        let each = times.map(|(prepare, rest)| SampleTime {
            prepare: Nanoseconds(prepare),
            rest: Nanoseconds(rest),
        });
        let own_mean = self.prepared_mean_bytes.map(Bytes);
        Some(Transforming { form, threads: NonZeroU32::new(self.threads)?, each, own_mean })
    }

    /// The lines of text.
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
        let restriction = self.transforming().and_then(|it| it.form.restriction());
        let restriction = restriction.map(|it| format!("; {it}")).unwrap_or_default();
        [
            format!("tiers hold samples {form}: {reason}{restriction}"),
            format!("{threads} threads; {each}"),
        ]
    }
}

/// What a generation of a schedule changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GenerationEntry {
    /// The number of the generation.
    pub generation: u32,
    /// The first epoch that it was made for.
    pub first_epoch: u32,
    /// The first epoch in which it was applied; `None` if it came too late, or another one came before.
    pub applied_epoch: Option<u32>,
    /// The room for samples to come.
    pub look_ahead_bytes: u64,
    /// Batches staged ahead of each rank.
    pub staged_batches: u32,
    /// Why it replaced the one before; empty for the first.
    pub reason: String,
}

/// What is known of the speed of a tier or of the cold store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FiguresEntry {
    /// The time from a request to the first byte; `None` if it is not known.
    pub latency_ns: Option<u64>,
    /// The rate at which bytes come into main memory; `None` if it is not known.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Where these figures come from.
    pub figures_from: String,
}

/// A tier of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledTierEntry {
    /// The kind of the tier.
    pub name: String,
    /// Where its bytes lie: `memory`, a NUMA node or a directory.
    pub location: String,
    /// Whether its speed is imposed, or other hardware plays it.
    pub emulated: bool,
    /// What it is used for: `retention-and-look-ahead`, `retention`, `look-ahead`, `staging` or `left-out`.
    #[serde(rename = "use")]
    pub role: String,
    /// What the job may use of it.
    pub budget_bytes: u64,
    /// The part that caches samples.
    pub cache_bytes: u64,
    /// Its speed.
    #[serde(flatten)]
    pub figures: FiguresEntry,
    /// Threads that copy from and to it.
    pub copy_threads: u32,
    /// Whether trainers read samples in place; `None` of files, which they cannot.
    pub direct: Option<bool>,
    /// Its place and the reason, in a sentence.
    pub decision: String,
}

/// Operations at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowsEntry {
    /// Reads from the cold store at the start.
    pub cold: u32,
    /// The most that they may become.
    pub cold_max: u32,
    /// Threads that read the cold store.
    pub cold_threads: u32,
    /// Copies from or into each tier.
    pub tier: u32,
}

impl ScheduleEntry {
    /// The schedule of a node that found this.
    #[must_use]
    pub fn of(schedule: &Schedule, offer: &Offer) -> Self {
        let windows = schedule.windows;
        Self {
            generation: schedule.generation,
            first_epoch: schedule.first_epoch.0,
            reason: schedule.reason.clone(),
            tiers: schedule.with(offer).map(|(tier, found)| entry(tier, found)).collect(),
            cold_store: (&offer.cold).into(),
            chunk_bytes: schedule.chunk.0,
            arena_bytes_per_rank: schedule.arena.0,
            staged_batches: schedule.depth,
            staged_batches_reason: schedule.depth_reason.clone(),
            staged_batches_max: schedule.depth_max,
            look_ahead_bytes: schedule.look_ahead.0,
            windows: WindowsEntry {
                cold: windows.cold,
                cold_max: windows.cold_max,
                cold_threads: windows.cold_threads,
                tier: windows.tier,
            },
            transform: schedule.transform.as_ref().map(|it| TransformEntry::of(it, offer)),
        }
    }

    /// What a session applies of it at the plan of an epoch.
    #[must_use]
    pub fn points(&self) -> SetPoints {
        SetPoints { room: Bytes(self.look_ahead_bytes), depth: self.staged_batches }
    }

    /// The schedule as lines of text.
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
            let ScheduledTierEntry { name, location, role, .. } = tier;
            line(&format!("  {name:<12} {role}: cache {cache} of {budget} in {location}{mark}"));
            line(&format!("  {:<12} {}", "", tier.decision));
            line(&format!("  {:<12} {}", "", tier.figures.words()));
        }
        line(&format!("  {:<12} {}", "cold store", self.cold_store.words()));
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
        let WindowsEntry { cold, cold_max, cold_threads, tier } = self.windows;
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
    /// With the epoch in which it was applied, by what a node applied.
    #[must_use]
    pub fn applied(self, applied: &[Applied]) -> Self {
        let epoch = applied.iter().find(|it| it.generation == self.generation);
        Self { applied_epoch: epoch.map(|it| it.epoch.0), ..self }
    }

    /// The generation as a line of text.
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

impl From<&Schedule> for GenerationEntry {
    fn from(schedule: &Schedule) -> Self {
        Self {
            generation: schedule.generation,
            first_epoch: schedule.first_epoch.0,
            applied_epoch: None,
            look_ahead_bytes: schedule.look_ahead.0,
            staged_batches: schedule.depth,
            reason: schedule.reason.clone(),
        }
    }
}

impl From<&ScheduleEntry> for GenerationEntry {
    fn from(schedule: &ScheduleEntry) -> Self {
        Self {
            generation: schedule.generation,
            first_epoch: schedule.first_epoch,
            applied_epoch: None,
            look_ahead_bytes: schedule.look_ahead_bytes,
            staged_batches: schedule.staged_batches,
            reason: schedule.reason.clone(),
        }
    }
}

impl FiguresEntry {
    /// The figures in words.
    #[must_use]
    pub fn words(&self) -> String {
        let rate = self.bandwidth_bytes_per_s.map(|rate| BytesPerSecond(rate).to_string());
        let latency = self.latency_ns.map(|latency| format!("{} latency", Nanoseconds(latency)));
        let known: Vec<String> = rate.into_iter().chain(latency).collect();
        if known.is_empty() {
            return "no figures".to_owned();
        }
        format!("{} ({})", known.join(", "), self.figures_from)
    }
}

impl From<&tierfeed_core::fleet::schedule::Figures> for FiguresEntry {
    fn from(figures: &tierfeed_core::fleet::schedule::Figures) -> Self {
        Self {
            latency_ns: figures.latency.map(|it| it.0),
            bandwidth_bytes_per_s: figures.bandwidth.map(|it| it.0),
            figures_from: figures.from.clone(),
        }
    }
}

fn entry(tier: &ScheduledTier, found: &FoundTier) -> ScheduledTierEntry {
    ScheduledTierEntry {
        name: found.kind.name().to_owned(),
        location: found.location.to_string(),
        emulated: found.origin == Origin::Emulated,
        role: tier.role.name().to_owned(),
        budget_bytes: found.budget.0,
        cache_bytes: tier.cache.0,
        figures: (&found.figures).into(),
        copy_threads: tier.copy_threads,
        direct: tier.direct.map(|it| it.way == tierfeed_core::retention::in_place::Way::Direct),
        decision: tier.reason.clone(),
    }
}
