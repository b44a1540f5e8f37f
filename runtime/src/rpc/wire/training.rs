//! Converts how far the training of a node is to and from messages.

use tierfeed_core::{
    fleet::training::{Outlook, Stage},
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
    let pb::TrainingRequest { node, ended_with, mut summary } = request;
    if summary.len() > SUMMARY_BYTES_MAX {
        summary = Vec::new();
    }
    let stage = match ended_with {
        Some(ended_with) => Stage::Ended { code: code("ended_with", ended_with)? },
        None => Stage::Running,
    };
    Ok((NodeId(node), stage, summary))
}

impl From<(NodeId, Stage)> for pb::TrainingRequest {
    fn from((node, stage): (NodeId, Stage)) -> Self {
        let ended_with = match stage {
            Stage::Running => None,
            Stage::Ended { code } => Some(code.into()),
        };
        Self { node: node.0, ended_with, summary: Vec::new() }
    }
}

impl TryFrom<pb::TrainingReply> for Told {
    type Error = WireError;

    fn try_from(reply: pb::TrainingReply) -> Result<Self, WireError> {
        let pb::TrainingReply { ends_with, over, meeting_port } = reply;
        let ends_with = ends_with.map(|it| code("ends_with", it)).transpose()?;
        let unknown =
            |_| WireError::Unknown { field: "meeting_port", value: meeting_port.to_string() };
        let meeting_port = u16::try_from(meeting_port).map_err(unknown)?;
        Ok(Self { outlook: Outlook { ends_with, is_over: over }, meeting_port })
    }
}

fn code(field: &'static str, code: u32) -> Result<u8, WireError> {
    u8::try_from(code).map_err(|_| WireError::Unknown { field, value: code.to_string() })
}
