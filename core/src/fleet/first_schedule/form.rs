//! The form in which the tiers of a job with a transform hold samples ([`retained`]), and its threads.
//!
//! The job file may name the form. Else what a node measured decides; where nothing was measured it is the stored
//! form, with which a job can do everything. All nodes of a job have the form of the first that was scheduled: a
//! node reads what others hold.

use alloc::{borrow::ToOwned, format, string::String, vec::Vec};
use core::num::NonZeroU32;

use super::ScheduleInputs;
use crate::{
    batch::p99_of_sum,
    fleet::schedule::{FoundTier, Offer, OwnLengths, Role, ScheduledTier, TransformSchedule},
    retention::form::{self as retained, Facts, Form, Room},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

/// The demands of a job with a transform on the schedules of its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransformTerms {
    /// The form, if the job file or the schedule of another node leaves no choice.
    pub settled: Option<Settled>,
    pub prepared: PreparedLength,
    /// The fingerprint of the lengths of prepared samples, if each has its own and a node has scanned them.
    pub lengths: Option<u64>,
    /// The mean length of a stored sample.
    pub stored: Bytes,
    /// Samples of the dataset.
    pub samples: u64,
    /// Samples that a node reads in an epoch.
    pub reads: u64,
    /// The number of nodes that read what each of them holds.
    pub sharing: u32,
    /// The time for which the trainers compute in an epoch; `None` if it is not known.
    pub compute: Option<Nanoseconds>,
    /// Epochs after the first one of the run.
    pub later_epochs: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreparedLength {
    /// Samples have no prepared form.
    None,
    /// All samples have the same length.
    Fixed(Bytes),
    /// Each sample has its own length; a node that looked at them says the mean.
    Own,
}

/// A form that is not chosen any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    pub form: Form,
    /// The source of the decision, in a sentence.
    pub reason: String,
}

impl TransformTerms {
    /// Takes over the form that an earlier manager of this job scheduled for its nodes.
    pub fn resume(&mut self, form: Form) {
        let reason = "as before the manager was restarted".to_owned();
        self.settled.get_or_insert(Settled { form, reason });
    }

    /// Fixes the form, and the lengths of prepared samples, for the nodes that are scheduled from now on.
    pub fn settle(&mut self, scheduled: &TransformSchedule) {
        let TransformSchedule { form, reason, lengths, .. } = scheduled;
        self.lengths = self.lengths.or(*lengths);
        self.settled.get_or_insert_with(|| Settled { form: *form, reason: reason.clone() });
    }
}

const NOT_MEASURED: &str = "the time of a transform was not measured";

pub(super) fn transform(
    inputs: &TransformTerms,
    offer: &Offer,
    tiers: &[ScheduledTier],
) -> TransformSchedule {
    let found = offer.transform.as_ref();
    let threads = found.map_or(NonZeroU32::MIN, |found| found.threads);
    let stored = |reason: &str| (Form::Stored, reason.to_owned());
    let own = found.and_then(|found| found.own);
    let prepared = match inputs.prepared {
        PreparedLength::None => None,
        PreparedLength::Fixed(len) => Some(len),
        PreparedLength::Own => own.map(|own| own.mean),
    };
    let (form, reason) = match (&inputs.settled, prepared, found.and_then(|it| it.each)) {
        (None | Some(Settled { form: Form::Prepared, .. }), ..)
            if inputs.prepared == PreparedLength::None =>
        {
            stored("nothing comes before the first random step, or it depends on what that draws")
        }
        (Some(settled), ..) => (settled.form, settled.reason.clone()),
        (None, ..) if inputs.later_epochs == 0 => stored("no epoch comes after the first one"),
        (None, ..) if !tiers.iter().any(|tier| keeps(tier.role)) => stored("no tier keeps samples"),
        (None, None, each) => match (found.map(|found| found.own_unknown.as_str()), each) {
            (None | Some(""), None) => stored(NOT_MEASURED),
            (None | Some(""), _) => stored("no agent has looked at the sizes of the images yet"),
            (Some(why), _) => stored(&format!("the sizes of the images are not known: {why}")),
        },
        (None, Some(_), None) => stored(NOT_MEASURED),
        (None, Some(prepared), Some(each)) => {
            let facts = Facts {
                samples: inputs.samples,
                reads: inputs.reads,
                stored: inputs.stored,
                prepared,
                rooms: rooms(inputs, offer, tiers),
                cold: offer.cold.bandwidth,
                each,
                threads,
                compute: inputs.compute,
                later_epochs: inputs.later_epochs,
                scan: own.and_then(|own| own.scan).unwrap_or_default(),
            };
            let choice = retained::choose(&facts);
            (choice.form, choice.reason())
        }
    };
    let lengths = inputs.lengths.or(own.and_then(|own| own.fingerprint));
    let lengths = lengths.filter(|_| form == Form::Prepared);
    TransformSchedule { form, threads, reason, lengths }
}

/// The inputs with room in staging for prepared samples of own lengths, if they may be held in that form. Of 100 batches
/// one is longer.
pub(super) fn with_room_for_prepared(
    inputs: &ScheduleInputs,
    offer: &Offer,
) -> Option<ScheduleInputs> {
    let transform = inputs.transform.as_ref()?;
    let OwnLengths { mean, deviation, .. } = offer.transform.as_ref()?.own?;
    let is_stored = matches!(transform.settled, Some(Settled { form: Form::Stored, .. }));
    if transform.prepared != PreparedLength::Own || is_stored {
        return None;
    }
    let samples = u64::from(inputs.batch_samples);
    let (all, variance) = (mean.0.saturating_mul(samples), u128::from(deviation.0).pow(2));
    let room = p99_of_sum(Bytes(all), variance, samples);
    Some(ScheduleInputs { batch: Bytes(inputs.batch.0.saturating_add(room.0)), ..inputs.clone() })
}

/// Whether the schedule of a node may depend on the lengths of prepared samples. Another one of the `nodes` of the job
/// may have measured what this one could not.
#[must_use]
pub fn may_depend_on_own_lengths(inputs: &ScheduleInputs, nodes: u32, offer: &Offer) -> bool {
    let Some(transform) = &inputs.transform else { return false };
    let is_measured = offer.transform.as_ref().is_some_and(|found| found.each.is_some());
    match &transform.settled {
        Some(settled) => settled.form == Form::Prepared,
        None => transform.later_epochs > 0 && inputs.policy.keeps() && (is_measured || nodes > 1),
    }
}

pub(super) fn is_settled(inputs: &ScheduleInputs) -> bool {
    inputs.transform.as_ref().is_some_and(|it| it.settled.is_some())
}

/// The inputs with which tiers hold stored samples.
pub(super) fn with_stored(inputs: &ScheduleInputs, reason: String) -> ScheduleInputs {
    let settled = Some(Settled { form: Form::Stored, reason });
    let transform = inputs.transform.clone().map(|it| TransformTerms { settled, ..it });
    ScheduleInputs { transform, ..inputs.clone() }
}

fn keeps(role: Role) -> bool {
    matches!(role, Role::Retention | Role::RetentionAndLookAhead)
}

/// The rooms of this node and of those that share with it.
fn rooms(inputs: &TransformTerms, offer: &Offer, tiers: &[ScheduledTier]) -> Vec<Room> {
    let found = |tier: &ScheduledTier| -> Option<&FoundTier> {
        offer.tiers.get(usize::try_from(tier.offered).ok()?)
    };
    let nodes = u64::from(inputs.sharing);
    let room = |tier: &ScheduledTier| Room {
        len: Bytes(tier.cache.0.saturating_mul(nodes)),
        rate: found(tier)
            .and_then(|found| found.figures.bandwidth)
            .map(|rate| BytesPerSecond(rate.0.saturating_mul(nodes))),
    };
    tiers.iter().map(room).collect()
}
