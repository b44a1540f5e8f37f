//! An S3 server on loopback that does what a test tells it to: late answers, refusals, silence.
//!
//! The accept loop is ours because the one that comes with the server leaves Nagle's algorithm on, which
//! costs 38 ms for each request.

use std::{
    convert::Infallible,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use hyper::{
    Request, Response, StatusCode, body::Incoming, header::AUTHORIZATION, server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use s3s::{
    Body,
    auth::SimpleAuth,
    service::{S3Service, S3ServiceBuilder},
};
use s3s_fs::FileSystem;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
    sync::oneshot,
    time,
};

/// What becomes of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Verdict {
    Serve,
    ServeAfter(Duration),
    Refuse(StatusCode),
    NeverAnswer,
}

/// What the server saw.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) is_signed: bool,
}

pub(crate) const KEY: &str = "AKIATEST";
pub(crate) const SECRET: &str = "the-secret-of-the-test";

type Judge = Arc<dyn Fn(&Request<Incoming>) -> Verdict + Send + Sync>;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    root: tempfile::TempDir,
    seen: Arc<Mutex<Vec<Seen>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Who may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Whoever signs with [`KEY`] and [`SECRET`].
    Signed,
    Everybody,
}

impl Server {
    /// A server with one empty bucket, `bucket`.
    pub(crate) fn start(
        access: Access,
        judge: impl Fn(&Request<Incoming>) -> Verdict + Send + Sync + 'static,
    ) -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("bucket")).unwrap();
        let mut builder = S3ServiceBuilder::new(FileSystem::new(root.path()).unwrap());
        if access == Access::Signed {
            builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
        }
        let service = builder.build();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let desk = Desk { service, judge: Arc::new(judge), seen: Arc::clone(&seen) };
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = accept(TcpListener::from_std(listener).unwrap(), desk) => (),
                    _ = stopped => (),
                }
            });
        });
        Self { address, root, seen, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn put(&self, key: &str, len: usize) {
        let path = self.bucket().join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![7; len]).unwrap();
    }

    fn bucket(&self) -> PathBuf {
        self.root.path().join("bucket")
    }

    /// The keys in the bucket.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        collect(&self.bucket(), &self.bucket(), &mut keys);
        keys
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, method: &str) -> usize {
        self.seen().iter().filter(|seen| seen.method == method).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

fn collect(root: &Path, directory: &Path, keys: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, keys);
        } else {
            keys.push(path.strip_prefix(root).unwrap().display().to_string());
        }
    }
}

#[derive(Clone)]
struct Desk {
    service: S3Service,
    judge: Judge,
    seen: Arc<Mutex<Vec<Seen>>>,
}

async fn accept(listener: TcpListener, desk: Desk) {
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        tokio::spawn(serve(stream, desk.clone()));
    }
}

async fn serve(stream: TcpStream, desk: Desk) {
    let service = service_fn(|request| desk.answer(request));
    // The client closes connections when it likes.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

impl Desk {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let verdict = (self.judge)(&request);
        self.seen.lock().unwrap().push(Seen {
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            is_signed: request.headers().contains_key(AUTHORIZATION),
        });
        match verdict {
            Verdict::Serve => (),
            Verdict::ServeAfter(delay) => time::sleep(delay).await,
            Verdict::Refuse(status) => return Ok(empty(status)),
            Verdict::NeverAnswer => std::future::pending().await,
        }
        let failed = |_| empty(StatusCode::INTERNAL_SERVER_ERROR);
        Ok(self.service.call(request.map(Body::from)).await.unwrap_or_else(failed))
    }
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}
