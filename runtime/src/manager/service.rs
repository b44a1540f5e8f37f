//! The gRPC service of the manager: checks the peer, converts messages, and asks the loop.

use std::{fs::File, io, os::unix::fs::FileExt as _, path::Path, sync::Arc};

use tierfeed_core::{
    fleet::{
        Assignment, Denial, Direction, Progress, Refusal, Registration,
        members::PeerReport,
        schedule::Schedule,
        training::{Outlook, Stage},
    },
    id::NodeId,
    session::Observed,
};
use tierfeed_resource_gatherer::Available;
use tokio::sync::{mpsc, oneshot};
use tonic::{Response, Status, service::interceptor::InterceptedService};

use super::accept::Peer;
use crate::{
    observe::metrics::Message,
    rpc::{
        JobText,
        wire::{
            self, WireError,
            pb::{self, manager_server},
        },
    },
};

/// The index in one reply.
const INDEX_PART_BYTES: u64 = 1 << 20;

/// A request to the loop, with the channel for its reply.
#[derive(Debug)]
pub(super) enum Request {
    Register(Box<Registration>, oneshot::Sender<Result<Assignment, Refusal>>),
    Report {
        node: NodeId,
        incarnation: u64,
        progress: Progress,
        available: Option<Box<Available>>,
        /// What the node observed, and the generation of the schedule that it got last.
        observed: Option<(Box<Observed>, u32)>,
        reply: oneshot::Sender<(Direction, Option<Schedule>)>,
    },
    Drained {
        node: NodeId,
        incarnation: u64,
        progress: Progress,
        reply: oneshot::Sender<(Direction, Option<Schedule>)>,
    },
    AskMemory {
        node: NodeId,
        incarnation: u64,
        chunks: u32,
        reply: oneshot::Sender<Result<(), Denial>>,
    },
    ReturnMemory {
        node: NodeId,
        incarnation: u64,
        chunks: u32,
        reply: oneshot::Sender<Result<(), Denial>>,
    },
    Peers {
        node: NodeId,
        incarnation: u64,
        report: PeerReport,
        reply: oneshot::Sender<pb::PeersReply>,
    },
    Drain(oneshot::Sender<()>),
    Status(oneshot::Sender<pb::StatusReply>),
    Training {
        node: NodeId,
        stage: Stage,
        /// What the node sums up at its end, as JSON.
        summary: Vec<u8>,
        reply: oneshot::Sender<Outlook>,
    },
}

impl Request {
    /// The message that the request came with.
    pub(super) const fn message(&self) -> Message {
        match self {
            Self::Register(..) => Message::Register,
            Self::Report { .. } => Message::Report,
            Self::Drained { .. } => Message::Drained,
            Self::AskMemory { .. } | Self::ReturnMemory { .. } => Message::Memory,
            Self::Peers { .. } => Message::Peers,
            Self::Drain(_) => Message::Drain,
            Self::Status(_) => Message::Status,
            Self::Training { .. } => Message::Training,
        }
    }
}

/// The bytes from `offset`, and the length of the whole file.
fn part_of(file: &File, offset: u64) -> io::Result<(Vec<u8>, u64)> {
    let whole = file.metadata()?.len();
    let len = whole.saturating_sub(offset).min(INDEX_PART_BYTES);
    let mut part = vec![0; usize::try_from(len).unwrap_or(0)];
    file.read_exact_at(&mut part, offset)?;
    Ok((part, whole))
}

/// The interceptor that checks the peer of a call.
pub(super) type PeerCheck = fn(tonic::Request<()>) -> Result<tonic::Request<()>, Status>;

#[derive(Debug, Clone)]
pub(super) struct Service {
    job: JobText,
    /// Opened once, so that all parts are of one index; `None` if there is none to pass on.
    index: Option<Arc<File>>,
    meeting_port: u16,
    requests: mpsc::Sender<Request>,
}

impl Service {
    pub(super) fn new(
        job: JobText,
        meeting_port: u16,
        index: &Path,
        requests: mpsc::Sender<Request>,
    ) -> Self {
        let opened = File::open(index);
        if let Err(error) = &opened {
            tracing::warn!(path = %index.display(), %error, "agents index the dataset themselves");
        }
        Self { job, index: opened.ok().map(Arc::new), meeting_port, requests }
    }

    pub(super) fn with_peer_check(
        self,
    ) -> InterceptedService<manager_server::ManagerServer<Self>, PeerCheck> {
        manager_server::ManagerServer::with_interceptor(self, check_peer)
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, Status> {
        let ending = || Status::unavailable("the manager is ending");
        let (reply, answer) = oneshot::channel();
        self.requests.send(request(reply)).await.map_err(|_| ending())?;
        answer.await.map_err(|_| ending())
    }
}

#[tonic::async_trait]
impl manager_server::Manager for Service {
    async fn job(
        &self,
        _: tonic::Request<pb::JobRequest>,
    ) -> Result<Response<pb::JobReply>, Status> {
        Ok(Response::new(pb::JobReply {
            text: self.job.text.clone(),
            file: self.job.file.to_string_lossy().into_owned(),
            index_fingerprint: self.job.index_fingerprint,
            further_fingerprints: self.job.further_fingerprints.clone(),
            nodes: self.job.world.nodes,
            ranks_per_node: self.job.world.ranks_per_node,
        }))
    }

    async fn index(
        &self,
        request: tonic::Request<pb::IndexRequest>,
    ) -> Result<Response<pb::IndexReply>, Status> {
        let Some(file) = self.index.clone() else {
            return Ok(Response::new(pb::IndexReply::default()));
        };
        let pb::IndexRequest { offset } = request.into_inner();
        let read = tokio::task::spawn_blocking(move || part_of(&file, offset)).await;
        let (part, whole_bytes) = read
            .map_err(|error| Status::internal(error.to_string()))?
            .map_err(|error| Status::internal(format!("the index: {error}")))?;
        Ok(Response::new(pb::IndexReply { part, whole_bytes }))
    }

    async fn register(
        &self,
        request: tonic::Request<pb::RegisterRequest>,
    ) -> Result<Response<pb::RegisterReply>, Status> {
        let registration = Box::new(request.into_inner().try_into()?);
        let assigned = self.ask(|reply| Request::Register(registration, reply)).await?;
        assigned.map(|it| Response::new((&it).into())).map_err(wire::refused)
    }

    async fn report(
        &self,
        request: tonic::Request<pb::ReportRequest>,
    ) -> Result<Response<pb::ReportReply>, Status> {
        let mut request = request.into_inner();
        let observed = request.observed.take().map(Observed::try_from).transpose()?;
        let observed = observed.map(|it| (Box::new(it), request.generation));
        let pb::ReportRequest { node, incarnation, progress, drained, available, .. } = request;
        let progress = progress.ok_or(WireError::Missing { field: "progress" })?.try_into()?;
        let available = available.map(Available::try_from).transpose()?.map(Box::new);
        let node = NodeId(node);
        let (direction, schedule) = self
            .ask(|reply| {
                if drained {
                    Request::Drained { node, incarnation, progress, reply }
                } else {
                    Request::Report { node, incarnation, progress, available, observed, reply }
                }
            })
            .await?;
        let direction = wire::from_direction(direction).into();
        let schedule = schedule.as_ref().map(Into::into);
        Ok(Response::new(pb::ReportReply { direction, schedule }))
    }

    async fn peers(
        &self,
        request: tonic::Request<pb::PeersRequest>,
    ) -> Result<Response<pb::PeersReply>, Status> {
        let request = request.into_inner();
        let (node, incarnation) = (NodeId(request.node), request.incarnation);
        let report = PeerReport::try_from(request)?;
        let asked = self.ask(|reply| Request::Peers { node, incarnation, report, reply });
        asked.await.map(Response::new)
    }

    async fn memory(
        &self,
        request: tonic::Request<pb::MemoryRequest>,
    ) -> Result<Response<pb::MemoryReply>, Status> {
        use pb::memory_request::Change;
        let pb::MemoryRequest { node, incarnation, change } = request.into_inner();
        let node = NodeId(node);
        let change = change.ok_or(WireError::Missing { field: "change" })?;
        let outcome = self
            .ask(|reply| match change {
                Change::AskChunks(chunks) => {
                    Request::AskMemory { node, incarnation, chunks, reply }
                }
                Change::ReturnChunks(chunks) => {
                    Request::ReturnMemory { node, incarnation, chunks, reply }
                }
            })
            .await?;
        outcome.map(|()| Response::new(pb::MemoryReply {})).map_err(wire::denied)
    }

    async fn drain(
        &self,
        _: tonic::Request<pb::DrainRequest>,
    ) -> Result<Response<pb::DrainReply>, Status> {
        self.ask(Request::Drain).await?;
        Ok(Response::new(pb::DrainReply {}))
    }

    async fn status(
        &self,
        _: tonic::Request<pb::StatusRequest>,
    ) -> Result<Response<pb::StatusReply>, Status> {
        self.ask(Request::Status).await.map(Response::new)
    }

    async fn training(
        &self,
        request: tonic::Request<pb::TrainingRequest>,
    ) -> Result<Response<pb::TrainingReply>, Status> {
        let (node, stage, summary) = wire::stage(request.into_inner())?;
        let told = self.ask(|reply| Request::Training { node, stage, summary, reply }).await?;
        Ok(Response::new(wire::training_reply(told, self.meeting_port)))
    }
}

/// Refuses other users of this host, who may reach a socket file by their privileges.
fn check_peer(request: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
    match request.extensions().get::<Peer>() {
        Some(Peer::SameUser | Peer::HasToken) => Ok(request),
        Some(Peer::OtherUser) | None => {
            Err(Status::permission_denied("this job belongs to another user"))
        }
    }
}
