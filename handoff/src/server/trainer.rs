//! The training process that a connection reads for.
//!
//! A rank belongs to one training process while that lives and is connected: the first that came.
//! Its loader workers and forked children read for it too; they name it, and this is accepted if
//! the kernel reports that they descend from it. Another process that states the same rank, by
//! mistake or on purpose, would train on the same samples, so it is turned away.
//!
//! A client in a process namespace that the agent cannot see into has no process number here. Two
//! such clients cannot be told apart, and both are admitted.

use std::fs;

/// Number of ancestors that are checked; a loader's worker is one or two away from its trainer.
const ANCESTORS_MAX: usize = 64;

/// A process, distinguished from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trainer {
    /// Its process number in the agent's namespace.
    pub(super) pid: u32,
    /// Start time, in clock ticks since the machine started.
    started: u64,
}

impl Trainer {
    /// The process that `peer` reads for: `named`, as a number in the namespace of `peer`, if that
    /// is `peer` or an ancestor of it, else `peer` itself.
    pub(super) fn of(peer: u32, named: u32) -> Option<Self> {
        let own = Lineage::of(peer)?;
        let depth = own.numbers.len();
        let mut at = (peer, own);
        for _ in 0..ANCESTORS_MAX {
            let (pid, lineage) = at;
            if lineage.numbers.len() == depth && lineage.numbers.last() == Some(&named) {
                return Self::alive(pid);
            }
            let Some(parent) = Lineage::of(lineage.parent) else { break };
            at = (lineage.parent, parent);
        }
        Self::alive(peer)
    }

    fn alive(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before it may hold spaces and brackets.
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<_> = fields.split(' ').collect();
        let is_over = matches!(*fields.first()?, "Z" | "X");
        let started = fields.get(19)?.parse().ok()?;
        (!is_over).then_some(Self { pid, started })
    }

    pub(super) fn is_alive(self) -> bool {
        Self::alive(self.pid) == Some(self)
    }
}

struct Lineage {
    parent: u32,
    /// Its numbers, from the agent's namespace to its own.
    numbers: Vec<u32>,
}

impl Lineage {
    fn of(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).map(str::split_ascii_whitespace)
        };
        let parent = field("PPid:")?.next()?.parse().ok()?;
        let numbers = field("NSpid:")?.map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self { parent, numbers })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::parent_id,
        process::{self, Command},
    };

    use super::*;

    #[test]
    fn a_process_may_speak_for_itself_and_for_its_ancestors() {
        let (own, parent) = (process::id(), parent_id());
        assert_eq!(Trainer::of(own, own).unwrap().pid, own);
        assert_eq!(Trainer::of(own, parent).unwrap().pid, parent);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(Trainer::of(child.id(), own).unwrap().pid, own);
        assert_eq!(Trainer::of(own, child.id()).unwrap().pid, own, "not for its children");
        assert_eq!(Trainer::of(own, u32::MAX).unwrap().pid, own);
        child.kill().unwrap();
        // Not waited for yet, so its number is still taken.
        let dead = || Trainer::alive(child.id()).is_none();
        while !dead() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(Trainer::of(u32::MAX, own), None);
    }

    #[test]
    fn a_later_process_with_the_same_number_is_another() {
        let own = Trainer::alive(process::id()).unwrap();
        assert!(own.is_alive());
        assert!(!Trainer { started: own.started + 1, ..own }.is_alive());
    }
}
