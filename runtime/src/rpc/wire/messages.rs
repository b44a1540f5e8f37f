//! Converts registrations, assignments and progress to and from messages.

use tierfeed_core::{
    fleet::{Assignment, Direction, Progress, Registration, TransformProgress, schedule::Schedule},
    id::NodeId,
    tier::Kind,
    units::{Bytes, Nanoseconds},
};

use super::{WireError, pb};

pub(super) fn missing<T>(field: &'static str) -> impl FnOnce(Option<T>) -> Result<T, WireError> {
    move |value| value.ok_or(WireError::Missing { field })
}

pub(super) fn named<T, E>(
    field: &'static str,
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, WireError> {
    parse(text).map_err(|_| WireError::Unknown { field, value: format!("{text:?}") })
}

impl From<&Registration> for pb::RegisterRequest {
    fn from(registration: &Registration) -> Self {
        Self {
            node: Some(registration.node.0),
            home: registration.home,
            incarnation: registration.incarnation,
            offer: Some((&registration.offer).into()),
        }
    }
}

impl TryFrom<pb::RegisterRequest> for Registration {
    type Error = WireError;

    fn try_from(request: pb::RegisterRequest) -> Result<Self, WireError> {
        Ok(Self {
            node: NodeId(missing("node")(request.node)?),
            home: request.home,
            incarnation: request.incarnation,
            offer: missing("offer")(request.offer)?.try_into()?,
        })
    }
}

impl From<&Assignment> for pb::RegisterReply {
    fn from(assignment: &Assignment) -> Self {
        Self {
            generation: assignment.generation,
            order: assignment.order,
            policy: assignment.policy.name().to_owned(),
            schedule: Some((&assignment.schedule).into()),
        }
    }
}

/// What the agent of `node` is told.
pub(crate) fn assignment(reply: pb::RegisterReply, node: NodeId) -> Result<Assignment, WireError> {
    Ok(Assignment {
        node,
        generation: reply.generation,
        order: reply.order,
        policy: named("policy", &reply.policy, str::parse)?,
        schedule: missing("schedule")(reply.schedule)?.try_into()?,
    })
}

impl From<&Progress> for pb::Progress {
    fn from(progress: &Progress) -> Self {
        let read = |(kind, bytes): &(Kind, Bytes)| pb::TierRead {
            kind: kind.name().to_owned(),
            bytes: bytes.0,
        };
        Self {
            batches: progress.batches,
            samples: progress.samples,
            handed_over_bytes: progress.handed_over.0,
            cold_read_bytes: progress.cold_read.0,
            page_cache_read_bytes: progress.page_cache_read.0,
            tier_reads: progress.tier_read.iter().map(read).collect(),
            tier_rooms: progress.tier_room.iter().map(read).collect(),
            stall_ns: progress.stall.0,
            faults: progress.faults,
            applied: progress.applied.iter().map(Into::into).collect(),
            transforms: progress.transforms.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<pb::Progress> for Progress {
    type Error = WireError;

    fn try_from(progress: pb::Progress) -> Result<Self, WireError> {
        let read = |it: pb::TierRead| {
            Ok((named("tier_read.kind", &it.kind, str::parse)?, Bytes(it.bytes)))
        };
        Ok(Self {
            batches: progress.batches,
            samples: progress.samples,
            handed_over: Bytes(progress.handed_over_bytes),
            cold_read: Bytes(progress.cold_read_bytes),
            page_cache_read: Bytes(progress.page_cache_read_bytes),
            tier_read: progress.tier_reads.into_iter().map(read).collect::<Result<_, _>>()?,
            tier_room: progress.tier_rooms.into_iter().map(read).collect::<Result<_, _>>()?,
            stall: Nanoseconds(progress.stall_ns),
            faults: progress.faults,
            applied: progress.applied.into_iter().map(Into::into).collect(),
            transforms: progress.transforms.map(Into::into),
        })
    }
}

impl From<&TransformProgress> for pb::TransformProgress {
    fn from(progress: &TransformProgress) -> Self {
        let &TransformProgress { workers, waiting, rows, rejected, replaced, worked, trained } =
            progress;
        let (worked_ns, trained_ns) = (worked.0, trained.0);
        Self { workers, waiting, rows, rejected, replaced, worked_ns, trained_ns }
    }
}

impl From<pb::TransformProgress> for TransformProgress {
    fn from(progress: pb::TransformProgress) -> Self {
        let pb::TransformProgress { workers, waiting, rows, rejected, replaced, .. } = progress;
        let (worked, trained) = (Nanoseconds(progress.worked_ns), Nanoseconds(progress.trained_ns));
        Self { workers, waiting, rows, rejected, replaced, worked, trained }
    }
}

pub(crate) fn from_direction(direction: Direction) -> pb::Direction {
    match direction {
        Direction::Continue => pb::Direction::Continue,
        Direction::Drain => pb::Direction::Drain,
        Direction::Superseded => pb::Direction::Superseded,
        Direction::Unknown => pb::Direction::Unknown,
    }
}

/// What an agent is to do, and the next generation of its schedule.
pub(crate) fn from_reply(
    mut reply: pb::ReportReply,
) -> Result<(Direction, Option<Schedule>), WireError> {
    let schedule = reply.schedule.take().map(Schedule::try_from).transpose()?;
    Ok((to_direction(&reply)?, schedule))
}

pub(crate) fn to_direction(reply: &pb::ReportReply) -> Result<Direction, WireError> {
    match reply.direction() {
        pb::Direction::Continue => Ok(Direction::Continue),
        pb::Direction::Drain => Ok(Direction::Drain),
        pb::Direction::Superseded => Ok(Direction::Superseded),
        pb::Direction::Unknown => Ok(Direction::Unknown),
        pb::Direction::Unspecified => {
            Err(WireError::Unknown { field: "direction", value: reply.direction.to_string() })
        }
    }
}
