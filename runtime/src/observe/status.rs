//! The status of a job, as `tierfeed status` shows it.

use serde::{Deserialize, Serialize};
use tierfeed_core::{
    fleet::{
        Fleet, Node, Progress, State, TransformProgress,
        members::{PeerLink, Standing},
    },
    id::NodeId,
    units::{Bytes, Nanoseconds, float, seconds},
};
use tierfeed_resource_gatherer::Available;

use super::{
    observed::ObservedEntry,
    schedule::{ScheduleEntry, ScheduledTierEntry},
};

/// The status of a job; `tierfeed status --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobStatus {
    pub job: String,
    pub nodes: u32,
    /// Whether the job was asked to end.
    pub draining: bool,
    /// Batches that the whole job reads.
    pub batches: u64,
    /// The nodes that registered, by number.
    pub joined: Vec<NodeStatus>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    pub node: u32,
    /// The number of processes that worked as this node before.
    pub generation: u32,
    pub state: State,
    /// The tiers of the node, fastest first, then those that are left out.
    pub tiers: Vec<TierStatus>,
    pub schedule: ScheduleEntry,
    /// `None` before its first report.
    pub observed: Option<ObservedEntry>,
    /// Its links to other nodes; of more than 16 those that it does not ask, and those with the most bytes.
    pub peers: Vec<PeerLink>,
    /// Batches that its trainers took.
    pub batches: u64,
    pub samples: u64,
    pub handed_over_bytes: u64,
    /// Bytes read from the cold store, page cache included.
    pub cold_read_bytes: u64,
    /// The part of `cold_read_bytes` that the page cache had.
    pub page_cache_read_bytes: u64,
    /// Time for which its trainers waited, summed over ranks.
    pub stall_ns: u64,
    /// The number of failed operations.
    pub faults: u64,
    /// `None` in a job without a transform.
    pub transforms: Option<TransformStatus>,
    /// Chunks of CXL memory that its workloads hold.
    pub lent_chunks: u32,
    /// Free resources in its last report; `None` before the first report and after its end.
    pub available: Option<AvailableStatus>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TransformStatus {
    /// Workers that take samples.
    pub workers: u32,
    /// Samples that wait for a worker.
    pub waiting: u32,
    pub rows: u64,
    /// The rate since the first trainer came; `None` before that.
    pub rows_per_s: Option<f64>,
    /// Processor time of a row, on average; `None` before the first.
    pub row_ns: Option<u64>,
    /// Samples that did not become rows.
    pub rejected: u64,
    /// Workers that were started in the place of others.
    pub replaced: u64,
}

impl From<TransformProgress> for TransformStatus {
    fn from(progress: TransformProgress) -> Self {
        let TransformProgress { workers, waiting, rows, rejected, replaced, worked, trained } =
            progress;
        Self {
            workers,
            waiting,
            rows,
            rows_per_s: (trained.0 > 0).then(|| float(rows) / seconds(trained)),
            row_ns: worked.0.checked_div(rows),
            rejected,
            replaced,
        }
    }
}

impl TransformStatus {
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierStatus {
    #[serde(flatten)]
    pub tier: ScheduledTierEntry,
    pub read_bytes: u64,
}

/// A link to another node as a line of text.
#[must_use]
pub fn peer_line(link: &PeerLink) -> String {
    let mut parts = vec![format!("read {}", link.received), format!("sent {}", link.sent)];
    parts.extend(link.rate.map(|rate| rate.to_string()));
    parts.extend(link.round_trip.map(|it| format!("round trip {it}")));
    parts.extend((link.in_flight > Bytes(0)).then(|| format!("{} in flight", link.in_flight)));
    parts.extend((link.failures > 0).then(|| format!("{} reads failed", link.failures)));
    let why = match link.standing {
        Standing::Asked => None,
        Standing::Slow => Some("not asked now: slower than the cold store"),
        Standing::Failing => Some("not asked now: its reads failed"),
        Standing::Gone => Some("gone"),
    };
    parts.extend(why.map(str::to_owned));
    format!("node {:<9}{}", link.peer.0, parts.join(", "))
}

/// The free resources of a node in its last report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AvailableStatus {
    /// The age of the report.
    pub age_ns: u64,
    #[serde(flatten)]
    pub available: Available,
}

/// The last free resources that a node reported, and their age.
pub(crate) type Reported<'report> = Option<(&'report Available, Nanoseconds)>;

impl JobStatus {
    pub(crate) fn of<'report>(
        job: &str,
        fleet: &Fleet,
        reported: impl Fn(NodeId) -> Reported<'report>,
    ) -> Self {
        let order = fleet.settings().order;
        let node = |(id, node)| NodeStatus::of(id, node, fleet.peer_links(id), reported(id));
        Self {
            job: job.to_owned(),
            nodes: order.world.nodes,
            draining: fleet.is_draining(),
            joined: fleet.nodes().map(node).collect(),
            batches: order.batches_per_rank() * u64::from(order.world.ranks()),
        }
    }
}

impl NodeStatus {
    fn of(id: NodeId, node: &Node, peers: &[PeerLink], reported: Reported<'_>) -> Self {
        let Node { offer, schedule, progress, .. } = node;
        let (observed, entry) = (node.observed.as_ref(), ScheduleEntry::of(schedule, offer));
        Self {
            node: id.0,
            generation: node.generation,
            state: node.state,
            tiers: entry.tiers.iter().map(|tier| TierStatus::of(tier, progress)).collect(),
            schedule: entry,
            observed: observed.map(|it| ObservedEntry::of(it, schedule, offer)),
            peers: peers.to_vec(),
            batches: progress.batches,
            samples: progress.samples,
            handed_over_bytes: progress.handed_over.0,
            cold_read_bytes: progress.cold_read.0,
            page_cache_read_bytes: progress.page_cache_read.0,
            stall_ns: progress.stall.0,
            faults: progress.faults,
            transforms: progress.transforms.map(TransformStatus::from),
            lent_chunks: node.lent.lent(),
            available: reported.map(|(available, age)| AvailableStatus {
                age_ns: age.0,
                available: available.clone(),
            }),
        }
    }
}

impl TierStatus {
    fn of(tier: &ScheduledTierEntry, progress: &Progress) -> Self {
        let read = progress.tier_read.iter().filter(|(kind, _)| *kind == tier.name);
        let read_bytes = read.fold(0, |sum, (_, bytes)| bytes.0.saturating_add(sum));
        Self { tier: tier.clone(), read_bytes }
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
