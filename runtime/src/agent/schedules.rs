//! The schedules of this process: those that it worked by, for its report, and when the next one comes.

use std::collections::VecDeque;

use tierfeed_core::{
    fleet::{Applied, revision::Held, schedule::Schedule},
    order::Spec,
    session::Observed,
};

use crate::observe::{report::GENERATIONS_KEPT, schedule::GenerationEntry};

#[derive(Debug)]
pub(super) struct Schedules {
    /// The last ones, oldest first.
    kept: VecDeque<GenerationEntry>,
    held: Held,
    epochs: u32,
}

impl Schedules {
    pub(super) fn of(first: &Schedule, order: Spec) -> Self {
        let held = Held::of(first, order.start.epoch);
        Self { kept: VecDeque::from([first.into()]), held, epochs: order.epochs }
    }

    /// The generation that follows `schedule`, if the observations ask for one.
    pub(super) fn next(&mut self, schedule: &Schedule, observed: &Observed) -> Option<Schedule> {
        let next = self.held.next(schedule, self.epochs, observed)?;
        if self.kept.len() == GENERATIONS_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((&next).into());
        Some(next)
    }

    pub(super) fn entries(&self, applied: &[Applied]) -> Vec<GenerationEntry> {
        self.kept.iter().cloned().map(|it| it.applied(applied)).collect()
    }
}
