//! The training of a job that `tierfeed run` starts on every node: which nodes still train, and when all end.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. The first cause to end ends the job, and every node that trains is told it.
//! 2. The job is over once no node trains that was heard lately, and none is expected any more.
//!
//! Deliberately absent: the restart of a training, which is the launcher's.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{id::NodeId, units::Nanoseconds};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    Running,
    /// All its ranks have ended; `None` if they ended well.
    Ended(Option<Cause>),
}

/// The reason that the ranks of a job end before their training does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// A rank failed with this code.
    Failed(u8),
    /// Ranks ended after the process that started them got this signal.
    Asked(u8),
}

impl Cause {
    /// The exit code by the convention of shells.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Failed(code) => code,
            Self::Asked(signal) => 128_u8.saturating_add(signal),
        }
    }
}

/// The training of the job, as a node is told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outlook {
    pub ends: Option<Cause>,
    pub is_over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// A node that trains and is silent for this long is not waited for. Once the job has failed, neither
    /// is a node that has not come this long after the first one.
    pub lost_after: Nanoseconds,
    /// As long as the job has not failed, a node that has not come this long after the first one is not
    /// waited for.
    pub absent_after: Nanoseconds,
}

#[derive(Debug)]
pub struct Training {
    nodes: u32,
    patience: Patience,
    heard: BTreeMap<NodeId, (Stage, Nanoseconds)>,
    first_heard: Option<Nanoseconds>,
    ends: Option<Cause>,
}

impl Training {
    #[must_use]
    pub const fn new(nodes: u32, patience: Patience) -> Self {
        Self { nodes, patience, heard: BTreeMap::new(), first_heard: None, ends: None }
    }

    pub fn handle_stage(&mut self, node: NodeId, stage: Stage, now: Nanoseconds) -> Outlook {
        if node.0 < self.nodes {
            self.first_heard.get_or_insert(now);
            self.heard.insert(node, (stage, now));
            if let Stage::Ended(Some(cause)) = stage {
                self.ends.get_or_insert(cause);
            }
        }
        Outlook { ends: self.ends, is_over: self.is_over(now) }
    }

    pub fn stages(&self) -> impl Iterator<Item = (NodeId, Stage)> {
        self.heard.iter().map(|(node, (stage, _))| (*node, *stage))
    }

    fn is_over(&self, now: Nanoseconds) -> bool {
        let Some(first) = self.first_heard else { return false };
        let since = |then: Nanoseconds| Nanoseconds(now.0.saturating_sub(then.0));
        let trains = |(stage, heard): &(Stage, Nanoseconds)| {
            *stage == Stage::Running && since(*heard) <= self.patience.lost_after
        };
        let is_complete = self.heard.len() == self.nodes as usize;
        let patience = match self.ends {
            Some(_) => self.patience.lost_after,
            None => self.patience.absent_after,
        };
        let all_came = is_complete || since(first) > patience;
        all_came && !self.heard.values().any(trains)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const PATIENCE: Patience =
        Patience { lost_after: Nanoseconds(10 * SECOND), absent_after: Nanoseconds(60 * SECOND) };

    fn at(second: u64) -> Nanoseconds {
        Nanoseconds(second * SECOND)
    }

    #[test]
    fn a_job_is_over_when_every_node_has_ended() {
        let mut training = Training::new(2, PATIENCE);
        let ended = Stage::Ended(None);
        assert_eq!(training.handle_stage(NodeId(0), ended, at(1)), Outlook::default());
        assert_eq!(training.handle_stage(NodeId(1), Stage::Running, at(2)), Outlook::default());
        let over = Outlook { ends: None, is_over: true };
        assert_eq!(training.handle_stage(NodeId(1), ended, at(3)), over);
        assert_eq!(training.stages().count(), 2);
    }

    #[test]
    fn the_first_cause_ends_every_node() {
        let mut training = Training::new(3, PATIENCE);
        training.handle_stage(NodeId(0), Stage::Running, at(0));
        training.handle_stage(NodeId(1), Stage::Ended(Some(Cause::Failed(7))), at(1));
        training.handle_stage(NodeId(2), Stage::Ended(Some(Cause::Failed(9))), at(1));
        let told = training.handle_stage(NodeId(0), Stage::Running, at(2));
        assert_eq!(told, Outlook { ends: Some(Cause::Failed(7)), is_over: false });
        let told = training.handle_stage(NodeId(0), Stage::Ended(Some(Cause::Asked(15))), at(3));
        assert_eq!(told, Outlook { ends: Some(Cause::Failed(7)), is_over: true });
    }

    #[test]
    fn nodes_that_are_silent_or_do_not_come_are_waited_for_within_a_bound() {
        let mut training = Training::new(3, PATIENCE);
        let ended = Stage::Ended(None);
        training.handle_stage(NodeId(1), Stage::Running, at(55));
        assert!(!training.handle_stage(NodeId(0), ended, at(60)).is_over);
        assert!(!training.handle_stage(NodeId(0), ended, at(115)).is_over, "node 2 may come");
        assert!(training.handle_stage(NodeId(0), ended, at(116)).is_over);
        training.handle_stage(NodeId(1), Stage::Running, at(117));
        assert!(!training.handle_stage(NodeId(0), ended, at(118)).is_over, "node 1 is back");
    }

    #[test]
    fn a_job_that_has_failed_does_not_wait_long_for_nodes_that_do_not_come() {
        let mut training = Training::new(2, PATIENCE);
        let failed = Stage::Ended(Some(Cause::Failed(1)));
        assert!(!training.handle_stage(NodeId(0), failed, at(1)).is_over);
        assert!(training.handle_stage(NodeId(0), failed, at(12)).is_over);
    }

    #[test]
    fn a_node_that_the_job_does_not_have_delays_and_ends_nothing() {
        let mut training = Training::new(1, PATIENCE);
        training.handle_stage(NodeId(4), Stage::Running, at(0));
        let told = training.handle_stage(NodeId(4), Stage::Ended(Some(Cause::Failed(7))), at(0));
        assert_eq!((told.ends, told.is_over), (None, false));
        let told = training.handle_stage(NodeId(0), Stage::Ended(None), at(1));
        assert!(told.is_over);
    }
}
