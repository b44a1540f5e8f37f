//! The client of the manager's service, for agents and commands.

mod address;
mod connector;

pub use address::{Address, NoAddress};

use std::time::Duration;

use serde::de::DeserializeOwned;
use tierfeed_core::{
    fleet::{Assignment, Direction, Progress, Registration, members::PeerReport, training::Stage},
    id::NodeId,
};
use tonic::{
    Status,
    client::Grpc,
    codec::CompressionEncoding,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};

use self::connector::{Untrusted, connector};
use super::{
    call::{self, Call, IndexPart, JobText, Loan, PATH, PeersAnswer, Remedy, Report, Told},
    codec::Json,
};
use crate::{
    observe::{report::NodeSummary, status::JobStatus},
    transport::{keep_alive, mutual_tls::Credentials, token::Token},
};

/// The deadline of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The length of an answer; the status of a node takes some kilobytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

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
}

impl CallError {
    /// What the caller can do about it.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Unreachable { .. } => Remedy::Retry,
            Self::Refused(status) => call::remedy(status),
            Self::Untrusted(_) | Self::NoToken { .. } => Remedy::Reconfigure,
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

/// A connection to a manager.
#[derive(Debug, Clone)]
pub struct Client {
    channel: Channel,
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
        Ok(Self { channel })
    }

    /// The job of the manager.
    ///
    /// # Errors
    ///
    /// [`CallError`], as of all calls.
    pub async fn job(&self) -> Result<JobText, CallError> {
        self.call(Call::Job).await
    }

    /// A part of the manager's index of the dataset.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn index(&self, offset: u64) -> Result<IndexPart, CallError> {
        self.call(Call::Index { offset }).await
    }

    /// Registers an agent.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn register(&self, agent: &Registration) -> Result<Assignment, CallError> {
        self.call(Call::Register(Box::new(agent.clone()))).await
    }

    /// Reports how far a node is. Returns what it is to do.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn report(&self, report: Report) -> Result<Direction, CallError> {
        self.call(Call::Report(Box::new(report))).await
    }

    /// Reports that a node ends.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn drained(
        &self,
        node: NodeId,
        incarnation: u64,
        progress: Progress,
    ) -> Result<(), CallError> {
        self.call(Call::Drained { node, incarnation, progress }).await
    }

    /// Borrows CXL memory for a workload of a node, or returns it.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn memory(
        &self,
        node: NodeId,
        incarnation: u64,
        loan: Loan,
    ) -> Result<(), CallError> {
        self.call(Call::Memory { node, incarnation, loan }).await
    }

    /// Says where a node answers others; `report.address` is empty before it does.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn peers(
        &self,
        node: NodeId,
        incarnation: u64,
        report: PeerReport,
    ) -> Result<PeersAnswer, CallError> {
        self.call(Call::Peers { node, incarnation, report }).await
    }

    /// Asks all nodes to end.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn drain(&self) -> Result<(), CallError> {
        self.call(Call::Drain).await
    }

    /// The status of the job.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn status(&self) -> Result<JobStatus, CallError> {
        self.call(Call::Status).await
    }

    /// Tells how far the training of a node is, with the summary of the node at its end.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub async fn training(
        &self,
        node: NodeId,
        stage: Stage,
        summary: Option<NodeSummary>,
    ) -> Result<Told, CallError> {
        let summary = summary.map(Box::new);
        self.call(Call::Training { node, stage, summary }).await
    }

    async fn call<A: DeserializeOwned + Send + Sync + 'static>(
        &self,
        call: Call,
    ) -> Result<A, CallError> {
        self.call_at(PATH, call).await
    }

    pub(crate) async fn call_at<A: DeserializeOwned + Send + Sync + 'static>(
        &self,
        path: &'static str,
        call: Call,
    ) -> Result<A, CallError> {
        let mut grpc = Grpc::new(self.channel.clone())
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(ANSWER_BYTES_MAX);
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let (call, path) = (tonic::Request::new(call), PathAndQuery::from_static(path));
        Ok(grpc.unary(call, path, Json::<Call, A>::default()).await?.into_inner())
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
