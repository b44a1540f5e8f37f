//! Answers HTTP: `/metrics` for whoever reaches the address, `/trace` for the owner of the run directory.
//!
//! The socket in the run directory is always there; an address on the network only if it was asked for.
//! Nothing of this runs unless somebody connects.

use std::{
    convert::Infallible,
    fs, io,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hyper::{Request, Response, StatusCode, body::Incoming, header, server::conn::http1, service};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::unistd::gethostname;
use serde::Serialize;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{Semaphore, mpsc, oneshot},
    task::JoinSet,
};

use super::{CONTENT_TYPE, Families};

/// Connections that are answered at a time; more wait.
const CONNECTIONS_MAX: usize = 16;

/// Questions that wait for the loop.
const ASKED_MAX: usize = 16;

/// Who connects and says nothing is let go.
const HEADERS_WITHIN: Duration = Duration::from_secs(10);

/// What the loop is asked for.
pub type Ask = oneshot::Sender<Families>;

/// Writes the trace of the moment.
pub type Trace = Arc<dyn Fn() -> String + Send + Sync>;

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve metrics at {at}: {source}")]
pub struct ServeError {
    /// Where.
    pub at: String,
    /// As the system says.
    pub source: io::Error,
}

/// Serves until it is dropped.
#[derive(Debug)]
pub struct Server {
    asked: mpsc::Receiver<Ask>,
    _tasks: JoinSet<()>,
    address: Option<SocketAddr>,
    socket: PathBuf,
}

#[derive(Clone)]
struct Answers {
    ask: mpsc::Sender<Ask>,
    trace: Option<Trace>,
}

impl Server {
    /// Listens at a socket file, and at an address such as `127.0.0.1:9464` if there is one; port 0 takes
    /// a free one. `trace` writes what `/trace` shows, if there is such a page. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// If one of them cannot be listened at.
    pub async fn start(
        socket: &Path,
        address: Option<&str>,
        trace: Option<Trace>,
    ) -> Result<Self, ServeError> {
        let (ask, asked) = mpsc::channel(ASKED_MAX);
        let mut tasks = JoinSet::new();
        let answers = Answers { ask, trace: None };
        let mut bound = None;
        if let Some(address) = address {
            let failed = |source| ServeError { at: address.to_owned(), source };
            let listener = TcpListener::bind(address).await.map_err(failed)?;
            bound = Some(listener.local_addr().map_err(failed)?);
            tasks.spawn(accept(answers.clone(), Door::Tcp(listener)));
        }
        let listener = listen(socket)?;
        let answers = Answers { trace, ..answers };
        tasks.spawn(accept(answers, Door::Unix(listener)));
        Ok(Self { asked, _tasks: tasks, address: bound, socket: socket.to_owned() })
    }

    /// The address on the network.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The next who wants the figures.
    pub async fn next(&mut self) -> Option<Ask> {
        self.asked.recv().await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Whoever comes later finds no socket.
        let _: io::Result<()> = fs::remove_file(&self.socket);
    }
}

/// Where Prometheus finds an agent or a manager: an entry of a file for its `file_sd_configs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Target {
    targets: Vec<String>,
    labels: Labels,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Labels {
    tierfeed_job: String,
    tierfeed_node: String,
}

impl Target {
    /// The agent of `node` at `address`. One that listens everywhere is found by the name of its host.
    #[must_use]
    pub fn new(job: &str, node: u32, address: SocketAddr) -> Self {
        Self::named(job, node.to_string(), address)
    }

    /// The manager of a job at `address`, as an agent without a number.
    #[must_use]
    pub fn manager(job: &str, address: SocketAddr) -> Self {
        Self::named(job, "manager".to_owned(), address)
    }

    fn named(job: &str, node: String, address: SocketAddr) -> Self {
        let host = if address.ip().is_unspecified() {
            gethostname().unwrap_or_default().to_string_lossy().into_owned()
        } else if address.is_ipv6() {
            format!("[{}]", address.ip())
        } else {
            address.ip().to_string()
        };
        Self {
            targets: vec![format!("{host}:{}", address.port())],
            labels: Labels { tierfeed_job: job.to_owned(), tierfeed_node: node },
        }
    }

    /// Writes the file, so that no reader sees half of it.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let beside = path.with_extension("json.part");
        fs::write(&beside, serde_json::to_string_pretty(&[self])? + "\n")?;
        fs::rename(&beside, path)
    }
}

fn listen(path: &Path) -> Result<UnixListener, ServeError> {
    let failed = |source| ServeError { at: path.display().to_string(), source };
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => (),
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Door {
    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => Ok(Stream::Tcp(listener.accept().await?.0)),
            Self::Unix(listener) => Ok(Stream::Unix(listener.accept().await?.0)),
        }
    }
}

async fn accept(answers: Answers, door: Door) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match door.accept().await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "a connection for metrics failed");
                // Too many open files is the usual reason, and passes.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let answers = answers.clone();
        connections.spawn(async move {
            let _place = place;
            match stream {
                Stream::Tcp(stream) => serve(answers, stream).await,
                Stream::Unix(stream) => serve(answers, stream).await,
            }
        });
    }
}

async fn serve(answers: Answers, stream: impl AsyncRead + AsyncWrite + Unpin) {
    let answer = service::service_fn(move |request| answer(answers.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .serve_connection(TokioIo::new(stream), answer);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection for metrics failed");
    }
}

async fn answer(
    answers: Answers,
    request: Request<Incoming>,
) -> Result<Response<String>, Infallible> {
    let (status, kind, text) = match (request.uri().path(), &answers.trace) {
        ("/metrics", _) => match figures(&answers.ask).await {
            Some(families) => (StatusCode::OK, CONTENT_TYPE, families.text()),
            None => (StatusCode::SERVICE_UNAVAILABLE, "text/plain", "ending\n".to_owned()),
        },
        ("/trace", Some(trace)) => {
            let trace = Arc::clone(trace);
            // Megabytes of text take milliseconds, which trainers need not wait.
            let text = tokio::task::spawn_blocking(move || trace()).await.unwrap_or_default();
            (StatusCode::OK, "application/json", text)
        }
        _ => (StatusCode::NOT_FOUND, "text/plain", "/metrics\n".to_owned()),
    };
    let mut response = Response::new(text);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    Ok(response)
}

async fn figures(ask: &mpsc::Sender<Ask>) -> Option<Families> {
    let (reply, figures) = oneshot::channel();
    ask.send(reply).await.ok()?;
    figures.await.ok()
}
