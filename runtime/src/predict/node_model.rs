//! The model of a node in predictions: capacity and speed of its tiers. The node need not exist.
//!
//! 1. Staging has priority: a change that leaves no memory for a batch of each rank is refused.
//! 2. A tier keeps whole chunks.

mod change;

use std::num::NonZeroU32;

use tierfeed_core::{
    fleet::{
        budget::{MainMemory, Staging},
        schedule::{LinkWindows, Role, Transforming},
    },
    order::Spec,
    retention::form::SampleTime,
    session,
    simulator::{Model, TransformCosts},
    tier::{Buffer, Kind, Speed},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_resource_gatherer::{Report, classify::Profile};
use tierfeed_workload_analyzer::{
    Job,
    demand::{Demand, Rule, Supply, TierFigure},
};

pub use change::{Change, ChangeError, parse_kind};

use super::{UNLIMITED, rate_of, tier_speed};
use crate::{
    layout::{self, Cache, Layout, Lengths, Staged},
    observe::schedule::{ScheduleEntry, ScheduledTierEntry, TransformEntry, WindowsEntry},
    schedule::{self, fastest_first},
};

/// A node with a cold store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeModel {
    /// Staging memory of each rank.
    pub arena: Bytes,
    /// The cache tiers, fastest first.
    pub tiers: Vec<Tier>,
    /// The unit in which tiers grow.
    pub chunk: Bytes,
    /// The link to the cold store.
    pub cold: Speed,
    staging: Staging,
    /// Batches staged ahead of each rank at first.
    depth: u32,
    windows: LinkWindows,
    first_room: Bytes,
    /// Of a job with a transform.
    transforming: Option<Transforming>,
    /// The mean length of a stored sample.
    stored: Bytes,
}

/// A tier of a [`NodeModel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    /// The kind of the tier.
    pub kind: Kind,
    /// The bytes that it caches.
    pub cache: Bytes,
    /// Its latency and bandwidth.
    pub speed: Speed,
    /// Random reads per second, or `None` if they are not limited or not known.
    pub reads_per_s: Option<u64>,
    /// Whether trainers read its samples in place.
    pub is_direct: bool,
}

impl Tier {
    fn profile(&self) -> Profile {
        match self.speed.bandwidth {
            BytesPerSecond(0) => Profile::unmeasured(self.kind),
            _ => Profile::emulated(self.kind, self.speed, None),
        }
    }
}

/// Why a change is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeModelError {
    /// A tier is changed more than once.
    #[error("{kind} is changed twice; say once what it shall be")]
    Twice {
        /// The kind of the tier.
        kind: Kind,
    },
    /// Main memory would hold no batch.
    #[error(
        "main-memory={} cannot hold a batch of each rank, which are staged there; \
         it needs at least {least}", in_words(*.size)
    )]
    NoStaging {
        /// The size that was asked for.
        size: Option<Bytes>,
        /// The least size that is accepted.
        least: Bytes,
    },
    /// A tier would keep nothing.
    #[error("{kind}={size} holds no chunk of {chunk}; give it at least that, or none")]
    NoChunk {
        /// The kind of the tier.
        kind: Kind,
        /// The size that was asked for.
        size: Bytes,
        /// The unit in which tiers grow.
        chunk: Bytes,
    },
}

fn mean_len(demand: &Demand) -> Bytes {
    Bytes(demand.total.0 / u64::from(demand.samples.max(1)))
}

fn in_words(size: Option<Bytes>) -> String {
    size.map_or_else(|| "none".to_owned(), |size| size.to_string())
}

impl NodeModel {
    /// This node as `layout` uses it: its tiers as fast as the job imposes, else as measured, else
    /// unlimited.
    #[must_use]
    pub fn of(
        job: &Job,
        demand: &Demand,
        layout: &Layout,
        measured: Option<&Report>,
        cold: Speed,
    ) -> Self {
        let tier = |place: &layout::TierLayout| Tier {
            kind: place.settings.kind,
            cache: place.cache,
            speed: tier_speed(place, measured),
            reads_per_s: match place.settings.emulated {
                Some(_) => None,
                None => reads_per_s(place.settings.kind, measured),
            },
            is_direct: place.is_direct(),
        };
        Self {
            arena: layout.arena,
            tiers: layout.tiers.iter().map(tier).collect(),
            chunk: layout.chunk,
            cold,
            staging: Staging { batches: layout.depth_max, ..schedule::staging(job, demand) },
            depth: layout.depth,
            windows: layout.windows,
            first_room: layout.first_room,
            transforming: layout.transforming,
            stored: mean_len(demand),
        }
    }

    /// A node that was scheduled like this, with tiers as fast as their figures say, else unlimited.
    ///
    /// # Errors
    ///
    /// The name of a tier that does not exist.
    pub fn scheduled(
        job: &Job,
        demand: &Demand,
        entry: &ScheduleEntry,
        cold: Speed,
    ) -> Result<Self, String> {
        let used = entry.tiers.iter().filter(|tier| tier.role != Role::LeftOut.name());
        let tier = |tier: &ScheduledTierEntry| {
            let bandwidth = BytesPerSecond(tier.figures.bandwidth_bytes_per_s.unwrap_or(0));
            let latency = Nanoseconds(tier.figures.latency_ns.unwrap_or(0));
            Ok(Tier {
                kind: tier.name.parse().map_err(|_| tier.name.clone())?,
                cache: Bytes(tier.cache_bytes),
                speed: Speed { latency, bandwidth },
                reads_per_s: None,
                is_direct: tier.direct == Some(true),
            })
        };
        let WindowsEntry { cold: cold_window, cold_max, cold_threads, tier: tier_window } =
            entry.windows;
        Ok(Self {
            arena: Bytes(entry.arena_bytes_per_rank),
            tiers: used.map(tier).collect::<Result<_, String>>()?,
            chunk: Bytes(entry.chunk_bytes.max(1)),
            cold,
            staging: Staging {
                batches: entry.staged_batches_max,
                ..schedule::staging(job, demand)
            },
            depth: entry.staged_batches,
            windows: LinkWindows { cold: cold_window, cold_max, cold_threads, tier: tier_window },
            first_room: Bytes(entry.look_ahead_bytes),
            transforming: entry.transform.as_ref().and_then(TransformEntry::transforming),
            stored: mean_len(demand),
        })
    }

    /// The node with `changes`. A new tier has its measured speed, else none is imposed.
    ///
    /// # Errors
    ///
    /// [`NodeModelError`]
    pub fn with(
        &self,
        changes: &[Change],
        measured: Option<&Report>,
    ) -> Result<Self, NodeModelError> {
        let mut site = self.clone();
        for (index, change) in changes.iter().enumerate() {
            let kind = change.kind;
            if changes[..index].iter().any(|other| other.kind == kind) {
                return Err(NodeModelError::Twice { kind });
            }
            site.change(*change, measured)?;
        }
        Ok(site)
    }

    /// The node with `cache` bytes in the tiers of a kind, in whole chunks, and staging as it is.
    #[must_use]
    pub fn with_cache(&self, kind: Kind, cache: Bytes) -> Self {
        let mut site = self.clone();
        let parts = site.tiers.iter().filter(|tier| tier.kind == kind).count() as u64;
        let mut chunks = cache.0 / site.chunk.0.max(1);
        let of_kind = site.tiers.iter_mut().filter(|tier| tier.kind == kind);
        for (tier, left) in of_kind.zip((1..=parts).rev()) {
            let here = chunks.div_ceil(left);
            chunks -= here;
            tier.cache = Bytes(here.saturating_mul(site.chunk.0));
        }
        site
    }

    /// The cache of all tiers of a kind; `None` if there is no such tier.
    #[must_use]
    pub fn cache(&self, kind: Kind) -> Option<Bytes> {
        let of_kind = || self.tiers.iter().filter(move |tier| tier.kind == kind);
        of_kind().next()?;
        Some(Bytes(of_kind().map(|tier| tier.cache.0).sum()))
    }

    /// Staging memory of all ranks together.
    #[must_use]
    pub fn staged(&self) -> Bytes {
        Bytes(self.arena.0.saturating_mul(self.staging.ranks.into()))
    }

    /// The kinds of tiers, fastest first.
    #[must_use]
    pub fn kinds(&self) -> Vec<Kind> {
        let mut kinds = Vec::new();
        for tier in &self.tiers {
            if !kinds.contains(&tier.kind) {
                kinds.push(tier.kind);
            }
        }
        kinds
    }

    /// The settings of a session on the first of nodes like this one.
    #[must_use]
    pub fn session(&self, job: &Job, lengths: Lengths, order: Spec) -> session::Settings {
        let buffer = |tier: &Tier| Buffer::within(tier.kind, tier.cache, self.chunk);
        let tiers = self.tiers.iter().map(buffer).collect();
        let in_place_tiers = layout::direct_tiers(self.tiers.iter().map(|tier| tier.is_direct));
        let cache = Cache { tiers, chunk: self.chunk };
        let depth_max = self.staging.batches;
        let Self { arena, depth, windows, first_room, transforming, .. } = *self;
        let staged = Staged { arena, depth, depth_max, windows, first_room, transforming };
        let mut settings = layout::session(job, lengths, order, staged, cache);
        let known = |tier: &Tier| Some(tier.speed.bandwidth).filter(|rate| rate.0 > 0);
        settings.aim.rates.tiers = self.tiers.iter().map(known).collect();
        session::Settings { in_place_tiers, ..settings }
    }

    /// The simulator's model, with steps that compute for `step_time`.
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

    /// What is taken for the lengths of prepared samples where these are not known, in a sentence.
    #[must_use]
    pub fn assumed_lengths(&self, job: &Job, lengths: &Lengths) -> Option<String> {
        schedule::transforms::assumed_lengths(job, self.transforming, lengths.prepared.as_deref())
    }

    /// The same node, on which a thread takes `time` to transform a sample in place of the measured time. A sample in
    /// its prepared form takes as long.
    #[must_use]
    pub fn with_transform_time(mut self, time: Nanoseconds) -> Self {
        let each = SampleTime { prepare: Nanoseconds(0), rest: time };
        self.transforming.iter_mut().for_each(|it| it.each = Some(each));
        self
    }

    /// The samples that are transformed at the same time; `None` in a job without a transform.
    #[must_use]
    pub fn transform_threads(&self) -> Option<NonZeroU32> {
        Some(self.transforming?.threads)
    }

    /// What transforms cost, as far as that was measured.
    #[must_use]
    pub fn transform_costs(&self) -> Option<TransformCosts> {
        let each = self.transforming?.each?;
        Some(TransformCosts::of_mean(each, self.stored))
    }

    /// Reads of the cold store that run at the same time.
    #[must_use]
    pub fn cold_threads(&self) -> NonZeroU32 {
        NonZeroU32::new(self.windows.cold_threads).unwrap_or(NonZeroU32::MIN)
    }

    /// The inputs of the closed forms.
    #[must_use]
    pub fn supply(&self, rule: Rule) -> Supply {
        let figure = |tier: &Tier| TierFigure {
            kind: tier.kind,
            capacity: tier.cache,
            read: tier.speed.bandwidth,
            reads_per_s: tier.reads_per_s,
        };
        let tiers = self.tiers.iter().map(figure).collect();
        Supply { tiers, cold: self.cold, rule, chunk: self.chunk }
    }

    fn change(&mut self, change: Change, measured: Option<&Report>) -> Result<(), NodeModelError> {
        let Change { kind, size } = change;
        let Some(cache) = self.cache_within(change)? else {
            self.tiers.retain(|tier| tier.kind != kind);
            return Ok(());
        };
        if kind != Kind::MainMemory && cache.0 < self.chunk.0 {
            let size = size.unwrap_or_default();
            return Err(NodeModelError::NoChunk { kind, size, chunk: self.chunk });
        }
        if self.cache(kind).is_none() {
            let speed = Speed { bandwidth: rate_of(kind, measured), ..UNLIMITED };
            let reads_per_s = reads_per_s(kind, measured);
            let tier = Tier { kind, cache: Bytes(0), speed, reads_per_s, is_direct: false };
            self.tiers.insert(self.place_of(&tier), tier);
        }
        *self = self.with_cache(kind, cache);
        Ok(())
    }

    /// The position of a new tier: behind all that the classification of the layout puts before it.
    fn place_of(&self, new: &Tier) -> usize {
        let profiles: Vec<Profile> = self.tiers.iter().chain([new]).map(Tier::profile).collect();
        let order = fastest_first(&profiles);
        let before = order.into_iter().take_while(|index| *index != self.tiers.len());
        before.max().map_or(0, |last| last + 1)
    }

    /// The cache after a change; a change of main memory sets staging too.
    fn cache_within(&mut self, change: Change) -> Result<Option<Bytes>, NodeModelError> {
        if change.kind != Kind::MainMemory {
            return Ok(change.size);
        }
        let split = self.staging.within(change.size.unwrap_or_default());
        if split.arena < self.staging.batch {
            let least = self.staging.batch.0.saturating_mul(self.staging.ranks.into());
            return Err(NodeModelError::NoStaging { size: change.size, least: Bytes(least) });
        }
        let MainMemory { arena, cache } = split;
        self.arena = arena;
        Ok(Some(cache))
    }
}

/// The measured random reads per second of a tier; `None` for memory.
fn reads_per_s(kind: Kind, measured: Option<&Report>) -> Option<u64> {
    measured?.tiers.iter().find(|tier| tier.kind == kind)?.random_read_iops
}

#[cfg(test)]
pub(super) mod tests;
