//! The calls of agents and commands to the manager of a job, and its answers.
//!
//! Every call is short and may be repeated. All are one method of gRPC, whose path has the version of tierfeed: a
//! manager refuses callers of another one.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};
use tierfeed_core::{
    fleet::{
        Assignment, Denial, Direction, Progress, Refusal, Registration,
        members::{PeerReport, Peers},
        schedule::Schedule,
        training::{Outlook, Stage},
    },
    id::NodeId,
    order::World,
    session::Observed,
};
use tierfeed_resource_gatherer::Available;
use tonic::{Code, Status};

use crate::observe::{report::NodeSummary, status::JobStatus};

/// The path of the method.
pub(crate) const PATH: &str = concat!("/tierfeed.Manager/", env!("CARGO_PKG_VERSION"));

/// A call to the manager.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Call {
    /// Answered with a [`JobText`], so that an agent needs nothing but an address and a token.
    Job,
    /// Answered with an [`IndexPart`], so that nodes that start at once do not all list the dataset.
    Index { offset: u64 },
    /// Takes an agent in. Answered with an [`Assignment`].
    Register(Box<Registration>),
    /// Answered with a [`Direction`].
    Report(Box<Report>),
    /// The agent ends now.
    Drained { node: NodeId, incarnation: u64, progress: Progress },
    /// Answered with a [`PeersAnswer`].
    Peers { node: NodeId, incarnation: u64, report: PeerReport },
    /// CXL memory for a workload of the node.
    Memory { node: NodeId, incarnation: u64, loan: Loan },
    /// Asks all agents to end.
    Drain,
    /// Answered with a [`JobStatus`].
    Status,
    /// Said by the process that started the training of a node. Answered with [`Told`].
    Training {
        node: NodeId,
        stage: Stage,
        /// At its end, if it knows more than the stage.
        summary: Option<Box<NodeSummary>>,
    },
}

impl Call {
    /// As the metrics of a manager count it.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Index { .. } => "index",
            Self::Register(_) => "register",
            Self::Report(_) => "report",
            Self::Drained { .. } => "drained",
            Self::Memory { .. } => "memory",
            Self::Peers { .. } => "peers",
            Self::Drain => "drain",
            Self::Status => "status",
            Self::Training { .. } => "training",
        }
    }
}

/// The periodic report of an agent.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    pub node: NodeId,
    pub incarnation: u64,
    pub progress: Progress,
    /// `None` where the node could not tell.
    pub available: Option<Box<Available>>,
    pub observed: Option<Box<Observed>>,
    /// The generations of the node's schedule that the manager may not know, oldest first.
    pub schedules: Vec<Schedule>,
}

impl Report {
    /// Tells no more than that the node is there.
    #[must_use]
    pub fn of_progress(node: NodeId, incarnation: u64, progress: Progress) -> Self {
        let (available, observed, schedules) = (None, None, Vec::new());
        Self { node, incarnation, progress, available, observed, schedules }
    }
}

/// The answer of the manager, of the type that belongs to the call.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Answer {
    Job(JobText),
    Index(IndexPart),
    Assignment(Box<Assignment>),
    Direction(Direction),
    Peers(PeersAnswer),
    Done,
    Status(Box<JobStatus>),
    Told(Told),
}

impl Answer {
    /// Whether compressing it is worth the time; a part of an index has few repetitions.
    pub(crate) const fn is_long(&self) -> bool {
        matches!(self, Self::Job(_) | Self::Assignment(_) | Self::Status(_))
    }
}

/// A job as text: agents need no copy of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobText {
    /// The name of the job.
    pub name: String,
    /// The content of the job file.
    pub text: String,
    /// Absolute; relative paths in the job file start at its directory.
    #[serde(serialize_with = "as_text")]
    pub file: PathBuf,
    /// The fingerprint of the dataset's index: an agent that finds another dataset does not work.
    pub index_fingerprint: u64,
    /// Those of the datasets beside it.
    pub further_fingerprints: Vec<u64>,
    /// Its world, of which the text may leave out what the launcher of the manager tells.
    pub world: World,
}

impl JobText {
    /// The fingerprints of the indexes of all datasets, that of the first one first.
    #[must_use]
    pub fn fingerprints(&self) -> Vec<u64> {
        [self.index_fingerprint]
            .into_iter()
            .chain(self.further_fingerprints.iter().copied())
            .collect()
    }
}

/// A part of an index file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct IndexPart {
    /// From the offset, as many as a part has, or to the end.
    #[serde(with = "base64")]
    pub bytes: Vec<u8>,
    /// The length of the whole file; 0 if the manager has none.
    pub whole: u64,
}

/// A change of the CXL memory that a node lent to workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Loan {
    /// Borrow this many chunks more.
    Ask(u32),
    /// Return this many chunks.
    Return(u32),
}

/// The manager's answer to a node that says where it answers others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeersAnswer {
    /// Nothing has changed.
    Same {
        /// By which nodes prove to each other that they belong to the job; for a node that does not listen yet.
        secret: Option<[u8; 32]>,
    },
    /// The nodes that there are now.
    Changed(Peers),
    /// The manager does not know the process: it must register again.
    Unknown,
}

/// What a node is told about the training of its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// How the other nodes stand.
    pub outlook: Outlook,
    /// The port on the host of the manager where the ranks of the job meet.
    pub meeting_port: u16,
}

/// What the caller can do about a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Try again: the manager is not reachable now.
    Retry,
    /// Start with other settings.
    Reconfigure,
    /// Stop: the job is over.
    Gone,
    /// A bug: the user can do nothing.
    Bug,
}

/// The remedy of `status`.
#[must_use]
pub fn remedy(status: &Status) -> Remedy {
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
            Remedy::Retry
        }
        Code::InvalidArgument
        | Code::AlreadyExists
        | Code::ResourceExhausted
        | Code::Unauthenticated
        | Code::PermissionDenied
        | Code::Unimplemented => Remedy::Reconfigure,
        Code::FailedPrecondition => Remedy::Gone,
        _ => Remedy::Bug,
    }
}

pub(crate) fn refused(refusal: Refusal) -> Status {
    let message = refusal.to_string();
    match refusal {
        Refusal::DuplicateNode { .. } => Status::already_exists(message),
        Refusal::Draining => Status::failed_precondition(message),
        _ => Status::invalid_argument(message),
    }
}

pub(crate) fn denied(denial: Denial) -> Status {
    match denial {
        Denial::TooFew { .. } => Status::resource_exhausted(denial.to_string()),
        _ => Status::failed_precondition(denial.to_string()),
    }
}

/// JSON has no other paths.
fn as_text<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&path.to_string_lossy())
}

/// Bytes as text.
mod base64 {
    use ::base64::{Engine as _, prelude::BASE64_STANDARD};
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64_STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        BASE64_STANDARD.decode(String::deserialize(from)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests;
