//! For how long training processes could have run and had no processor.
//!
//! A training that other work of the node slows down does not wait for data, and its epochs take longer all
//! the same. The kernel counts the time for which a thread stood in a run queue; what counts here is the main
//! thread of each training process from its first connection to its last.

use std::{collections::BTreeMap, fs};

use tierfeed_core::{id::ConnectionId, units::Nanoseconds};

/// The training processes that are or were connected.
#[derive(Debug, Default)]
pub(super) struct Starvation {
    /// By the number of the process.
    connected: BTreeMap<u32, Queued>,
    process_of: BTreeMap<ConnectionId, u32>,
    /// Of those that left.
    gone: Nanoseconds,
    processes_max: usize,
}

/// What the kernel said when a process came, and last.
#[derive(Debug, Clone, Copy)]
struct Queued {
    first: Nanoseconds,
    last: Nanoseconds,
}

impl Starvation {
    /// A connection that reads for training process `pid`; `None` if it cannot be seen.
    pub(super) fn came(&mut self, connection: ConnectionId, pid: Option<u32>) {
        let Some((pid, now)) = pid.and_then(|pid| Some((pid, queued(pid)?))) else { return };
        self.connected.entry(pid).or_insert(Queued { first: now, last: now });
        self.process_of.insert(connection, pid);
        self.processes_max = self.processes_max.max(self.connected.len());
    }

    /// Call now and then: a process that is over cannot be asked any more.
    pub(super) fn look(&mut self) {
        for (pid, process) in &mut self.connected {
            process.last = queued(*pid).unwrap_or_default().max(process.last);
        }
    }

    pub(super) fn left(&mut self, connection: ConnectionId) {
        let Some(pid) = self.process_of.remove(&connection) else { return };
        if self.process_of.values().any(|other| *other == pid) {
            return;
        }
        if let Some(Queued { first, last }) = self.connected.remove(&pid) {
            let last = queued(pid).unwrap_or_default().max(last);
            self.gone.0 += last.0 - first.0;
        }
    }

    /// The mean over the processes that were connected at a time; `None` if none could be seen.
    pub(super) fn mean(&self) -> Option<Nanoseconds> {
        let connected: u64 = self.connected.values().map(|it| it.last.0 - it.first.0).sum();
        (self.gone.0 + connected).checked_div(self.processes_max as u64).map(Nanoseconds)
    }
}

/// For how long the main thread of a process has waited in run queues.
fn queued(pid: u32) -> Option<Nanoseconds> {
    let schedstat = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok().map(Nanoseconds)
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    #[test]
    fn a_process_counts_once_from_its_first_connection_to_its_last() {
        let mut starvation = Starvation::default();
        assert_eq!(starvation.mean(), None);
        starvation.came(ConnectionId(7), None);
        starvation.left(ConnectionId(7));
        assert_eq!(starvation.mean(), None);
        let pid = process::id();
        starvation.came(ConnectionId(1), Some(pid));
        starvation.came(ConnectionId(2), Some(pid));
        let process = starvation.connected.get_mut(&pid).unwrap();
        // As if it had come when it had stood in no queue yet.
        process.first = Nanoseconds(0);
        process.last = Nanoseconds(40);
        starvation.look();
        starvation.left(ConnectionId(1));
        let before = starvation.mean().unwrap();
        assert!(before >= Nanoseconds(40));
        starvation.left(ConnectionId(2));
        assert!(starvation.connected.is_empty());
        assert!(starvation.mean().unwrap() >= before);
        starvation.look();
    }
}
