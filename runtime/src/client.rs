//! The other end of the manager's line: how agents and command lines reach it.

mod address;

pub use address::{Address, NoAddress};

use std::{path::PathBuf, time::Duration};

use tierfeed_core::{
    fleet::{Assignment, Direction, Progress, Registration},
    id::NodeId,
};
use tierfeed_resource_gatherer::Available;
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};

use crate::{
    manager::JobText,
    token::Token,
    wire::{self, JobStatus, Remedy, WireError, pb},
};

/// A call that takes longer counts as failed.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the manager did not do as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// There is nobody at the address.
    #[error("no manager answers at {address}: {}", root_cause(.source))]
    Unreachable {
        /// Where it should be.
        address: Address,
        /// As the transport says.
        source: tonic::transport::Error,
    },
    /// The manager refuses, or was lost during the call.
    #[error("{}", .0.message())]
    Refused(#[source] Box<Status>),
    /// The answer makes no sense.
    #[error(transparent)]
    Answer(#[from] WireError),
}

impl CallError {
    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Unreachable { .. } => Remedy::Retry,
            Self::Refused(status) => wire::remedy(status),
            Self::Answer(_) => Remedy::Reconfigure,
        }
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

/// A change of the CXL memory that a node lent to workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loan {
    /// This many chunks more.
    Ask(u32),
    /// This many chunks less.
    Return(u32),
}

/// A line to a manager.
#[derive(Debug, Clone)]
pub struct Client {
    inner: pb::manager_client::ManagerClient<InterceptedService<Channel, ShowToken>>,
}

impl Client {
    /// Calls a manager. A lost line is called again by itself when it is next used.
    ///
    /// # Errors
    ///
    /// [`CallError::Unreachable`] if nobody answers.
    pub async fn connect(address: &Address, token: Option<&Token>) -> Result<Self, CallError> {
        let unreachable = |source| CallError::Unreachable { address: address.clone(), source };
        let uri = match address {
            Address::Unix(path) => format!("unix://{}", path.display()),
            Address::Tcp(address) => format!("http://{address}"),
        };
        let endpoint = Endpoint::from_shared(uri).map_err(unreachable)?;
        let endpoint = endpoint.connect_timeout(CALL_TIMEOUT).timeout(CALL_TIMEOUT);
        let channel = endpoint.connect().await.map_err(unreachable)?;
        let inner =
            pb::manager_client::ManagerClient::with_interceptor(channel, ShowToken::of(token));
        Ok(Self { inner })
    }

    /// The job that the manager manages.
    ///
    /// # Errors
    ///
    /// As [`CallError`] tells.
    pub async fn job(&mut self) -> Result<JobText, CallError> {
        let reply = self.inner.job(pb::JobRequest {}).await?.into_inner();
        let pb::JobReply { text, file, index_fingerprint } = reply;
        let file = PathBuf::from(file);
        Ok(JobText { name: String::new(), text, file, index_fingerprint })
    }

    /// Takes part in the job.
    ///
    /// # Errors
    ///
    /// As [`CallError`] tells.
    pub async fn register(&mut self, agent: &Registration) -> Result<Assignment, CallError> {
        let reply = self.inner.register(pb::RegisterRequest::from(agent)).await?;
        Ok(reply.into_inner().try_into()?)
    }

    /// Tells how far this node is, and what it has left.
    ///
    /// # Errors
    ///
    /// As [`CallError`] tells.
    pub async fn report(
        &mut self,
        node: NodeId,
        incarnation: u64,
        progress: &Progress,
        available: Option<&Available>,
    ) -> Result<Direction, CallError> {
        let request = pb::ReportRequest {
            node: node.0,
            incarnation,
            progress: Some(progress.into()),
            drained: false,
            available: available.map(Into::into),
        };
        self.send_report(request).await
    }

    /// Tells that this node ends.
    ///
    /// # Errors
    ///
    /// As [`CallError`] tells.
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
            available: None,
        };
        self.send_report(request).await.map(drop)
    }

    /// Borrows CXL memory for a workload of this node, or gives it back.
    ///
    /// # Errors
    ///
    /// As [`CallError`] tells.
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

    /// Asks all nodes to end.
    ///
    /// # Errors
    ///
    /// As [`CallError`] tells.
    pub async fn drain(&mut self) -> Result<(), CallError> {
        self.inner.drain(pb::DrainRequest {}).await?;
        Ok(())
    }

    /// Where the job stands.
    ///
    /// # Errors
    ///
    /// As [`CallError`] tells.
    pub async fn status(&mut self) -> Result<JobStatus, CallError> {
        Ok(self.inner.status(pb::StatusRequest {}).await?.into_inner().try_into()?)
    }

    async fn send_report(&mut self, request: pb::ReportRequest) -> Result<Direction, CallError> {
        let reply = self.inner.report(request).await?;
        Ok(wire::to_direction(reply.into_inner())?)
    }
}

/// Adds the token of the job to every call.
#[derive(Debug, Clone)]
struct ShowToken(Option<MetadataValue<Ascii>>);

impl ShowToken {
    fn of(token: Option<&Token>) -> Self {
        Self(token.map(|token| {
            let text = format!("Bearer {}", token.to_hex());
            let mut header = MetadataValue::try_from(text).expect("hexadecimal digits are ASCII");
            header.set_sensitive(true);
            header
        }))
    }
}

impl Interceptor for ShowToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(header) = &self.0 {
            request.metadata_mut().insert("authorization", header.clone());
        }
        Ok(request)
    }
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
