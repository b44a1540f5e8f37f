//! The gRPC service of the manager: checks the peer, and passes its call to the loop.

use std::{
    convert::Infallible,
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::sync::{mpsc, oneshot};
use tonic::{
    Response, Status,
    body::Body,
    codec::CompressionEncoding,
    codegen::{BoxFuture, http},
    server::{Grpc, NamedService},
};
use tower::service_fn;

use super::accept::Peer;
use crate::rpc::{
    call::{Answer, Call, IndexPart, JobText, PATH},
    codec::Json,
};

/// The index in one reply.
const INDEX_PART_BYTES: u64 = 1 << 20;

/// A call for the loop, with the channel for its answer.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) call: Call,
    pub(super) reply: oneshot::Sender<Result<Answer, Status>>,
}

#[derive(Debug, Clone)]
pub(super) struct Service {
    job: JobText,
    /// Opened once, so that all parts are of one index; `None` if there is none to pass on.
    index: Option<Arc<File>>,
    requests: mpsc::Sender<Request>,
}

impl Service {
    pub(super) fn new(job: JobText, index: &Path, requests: mpsc::Sender<Request>) -> Self {
        let opened = File::open(index);
        if let Err(error) = &opened {
            tracing::warn!(path = %index.display(), %error, "agents index the dataset themselves");
        }
        Self { job, index: opened.ok().map(Arc::new), requests }
    }

    async fn answer(&self, call: Call) -> Result<Answer, Status> {
        match call {
            Call::Job => Ok(Answer::Job(self.job.clone())),
            Call::Index { offset } => self.index_part(offset).await.map(Answer::Index),
            call => {
                let ending = || Status::unavailable("the manager is ending");
                let (reply, answer) = oneshot::channel();
                self.requests.send(Request { call, reply }).await.map_err(|_| ending())?;
                answer.await.map_err(|_| ending())?
            }
        }
    }

    async fn index_part(&self, offset: u64) -> Result<IndexPart, Status> {
        let Some(file) = self.index.clone() else {
            return Ok(IndexPart::default());
        };
        let read = tokio::task::spawn_blocking(move || part_of(&file, offset)).await;
        read.map_err(|error| Status::internal(error.to_string()))?
            .map_err(|error| Status::internal(format!("the index: {error}")))
    }
}

/// The bytes from `offset`, and the length of the whole file.
fn part_of(file: &File, offset: u64) -> io::Result<IndexPart> {
    let whole = file.metadata()?.len();
    let len = whole.saturating_sub(offset).min(INDEX_PART_BYTES);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(IndexPart { bytes, whole })
}

impl NamedService for Service {
    const NAME: &'static str = "tierfeed.Manager";
}

impl tower::Service<http::Request<Body>> for Service {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            if let Err(refused) = check(&request) {
                return Ok(refused.into_http());
            }
            let answered = service_fn(move |request: tonic::Request<Call>| {
                let service = service.clone();
                async move {
                    let answer = service.answer(request.into_inner()).await?;
                    let is_long = answer.is_long();
                    let mut answer = Response::new(answer);
                    if !is_long {
                        answer.disable_compression();
                    }
                    Ok(answer)
                }
            });
            let mut grpc = Grpc::new(Json::<Answer, Call>::default())
                .send_compressed(CompressionEncoding::Gzip);
            Ok(grpc.unary(answered, request).await)
        })
    }
}

/// Refuses other users of this host, who may reach a socket file by their privileges, and other versions.
fn check(request: &http::Request<Body>) -> Result<(), Status> {
    match request.extensions().get::<Peer>() {
        Some(Peer::SameUser | Peer::HasToken) => (),
        Some(Peer::OtherUser) | None => {
            return Err(Status::permission_denied("this job belongs to another user"));
        }
    }
    if request.uri().path() == PATH {
        return Ok(());
    }
    let version = env!("CARGO_PKG_VERSION");
    let other = format!("the manager is tierfeed {version}; callers must have this version");
    Err(Status::unimplemented(other))
}
