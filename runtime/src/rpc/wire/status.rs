//! Converts the status of a job to and from messages.

use tierfeed_core::{
    fleet::{
        self, Fleet, Origin,
        members::PeerLink,
        schedule::{FoundTier, Offer, Schedule, ScheduledTier},
    },
    id::NodeId,
    session::Observed,
    units::Nanoseconds,
};
use tierfeed_resource_gatherer::Available;

use super::{WireError, pb};
use crate::observe::{
    observed::ObservedEntry,
    schedule::ScheduleEntry,
    status::{AvailableStatus, JobStatus, NodeStatus, PeerStatus, TierStatus, TransformStatus},
};

/// The last free resources that a node reported, and their age.
pub(crate) type Reported<'report> = Option<(&'report Available, Nanoseconds)>;

pub(crate) fn status_reply<'report>(
    job: &str,
    fleet: &Fleet,
    reported: impl Fn(NodeId) -> Reported<'report>,
) -> pb::StatusReply {
    let order = fleet.settings().order;
    pb::StatusReply {
        job: job.to_owned(),
        nodes: order.world.nodes,
        draining: fleet.is_draining(),
        joined: fleet
            .nodes()
            .map(|(id, node)| pb::NodeStatus {
                peers: fleet.peer_links(id).iter().map(Into::into).collect(),
                ..node_status(id, node, reported(id))
            })
            .collect(),
        batches: order.batches_per_rank() * u64::from(order.world.ranks()),
    }
}

fn node_status(id: NodeId, node: &fleet::Node, reported: Reported<'_>) -> pb::NodeStatus {
    let state = match node.state {
        fleet::State::Alive => pb::State::Alive,
        fleet::State::Lost => pb::State::Lost,
        fleet::State::Drained => pb::State::Drained,
    };
    pb::NodeStatus {
        node: id.0,
        generation: node.generation,
        state: state.into(),
        offer: Some((&node.offer).into()),
        schedule: Some((&node.schedule).into()),
        observed: node.observed.as_ref().map(Into::into),
        progress: Some((&node.progress).into()),
        lent_chunks: node.lent.lent(),
        available: reported.map(|(available, _)| available.into()),
        available_age_ns: reported.map_or(0, |(_, age)| age.0),
        peers: Vec::new(),
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
        let observed = status.observed.map(Observed::try_from).transpose()?;
        let peer = |link| PeerLink::try_from(link).map(|link| PeerStatus::from(&link));
        let peers = status.peers.into_iter().map(peer).collect::<Result<_, WireError>>()?;
        let missing = |field| WireError::Missing { field };
        let offer = Offer::try_from(status.offer.ok_or(missing("offer"))?)?;
        let schedule = Schedule::try_from(status.schedule.ok_or(missing("schedule"))?)?;
        Ok(Self {
            node: status.node,
            generation: status.generation,
            state,
            tiers: tiers(&schedule, &offer, &progress),
            schedule: ScheduleEntry::of(&schedule, &offer),
            observed: observed.as_ref().map(|it| ObservedEntry::of(it, &schedule, &offer)),
            peers,
            batches: progress.batches,
            samples: progress.samples,
            handed_over_bytes: progress.handed_over.0,
            cold_read_bytes: progress.cold_read.0,
            page_cache_read_bytes: progress.page_cache_read.0,
            stall_ns: progress.stall.0,
            faults: progress.faults,
            transforms: progress.transforms.map(TransformStatus::from),
            lent_chunks: status.lent_chunks,
            available: available.map(|available| AvailableStatus::of(&available, age)),
        })
    }
}

/// The tiers of a node with what was read from each.
fn tiers(schedule: &Schedule, offer: &Offer, progress: &fleet::Progress) -> Vec<TierStatus> {
    let status = |(scheduled, found): (&ScheduledTier, &FoundTier)| {
        let read = progress.tier_read.iter().filter(|(kind, _)| *kind == found.kind);
        TierStatus {
            name: found.kind.name(),
            budget_bytes: found.budget.0,
            emulated: found.origin == Origin::Emulated,
            read_bytes: read.map(|(_, bytes)| bytes.0).sum(),
            latency_ns: found.figures.latency.map(|it| it.0),
            bandwidth_bytes_per_s: found.figures.bandwidth.map(|it| it.0),
            figures_from: found.figures.from.clone(),
            role: scheduled.role.name(),
            decision: scheduled.reason.clone(),
        }
    };
    schedule.with(offer).map(status).collect()
}
