//! The client of the manager's service, for agents and commands.

mod address;
mod connector;

pub use address::{Address, NoAddress};

use std::{path::PathBuf, time::Duration};

use tierfeed_core::{
    fleet::{
        Assignment, Direction, Progress, Registration, members::PeerReport, schedule::Schedule,
        training::Stage,
    },
    id::NodeId,
    order::World,
    session::Observed,
};
use tierfeed_resource_gatherer::Available;
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};

use self::connector::{Untrusted, connector};
use super::{
    JobText,
    wire::{self, PeersAnswer, Remedy, Told, WireError, pb},
};
use crate::{
    observe::status::JobStatus,
    transport::{keep_alive, mutual_tls::Credentials, token::Token},
};

/// The deadline of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a call to the manager failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No process listens at the address.
    #[error("no manager answers at {address}: {}", root_cause(.source))]
    Unreachable {
        /// The address of the manager.
        address: Address,
        /// The error of the transport.
        source: tonic::transport::Error,
    },
    /// The process at the address is not the manager of this job.
    #[error(transparent)]
    Untrusted(Untrusted),
    /// The manager is on a network, where both ends must prove the token, and none was given.
    #[error(
        "the manager at {address} wants a token: give its token file with --token-file, or its token in \
         $TIERFEED_TOKEN"
    )]
    NoToken {
        /// The address of the manager.
        address: Address,
    },
    /// The manager refuses, or was lost during the call.
    #[error("{}", .0.message())]
    Refused(#[source] Box<Status>),
    /// The answer is invalid.
    #[error(transparent)]
    Answer(#[from] WireError),
}

impl CallError {
    /// What the caller can do about it.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Unreachable { .. } => Remedy::Retry,
            Self::Refused(status) => wire::remedy(status),
            Self::Untrusted(_) | Self::NoToken { .. } | Self::Answer(_) => Remedy::Reconfigure,
        }
    }

    /// Whether the manager did not answer; else it refused.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::Untrusted(_)) || self.remedy() == Remedy::Retry
    }

    fn unreachable(address: &Address, source: tonic::transport::Error) -> Self {
        match Untrusted::behind(&source) {
            Some(untrusted) => Self::Untrusted(untrusted),
            None => Self::Unreachable { address: address.clone(), source },
        }
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        match Untrusted::behind(&status) {
            Some(untrusted) => Self::Untrusted(untrusted),
            None => Self::Refused(Box::new(status)),
        }
    }
}

/// A change of the CXL memory that a node lent to workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loan {
    /// Borrow this many chunks more.
    Ask(u32),
    /// Return this many chunks.
    Return(u32),
}

/// A part of an index file.
#[derive(Debug)]
pub struct IndexPart {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The length of the whole file; 0 if the manager has none.
    pub whole: u64,
}

/// A connection to a manager.
#[derive(Debug, Clone)]
pub struct Client {
    inner: pb::manager_client::ManagerClient<Channel>,
}

impl Client {
    /// Connects to a manager. After a loss the next call reconnects.
    ///
    /// # Errors
    ///
    /// [`CallError::Unreachable`] if no process answers, [`CallError::Untrusted`] if another one than the
    /// manager of the job does, [`CallError::NoToken`] if there is no token for a network address.
    pub async fn connect(address: &Address, token: Option<&Token>) -> Result<Self, CallError> {
        let channel = match (address, token) {
            (Address::Unix(path), _) => {
                let endpoint = Endpoint::from_shared(format!("unix://{}", path.display()));
                let endpoint = endpoint.map_err(|it| CallError::unreachable(address, it))?;
                patient(endpoint).connect().await
            }
            (Address::Tcp(_), None) => {
                return Err(CallError::NoToken { address: address.clone() });
            }
            (Address::Tcp(host), Some(token)) => {
                let endpoint = Endpoint::from_shared(format!("http://{host}"));
                let endpoint = endpoint.map_err(|it| CallError::unreachable(address, it))?;
                let connector = connector(host.clone(), Credentials::of(token));
                patient(endpoint).connect_with_connector(connector).await
            }
        };
        let channel = channel.map_err(|it| CallError::unreachable(address, it))?;
        Ok(Self { inner: pb::manager_client::ManagerClient::new(channel) })
    }

    /// The job of the manager.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn job(&mut self) -> Result<JobText, CallError> {
        let reply = self.inner.job(pb::JobRequest {}).await?.into_inner();
        let pb::JobReply { text, file, index_fingerprint, further_fingerprints, .. } = reply;
        let pb::JobReply { nodes, ranks_per_node, .. } = reply;
        let file = PathBuf::from(file);
        let world = World { nodes, ranks_per_node };
        let name = String::new();
        Ok(JobText { name, text, file, index_fingerprint, further_fingerprints, world })
    }

    /// A part of the manager's index of the dataset.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn index(&mut self, offset: u64) -> Result<IndexPart, CallError> {
        let reply = self.inner.index(pb::IndexRequest { offset }).await?.into_inner();
        Ok(IndexPart { bytes: reply.part, whole: reply.whole_bytes })
    }

    /// Registers an agent.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn register(&mut self, agent: &Registration) -> Result<Assignment, CallError> {
        let reply = self.inner.register(pb::RegisterRequest::from(agent)).await?;
        Ok(wire::assignment(reply.into_inner(), agent.node)?)
    }

    /// Reports the progress of this node and its free resources. Returns what it is to do.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn report(
        &mut self,
        node: NodeId,
        incarnation: u64,
        progress: &Progress,
        available: Option<&Available>,
    ) -> Result<Direction, CallError> {
        let told = self.report_observed(node, incarnation, progress, available, None);
        told.await.map(|(direction, _)| direction)
    }

    /// As [`Self::report`], with what the node observed, and the generation of the schedule that it got last.
    /// Returns also the next generation, if there is one.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn report_observed(
        &mut self,
        node: NodeId,
        incarnation: u64,
        progress: &Progress,
        available: Option<&Available>,
        observed: Option<(&Observed, u32)>,
    ) -> Result<(Direction, Option<Schedule>), CallError> {
        let request = pb::ReportRequest {
            node: node.0,
            incarnation,
            progress: Some(progress.into()),
            drained: false,
            available: available.map(Into::into),
            observed: observed.map(|(observed, _)| observed.into()),
            generation: observed.map_or(0, |(_, generation)| generation),
        };
        self.send_report(request).await
    }

    /// Reports that this node ends.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn drained(
        &mut self,
        node: NodeId,
        incarnation: u64,
        progress: &Progress,
    ) -> Result<(), CallError> {
        let request = pb::ReportRequest {
            node: node.0,
            incarnation,
            progress: Some(progress.into()),
            drained: true,
            ..pb::ReportRequest::default()
        };
        self.send_report(request).await.map(drop)
    }

    /// Borrows CXL memory for a workload of this node, or returns it.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn memory(
        &mut self,
        node: NodeId,
        incarnation: u64,
        loan: Loan,
    ) -> Result<(), CallError> {
        use pb::memory_request::Change;
        let change = match loan {
            Loan::Ask(chunks) => Change::AskChunks(chunks),
            Loan::Return(chunks) => Change::ReturnChunks(chunks),
        };
        let request = pb::MemoryRequest { node: node.0, incarnation, change: Some(change) };
        self.inner.memory(request).await?;
        Ok(())
    }

    /// Says where this node answers others; `report.address` is empty before it does.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn peers(
        &mut self,
        node: NodeId,
        incarnation: u64,
        report: &PeerReport,
    ) -> Result<PeersAnswer, CallError> {
        let request = pb::PeersRequest {
            node: node.0,
            incarnation,
            address: report.address.clone(),
            room_bytes: report.room.0,
            generation: report.generation,
            divided_epoch: report.divided.0,
            links: report.links.iter().map(Into::into).collect(),
        };
        let reply = self.inner.peers(request).await?.into_inner();
        Ok(wire::from_peers_reply(reply, report.generation)?)
    }

    /// Asks all nodes to end.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn drain(&mut self) -> Result<(), CallError> {
        self.inner.drain(pb::DrainRequest {}).await?;
        Ok(())
    }

    /// The status of the job.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn status(&mut self) -> Result<JobStatus, CallError> {
        Ok(self.inner.status(pb::StatusRequest {}).await?.into_inner().try_into()?)
    }

    /// Tells how far the training of a node is, with what the node sums up at its end.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn training(
        &mut self,
        node: NodeId,
        stage: Stage,
        summary: Vec<u8>,
    ) -> Result<Told, CallError> {
        let request = pb::TrainingRequest { summary, ..(node, stage).into() };
        Ok(self.inner.training(request).await?.into_inner().try_into()?)
    }

    async fn send_report(
        &mut self,
        request: pb::ReportRequest,
    ) -> Result<(Direction, Option<Schedule>), CallError> {
        let reply = self.inner.report(request).await?;
        Ok(wire::from_reply(reply.into_inner())?)
    }
}

/// Adds deadlines and pings, by which a lost manager is detected.
fn patient(endpoint: Endpoint) -> Endpoint {
    endpoint
        .connect_timeout(CALL_TIMEOUT)
        .timeout(CALL_TIMEOUT)
        .http2_keep_alive_interval(keep_alive::PING_EVERY)
        .keep_alive_timeout(keep_alive::PONG_WITHIN)
        .keep_alive_while_idle(true)
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
