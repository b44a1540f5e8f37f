//! Replays what advice takes for granted against the figures of the run.

use tierfeed_core::{
    session::Cause,
    units::{Bytes, BytesPerSecond},
};

use super::{Advice, Grounds, SATURATED};
use crate::observe::report::verdict::NOTICEABLE;

/// A tier that is busy for less of the time than this is not what copies wait for.
const HALF: f64 = 0.5;

/// Advice, and what must be so for it to help.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) advice: Advice,
    premise: Premise,
}

/// What advice takes for granted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Premise {
    /// A link gave less than training takes of it.
    TooSlow { given: BytesPerSecond, needed: BytesPerSecond },
    /// A link gave enough and had time left, and batches were staged late all the same.
    Late { given: BytesPerSecond, needed: BytesPerSecond, busy: f64 },
    /// A link was at work for so much of the time.
    Busy { busy: f64 },
    /// What an epoch read cold is read again, and would fit.
    ReadAgain { cold: Bytes, chunk: Bytes },
    /// The job runs another policy than the one that is advised.
    OtherPolicy,
    /// The waits were mostly for the first batches.
    FirstBatches,
    /// A tier has a size that adapts.
    Adapting,
    /// Decoding has processors left that it does not use.
    Threads { now: u64, processors: u64 },
    /// Decoding has none left.
    AllThreads { now: u64, processors: u64 },
    /// There were noticeable waits for this.
    Waited(Cause),
}

impl Offer {
    pub(super) fn new(advice: Advice, premise: Premise) -> Self {
        Self { advice, premise }
    }
}

impl Grounds<'_> {
    /// Whether the run was as the advice takes it, and what it offers is more than there was.
    pub(super) fn bears_out(&self, offer: &Offer) -> bool {
        self.holds(offer.premise) && self.offers_more(offer)
    }

    fn holds(&self, premise: Premise) -> bool {
        match premise {
            Premise::TooSlow { given, needed } => needed > given,
            Premise::Late { given, needed, busy } => {
                needed.0 > 0 && needed <= given && busy < SATURATED
            }
            Premise::Busy { busy } => busy >= HALF,
            Premise::ReadAgain { .. } => {
                self.progress.epochs.iter().filter(|epoch| epoch.batches > 0).count() > 1
            }
            Premise::OtherPolicy => self.policy != "gap",
            Premise::FirstBatches => {
                self.waiting.first_s > self.waiting.stall_s / 2.0
                    || self.waiting.seconds_for(Cause::Start) > 0.0
            }
            Premise::Adapting => !self.adapting.is_empty(),
            Premise::Threads { now, processors } => now < processors,
            Premise::AllThreads { now, processors } => now >= processors,
            Premise::Waited(cause) => {
                let share = self.waiting.seconds_for(cause) / self.waiting.wall_s.max(1e-9);
                share >= NOTICEABLE || cause == Cause::SelfRead
            }
        }
    }

    fn offers_more(&self, offer: &Offer) -> bool {
        let Advice { more_bytes, to_bytes_per_s, to_count, change, .. } = &offer.advice;
        let rate = match (to_bytes_per_s, offer.premise) {
            (Some(to), Premise::TooSlow { given, .. }) => *to > given.0,
            _ => true,
        };
        let bytes = match (more_bytes, offer.premise) {
            // More than what is read cold, rounded up to a chunk, can save nothing more.
            (Some(more), Premise::ReadAgain { cold, chunk }) => {
                *more > 0 && *more <= cold.0.saturating_add(chunk.0)
            }
            _ => true,
        };
        let count = match (to_count, *change) {
            (Some(to), "decode-threads") => *to > u64::from(self.progress.decode_threads),
            // No more can be staged ahead than there are batches.
            (Some(to), _) => *to > u64::from(self.staged_batches) && *to <= self.steps(),
            (None, _) => true,
        };
        rate && bytes && count
    }
}
