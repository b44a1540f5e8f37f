//! What a node found, and the schedule that it works by.
//!
//! An agent sends an [`Offer`]: every tier that the job may use there, with its figures and where they come
//! from, and the figures of the cold store. The manager answers with a [`Schedule`], which names a tier by
//! its number in the offer. Neither grows with the dataset or the number of nodes.

use alloc::{string::String, vec::Vec};
use core::{fmt, num::NonZeroU32};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use crate::{
    id::{Epoch, NumaNode},
    retention::{
        form::{Form, SampleTime},
        in_place::{InPlaceDecision, Rates, SpeedOrigin},
    },
    session::{Adaptation, SetPoints, Windows, assignment::Assignment},
    tier::Kind,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

/// The speed of a tier or of the cold store, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Figures {
    /// From a request to the first byte; `None` if it is not known.
    #[serde(rename = "latency_ns")]
    pub latency: Option<Nanoseconds>,
    /// The rate at which its bytes come into main memory; `None` if it is not known.
    #[serde(rename = "bandwidth_bytes_per_s")]
    pub bandwidth: Option<BytesPerSecond>,
    /// The source of these figures, in words.
    #[serde(rename = "figures_from")]
    pub from: String,
    /// Whether so few bytes were read that the rate may be wrong by an order of magnitude.
    #[serde(default)]
    pub is_rough: bool,
}

impl Figures {
    #[must_use]
    pub fn none() -> Self {
        Self { from: String::from("none"), ..Self::default() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    Real,
    /// Emulated by other hardware.
    Emulated,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Location {
    Memory,
    NumaNode(NumaNode),
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Device {
    Own,
    /// The tier lies on the disk that holds the dataset.
    OfTheDataset,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteRates {
    /// The rate of one thread.
    #[serde(rename = "one_bytes_per_s")]
    pub one: BytesPerSecond,
    /// The rate of two threads together.
    #[serde(rename = "two_bytes_per_s")]
    pub two: BytesPerSecond,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundTier {
    pub kind: Kind,
    pub origin: Origin,
    pub location: Location,
    pub device: Device,
    /// Bytes that this job may use.
    pub budget: Bytes,
    /// The part of the budget that the job uses otherwise: its scratch directory.
    pub beside: Bytes,
    pub figures: Figures,
    pub pace: SpeedOrigin,
    /// Rates of readers, which decide whether trainers read in place.
    pub reads: Option<Rates>,
    /// Rates of writers, which decide how many threads copy.
    pub writes: Option<WriteRates>,
}

/// The threads of a node for transforms, and the time that transforms take there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransformOffer {
    /// Samples that the node transforms at a time, one in each transform worker.
    pub threads: NonZeroU32,
    /// The measured time of a thread for a sample; `None` if it was not measured.
    pub each: Option<SampleTime>,
    /// The source of this time, in words.
    pub from: String,
    /// The lengths of prepared samples, if each has its own; `None` if all have one, or they were not
    /// looked at.
    pub own: Option<OwnLengths>,
    /// The reason that the node could not look at them; empty if it could, or did not try.
    pub own_unknown: String,
}

impl TransformOffer {
    /// For a node that measured nothing.
    #[must_use]
    pub fn of_threads(threads: NonZeroU32) -> Self {
        let from = String::from("not measured");
        Self { threads, each: None, from, own: None, own_unknown: String::new() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnLengths {
    /// The fingerprint of all of them; `None` if the node has not scanned them.
    pub fingerprint: Option<u64>,
    pub mean: Bytes,
    pub deviation: Bytes,
    /// The time that the node would need to scan the heads of all images for them; `None` if it knows them.
    pub scan: Option<Nanoseconds>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// In the order of their kinds.
    pub tiers: Vec<FoundTier>,
    pub cold: Figures,
    /// `None` in a job without a transform.
    pub transform: Option<TransformOffer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Keeps used samples; free room holds those to come.
    RetentionAndLookAhead,
    /// Keeps used samples only.
    Retention,
    /// Holds samples to come only: the policy keeps none.
    LookAhead,
    /// Only batches are staged there.
    Staging,
    LeftOut,
}

impl Role {
    pub const ALL: [Self; 5] = [
        Self::RetentionAndLookAhead,
        Self::Retention,
        Self::LookAhead,
        Self::Staging,
        Self::LeftOut,
    ];

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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledTier {
    /// The index in [`Offer::tiers`].
    pub offered: u32,
    pub role: Role,
    /// In whole chunks.
    pub cache: Bytes,
    /// The part of each rank's staging memory that lies here because main memory cannot hold it.
    pub staging: Bytes,
    /// Threads that copy from and to it.
    pub copy_threads: u32,
    /// Whether trainers read samples in place; `None` for files, which they cannot.
    pub direct: Option<InPlaceDecision>,
    pub reason: String,
}

/// The limits of simultaneous operations on the links of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkWindows {
    /// Reads from the cold store at the start of the session.
    pub cold: u32,
    /// The limit to which `cold` may grow.
    pub cold_max: u32,
    pub cold_threads: u32,
    /// Copies from or into each tier.
    pub tier: u32,
}

impl LinkWindows {
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransformSchedule {
    /// The form in which tiers hold samples, the same on all nodes.
    pub form: Form,
    pub threads: NonZeroU32,
    pub reason: String,
    /// The fingerprint of the lengths of prepared samples on the first node that knew them; `None` unless
    /// tiers hold prepared samples and each has its own length.
    pub lengths: Option<u64>,
}

/// A [`TransformSchedule`] with the measured costs of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transforming {
    pub form: Form,
    pub threads: NonZeroU32,
    /// The time of a thread for a sample; `None` if it was not measured.
    pub each: Option<SampleTime>,
    /// The mean length of prepared samples; `None` if they have one length, or if it is not known.
    pub own_mean: Option<Bytes>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Counts the schedules of the node, from 0.
    pub generation: u32,
    pub first_epoch: Epoch,
    /// Fastest first, then those that are left out.
    pub tiers: Vec<ScheduledTier>,
    /// The unit in which tiers grow.
    #[serde(deserialize_with = "positive")]
    pub chunk: Bytes,
    pub arena: Bytes,
    /// Batches staged ahead for each rank, the one in use included.
    #[serde(deserialize_with = "positive")]
    pub depth: u32,
    /// The limit for later generations: staging memory is laid out for so many.
    pub depth_max: u32,
    pub depth_reason: String,
    pub windows: LinkWindows,
    /// The room of the tiers that is kept free of retained samples, for samples to come.
    pub look_ahead: Bytes,
    /// The reason that this generation replaced the one before; empty for the first.
    pub reason: String,
    /// `None` in a job without a transform.
    pub transform: Option<TransformSchedule>,
}

/// An agent divides by the chunk, and stages by the depth.
fn positive<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default + PartialEq>(
    from: D,
) -> Result<T, D::Error> {
    let value = T::deserialize(from)?;
    if value == T::default() { Err(D::Error::custom("it must not be 0")) } else { Ok(value) }
}

impl Schedule {
    /// The set points that a session applies at the plan of an epoch.
    #[must_use]
    pub fn points(&self) -> SetPoints {
        SetPoints { room: self.look_ahead, depth: self.depth }
    }

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

    pub fn with<'all>(
        &'all self,
        offer: &'all Offer,
    ) -> impl Iterator<Item = (&'all ScheduledTier, &'all FoundTier)> {
        self.tiers.iter().filter_map(|tier| Some((tier, offer.tiers.get(tier.offered as usize)?)))
    }
}
