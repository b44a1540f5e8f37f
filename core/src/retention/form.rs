//! The form in which tiers hold the samples of a job with a transform: stored, or prepared.
//!
//! In an epoch after the first, a node reads what its tiers do not hold from the cold store, and its threads
//! transform every sample. In the prepared form tiers hold fewer samples, if these are longer than the stored
//! ones, but what they hold needs only the rest of the transform. The epoch takes as long as what is short: the
//! cold store, the threads, the tiers, or the trainer ([`EpochTime`]).
//!
//! Of a tier that holds a part of the dataset, an epoch reads the same part of its samples: each is as likely to
//! be held as any other. So the closed form needs no order and no policy.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. All later epochs with what is chosen, and its scan, take no longer than with the other form but for [`WORTH`].
//! 2. More room, a faster cold store or more threads make no form slower.
//! 3. A simulated session agrees: what is chosen takes at most 3 % longer than the other.

use alloc::{format, string::String, vec::Vec};
use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::{
    space::Space,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

/// The form of a sample before its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// As the cold store has it.
    Stored,
    /// After the last step that gives the same in every epoch.
    Prepared,
}

impl Form {
    pub const ALL: [Self; 2] = [Self::Stored, Self::Prepared];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Prepared => "prepared",
        }
    }

    /// The restriction of a form, for reports.
    #[must_use]
    pub const fn restriction(self) -> Option<&'static str> {
        match self {
            Self::Stored => None,
            Self::Prepared => Some(
                "nothing is fetched ahead into tiers, as the cold store does not have this form",
            ),
        }
    }
}

/// The prepared form must save this part of an epoch, in thousandths: the stored one takes less room, and
/// can be fetched ahead.
pub const WORTH: u64 = 10;

/// The time of a thread for a sample, measured on a few dozen of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleTime {
    /// From the stored form to the prepared one.
    pub prepare: Nanoseconds,
    /// From the prepared form to the row.
    pub rest: Nanoseconds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub len: Bytes,
    /// The rate at which samples come from it; `None` if it is not known.
    pub rate: Option<BytesPerSecond>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub samples: u64,
    /// Samples that a node reads in an epoch.
    pub reads: u64,
    /// The mean length of a stored sample.
    pub stored: Bytes,
    pub prepared: Bytes,
    /// The tiers, fastest first.
    pub rooms: Vec<Room>,
    /// The rate of the cold store; `None` if it is not known.
    pub cold: Option<BytesPerSecond>,
    pub each: SampleTime,
    pub threads: NonZeroU32,
    /// The time that the trainer computes in an epoch; `None` if it is not known.
    pub compute: Option<Nanoseconds>,
    /// Epochs after the first one of the run, in which tiers hold samples.
    pub later_epochs: u32,
    /// The time that the node would scan for the lengths of prepared samples before the training; 0 if they
    /// are known.
    pub scan: Nanoseconds,
}

/// The time for which an epoch keeps each resource busy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EpochTime {
    pub cold: Nanoseconds,
    /// Of each thread that transforms.
    pub threads: Nanoseconds,
    /// Of the busiest tier.
    pub tiers: Nanoseconds,
    pub compute: Nanoseconds,
}

impl EpochTime {
    #[must_use]
    pub fn longest(&self) -> Nanoseconds {
        self.cold.max(self.threads).max(self.tiers).max(self.compute)
    }

    /// The resource that sets the duration.
    #[must_use]
    pub fn limit(&self) -> &'static str {
        let parts = [
            (self.compute, "the step time"),
            (self.cold, "the rate of the cold store"),
            (self.threads, "the time of threads"),
            (self.tiers, "the rate of a tier"),
        ];
        let longest = self.longest();
        parts.iter().find(|part| part.0 == longest).map_or("nothing", |part| part.1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    pub form: Form,
    pub stored: EpochTime,
    pub prepared: EpochTime,
    /// The time that prepared samples save in all later epochs together.
    pub saved: Nanoseconds,
    pub scan: Nanoseconds,
}

impl Choice {
    #[must_use]
    pub fn reason(&self) -> String {
        let whole =
            |Nanoseconds(ns): Nanoseconds| Nanoseconds(ns - ns % 1_000_000_u64.min(ns.max(1)));
        let times = format!(
            "an epoch takes {} with stored samples, which {} sets, and {} with prepared ones, which {} sets",
            whole(self.stored.longest()),
            self.stored.limit(),
            whole(self.prepared.longest()),
            self.prepared.limit(),
        );
        let (scan, saved) = (whole(self.scan), whole(self.saved));
        match self.form {
            Form::Prepared if self.scan.0 > 0 => {
                format!("{times}; scanning the heads of images takes {scan} once")
            }
            Form::Stored if self.is_worth() && self.saved == Nanoseconds(0) => {
                format!("{times}; no epoch comes after the first one")
            }
            Form::Stored if self.is_worth() => format!(
                "{times}; scanning the heads of images would take {scan}, and prepared samples would save \
                 {saved} in all later epochs"
            ),
            Form::Stored | Form::Prepared => times,
        }
    }

    fn is_worth(&self) -> bool {
        let [stored, prepared] = [self.stored, self.prepared].map(|time| time.longest().0);
        let saved = stored.saturating_sub(prepared);
        u128::from(saved) * 1000 > u128::from(stored) * u128::from(WORTH)
    }
}

#[must_use]
pub fn choose(facts: &Facts) -> Choice {
    let (stored, prepared) = (epoch(facts, Form::Stored), epoch(facts, Form::Prepared));
    let of_epoch = stored.longest().0.saturating_sub(prepared.longest().0);
    let saved = Nanoseconds(of_epoch.saturating_mul(facts.later_epochs.into()));
    let choice = Choice { form: Form::Stored, stored, prepared, saved, scan: facts.scan };
    let is_chosen = choice.is_worth() && saved > facts.scan;
    Choice { form: if is_chosen { Form::Prepared } else { Form::Stored }, ..choice }
}

/// The times of an epoch after the first if tiers hold samples in a form.
#[must_use]
pub fn epoch(facts: &Facts, form: Form) -> EpochTime {
    let len = match form {
        Form::Stored => facts.stored,
        Form::Prepared => facts.prepared,
    };
    let (samples, reads) = (u128::from(facts.samples.max(1)), u128::from(facts.reads));
    let (mut left, mut held, mut tiers) = (samples, 0, 0);
    for room in &facts.rooms {
        let here = u128::from(room.len.0) / u128::from(Space::rounded(len).0.max(1));
        let here = here.min(left);
        left -= here;
        held += here;
        let rate = room.rate.map_or(0, |rate| rate.0);
        tiers = tiers.max(seconds(here * reads * u128::from(len.0) / samples, rate));
    }
    let hits = held * reads / samples;
    let misses = reads - hits;
    let prepared = if form == Form::Stored { reads } else { misses };
    let work = prepared * u128::from(facts.each.prepare.0) + reads * u128::from(facts.each.rest.0);
    EpochTime {
        cold: clamped(seconds(
            misses * u128::from(facts.stored.0),
            facts.cold.map_or(0, |rate| rate.0),
        )),
        threads: clamped(work / u128::from(facts.threads.get())),
        tiers: clamped(tiers),
        compute: facts.compute.unwrap_or_default(),
    }
}

/// In nanoseconds; 0 if the rate is not known.
fn seconds(bytes: u128, rate: u64) -> u128 {
    bytes.saturating_mul(1_000_000_000).checked_div(u128::from(rate)).unwrap_or(0)
}

fn clamped(time: u128) -> Nanoseconds {
    Nanoseconds(u64::try_from(time).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
