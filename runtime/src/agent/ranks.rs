//! Which ranks of this node connected, and which processes were turned away.

use std::collections::BTreeSet;

use tierfeed_core::{
    id::{NodeId, Rank},
    order::World,
    units::Nanoseconds,
};

use crate::observe::report::RanksEntry;

/// The log names ranks that have not connected this long after the first; importing a framework takes less.
const EXPECTED_WITHIN: Nanoseconds = Nanoseconds(60_000_000_000);

#[derive(Debug)]
pub(super) struct Ranks {
    absent: BTreeSet<Rank>,
    expected: u32,
    first_connected: Option<Nanoseconds>,
    is_warned: bool,
    turned_away: u64,
    first_reason: Option<String>,
}

impl Ranks {
    pub(super) fn new(world: World, node: NodeId) -> Self {
        Self {
            absent: world.ranks_of(node).collect(),
            expected: world.ranks_per_node,
            first_connected: None,
            is_warned: false,
            turned_away: 0,
            first_reason: None,
        }
    }

    pub(super) fn connected(&mut self, rank: Rank, now: Nanoseconds) {
        self.absent.remove(&rank);
        self.first_connected.get_or_insert(now);
    }

    pub(super) fn turned_away(&mut self, reason: String) {
        self.turned_away += 1;
        self.first_reason.get_or_insert(reason);
    }

    /// The ranks that are overdue; `None` if there are none, or if they were returned before.
    pub(super) fn overdue(&mut self, now: Nanoseconds) -> Option<Vec<u32>> {
        let first = self.first_connected?;
        let is_due = now.0.saturating_sub(first.0) > EXPECTED_WITHIN.0;
        if !is_due || self.is_warned || self.absent.is_empty() {
            return None;
        }
        self.is_warned = true;
        Some(self.absent.iter().map(|rank| rank.0).collect())
    }

    pub(super) fn entry(&self) -> RanksEntry {
        RanksEntry {
            expected: self.expected,
            absent: self.absent.iter().map(|rank| rank.0).collect(),
            turned_away: self.turned_away,
            turned_away_because: self.first_reason.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn ranks_that_do_not_come_are_named_once_and_in_the_report() {
        let world = World { nodes: 2, ranks_per_node: 3 };
        let mut ranks = Ranks::new(world, NodeId(1));
        assert_eq!(ranks.overdue(Nanoseconds(900 * SECOND)), None, "training has not begun");
        ranks.connected(Rank(4), Nanoseconds(SECOND));
        assert_eq!(ranks.overdue(Nanoseconds(61 * SECOND)), None);
        assert_eq!(ranks.overdue(Nanoseconds(62 * SECOND)), Some(vec![3, 5]));
        assert_eq!(ranks.overdue(Nanoseconds(63 * SECOND)), None);
        ranks.connected(Rank(3), Nanoseconds(64 * SECOND));
        ranks.turned_away("first".to_owned());
        ranks.turned_away("second".to_owned());
        let entry = ranks.entry();
        assert_eq!((entry.expected, entry.absent, entry.turned_away), (3, vec![5], 2));
        assert_eq!(entry.turned_away_because.as_deref(), Some("first"));
    }
}
