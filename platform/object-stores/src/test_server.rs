//! An S3 server on loopback with programmable faults: late and slow answers, refusals, silence,
//! bodies that end too soon, small pages.
//!
//! A server library implements the protocol; objects are in memory, so that a key may have any form, or
//! files that are read when they are asked for. The accept loop is not the library's because that leaves Nagle's algorithm
//! on, which costs 38 ms for each request.

mod bucket;
mod pace;
mod paced;

use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

pub use hyper::StatusCode;
use hyper::{
    Request, Response,
    body::Incoming,
    header::{AUTHORIZATION, CONTENT_LENGTH},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use s3s::{
    Body,
    auth::SimpleAuth,
    service::{S3Service, S3ServiceBuilder},
};
use tokio::{net::TcpStream, runtime, sync::oneshot, time};

pub use self::pace::Pace;
use self::{
    bucket::{Backend, Shared},
    pace::Far,
};
use crate::Options;

/// How the server handles a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The request is answered.
    Serve,
    /// The request is answered after a delay.
    ServeAfter(Duration),
    /// The request is answered, and the body is sent at a limited rate.
    ServeAt {
        /// Rate of the connection, in bytes per second.
        bytes_per_s: u64,
    },
    /// The connection is closed after a part of the body.
    CutAfter {
        /// Bytes of the body that are sent.
        bytes: usize,
    },
    /// The body and its announced length are cut; the range in the answer is not.
    EndAfter {
        /// Bytes of the body that are sent.
        bytes: usize,
    },
    /// The answer stops after a part of the body, and the connection stays open.
    StallAfter {
        /// Bytes of the body that are sent.
        bytes: usize,
    },
    /// The body is sent byte by byte, with a pause before each.
    Drip {
        /// Duration of each pause.
        pause: Duration,
    },
    /// The request is refused with this status.
    Refuse(StatusCode),
    /// The request is never answered.
    NeverAnswer,
}

/// A request that the server received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// HTTP method of the request.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The part behind the `?`.
    pub query: String,
    /// Value of the `Range` header.
    pub range: Option<String>,
    /// Value of the `If-Match` header.
    pub if_match: Option<String>,
    /// Whether the request was signed.
    pub is_signed: bool,
}

/// The key whose secret is [`SECRET`].
pub const KEY: &str = "AKIATEST";
/// The secret of [`KEY`].
pub const SECRET: &str = "the-secret-of-the-test";
/// The name of the only bucket.
pub const BUCKET: &str = "bucket";

type Judge = Arc<dyn Fn(&Request<Incoming>) -> Verdict + Send + Sync>;

/// A server that runs as long as this value lives.
pub struct Server {
    /// The address at which the server listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    seen: Arc<Mutex<Vec<Seen>>>,
    in_flight: Arc<InFlight>,
    far: Arc<Mutex<Option<Arc<Far>>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Which requests may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Requests signed with [`KEY`] and [`SECRET`].
    Signed,
    /// Unsigned requests, and signed ones, whose signature is not looked at.
    Everybody,
}

impl Server {
    /// A server with one empty bucket, [`BUCKET`].
    ///
    /// # Panics
    ///
    /// If no port on loopback can be opened.
    pub fn start(
        access: Access,
        judge: impl Fn(&Request<Incoming>) -> Verdict + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let mut builder = S3ServiceBuilder::new(Backend(Arc::clone(&shared)));
        if access == Access::Signed {
            builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
        }
        let service = builder.build();
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        listener.set_nonblocking(true).expect("a listener can be asked without waiting");
        let address = listener.local_addr().expect("it is bound");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let in_flight = Arc::new(InFlight::default());
        let far = Arc::default();
        let desk = Desk {
            access,
            service,
            judge: Arc::new(judge),
            seen: Arc::clone(&seen),
            in_flight: Arc::clone(&in_flight),
            far: Arc::clone(&far),
        };
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be made").block_on(async {
                tokio::select! {
                    () = accept(listener, desk) => (),
                    _ = stopped => (),
                }
            });
        });
        Self { address, shared, seen, in_flight, far, stop: Some(stop), thread: Some(thread) }
    }

    /// A server that answers every request.
    ///
    /// # Panics
    ///
    /// If no port on loopback can be opened.
    pub fn serving(access: Access) -> Self {
        Self::start(access, |_| Verdict::Serve)
    }

    /// The options with which a client reaches the server and is accepted.
    pub fn options(&self) -> Options {
        let options = [
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ];
        Options(options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// The URL of the server.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stores an object of `len` bytes.
    pub fn put(&self, key: &str, len: usize) {
        self.put_bytes(key, vec![7; len]);
    }

    /// Stores an object, or replaces it, which changes its `ETag`.
    pub fn put_bytes(&self, key: &str, bytes: Vec<u8>) {
        self.shared.put(key.to_owned(), bytes.into());
    }

    /// Stores an object that is this file; it must not change afterwards.
    ///
    /// # Errors
    ///
    /// If there is no such file.
    pub fn put_file(&self, key: &str, path: PathBuf) -> io::Result<()> {
        self.shared.put_file(key.to_owned(), path)
    }

    /// Answers from now on as slowly as a bucket that is far away; verdicts other than
    /// [`Verdict::Serve`] keep their own times.
    pub fn set_pace(&self, pace: Pace) {
        *locked(&self.far) = Some(Arc::new(Far::new(pace)));
    }

    /// Removes an object from the bucket.
    pub fn remove(&self, key: &str) {
        self.shared.remove(key);
    }

    /// Limits the pages of a listing to `keys` keys.
    pub fn limit_pages(&self, keys: usize) {
        self.shared.page.store(keys, Ordering::Relaxed);
    }

    /// The keys in the bucket, sorted.
    pub fn keys(&self) -> Vec<String> {
        self.shared.objects().keys().cloned().collect()
    }

    /// All requests since the start.
    pub fn seen(&self) -> Vec<Seen> {
        locked(&self.seen).clone()
    }

    /// Drops the recorded requests, for a server that runs long.
    pub fn forget(&self) {
        locked(&self.seen).clear();
    }

    /// Number of requests with a method.
    pub fn count(&self, method: &str) -> usize {
        locked(&self.seen).iter().filter(|seen| seen.method == method).count()
    }

    /// Largest number of requests that were in progress at the same time.
    pub fn most_in_flight(&self) -> usize {
        self.in_flight.most.load(Ordering::Relaxed)
    }

    /// Number of listing requests.
    pub fn listings(&self) -> usize {
        locked(&self.seen).iter().filter(|seen| seen.query.contains("list-type=2")).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(!matches!(ended, Some(Err(_))) || std::thread::panicking(), "the server panicked");
    }
}

/// Refuses the first `times` requests for which `is_meant` is true, with the status.
pub fn refuse_first(
    times: usize,
    status: StatusCode,
    is_meant: impl Fn(&Request<Incoming>) -> bool + Send + Sync + 'static,
) -> impl Fn(&Request<Incoming>) -> Verdict + Send + Sync + 'static {
    let refused = AtomicUsize::new(0);
    move |request| {
        let is_refused = is_meant(request) && refused.fetch_add(1, Ordering::Relaxed) < times;
        if is_refused { Verdict::Refuse(status) } else { Verdict::Serve }
    }
}

#[derive(Clone)]
struct Desk {
    access: Access,
    service: S3Service,
    judge: Judge,
    seen: Arc<Mutex<Vec<Seen>>>,
    in_flight: Arc<InFlight>,
    far: Arc<Mutex<Option<Arc<Far>>>>,
}

#[derive(Default)]
struct InFlight {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A request in progress.
struct Counted<'a>(&'a InFlight);

impl<'a> Counted<'a> {
    fn new(in_flight: &'a InFlight) -> Self {
        let now = 1 + in_flight.now.fetch_add(1, Ordering::Relaxed);
        in_flight.most.fetch_max(now, Ordering::Relaxed);
        Self(in_flight)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn accept(listener: TcpListener, desk: Desk) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("the runtime has I/O");
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).expect("it is a TCP socket");
        tokio::spawn(serve(stream, desk.clone()));
    }
}

async fn serve(stream: TcpStream, desk: Desk) {
    let service = service_fn(|request| desk.answer(request));
    // The client may close connections at any time, and a verdict cuts them.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

impl Desk {
    async fn answer(&self, mut request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let _counted = Counted::new(&self.in_flight);
        // Before the verdict: a test that the verdict notifies of a request finds it here.
        locked(&self.seen).push(Seen::of(&request));
        let verdict = (self.judge)(&request);
        let far = locked(&self.far).clone().filter(|_| verdict == Verdict::Serve);
        let first_byte = match &far {
            Some(far) => Some(far.first_byte().await),
            None => None,
        };
        match verdict {
            Verdict::ServeAfter(delay) => time::sleep(delay).await,
            Verdict::Refuse(status) => return Ok(empty(status)),
            Verdict::NeverAnswer => std::future::pending().await,
            Verdict::Serve
            | Verdict::ServeAt { .. }
            | Verdict::CutAfter { .. }
            | Verdict::StallAfter { .. }
            | Verdict::Drip { .. }
            | Verdict::EndAfter { .. } => (),
        }
        if self.access == Access::Everybody {
            request.headers_mut().remove(AUTHORIZATION);
        }
        let failed = |_| empty(StatusCode::INTERNAL_SERVER_ERROR);
        let answer = self.service.call(request.map(Body::from)).await.unwrap_or_else(failed);
        if let (Some(far), Some(first_byte)) = (far, first_byte) {
            return Ok(answer.map(|body| paced::far(body, far, first_byte)));
        }
        Ok(match verdict {
            Verdict::ServeAt { bytes_per_s } => answer.map(|it| paced::at(it, bytes_per_s)),
            Verdict::CutAfter { bytes } => answer.map(|it| paced::cut(it, bytes)),
            Verdict::StallAfter { bytes } => answer.map(|it| paced::stalled(it, bytes)),
            Verdict::Drip { pause } => answer.map(|it| paced::dripping(it, pause)),
            Verdict::EndAfter { bytes } => {
                let mut answer = answer.map(|it| paced::ended(it, bytes));
                answer.headers_mut().insert(CONTENT_LENGTH, bytes.into());
                answer
            }
            _ => answer,
        })
    }
}

impl Seen {
    fn of(request: &Request<Incoming>) -> Self {
        let header = |name| Some(request.headers().get(name)?.to_str().ok()?.to_owned());
        Self {
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            range: header("range"),
            if_match: header("if-match"),
            is_signed: request.headers().contains_key(AUTHORIZATION),
        }
    }
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn where_everybody_may_read_a_signature_is_not_looked_at() {
        let server = Server::serving(Access::Everybody);
        server.put("key", 3);
        let mut connection = std::net::TcpStream::connect(server.address).unwrap();
        let request = "GET /bucket/key HTTP/1.1\r\nhost: bucket\r\nconnection: close\r\n\
                       authorization: AWS4-HMAC-SHA256 Credential=A/20261126/us-east-1/s3/aws4_request, \
                       SignedHeaders=host, Signature=0\r\n\r\n";
        connection.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}
