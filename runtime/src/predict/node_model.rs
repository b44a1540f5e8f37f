//! The model of a node in predictions: capacity and speed of its tiers. The node need not exist.

use std::num::NonZeroU32;

use tierfeed_core::{
    fleet::schedule::Role,
    order::Spec,
    retention::form::SampleTime,
    session,
    simulator::{Model, TransformCosts},
    tier::{Buffer, Kind, Speed},
    units::{Bytes, Nanoseconds},
};
use tierfeed_resource_gatherer::Report;
use tierfeed_workload_analyzer::{Job, demand::Demand};

use super::tier_speed;
use crate::{
    layout::{self, Cache, Layout, Lengths, Staged},
    observe::schedule::{ScheduleEntry, ScheduledTierEntry, TransformEntry},
    schedule,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeModel {
    staged: Staged,
    /// The cache tiers, fastest first.
    pub tiers: Vec<Tier>,
    /// The unit in which tiers grow.
    pub chunk: Bytes,
    pub cold: Speed,
    /// The mean length of a stored sample.
    stored: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    pub kind: Kind,
    /// The bytes that it caches.
    pub cache: Bytes,
    pub speed: Speed,
    /// Whether trainers read its samples in place.
    pub is_direct: bool,
}

fn mean_len(demand: &Demand) -> Bytes {
    Bytes(demand.total.0 / u64::from(demand.samples.max(1)))
}

impl NodeModel {
    /// This node as `layout` uses it: its tiers as fast as the job imposes, else as measured, else
    /// unlimited.
    #[must_use]
    pub fn of(demand: &Demand, layout: &Layout, measured: Option<&Report>, cold: Speed) -> Self {
        let tier = |place: &layout::TierLayout| Tier {
            kind: place.settings.kind,
            cache: place.cache,
            speed: tier_speed(place, measured),
            is_direct: place.is_direct(),
        };
        Self {
            staged: layout.staged,
            tiers: layout.tiers.iter().map(tier).collect(),
            chunk: layout.chunk,
            cold,
            stored: mean_len(demand),
        }
    }

    /// A node that was scheduled like this, with tiers as fast as their figures say, else unlimited.
    #[must_use]
    pub fn scheduled(demand: &Demand, entry: &ScheduleEntry, cold: Speed) -> Self {
        let used = entry.tiers.iter().filter(|tier| tier.role != Role::LeftOut);
        let tier = |tier: &ScheduledTierEntry| {
            let bandwidth = tier.figures.bandwidth.unwrap_or_default();
            let latency = tier.figures.latency.unwrap_or_default();
            Tier {
                kind: tier.name,
                cache: Bytes(tier.cache_bytes),
                speed: Speed { latency, bandwidth },
                is_direct: tier.direct == Some(true),
            }
        };
        let staged = Staged {
            arena: Bytes(entry.arena_bytes_per_rank),
            depth: entry.staged_batches,
            depth_max: entry.staged_batches_max,
            windows: entry.windows,
            first_room: Bytes(entry.look_ahead_bytes),
            transforming: entry.transform.as_ref().map(TransformEntry::transforming),
        };
        Self {
            staged,
            tiers: used.map(tier).collect(),
            chunk: Bytes(entry.chunk_bytes.max(1)),
            cold,
            stored: mean_len(demand),
        }
    }

    /// The cache of all tiers of a kind.
    #[must_use]
    pub fn cache(&self, kind: Kind) -> Bytes {
        let of_kind = self.tiers.iter().filter(|tier| tier.kind == kind);
        Bytes(of_kind.map(|tier| tier.cache.0).sum())
    }

    /// The settings of a session on the first of nodes like this one.
    #[must_use]
    pub fn session(&self, job: &Job, lengths: Lengths, order: Spec) -> session::Settings {
        let buffer = |tier: &Tier| Buffer::within(tier.kind, tier.cache, self.chunk);
        let tiers = self.tiers.iter().map(buffer).collect();
        let in_place_tiers = layout::direct_tiers(self.tiers.iter().map(|tier| tier.is_direct));
        let cache = Cache { tiers, chunk: self.chunk };
        let mut settings = layout::session(job, lengths, order, self.staged, cache);
        let known = |tier: &Tier| Some(tier.speed.bandwidth).filter(|rate| rate.0 > 0);
        settings.aim.rates.tiers = self.tiers.iter().map(known).collect();
        session::Settings { in_place_tiers, ..settings }
    }

    /// Staging memory of each rank.
    #[must_use]
    pub fn arena(&self) -> Bytes {
        self.staged.arena
    }

    #[must_use]
    pub fn model(&self, step_time: Nanoseconds) -> Model {
        let tiers = self.tiers.iter().map(|tier| tier.speed).collect();
        let cold_threads = Some(self.cold_threads());
        let transforms = self.transform_costs();
        Model {
            cold: self.cold,
            cold_threads,
            cold_burst: Nanoseconds(0),
            tiers,
            step_time,
            pause: None,
            transforms,
            head_start: Nanoseconds(0),
        }
    }

    /// The assumption on the lengths of prepared samples where these are not known, in a sentence.
    #[must_use]
    pub fn assumed_lengths(&self, job: &Job, lengths: &Lengths) -> Option<String> {
        schedule::transforms::assumed_lengths(
            job,
            self.staged.transforming,
            lengths.prepared.as_deref(),
        )
    }

    /// The same node, on which a thread takes `time` to transform a sample in place of the measured time. A sample in
    /// its prepared form takes as long.
    #[must_use]
    pub fn with_transform_time(mut self, time: Nanoseconds) -> Self {
        let each = SampleTime { prepare: Nanoseconds(0), rest: time };
        self.staged.transforming.iter_mut().for_each(|it| it.each = Some(each));
        self
    }

    /// The samples that are transformed at the same time; `None` in a job without a transform.
    #[must_use]
    pub fn transform_threads(&self) -> Option<NonZeroU32> {
        Some(self.staged.transforming?.threads)
    }

    /// `None` without a transform, and if its time was not measured.
    #[must_use]
    pub fn transform_costs(&self) -> Option<TransformCosts> {
        let each = self.staged.transforming?.each?;
        Some(TransformCosts::of_mean(each, self.stored))
    }

    /// Reads of the cold store that run at the same time.
    #[must_use]
    pub fn cold_threads(&self) -> NonZeroU32 {
        NonZeroU32::new(self.staged.windows.cold_threads).unwrap_or(NonZeroU32::MIN)
    }
}
