//! What a node found, and the schedule that it works by.
//!
//! An agent sends an [`Offer`]: every tier that the job may use there, with its figures and where they come
//! from, and the figures of the cold store. The manager answers with a [`Schedule`], which names a tier by
//! its number in the offer. Neither grows with the dataset or the number of nodes.

use alloc::{string::String, vec::Vec};
use core::{fmt, num::NonZeroU32};

use crate::{
    id::{Epoch, NumaNode},
    retention::{
        form::{Form, SampleTime},
        in_place::{Choice, Pace, Rates},
    },
    session::{Adaptation, SetPoints, Windows, assignment::Assignment},
    tier::Kind,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

/// What is known of the speed of a tier or of the cold store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Figures {
    /// The time from a request to the first byte; `None` if it is not known.
    pub latency: Option<Nanoseconds>,
    /// The rate at which its bytes come into main memory; `None` if it is not known.
    pub bandwidth: Option<BytesPerSecond>,
    /// Where these figures come from, in words.
    pub from: String,
    /// Whether so few bytes were read that the rate may be wrong by an order of magnitude.
    pub is_rough: bool,
}

impl Figures {
    /// No figures.
    #[must_use]
    pub fn none() -> Self {
        Self { from: String::from("none"), ..Self::default() }
    }
}

/// Whether a tier is the hardware that its name promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The hardware of that name.
    Real,
    /// Other hardware that emulates it.
    Emulated,
}

/// Where the bytes of a tier lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// In memory of any NUMA node.
    Memory,
    /// In memory of this NUMA node.
    NumaNode(NumaNode),
    /// In files of this directory.
    Directory(String),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::NumaNode(node) => write!(f, "NUMA node {}", node.0),
            Self::Directory(path) => f.write_str(path),
        }
    }
}

/// Whether a tier and the cold store are one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// The tier has a device of its own, or is memory.
    Own,
    /// The tier lies on the disk that holds the dataset.
    OfTheDataset,
}

/// Measured rates of copies into a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteRates {
    /// The rate of one thread.
    pub one: BytesPerSecond,
    /// The rate of two threads.
    pub two: BytesPerSecond,
}

/// A tier that a node found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundTier {
    /// The kind of memory or storage.
    pub kind: Kind,
    /// Whether its speed is real or imposed.
    pub origin: Origin,
    /// Where its bytes lie.
    pub location: Location,
    /// Whether it shares its device with the dataset.
    pub device: Device,
    /// Bytes that this job may use.
    pub budget: Bytes,
    /// The part of the budget that the job uses otherwise: its scratch directory.
    pub beside: Bytes,
    /// Its speed.
    pub figures: Figures,
    /// What sets this speed.
    pub pace: Pace,
    /// Rates of readers, which decide whether trainers read in place.
    pub reads: Option<Rates>,
    /// Rates of writers, which decide how many threads copy.
    pub writes: Option<WriteRates>,
}

/// What a node can give to transforms, and what they cost there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransformOffer {
    /// The samples that the node transforms at a time, one in each transform worker.
    pub threads: NonZeroU32,
    /// What a thread needs for a sample, as it was measured; `None` if it was not.
    pub each: Option<SampleTime>,
    /// Where this time comes from, in words.
    pub from: String,
    /// The lengths of prepared samples, if each has its own; `None` if all have one, or they were not looked at.
    pub own: Option<OwnLengths>,
    /// Why the node could not look at them; empty if it could, or did not try.
    pub own_unknown: String,
}

impl TransformOffer {
    /// Of a node that measured nothing.
    #[must_use]
    pub fn of_threads(threads: NonZeroU32) -> Self {
        let from = String::from("not measured");
        Self { threads, each: None, from, own: None, own_unknown: String::new() }
    }
}

/// The lengths of prepared samples that have lengths of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnLengths {
    /// The fingerprint of all of them, if the node has scanned them.
    pub fingerprint: Option<u64>,
    /// Their mean.
    pub mean: Bytes,
    /// Their standard deviation.
    pub deviation: Bytes,
    /// How long the node would scan the heads of all images for them; `None` if it knows them.
    pub scan: Option<Nanoseconds>,
}

/// What a node found for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Its tiers, in the order of their kinds.
    pub tiers: Vec<FoundTier>,
    /// The speed of the cold store, as this node reads it.
    pub cold: Figures,
    /// Of a job with a transform.
    pub transform: Option<TransformOffer>,
}

/// What a tier is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It keeps used samples, and free room holds those to come.
    RetentionAndLookAhead,
    /// It keeps used samples only.
    Retention,
    /// It holds samples to come only: the policy keeps none.
    LookAhead,
    /// Batches are staged there, and nothing else.
    Staging,
    /// It is not used.
    LeftOut,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 5] = [
        Self::RetentionAndLookAhead,
        Self::Retention,
        Self::LookAhead,
        Self::Staging,
        Self::LeftOut,
    ];

    /// The name in reports and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RetentionAndLookAhead => "retention-and-look-ahead",
            Self::Retention => "retention",
            Self::LookAhead => "look-ahead",
            Self::Staging => "staging",
            Self::LeftOut => "left-out",
        }
    }
}

/// A tier of an offer with its place in the schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledTier {
    /// Its index in [`Offer::tiers`].
    pub offered: u32,
    /// What it is used for.
    pub role: Role,
    /// The bytes that it caches: whole chunks.
    pub cache: Bytes,
    /// The part of each rank's staging memory that lies here because main memory cannot hold it.
    pub staging: Bytes,
    /// Threads that copy from and to it.
    pub copy_threads: u32,
    /// Whether trainers read samples in place; `None` for files, which they cannot.
    pub direct: Option<Choice>,
    /// Its place and the reason, in a sentence.
    pub reason: String,
}

/// Operations at a time on the links of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkWindows {
    /// Reads from the cold store at the start.
    pub cold: u32,
    /// The most that they may become.
    pub cold_max: u32,
    /// Threads that read the cold store.
    pub cold_threads: u32,
    /// Copies from or into each tier.
    pub tier: u32,
}

impl LinkWindows {
    /// The windows of a session, with the reads divided over its ranks by `assignment`.
    #[must_use]
    pub fn session(&self, assignment: Assignment) -> Windows {
        let count = |count| core::num::NonZeroU32::new(count).unwrap_or(core::num::NonZeroU32::MIN);
        let adaptation = match self.cold_max {
            max if max > self.cold => Adaptation::Measured { max: count(max) },
            _ => Adaptation::Fixed,
        };
        Windows { cold: count(self.cold), tier: count(self.tier), assignment, adaptation }
    }
}

/// How a node transforms samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransformSchedule {
    /// The form in which its tiers hold samples, the same on all nodes.
    pub form: Form,
    /// The samples that the node transforms at a time, one in each transform worker.
    pub threads: NonZeroU32,
    /// Why this form, in a sentence.
    pub reason: String,
    /// The fingerprint of the lengths of prepared samples on the first node that knew them, if tiers hold these and
    /// each has its own.
    pub lengths: Option<u64>,
}

/// How a node transforms samples, and what that costs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transforming {
    /// The form in which its tiers hold samples.
    pub form: Form,
    /// The samples that the node transforms at a time, one in each transform worker.
    pub threads: NonZeroU32,
    /// What a thread needs for a sample; `None` if it was not measured.
    pub each: Option<SampleTime>,
    /// The mean length of prepared samples that have lengths of their own, where it is known.
    pub own_mean: Option<Bytes>,
}

/// What a node works by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Counts the schedules of the node, from 0.
    pub generation: u32,
    /// The first epoch that it holds for.
    pub first_epoch: Epoch,
    /// The tiers, fastest first, then those that are left out.
    pub tiers: Vec<ScheduledTier>,
    /// The unit in which tiers grow.
    pub chunk: Bytes,
    /// Staging memory of each rank.
    pub arena: Bytes,
    /// Batches staged ahead of each rank, the one in use included.
    pub depth: u32,
    /// The most that a later generation may make of it: staging memory is laid out for so many.
    pub depth_max: u32,
    /// The reason for this depth, in a sentence.
    pub depth_reason: String,
    /// Operations at a time.
    pub windows: LinkWindows,
    /// The room of the tiers that is kept free of what the policy retains, for samples to come.
    pub look_ahead: Bytes,
    /// Why this generation replaced the one before; empty for the first.
    pub reason: String,
    /// Of a job with a transform.
    pub transform: Option<TransformSchedule>,
}

impl Schedule {
    /// What a session applies of it at the plan of an epoch.
    #[must_use]
    pub fn points(&self) -> SetPoints {
        SetPoints { room: self.look_ahead, depth: self.depth }
    }

    /// How the node that made this offer transforms; `None` without a transform.
    #[must_use]
    pub fn transforming(&self, offer: &Offer) -> Option<Transforming> {
        let TransformSchedule { form, threads, .. } = *self.transform.as_ref()?;
        let found = offer.transform.as_ref();
        let each = found.and_then(|found| found.each);
        let own_mean = found.and_then(|found| found.own).map(|own| own.mean);
        Some(Transforming { form, threads, each, own_mean })
    }

    /// The tiers that are used, fastest first, with what was found of each.
    pub fn used<'all>(
        &'all self,
        offer: &'all Offer,
    ) -> impl Iterator<Item = (&'all ScheduledTier, &'all FoundTier)> {
        self.with(offer).filter(|(tier, _)| tier.role != Role::LeftOut)
    }

    /// All tiers with what was found of each.
    pub fn with<'all>(
        &'all self,
        offer: &'all Offer,
    ) -> impl Iterator<Item = (&'all ScheduledTier, &'all FoundTier)> {
        self.tiers.iter().filter_map(|tier| Some((tier, offer.tiers.get(tier.offered as usize)?)))
    }
}
