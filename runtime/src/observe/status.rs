//! The status of a job, as `tierfeed status` shows it.

use serde::Serialize;
use tierfeed_core::{
    fleet::{TransformProgress, members::PeerLink},
    id::NumaNode,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_resource_gatherer::available::{Available, DiskSpace};

use super::{observed::ObservedEntry, schedule::ScheduleEntry};

/// The status of a job; `tierfeed status --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobStatus {
    /// The name of the job.
    pub job: String,
    /// The number of nodes of the job.
    pub nodes: u32,
    /// Whether the job was asked to end.
    pub draining: bool,
    /// Batches that the whole job reads.
    pub batches: u64,
    /// The nodes that registered, by number.
    pub joined: Vec<NodeStatus>,
}

/// The status of one node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeStatus {
    /// The number of the node.
    pub node: u32,
    /// How many processes worked as this node before.
    pub generation: u32,
    /// `alive`, `lost` or `drained`.
    pub state: &'static str,
    /// The tiers of the node, fastest first, then those that are left out.
    pub tiers: Vec<TierStatus>,
    /// What it works by.
    pub schedule: ScheduleEntry,
    /// What it observed; `None` before its first report.
    pub observed: Option<ObservedEntry>,
    /// Its links to other nodes; of more than 16 those that it does not ask, and those with the most bytes.
    pub peers: Vec<PeerStatus>,
    /// Batches that its trainers took.
    pub batches: u64,
    /// Samples of the batches handed over.
    pub samples: u64,
    /// Bytes of the batches handed over.
    pub handed_over_bytes: u64,
    /// Bytes read from the cold store, page cache included.
    pub cold_read_bytes: u64,
    /// The part of it that the page cache had.
    pub page_cache_read_bytes: u64,
    /// Time for which its trainers waited, summed over ranks.
    pub stall_ns: u64,
    /// The number of failed operations.
    pub faults: u64,
    /// What its transform workers do; `None` in a job without a transform.
    pub transforms: Option<TransformStatus>,
    /// Chunks of CXL memory that its workloads hold.
    pub lent_chunks: u32,
    /// Free resources in its last report; `None` before the first report and after its end.
    pub available: Option<AvailableStatus>,
}

/// What the transform workers of a node do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TransformStatus {
    /// Workers that take samples.
    pub workers: u32,
    /// Samples that wait for one.
    pub waiting: u32,
    /// Samples that became rows.
    pub rows: u64,
    /// The same by the time since the first trainer came; `None` before that.
    pub rows_per_s: Option<f64>,
    /// Processor time of a row, on average; `None` before the first.
    pub row_ns: Option<u64>,
    /// Samples that did not become rows.
    pub rejected: u64,
    /// Workers that were started in the place of others.
    pub replaced: u64,
}

impl From<TransformProgress> for TransformStatus {
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 53 bits")]
    fn from(progress: TransformProgress) -> Self {
        let TransformProgress { workers, waiting, rows, rejected, replaced, worked, trained } =
            progress;
        Self {
            workers,
            waiting,
            rows,
            rows_per_s: (trained.0 > 0).then(|| rows as f64 / (trained.0 as f64 / 1e9)),
            row_ns: worked.0.checked_div(rows),
            rejected,
            replaced,
        }
    }
}

impl TransformStatus {
    /// A line of text.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { workers, waiting, rows, rows_per_s, row_ns, rejected, replaced } = *self;
        let rate = rows_per_s.map(|it| format!(", {it:.0}/s")).unwrap_or_default();
        let row = row_ns.map(|it| format!(", {} of a core each", Nanoseconds(it)));
        format!(
            "transforms: {rows} rows{rate}{}; {workers} workers, {waiting} samples wait; {rejected} \
             samples became no row; {replaced} workers replaced",
            row.unwrap_or_default()
        )
    }
}

/// One tier of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TierStatus {
    /// The kind of the tier.
    pub name: &'static str,
    /// The budget of the job.
    pub budget_bytes: u64,
    /// Whether its speed is imposed.
    pub emulated: bool,
    /// Bytes read from it.
    pub read_bytes: u64,
    /// The time from a request to the first byte; `None` if it is not known.
    pub latency_ns: Option<u64>,
    /// The rate at which its bytes come into main memory; `None` if it is not known.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Where these figures come from, as in the report of a run.
    pub figures_from: String,
    /// What it is used for: `retention-and-look-ahead`, `retention`, `look-ahead`, `staging` or `left-out`.
    #[serde(rename = "use")]
    pub role: &'static str,
    /// Its place among the tiers and the reason, in a sentence.
    pub decision: String,
}

/// What a node and another one have sent each other, since the process of the first began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeerStatus {
    /// The number of the other node.
    pub peer: u32,
    /// Bytes that were read from it.
    pub received_bytes: u64,
    /// Bytes that it was sent.
    pub sent_bytes: u64,
    /// Bytes that were asked of it and have not arrived.
    pub in_flight_bytes: u64,
    /// Reads of it that failed, late ones included.
    pub failures: u64,
    /// The rate of arriving bytes, of late; `None` before the first.
    pub bytes_per_s: Option<u64>,
    /// The shortest time from a request to the first byte of its answer, of late; `None` before the first.
    pub round_trip_ns: Option<u64>,
    /// `asked`, or why what it holds is read cold: `too-slow`, `failing` or `gone`.
    pub standing: &'static str,
}

impl From<&PeerLink> for PeerStatus {
    fn from(link: &PeerLink) -> Self {
        Self {
            peer: link.peer.0,
            received_bytes: link.received.0,
            sent_bytes: link.sent.0,
            in_flight_bytes: link.in_flight.0,
            failures: link.failures,
            bytes_per_s: link.rate.map(|rate| rate.0),
            round_trip_ns: link.round_trip.map(|time| time.0),
            standing: link.standing.name(),
        }
    }
}

impl PeerStatus {
    /// The link as a line of text.
    #[must_use]
    pub fn line(&self) -> String {
        let mut parts = vec![
            format!("read {}", Bytes(self.received_bytes)),
            format!("sent {}", Bytes(self.sent_bytes)),
        ];
        parts.extend(self.bytes_per_s.map(|rate| BytesPerSecond(rate).to_string()));
        parts.extend(self.round_trip_ns.map(|it| format!("round trip {}", Nanoseconds(it))));
        let in_flight = Bytes(self.in_flight_bytes);
        parts.extend((in_flight > Bytes(0)).then(|| format!("{in_flight} in flight")));
        parts.extend((self.failures > 0).then(|| format!("{} reads failed", self.failures)));
        let why = match self.standing {
            "asked" => None,
            "too-slow" => Some("not asked now: slower than the cold store"),
            "failing" => Some("not asked now: its reads failed"),
            _ => Some("gone"),
        };
        parts.extend(why.map(str::to_owned));
        format!("node {:<9}{}", self.peer, parts.join(", "))
    }
}

/// The free resources of a node in its last report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AvailableStatus {
    /// The age of the report.
    pub age_ns: u64,
    /// Memory that a new program could take on the host without swapping.
    pub host_bytes: u64,
    /// Memory that the control group of the agent still allows; `None` without a limit.
    pub cgroup_bytes: Option<u64>,
    /// Free memory by NUMA node.
    pub numa_nodes: Vec<NumaStatus>,
    /// How long tasks waited for memory; `None` on a kernel without PSI.
    pub pressure: Option<PressureStatus>,
    /// The load of the host's CPUs.
    pub load: Option<LoadStatus>,
    /// The directories of tiers.
    pub directories: Vec<DirectoryStatus>,
}

/// Free memory of a NUMA node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NumaStatus {
    /// The number of the NUMA node.
    pub numa_node: u32,
    /// Free bytes; page cache does not count as free.
    pub free_bytes: u64,
}

/// How long tasks waited for memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PressureStatus {
    /// Share of the last ten seconds in which some task waited.
    pub some_percent: f64,
    /// All time in which some task waited.
    pub some_ns: u64,
    /// Share of the last ten seconds in which all tasks waited.
    pub full_percent: f64,
    /// All time in which all tasks waited.
    pub full_ns: u64,
}

/// The number of tasks that want a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LoadStatus {
    /// Averaged over the last minute.
    pub one_minute: f64,
    /// Runnable tasks at the time of the report.
    pub runnable_tasks: u32,
}

/// The space of a directory's file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DirectoryStatus {
    /// The path of the directory.
    pub path: String,
    /// Bytes that may still be written.
    pub free_bytes: u64,
    /// The size of the file system.
    pub total_bytes: u64,
}

impl AvailableStatus {
    /// The status of a report that is `age` old.
    #[must_use]
    pub fn of(available: &Available, age: Nanoseconds) -> Self {
        let numa = |&(node, free): &(NumaNode, Bytes)| NumaStatus {
            numa_node: node.0,
            free_bytes: free.0,
        };
        let directory = |disk: &DiskSpace| DirectoryStatus {
            path: disk.path.to_string_lossy().into_owned(),
            free_bytes: disk.free.0,
            total_bytes: disk.total.0,
        };
        Self {
            age_ns: age.0,
            host_bytes: available.host.0,
            cgroup_bytes: available.cgroup.map(|bytes| bytes.0),
            numa_nodes: available.nodes_free.iter().map(numa).collect(),
            pressure: available.pressure.map(|pressure| PressureStatus {
                some_percent: pressure.some.percent,
                some_ns: pressure.some.total.0,
                full_percent: pressure.full.percent,
                full_ns: pressure.full.total.0,
            }),
            load: available.load.map(|load| LoadStatus {
                one_minute: load.one_minute,
                runnable_tasks: load.runnable,
            }),
            directories: available.disks.iter().map(directory).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_a_rate_once_a_trainer_came() {
        let second = Nanoseconds(1_000_000_000);
        let status = |trained| {
            let counts = TransformProgress {
                workers: 2,
                waiting: 0,
                rows: 300,
                rejected: 0,
                replaced: 0,
                worked: second,
                trained,
            };
            TransformStatus::from(counts)
        };
        let (early, later) = (status(Nanoseconds(0)), status(second));
        assert_eq!((early.rows_per_s, later.rows_per_s), (None, Some(300.0)));
        assert!(!early.line().contains("/s"), "{}", early.line());
        assert!(later.line().contains("300 rows, 300/s, "), "{}", later.line());
    }
}
