//! Converts how far the training of a node is to and from messages.

use tierfeed_core::{
    fleet::training::{Cause, Outlook, Stage},
    id::NodeId,
};

use super::{WireError, pb};

/// What a node may sum up: 1024 ranks take a fifth of it. More is dropped.
const SUMMARY_BYTES_MAX: usize = 1 << 20;

/// What a node is told about the training of its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// How the other nodes stand.
    pub outlook: Outlook,
    /// The port on the host of the manager where the ranks of the job meet.
    pub meeting_port: u16,
}

pub(crate) fn stage(request: pb::TrainingRequest) -> Result<(NodeId, Stage, Vec<u8>), WireError> {
    let pb::TrainingRequest { node, ended_with, mut summary, asked_by } = request;
    if summary.len() > SUMMARY_BYTES_MAX {
        summary = Vec::new();
    }
    let stage = match ended_with {
        Some(ended_with) => {
            let cause = Cause::Failed(small("ended_with", ended_with)?);
            Stage::Ended(asked(asked_by)?.or((ended_with != 0).then_some(cause)))
        }
        None => Stage::Running,
    };
    Ok((NodeId(node), stage, summary))
}

impl From<(NodeId, Stage)> for pb::TrainingRequest {
    fn from((node, stage): (NodeId, Stage)) -> Self {
        let (ended_with, cause) = match stage {
            Stage::Running => (None, None),
            Stage::Ended(cause) => (Some(cause.map_or(0, |it| it.code().into())), cause),
        };
        Self { node: node.0, ended_with, summary: Vec::new(), asked_by: cause.and_then(signal) }
    }
}

impl TryFrom<pb::TrainingReply> for Told {
    type Error = WireError;

    fn try_from(reply: pb::TrainingReply) -> Result<Self, WireError> {
        let pb::TrainingReply { ends_with, over, meeting_port, asked_by } = reply;
        let failed = ends_with.map(|it| small("ends_with", it)).transpose()?.map(Cause::Failed);
        let ends = asked(asked_by)?.or(failed);
        let unknown =
            |_| WireError::Unknown { field: "meeting_port", value: meeting_port.to_string() };
        let meeting_port = u16::try_from(meeting_port).map_err(unknown)?;
        Ok(Self { outlook: Outlook { ends, is_over: over }, meeting_port })
    }
}

/// The answer to a node.
pub(crate) fn training_reply(outlook: Outlook, meeting_port: u16) -> pb::TrainingReply {
    let Outlook { ends, is_over } = outlook;
    pb::TrainingReply {
        ends_with: ends.map(|it| it.code().into()),
        over: is_over,
        meeting_port: meeting_port.into(),
        asked_by: ends.and_then(signal),
    }
}

fn signal(cause: Cause) -> Option<u32> {
    match cause {
        Cause::Asked(signal) => Some(signal.into()),
        Cause::Failed(_) => None,
    }
}

fn asked(signal: Option<u32>) -> Result<Option<Cause>, WireError> {
    signal.map(|it| small("asked_by", it).map(Cause::Asked)).transpose()
}

fn small(field: &'static str, number: u32) -> Result<u8, WireError> {
    u8::try_from(number).map_err(|_| WireError::Unknown { field, value: number.to_string() })
}
