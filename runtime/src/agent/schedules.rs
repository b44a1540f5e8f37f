//! The schedules that this process got, for its report.

use std::collections::VecDeque;

use tierfeed_core::fleet::{Applied, schedule::Schedule};

use crate::observe::{report::GENERATIONS_KEPT, schedule::GenerationEntry};

/// The last schedules, oldest first.
#[derive(Debug)]
pub(super) struct Schedules(VecDeque<GenerationEntry>);

impl Schedules {
    pub(super) fn of(first: &Schedule) -> Self {
        Self(VecDeque::from([GenerationEntry::of(first)]))
    }

    pub(super) fn push(&mut self, schedule: &Schedule) {
        if self.0.len() == GENERATIONS_KEPT {
            self.0.pop_front();
        }
        self.0.push_back(GenerationEntry::of(schedule));
    }

    pub(super) fn entries(&self, applied: &[Applied]) -> Vec<GenerationEntry> {
        self.0.iter().cloned().map(|it| it.applied(applied)).collect()
    }
}
