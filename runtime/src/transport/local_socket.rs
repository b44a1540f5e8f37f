//! Unix sockets in the run directory, by which processes of this user reach an agent, a manager, or the first
//! process of a node.
//!
//! A peer may send a descriptor whose `close` blocks, such as a TCP socket with `SO_LINGER`, and the thread
//! that receives it would block: two such peers would stop both threads of the runtime. Since Linux 6.16
//! the kernel refuses descriptors at the sender. On older kernels each read peeks first; a connection with
//! descriptors in it is an error and is closed by a thread of its own ([`tierfeed_handoff::Descriptors`]).

use std::{
    fs, io,
    os::{fd::AsFd as _, unix::fs::PermissionsExt as _},
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use nix::unistd::Uid;
use rustix::net::{RecvFlags, recv};
use tierfeed_handoff::{Closing, Descriptors, read_stream};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::{UnixListener, UnixSocket, UnixStream},
};

const BACKLOG: i32 = 128;

/// Connections of one socket that wait to be closed; beyond, none is accepted.
const CLOSING_MAX: usize = 64;

/// A socket with a file, to which peers may connect before a runtime accepts them.
#[derive(Debug)]
pub struct LocalSocket {
    socket: UnixSocket,
    descriptors: Descriptors,
}

impl LocalSocket {
    /// Listens at a new socket file that only its owner can reach. Replaces an existing file.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let socket = UnixSocket::new_stream()?;
        let descriptors = Descriptors::refused_by(&socket);
        Self::with(socket, path, descriptors)
    }

    fn with(socket: UnixSocket, path: &Path, descriptors: Descriptors) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => (),
        }
        socket.bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self { socket, descriptors })
    }

    /// Must be called within a tokio runtime.
    pub fn into_listener(self) -> io::Result<LocalListener> {
        let Self { socket, descriptors } = self;
        // It listens already; a second call with the same number changes nothing.
        let listener = socket.listen(BACKLOG.unsigned_abs())?;
        Ok(LocalListener { listener, descriptors, closing: Arc::new(Closing::new(descriptors)) })
    }
}

#[derive(Debug)]
pub struct LocalListener {
    listener: UnixListener,
    descriptors: Descriptors,
    closing: Arc<Closing>,
}

impl LocalListener {
    /// Must be called within a tokio runtime.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        LocalSocket::bind(path)?.into_listener()
    }

    /// The next connection.
    ///
    /// # Errors
    ///
    /// All are temporary: the next call may accept.
    pub async fn accept(&self) -> io::Result<LocalStream> {
        if self.closing.waiting() >= CLOSING_MAX {
            return Err(io::Error::other("too many connections wait to be closed"));
        }
        let (stream, _) = self.listener.accept().await?;
        let closing = Arc::clone(&self.closing);
        Ok(LocalStream { stream: Some(stream), descriptors: self.descriptors, closing })
    }
}

#[derive(Debug)]
pub struct LocalStream {
    /// `None` only while it is dropped.
    stream: Option<UnixStream>,
    descriptors: Descriptors,
    closing: Arc<Closing>,
}

impl LocalStream {
    pub fn is_of_same_user(&self) -> io::Result<bool> {
        Ok(Uid::from_raw(self.stream().peer_cred()?.uid()) == Uid::effective())
    }

    /// Waits until there is data to read, or the peer has disconnected.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        let stream = self.stream();
        loop {
            stream.readable().await?;
            // tokio takes a socket for readable until a read would block. Peeking consumes nothing.
            let look = || Ok(recv(stream, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT)?);
            match stream.try_io(Interest::READABLE, look) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return outcome.map(drop),
            }
        }
    }

    fn stream(&self) -> &UnixStream {
        self.stream.as_ref().expect("it is taken by the drop alone")
    }

    fn pinned(&mut self) -> Pin<&mut UnixStream> {
        Pin::new(self.stream.as_mut().expect("it is taken by the drop alone"))
    }
}

impl Drop for LocalStream {
    fn drop(&mut self) {
        if let Some(Ok(stream)) = self.stream.take().map(UnixStream::into_std) {
            self.closing.close(stream.into());
        }
    }
}

impl AsyncRead for LocalStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.descriptors == Descriptors::Refused {
            return self.pinned().poll_read(context, buffer);
        }
        let stream = self.stream();
        loop {
            ready!(stream.poll_read_ready(context))?;
            let bytes = buffer.initialize_unfilled();
            let read = || read_stream(stream.as_fd(), bytes);
            match stream.try_io(Interest::READABLE, read) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome.map(|len| buffer.advance(len))),
            }
        }
    }
}

impl AsyncWrite for LocalStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.pinned().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pinned().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pinned().poll_shutdown(context)
    }
}

#[cfg(test)]
pub(crate) mod tests;
