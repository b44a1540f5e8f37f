//! An HTTP server: `/metrics` on the network for clients with the token, and every [`Page`] at a socket in the
//! run directory for its owner.
//!
//! The socket always exists, the network address only on request. The server is idle unless a client
//! connects. A connection serves one request and has a deadline.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hyper::{Response, StatusCode, body::Incoming, header, server::conn::http1, service};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::unistd::gethostname;
use serde::Serialize;
use tierfeed_numa_memory::failpoint;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Mutex, mpsc, oneshot},
    task::JoinSet,
    time::{Instant, timeout},
};

use super::CONTENT_TYPE;
use crate::{
    transport::{
        bounded_tasks::BoundedTasks,
        local_socket::{LocalListener, LocalStream},
        token::Token,
    },
    whole_file,
};

/// Connections that are served at a time; a new one aborts the oldest.
const CONNECTIONS_MAX: usize = 16;

/// The deadline from connecting to the last byte of the answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);

/// Clients on the network share answers up to this age, so that they do not load the loop.
const AGE_MAX: Duration = Duration::from_secs(1);

/// Requests that wait for the loop.
const ASKED_MAX: usize = 16;

const HEADERS_WITHIN: Duration = Duration::from_secs(10);

/// What a client asks for. A manager has its metrics only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    Metrics,
    /// The [`NodeFigures`](crate::observe::node_figures::NodeFigures) from which the metrics are made.
    Figures,
    Trace,
    /// The report so far.
    Report,
    ReportPage,
}

impl Page {
    fn at(path: &str) -> Option<Self> {
        Some(match path {
            "/metrics" => Self::Metrics,
            "/figures.json" => Self::Figures,
            "/trace" => Self::Trace,
            "/report.json" => Self::Report,
            "/report.html" => Self::ReportPage,
            _ => return None,
        })
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::Metrics => CONTENT_TYPE,
            Self::Figures | Self::Trace | Self::Report => "application/json",
            Self::ReportPage => "text/html; charset=utf-8",
        }
    }
}

/// Writes an answer. The server calls it, so that the loop need not write megabytes of text.
pub type Text = Box<dyn FnOnce() -> String + Send>;

/// A request to the loop, with the channel for its answer.
pub struct Request {
    pub page: Page,
    pub reply: oneshot::Sender<Text>,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot serve metrics at {at}: {source}")]
pub struct ServeError {
    pub at: String,
    pub source: io::Error,
}

/// Serves until it is dropped.
#[derive(Debug)]
pub struct Server {
    asked: mpsc::Receiver<Request>,
    _tasks: JoinSet<()>,
    address: Option<SocketAddr>,
    socket: PathBuf,
}

#[derive(Debug, Clone)]
pub struct Network {
    /// As HOST:PORT; port 0 takes a free one.
    pub address: String,
    /// The token, presented as `Authorization: Bearer TOKEN`.
    pub token: Token,
}

#[derive(Clone)]
enum Answers {
    ToOwner { ask: mpsc::Sender<Request> },
    ToNetwork { ask: mpsc::Sender<Request>, token: Token, last: Arc<Mutex<Option<CachedAnswer>>> },
}

struct CachedAnswer {
    at: Instant,
    text: String,
}

impl Server {
    /// Listens at a socket file, and at `network` if given. Must be called within a tokio runtime.
    pub async fn start(socket: &Path, network: Option<Network>) -> Result<Self, ServeError> {
        let (ask, asked) = mpsc::channel(ASKED_MAX);
        let mut tasks = JoinSet::new();
        let mut bound = None;
        if let Some(Network { address, token }) = network {
            let failed = |source| ServeError { at: address.clone(), source };
            let listener = TcpListener::bind(&address).await.map_err(failed)?;
            bound = Some(listener.local_addr().map_err(failed)?);
            let answers = Answers::ToNetwork { ask: ask.clone(), token, last: Arc::default() };
            tasks.spawn(accept(answers, Listener::Tcp(listener)));
        }
        let failed = |source| ServeError { at: socket.display().to_string(), source };
        let listener = LocalListener::bind(socket).map_err(failed)?;
        tasks.spawn(accept(Answers::ToOwner { ask }, Listener::Unix(listener)));
        Ok(Self { asked, _tasks: tasks, address: bound, socket: socket.to_owned() })
    }

    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// `None` if the server has ended.
    pub async fn next(&mut self) -> Option<Request> {
        self.asked.recv().await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Later clients find no socket.
        let _: io::Result<()> = fs::remove_file(&self.socket);
    }
}

/// Where Prometheus finds an agent or a manager: an entry of a file for its `file_sd_configs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Target {
    targets: Vec<String>,
    labels: BTreeMap<&'static str, String>,
}

impl Target {
    /// The host name replaces an unspecified address.
    #[must_use]
    pub fn new(job: &str, node: u32, address: SocketAddr) -> Self {
        Self::named(job, node.to_string(), address)
    }

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
            labels: [("tierfeed_job", job.to_owned()), ("tierfeed_node", node)].into(),
        }
    }

    /// Writes the file atomically.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        whole_file::write(path, serde_json::to_string_pretty(&[self])? + "\n")
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(LocalListener),
}

enum Stream {
    Tcp(TcpStream),
    Unix(LocalStream),
}

impl Listener {
    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => Ok(Stream::Tcp(listener.accept().await?.0)),
            Self::Unix(listener) => Ok(Stream::Unix(listener.accept().await?)),
        }
    }
}

async fn accept(answers: Answers, listener: Listener) {
    let mut connections = BoundedTasks::new(CONNECTIONS_MAX);
    loop {
        let accepted = tokio::select! {
            () = connections.next() => continue,
            accepted = listener.accept() => accepted,
        };
        failpoint::pass("metrics");
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "a connection for metrics failed");
                // Too many open files is the usual reason, and passes.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let answers = answers.clone();
        connections.spawn(async move {
            let served = match stream {
                Stream::Tcp(stream) => timeout(ANSWERED_WITHIN, serve(answers, stream)).await,
                Stream::Unix(stream) => timeout(ANSWERED_WITHIN, serve(answers, stream)).await,
            };
            if served.is_err() {
                tracing::debug!("a peer did not read its answer");
            }
        });
    }
}

async fn serve(answers: Answers, stream: impl AsyncRead + AsyncWrite + Unpin) {
    let answer = service::service_fn(move |request| answer(answers.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection for metrics failed");
    }
}

async fn answer(
    answers: Answers,
    request: hyper::Request<Incoming>,
) -> Result<Response<String>, Infallible> {
    let page = Page::at(request.uri().path());
    let (status, kind, text) = match (page, &answers) {
        (_, Answers::ToNetwork { token, .. }) if !shows(&request, token) => {
            let help = "show the metrics token of the run: Authorization: Bearer TOKEN\n";
            (StatusCode::UNAUTHORIZED, "text/plain", help.to_owned())
        }
        (Some(page), Answers::ToOwner { ask }) => found(page, ask_for(ask, page).await),
        (Some(Page::Metrics), Answers::ToNetwork { ask, last, .. }) => {
            found(Page::Metrics, recent_metrics(ask, last).await)
        }
        _ => (StatusCode::NOT_FOUND, "text/plain", "/metrics\n".to_owned()),
    };
    let mut response = Response::new(text);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
    }
    Ok(response)
}

fn shows(request: &hyper::Request<Incoming>, token: &Token) -> bool {
    let header = request.headers().get(header::AUTHORIZATION);
    let text = header.and_then(|it| it.to_str().ok()).unwrap_or_default();
    text.strip_prefix("Bearer ").is_some_and(|shown| token.matches(shown))
}

/// The last answer if it is recent. Locked while the loop answers, so that concurrent clients share the answer.
async fn recent_metrics(
    ask: &mpsc::Sender<Request>,
    last: &Mutex<Option<CachedAnswer>>,
) -> Option<String> {
    let mut last = last.lock().await;
    if let Some(written) = last.as_ref().filter(|it| it.at.elapsed() < AGE_MAX) {
        return Some(written.text.clone());
    }
    let text = ask_for(ask, Page::Metrics).await?;
    *last = Some(CachedAnswer { at: Instant::now(), text: text.clone() });
    Some(text)
}

fn found(page: Page, text: Option<String>) -> (StatusCode, &'static str, String) {
    match text {
        Some(text) => (StatusCode::OK, page.content_type(), text),
        None => (StatusCode::SERVICE_UNAVAILABLE, "text/plain", "ending\n".to_owned()),
    }
}

async fn ask_for(ask: &mpsc::Sender<Request>, page: Page) -> Option<String> {
    let (reply, text) = oneshot::channel();
    ask.send(Request { page, reply }).await.ok()?;
    let text = text.await.ok()?;
    // Writing megabytes of text takes milliseconds, for which the runtime must not block.
    tokio::task::spawn_blocking(text).await.ok()
}

#[cfg(test)]
mod tests;
