//! The accept loop of a manager: which peers get a connection, and how many.
//!
//! A connection takes a slot and reaches the server once its peer is authenticated and has sent its first
//! bytes. Until then it is a handshake: their number and time are bounded and a new one aborts the oldest, so
//! that silent peers do not block others.

use std::{
    convert::Infallible,
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tierfeed_numa_memory::failpoint;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, timeout},
};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::Listener;
use crate::transport::{
    bounded_tasks::BoundedTasks,
    keep_alive,
    local_socket::LocalStream,
    mutual_tls::{Credentials, HandshakeError},
};

/// Peers that are not authenticated yet.
const HANDSHAKES_MAX: usize = 256;

/// The deadline from connecting to the first bytes of an authenticated peer.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);

/// The pause after a failed accept, whose usual reason is a temporary lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

const WARN_EVERY: Duration = Duration::from_secs(10);

/// Accepts peers until the server that takes them has ended.
pub(super) async fn accept(
    listener: Arc<Listener>,
    connections_max: usize,
    server: mpsc::Sender<Result<Accepted, Infallible>>,
) {
    let mut acceptor = Acceptor {
        server,
        slots: Arc::new(Semaphore::new(connections_max)),
        handshakes: BoundedTasks::new(HANDSHAKES_MAX),
        warnings: Warnings::default(),
    };
    loop {
        tokio::select! {
            () = acceptor.server.closed() => return,
            outcome = acceptor.handshakes.next() => acceptor.take(outcome),
            pending = listener.next() => match pending {
                Ok(pending) => acceptor.begin(pending),
                Err(error) => {
                    acceptor.warnings.add(&format_args!("a connection cannot be accepted: {error}"));
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
}

impl Listener {
    async fn next(&self) -> io::Result<PendingConnection> {
        match self {
            Self::Unix(listener, _) => Ok(PendingConnection::Unix(listener.accept().await?)),
            Self::Tcp(listener, credentials) => {
                let (stream, from) = listener.accept().await?;
                Ok(PendingConnection::Tcp(stream, from, credentials.clone()))
            }
        }
    }
}

enum PendingConnection {
    Unix(LocalStream),
    Tcp(TcpStream, SocketAddr, Credentials),
}

struct Acceptor {
    server: mpsc::Sender<Result<Accepted, Infallible>>,
    slots: Arc<Semaphore>,
    handshakes: BoundedTasks<Result<Accepted, Refusal>>,
    warnings: Warnings,
}

impl Acceptor {
    fn begin(&mut self, pending: PendingConnection) {
        failpoint::pass("accept");
        let slots = Arc::clone(&self.slots);
        self.handshakes.spawn(async move {
            let from = pending.name();
            let known = timeout(HANDSHAKE_WITHIN, pending.authenticate()).await;
            let refuse = |reason| Refusal { from, reason };
            let (stream, peer) =
                known.map_err(|_| refuse(RefusalReason::Silent))?.map_err(refuse)?;
            let slot = slots.try_acquire_owned().map_err(|_| refuse(RefusalReason::Full))?;
            Ok(Accepted { stream, peer, _slot: slot })
        });
    }

    fn take(&mut self, outcome: Result<Accepted, Refusal>) {
        match outcome {
            // The queue has room for every connection. Without a server the loop ends anyway.
            Ok(accepted) => drop(self.server.try_send(Ok(accepted))),
            // Who has several addresses of a manager tries them all, and hangs up where another one answered first.
            Err(refusal) if refusal.is_hung_up() => {
                tracing::debug!(%refusal, "a peer hung up");
            }
            Err(refusal) => self.warnings.add(&format_args!("a peer was turned away: {refusal}")),
        }
    }
}

impl PendingConnection {
    fn name(&self) -> Option<SocketAddr> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(_, from, _) => Some(*from),
        }
    }

    /// Waits until the peer is authenticated and sends bytes, for which HTTP/2 itself has no deadline.
    async fn authenticate(self) -> Result<(Stream, Peer), RefusalReason> {
        match self {
            Self::Unix(stream) => {
                let is_same = stream.is_of_same_user().map_err(RefusalReason::Lost)?;
                stream.readable().await.map_err(RefusalReason::Lost)?;
                let peer = if is_same { Peer::SameUser } else { Peer::OtherUser };
                Ok((Stream::Unix(stream), peer))
            }
            Self::Tcp(stream, _, credentials) => {
                keep_alive::prepare(&stream).map_err(RefusalReason::Lost)?;
                let mut stream = credentials.accept(stream).await?;
                stream.fill_buf().await.map_err(RefusalReason::Lost)?;
                Ok((Stream::Tls(Box::new(stream)), Peer::HasToken))
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// A process of the manager's own user, by the kernel's peer credentials.
    SameUser,
    OtherUser,
    /// A process that proved the token of the job.
    HasToken,
}

/// A connection that the server may read from. Dropping it frees its slot.
#[derive(Debug)]
pub(super) struct Accepted {
    stream: Stream,
    peer: Peer,
    _slot: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum Stream {
    Unix(LocalStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connected for Accepted {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer
    }
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Unix(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum RefusalReason {
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error("it sent nothing within {HANDSHAKE_WITHIN:?}")]
    Silent,
    #[error("there are as many connections as the job can need")]
    Full,
    #[error("the connection was lost: {0}")]
    Lost(#[source] io::Error),
}

#[derive(Debug)]
struct Refusal {
    from: Option<SocketAddr>,
    reason: RefusalReason,
}

impl Refusal {
    /// Whether the peer ended the connection before it said anything.
    fn is_hung_up(&self) -> bool {
        let (RefusalReason::Lost(error) | RefusalReason::Handshake(HandshakeError::Lost(error))) =
            &self.reason
        else {
            return false;
        };
        let ends = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
        ends.contains(&error.kind())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from {
            Some(from) => write!(f, "{from}: {}", self.reason)?,
            None => write!(f, "{}", self.reason)?,
        }
        match self.reason {
            RefusalReason::Handshake(HandshakeError::OtherToken) => {
                f.write_str("; give agents and commands the token file of this manager")
            }
            RefusalReason::Handshake(HandshakeError::NotTls | HandshakeError::Protocol(_)) => {
                f.write_str("; if it is a tierfeed, it must have this version")
            }
            _ => Ok(()),
        }
    }
}

/// Logs rejected peers with a rate limit, because their number is unbounded.
#[derive(Debug, Default)]
struct Warnings {
    last: Option<Instant>,
    untold: u64,
}

impl Warnings {
    fn add(&mut self, warning: &dyn fmt::Display) {
        let now = Instant::now();
        if self.last.is_some_and(|last| now - last < WARN_EVERY) {
            self.untold += 1;
            tracing::debug!("{warning}");
            return;
        }
        let untold = std::mem::take(&mut self.untold);
        self.last = Some(now);
        tracing::warn!(untold, "{warning}");
    }
}

#[cfg(test)]
mod tests;
