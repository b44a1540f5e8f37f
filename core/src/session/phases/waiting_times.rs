//! When at least one rank waited for a batch, lately.

use alloc::collections::VecDeque;

use super::Wait;
use crate::units::Nanoseconds;

/// The number of times that are remembered. Waits of ranks in one step overlap or follow each other, and
/// are asked for a step later.
const KEPT: usize = 64;

/// Disjoint times, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct WaitingTimes(VecDeque<Wait>);

impl WaitingTimes {
    /// Waits may come in any order.
    pub(super) fn add(&mut self, wait: Wait) {
        let Wait { mut since, mut until } = wait;
        if since >= until {
            return;
        }
        let at = self.0.partition_point(|other| other.until < since);
        while let Some(other) = self.0.get(at).filter(|other| other.since <= until) {
            (since, until) = (since.min(other.since), until.max(other.until));
            self.0.remove(at);
        }
        self.0.insert(at, Wait { since, until });
        if self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    /// The time between `from` and `until` during which some rank waited.
    pub(super) fn between(&self, from: Nanoseconds, until: Nanoseconds) -> Nanoseconds {
        let within = |it: &Wait| it.until.min(until).0.saturating_sub(it.since.max(from).0);
        Nanoseconds(self.0.iter().map(within).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_that_overlap_count_once_in_any_order() {
        let waits = [(10, 30), (50, 60), (20, 40), (0, 5), (60, 70), (35, 36), (80, 80)];
        for first in 0..waits.len() {
            let mut times = WaitingTimes::default();
            for at in 0..waits.len() {
                let (since, until) = waits[(first + at) % waits.len()];
                times.add(Wait { since: Nanoseconds(since), until: Nanoseconds(until) });
            }
            let between = |from, until| times.between(Nanoseconds(from), Nanoseconds(until)).0;
            assert_eq!(between(0, 100), 5 + 30 + 20);
            assert_eq!(between(25, 55), 15 + 5);
            assert_eq!(between(40, 50), 0);
            assert!(times.0.len() <= 3);
        }
    }

    #[test]
    fn only_the_last_are_remembered() {
        let mut times = WaitingTimes::default();
        for at in 0..1_000 {
            times.add(Wait { since: Nanoseconds(at * 10), until: Nanoseconds(at * 10 + 1) });
        }
        assert_eq!(times.0.len(), KEPT);
        assert_eq!(times.between(Nanoseconds(9_900), Nanoseconds(9_950)).0, 5);
    }
}
