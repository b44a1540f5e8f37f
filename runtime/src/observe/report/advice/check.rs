//! Checks the premises of advice against the figures of the run.

use tierfeed_core::{
    session::StallCause,
    units::{Bytes, BytesPerSecond},
};

use super::{Advice, RunFigures, SATURATED, WORTH_IT};
use crate::observe::report::verdict::NOTICEABLE;

/// Copies do not wait for a tier that is busy for less than this share of the time.
const HALF: f64 = 0.5;

#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) advice: Advice,
    premise: Premise,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Premise {
    /// A link was slower than the training's demand.
    TooSlow {
        given: BytesPerSecond,
        needed: BytesPerSecond,
    },
    /// A link was fast enough and partly idle, but batches were staged late.
    Late {
        given: BytesPerSecond,
        needed: BytesPerSecond,
        busy: f64,
    },
    Busy {
        busy: f64,
    },
    /// Cold reads of an epoch are repeated and would fit into a cache.
    ReadAgain {
        cold: Bytes,
        chunk: Bytes,
    },
    /// The job runs another policy than the one that is advised.
    OtherPolicy,
    /// The waits were mostly for the first batches.
    FirstBatches,
    Adapting,
    /// Decoding uses fewer threads than there are processors.
    Threads {
        now: u64,
        processors: u64,
    },
    /// Decoding uses as many threads as there are processors.
    AllThreads {
        now: u64,
        processors: u64,
    },
    /// A cold store stood idle beside a training that waited for it later.
    Phases,
    /// Trainers waited noticeably for this cause.
    Waited(StallCause),
}

impl Candidate {
    pub(super) fn new(advice: Advice, premise: Premise) -> Self {
        Self { advice, premise }
    }
}

impl RunFigures<'_> {
    /// Whether the premise holds for the run, and the advice changes something.
    pub(super) fn is_supported(&self, candidate: &Candidate) -> bool {
        self.holds(candidate.premise)
            && self.exceeds_current(candidate)
            && self.saves_enough(&candidate.advice)
    }

    /// Whether the advice would have shortened the waits noticeably; unknown counts as enough.
    fn saves_enough(&self, advice: &Advice) -> bool {
        let enough = (self.waiting.wall_s * NOTICEABLE).min(self.waiting.stall_s * WORTH_IT);
        advice.saves_s.is_none_or(|saves| saves > 0.0 && saves >= enough)
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
            Premise::Phases => self.cycle.is_some(),
            Premise::OtherPolicy => self.policy != "gap",
            Premise::FirstBatches => {
                self.waiting.first_s > self.waiting.stall_s / 2.0
                    || self.waiting.seconds_for(StallCause::Start) > 0.0
            }
            Premise::Adapting => !self.adapting.is_empty(),
            Premise::Threads { now, processors } => now < processors,
            Premise::AllThreads { now, processors } => now >= processors,
            Premise::Waited(cause) => {
                let share = self.waiting.seconds_for(cause) / self.waiting.wall_s.max(1e-9);
                share >= NOTICEABLE || cause == StallCause::SelfRead
            }
        }
    }

    fn exceeds_current(&self, candidate: &Candidate) -> bool {
        let Advice { more_bytes, to_bytes_per_s, to_count, change, .. } = &candidate.advice;
        let rate = match (to_bytes_per_s, candidate.premise) {
            (Some(to), Premise::TooSlow { given, .. }) => *to > given.0,
            _ => true,
        };
        let bytes = match (more_bytes, candidate.premise) {
            // More than what is read cold, rounded up to a chunk, can save nothing more.
            (Some(more), Premise::ReadAgain { cold, chunk }) => {
                *more > 0 && *more <= cold.0.saturating_add(chunk.0)
            }
            _ => true,
        };
        let count = match (to_count, *change) {
            (Some(to), "decode-threads") => *to > u64::from(self.progress.decode_threads_max()),
            // No more can be staged ahead than there are batches.
            (Some(to), _) => *to > u64::from(self.staged_batches) && *to <= self.steps(),
            (None, _) => true,
        };
        rate && bytes && count
    }
}
