//! The form in which the tiers of a job with a transform hold samples ([`core_form`]), and its threads.
//!
//! The job file may name the form. Else what a node measured decides; where nothing was measured it is the stored
//! form, with which a job can do everything. All nodes of a job have the form of the first that was scheduled: a
//! node reads what others hold.

use std::num::NonZeroU32;

use tierfeed_core::{
    fleet::schedule::{FoundTier, Offer, ScheduledTier, TransformSchedule},
    retention::{
        form::{self as core_form, Facts, Form, Room},
        policy,
    },
    units::{Bytes, Nanoseconds},
};
use tierfeed_workload_analyzer::{Job, demand::Demand, job::CachedForm};

/// What a job with a transform asks of the schedules of its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransformTerms {
    /// The form of which the job file, or the schedule of another node, leaves no choice.
    pub settled: Option<Settled>,
    /// The length of a prepared sample; `None` if that form has no length of its own.
    pub prepared: Option<Bytes>,
    /// The mean length of a stored one.
    pub stored: Bytes,
    /// Samples of the dataset.
    pub samples: u64,
    /// Samples that a node reads in an epoch.
    pub reads: u64,
    /// Nodes that read what each of them holds.
    pub sharing: u32,
    /// How long the trainers compute in an epoch; `None` if it is not known.
    pub compute: Option<Nanoseconds>,
}

/// A form that is not chosen any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The form.
    pub form: Form,
    /// Who says so, in a sentence.
    pub reason: String,
}

impl TransformTerms {
    /// The terms of a job on a dataset; `None` without a transform.
    #[must_use]
    pub fn of(job: &Job, demand: &Demand) -> Option<Self> {
        let transform = job.transform.as_ref()?;
        let settled = |form| Settled { form, reason: "as the job file says".to_owned() };
        let nodes = u64::from(demand.nodes.max(1));
        let reads = u64::from(demand.samples_per_rank) * u64::from(demand.ranks_per_node);
        Some(Self {
            settled: match transform.cache {
                CachedForm::Auto => None,
                CachedForm::Stored => Some(settled(Form::Stored)),
                CachedForm::Prepared => Some(settled(Form::Prepared)),
            },
            prepared: transform.pipeline.prepared().map(|form| Bytes(form.bytes())),
            stored: Bytes(demand.total.0 / u64::from(demand.samples.max(1))),
            samples: u64::from(demand.samples),
            reads,
            sharing: match job.policy {
                policy::Kind::Partitioned => u32::try_from(nodes).unwrap_or(u32::MAX),
                _ => 1,
            },
            compute: demand.compute_per_epoch(),
        })
    }

    /// The form in which nodes hold samples that an earlier manager of this job scheduled.
    pub(crate) fn resume(&mut self, form: Form) {
        let reason = "as before the manager was restarted".to_owned();
        self.settled.get_or_insert(Settled { form, reason });
    }

    /// The form that the nodes scheduled from now on have too.
    pub(crate) fn settle(&mut self, scheduled: &TransformSchedule) {
        let TransformSchedule { form, reason, .. } = scheduled;
        self.settled.get_or_insert_with(|| Settled { form: *form, reason: reason.clone() });
    }
}

/// How a node with these tiers transforms.
pub(super) fn transform(
    terms: &TransformTerms,
    offer: &Offer,
    tiers: &[ScheduledTier],
) -> TransformSchedule {
    let found = offer.transform.as_ref();
    let threads = found.map_or(NonZeroU32::MIN, |found| found.threads);
    let stored = |reason: &str| (Form::Stored, reason.to_owned());
    let (form, reason) = match (&terms.settled, terms.prepared, found.and_then(|it| it.each)) {
        (None | Some(Settled { form: Form::Prepared, .. }), None, _) => {
            stored("nothing comes before the first random step, or it has no fixed length")
        }
        (Some(settled), ..) => (settled.form, settled.reason.clone()),
        (None, Some(_), None) => stored("the time of a transform was not measured"),
        (None, Some(prepared), Some(each)) => {
            let facts = Facts {
                samples: terms.samples,
                reads: terms.reads,
                stored: terms.stored,
                prepared,
                rooms: rooms(terms, offer, tiers),
                cold: offer.cold.bandwidth,
                each,
                threads,
                compute: terms.compute,
            };
            let choice = core_form::choose(&facts);
            (choice.form, choice.reason())
        }
    };
    TransformSchedule { form, threads, reason }
}

/// What this node and those that share with it can hold.
fn rooms(terms: &TransformTerms, offer: &Offer, tiers: &[ScheduledTier]) -> Vec<Room> {
    let found = |tier: &ScheduledTier| -> Option<&FoundTier> {
        offer.tiers.get(usize::try_from(tier.offered).ok()?)
    };
    let nodes = u64::from(terms.sharing);
    let room = |tier: &ScheduledTier| Room {
        len: Bytes(tier.cache.0.saturating_mul(nodes)),
        rate: found(tier)
            .and_then(|found| found.figures.bandwidth)
            .map(|rate| tierfeed_core::units::BytesPerSecond(rate.0.saturating_mul(nodes))),
    };
    tiers.iter().map(room).collect()
}
