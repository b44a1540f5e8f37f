//! CPU starvation: how long training processes were runnable without a processor.
//!
//! Other work of the node can make epochs longer although the training does not wait for data. The kernel
//! counts how long each thread waits in run queues (`/proc/PID/schedstat`). The main thread of each training
//! process counts here, from its first connection to the end of its last.

use std::{collections::BTreeMap, fs};

use tierfeed_core::{id::ConnectionId, units::Nanoseconds};

#[derive(Debug, Default)]
pub(super) struct Starvation {
    /// By process id.
    connected: BTreeMap<u32, RunQueueTime>,
    process_of: BTreeMap<ConnectionId, u32>,
    /// The sum over processes that have disconnected.
    disconnected: Nanoseconds,
    processes_max: usize,
}

/// Run-queue time of a process when it connected, and at the last update.
#[derive(Debug, Clone, Copy)]
struct RunQueueTime {
    first: Nanoseconds,
    last: Nanoseconds,
}

impl Starvation {
    /// A reader of training process `pid` connected; `None` if the process is not visible here.
    pub(super) fn connect(&mut self, connection: ConnectionId, pid: Option<u32>) {
        let Some((pid, now)) = pid.and_then(|pid| Some((pid, run_queue_time(pid)?))) else {
            return;
        };
        self.connected.entry(pid).or_insert(RunQueueTime { first: now, last: now });
        self.process_of.insert(connection, pid);
        self.processes_max = self.processes_max.max(self.connected.len());
    }

    /// Reads the counters again. Call from time to time: those of an ended process are gone.
    pub(super) fn update(&mut self) {
        for (pid, process) in &mut self.connected {
            process.last = run_queue_time(*pid).unwrap_or_default().max(process.last);
        }
    }

    pub(super) fn disconnect(&mut self, connection: ConnectionId) {
        let Some(pid) = self.process_of.remove(&connection) else { return };
        if self.process_of.values().any(|other| *other == pid) {
            return;
        }
        if let Some(RunQueueTime { first, last }) = self.connected.remove(&pid) {
            let last = run_queue_time(pid).unwrap_or_default().max(last);
            self.disconnected.0 += last.0 - first.0;
        }
    }

    /// The sum divided by the most processes at a time; `None` if none was visible.
    pub(super) fn mean(&self) -> Option<Nanoseconds> {
        let connected: u64 = self.connected.values().map(|it| it.last.0 - it.first.0).sum();
        (self.disconnected.0 + connected).checked_div(self.processes_max as u64).map(Nanoseconds)
    }
}

/// How long the main thread of a process has waited in run queues.
fn run_queue_time(pid: u32) -> Option<Nanoseconds> {
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
        starvation.connect(ConnectionId(7), None);
        starvation.disconnect(ConnectionId(7));
        assert_eq!(starvation.mean(), None);
        let pid = process::id();
        starvation.connect(ConnectionId(1), Some(pid));
        starvation.connect(ConnectionId(2), Some(pid));
        let process = starvation.connected.get_mut(&pid).unwrap();
        // As if it had connected before it waited in any queue.
        process.first = Nanoseconds(0);
        process.last = Nanoseconds(40);
        starvation.update();
        starvation.disconnect(ConnectionId(1));
        let before = starvation.mean().unwrap();
        assert!(before >= Nanoseconds(40));
        starvation.disconnect(ConnectionId(2));
        assert!(starvation.connected.is_empty());
        assert!(starvation.mean().unwrap() >= before);
        starvation.update();
    }
}
