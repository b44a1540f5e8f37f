//! The accept loop of a manager: who gets a connection, and how many there are.
//!
//! A connection counts, and reaches the server, once its peer is known and has sent its first bytes. Until
//! then it is a handshake: those are few and short, and the oldest gives way to a new one, so that silent
//! peers hold up none that speaks.

use std::{
    convert::Infallible,
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use nix::unistd::Uid;
use tierfeed_numa_memory::drill;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, timeout},
};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::Door;
use crate::transport::{
    bounded_tasks::BoundedTasks,
    keep_alive,
    local_socket::LocalStream,
    mutual_tls::{Credentials, HandshakeError},
};

/// Peers that are not known yet.
const HANDSHAKES_MAX: usize = 256;

/// From the connection to the first bytes of a peer that is known.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);

/// After a failed accept: descriptors are used up, which passes.
const PAUSE: Duration = Duration::from_millis(100);

/// Between two warnings of peers that were turned away.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// Lets peers in until the server that takes them is gone.
pub(super) async fn accept(
    door: Arc<Door>,
    connections_max: usize,
    server: mpsc::Sender<Result<Accepted, Infallible>>,
) {
    let mut desk = Desk {
        server,
        places: Arc::new(Semaphore::new(connections_max)),
        handshakes: BoundedTasks::new(HANDSHAKES_MAX),
        warnings: Warnings::default(),
    };
    loop {
        tokio::select! {
            () = desk.server.closed() => return,
            outcome = desk.handshakes.next() => desk.take(outcome),
            visitor = door.next() => match visitor {
                Ok(visitor) => desk.begin(visitor),
                Err(error) => {
                    desk.warnings.add(&format_args!("a connection cannot be accepted: {error}"));
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
}

impl Door {
    async fn next(&self) -> io::Result<Visitor> {
        match self {
            Self::Unix(listener, _) => Ok(Visitor::Unix(listener.accept().await?)),
            Self::Tcp(listener, credentials) => {
                let (stream, from) = listener.accept().await?;
                Ok(Visitor::Tcp(stream, from, credentials.clone()))
            }
        }
    }
}

/// A connection whose peer is not known yet.
enum Visitor {
    Unix(LocalStream),
    Tcp(TcpStream, SocketAddr, Credentials),
}

struct Desk {
    server: mpsc::Sender<Result<Accepted, Infallible>>,
    places: Arc<Semaphore>,
    handshakes: BoundedTasks<Result<Accepted, Refusal>>,
    warnings: Warnings,
}

impl Desk {
    fn begin(&mut self, visitor: Visitor) {
        drill::pass("accept");
        let places = Arc::clone(&self.places);
        self.handshakes.spawn(async move {
            let from = visitor.name();
            let known = timeout(HANDSHAKE_WITHIN, visitor.introduce()).await;
            let refuse = |why| Refusal { from, why };
            let (stream, peer) = known.map_err(|_| refuse(Why::Silent))?.map_err(refuse)?;
            let place = places.try_acquire_owned().map_err(|_| refuse(Why::Full))?;
            Ok(Accepted { stream, peer, _place: place })
        });
    }

    fn take(&mut self, outcome: Result<Accepted, Refusal>) {
        match outcome {
            // The queue has a place for every connection. Without a server the loop ends anyway.
            Ok(accepted) => drop(self.server.try_send(Ok(accepted))),
            Err(refusal) => self.warnings.add(&format_args!("a peer was turned away: {refusal}")),
        }
    }
}

impl Visitor {
    fn name(&self) -> Option<SocketAddr> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(_, from, _) => Some(*from),
        }
    }

    /// Waits until the peer is known and speaks: HTTP/2 itself would wait for its first words for ever.
    async fn introduce(self) -> Result<(Stream, Peer), Why> {
        match self {
            Self::Unix(stream) => {
                let peer = stream.peer().map_err(Why::Lost)?;
                stream.readable().await.map_err(Why::Lost)?;
                let is_same = peer == Uid::effective();
                let peer = if is_same { Peer::SameUser } else { Peer::OtherUser };
                Ok((Stream::Unix(stream), peer))
            }
            Self::Tcp(stream, _, credentials) => {
                keep_alive::prepare(&stream).map_err(Why::Lost)?;
                let mut stream = credentials.accept(stream).await?;
                stream.fill_buf().await.map_err(Why::Lost)?;
                Ok((Stream::Tls(Box::new(stream)), Peer::HasToken))
            }
        }
    }
}

/// Who is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// A process of the manager's own user, as the kernel says.
    SameUser,
    /// A process of another user of this host.
    OtherUser,
    /// A process that proved the token of the job.
    HasToken,
}

/// A connection that the server may read from. Its place is free again when it is dropped.
#[derive(Debug)]
pub(super) struct Accepted {
    stream: Stream,
    peer: Peer,
    _place: OwnedSemaphorePermit,
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

/// Why a connection did not reach the server.
#[derive(Debug, thiserror::Error)]
enum Why {
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error("it said nothing within {HANDSHAKE_WITHIN:?}")]
    Silent,
    #[error("there are as many connections as the job can need")]
    Full,
    #[error("the connection was lost: {0}")]
    Lost(#[source] io::Error),
}

#[derive(Debug)]
struct Refusal {
    from: Option<SocketAddr>,
    why: Why,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from {
            Some(from) => write!(f, "{from}: {}", self.why)?,
            None => write!(f, "{}", self.why)?,
        }
        match self.why {
            Why::Handshake(HandshakeError::OtherToken) => {
                f.write_str("; give agents and commands the token file of this manager")
            }
            Why::Handshake(HandshakeError::NotTls | HandshakeError::Protocol(_)) => {
                f.write_str("; if it is a tierfeed, it must have this version")
            }
            _ => Ok(()),
        }
    }
}

/// Says what goes wrong, but not each time: strangers may come in any number.
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
