//! Where a job stands, for `tierfeed status`.

use serde::Serialize;
use tierfeed_core::{
    fleet::{self, Fleet, Origin},
    id::NodeId,
    units::Nanoseconds,
};
use tierfeed_resource_gatherer::Available;

use super::{AvailableStatus, WireError, messages, pb};

/// Where a job stands, as `tierfeed status --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobStatus {
    /// The name of the job.
    pub job: String,
    /// Nodes of its world.
    pub nodes: u32,
    /// Whether it was asked to end.
    pub draining: bool,
    /// Batches that the whole job reads.
    pub batches: u64,
    /// The nodes that registered, by number.
    pub joined: Vec<NodeStatus>,
}

/// Where one node stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeStatus {
    /// Its number.
    pub node: u32,
    /// How many processes worked as this node before.
    pub generation: u32,
    /// `alive`, `lost` or `drained`.
    pub state: &'static str,
    /// What it offers.
    pub tiers: Vec<TierStatus>,
    /// Batches handed over.
    pub batches: u64,
    /// Samples of the batches handed over.
    pub samples: u64,
    /// Bytes of the batches handed over.
    pub handed_over_bytes: u64,
    /// Bytes read from the cold store.
    pub cold_read_bytes: u64,
    /// Time for which its trainers waited, summed over ranks.
    pub stall_ns: u64,
    /// Operations that failed.
    pub faults: u64,
    /// Chunks of CXL memory that its workloads hold.
    pub lent_chunks: u32,
    /// What it had left when it told last; `None` if it told nothing yet, or ended.
    pub available: Option<AvailableStatus>,
}

/// One tier of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TierStatus {
    /// Its kind.
    pub name: &'static str,
    /// What the job may use of it.
    pub budget_bytes: u64,
    /// Whether its speed is imposed.
    pub emulated: bool,
    /// Bytes read from it.
    pub read_bytes: u64,
}

/// What a node had left, and how long ago.
pub(crate) type Told<'told> = Option<(&'told Available, Nanoseconds)>;

pub(crate) fn status_reply<'told>(
    job: &str,
    fleet: &Fleet,
    told: impl Fn(NodeId) -> Told<'told>,
) -> pb::StatusReply {
    let order = fleet.settings().order;
    pb::StatusReply {
        job: job.to_owned(),
        nodes: order.world.nodes,
        draining: fleet.is_draining(),
        joined: fleet.nodes().map(|(id, node)| node_status(id, node, told(id))).collect(),
        batches: order.batches_per_rank() * u64::from(order.world.ranks()),
    }
}

fn node_status(id: NodeId, node: &fleet::Node, told: Told<'_>) -> pb::NodeStatus {
    let state = match node.state {
        fleet::State::Alive => pb::State::Alive,
        fleet::State::Lost => pb::State::Lost,
        fleet::State::Drained => pb::State::Drained,
    };
    pb::NodeStatus {
        node: id.0,
        generation: node.generation,
        state: state.into(),
        tiers: node.tiers.iter().map(Into::into).collect(),
        progress: Some((&node.progress).into()),
        lent_chunks: node.lent.lent(),
        available: told.map(|(available, _)| available.into()),
        available_age_ns: told.map_or(0, |(_, age)| age.0),
    }
}

impl TryFrom<pb::StatusReply> for JobStatus {
    type Error = WireError;

    fn try_from(reply: pb::StatusReply) -> Result<Self, WireError> {
        Ok(Self {
            job: reply.job,
            nodes: reply.nodes,
            draining: reply.draining,
            batches: reply.batches,
            joined: reply.joined.into_iter().map(NodeStatus::try_from).collect::<Result<_, _>>()?,
        })
    }
}

impl TryFrom<pb::NodeStatus> for NodeStatus {
    type Error = WireError;

    fn try_from(status: pb::NodeStatus) -> Result<Self, WireError> {
        let state = match status.state() {
            pb::State::Alive => "alive",
            pb::State::Lost => "lost",
            pb::State::Drained => "drained",
            pb::State::Unspecified => {
                return Err(WireError::Unknown { field: "state", value: status.state.to_string() });
            }
        };
        let available = status.available.map(Available::try_from).transpose()?;
        let age = Nanoseconds(status.available_age_ns);
        let progress = status.progress.ok_or(WireError::Missing { field: "progress" })?;
        let progress = fleet::Progress::try_from(progress)?;
        let tiers = messages::tiers(status.tiers)?;
        let tier_status = |tier: &fleet::Tier| {
            let read = progress.tier_read.iter().filter(|(kind, _)| *kind == tier.kind);
            TierStatus {
                name: tier.kind.name(),
                budget_bytes: tier.budget.0,
                emulated: tier.origin == Origin::Emulated,
                read_bytes: read.map(|(_, bytes)| bytes.0).sum(),
            }
        };
        Ok(Self {
            node: status.node,
            generation: status.generation,
            state,
            tiers: tiers.iter().map(tier_status).collect(),
            batches: progress.batches,
            samples: progress.samples,
            handed_over_bytes: progress.handed_over.0,
            cold_read_bytes: progress.cold_read.0,
            stall_ns: progress.stall.0,
            faults: progress.faults,
            lent_chunks: status.lent_chunks,
            available: available.map(|available| AvailableStatus::of(&available, age)),
        })
    }
}
