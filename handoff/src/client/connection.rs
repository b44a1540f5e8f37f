//! The client's end of the socket: connects, exchanges messages, notices the end.

use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    process,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        SocketAddrUnix, SocketFlags, connect,
        sockopt::{Timeout, set_socket_timeout},
    },
};

use super::{
    deadline::Deadline,
    error::{ConnectError, ControlError, Disconnected, Forked, MessageError},
};
use crate::{
    endpoint::seqpacket_socket,
    message::{self, FromAgent, FromClient, GrantId, Hello, RequestId},
    packet::{self, Arrival, PACKET_BYTES_MAX, SendError},
    peer,
};

/// The reason if the agent gave none.
const NO_REASON: &str = "it closed the connection or died";

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    /// The process that connected; every other process gets [`Forked`].
    pub(super) creator: u32,
    control: Mutex<Control>,
    end_reason: OnceLock<Disconnected>,
}

/// Locked by the thread that uses the socket.
#[derive(Debug)]
pub(super) struct Control {
    requests: u64,
    /// A publication that was handed over and is not answered yet.
    pub(super) unanswered: Option<RequestId>,
    /// A grant that came too late and was freed; more of its messages may follow.
    given_back: Option<GrantId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Readable,
    Ended,
    TimedOut,
}

impl Connection {
    pub(super) fn connect(path: &Path, deadline: &Deadline) -> Result<Self, ConnectError> {
        let system = |errno: Errno| ConnectError::System(errno.into());
        let address = SocketAddrUnix::new(path)
            .map_err(|_| ConnectError::PathTooLong { path: path.to_owned() })?;
        let socket = seqpacket_socket(SocketFlags::empty()).map_err(system)?;
        // Connecting waits while the agent has many others to accept.
        let timeout = deadline.remaining().map(|it| it.max(Duration::from_millis(1)));
        set_socket_timeout(&socket, Timeout::Send, timeout).map_err(system)?;
        connect_retrying(&socket, &address).map_err(|errno| match errno {
            Errno::AGAIN => ConnectError::TimedOut,
            Errno::NOENT | Errno::NOTDIR | Errno::CONNREFUSED => {
                ConnectError::NoAgent { path: path.to_owned(), source: errno.into() }
            }
            errno => system(errno),
        })?;
        peer::check(socket.as_fd()).map_err(system)??;
        let control = Mutex::new(Control { requests: 0, unanswered: None, given_back: None });
        Ok(Self { socket, creator: process::id(), control, end_reason: OnceLock::new() })
    }

    pub(super) fn send_hello(&self, hello: &Hello) -> Result<(), ConnectError> {
        match self.send(&FromClient::Hello(hello.sent_by(self.creator)), &[]) {
            // A refused client finds the reason where it expects its welcome.
            Ok(()) | Err(SendError::End) => Ok(()),
            Err(error) => Err(ConnectError::System(io::Error::other(error))),
        }
    }

    pub(super) fn check_process(&self) -> Result<(), Forked> {
        let (creator, current) = (self.creator, process::id());
        if creator == current { Ok(()) } else { Err(Forked { creator, current }) }
    }

    pub(super) fn end_reason(&self) -> Option<Disconnected> {
        self.end_reason.get().cloned()
    }

    /// Ends the connection because the agent broke the protocol.
    pub(super) fn give_up(&self, error: &(impl fmt::Display + ?Sized)) {
        self.end(format!("it broke the protocol: {error}"));
    }

    /// Records the end of the connection, with the reason if the agent gave one.
    pub(super) fn note_end(&self) {
        match self.control.try_lock() {
            Ok(control) => drop(self.receive_end_reason(&control)),
            // The thread that uses the socket now reads the reason itself.
            Err(_) => drop(self.end(NO_REASON.into())),
        }
    }

    fn receive_end_reason(&self, _lock: &Control) -> Disconnected {
        while let Ok(Arrival::Packet(packet)) =
            packet::receive(self.socket.as_fd(), PACKET_BYTES_MAX)
        {
            if let Ok(FromAgent::Error { reason, .. }) = message::from_bytes(&packet.bytes) {
                self.end(reason);
            }
        }
        self.end(NO_REASON.into())
    }

    /// Records why the connection ended; the first reason stays.
    fn end(&self, reason: String) -> Disconnected {
        self.end_reason.get_or_init(|| Disconnected { reason }).clone()
    }

    pub(super) fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn send_control(
        &self,
        lock: &Control,
        message: &FromClient,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), ControlError> {
        self.send(message, descriptors).map_err(|error| match error {
            SendError::End => self.receive_end_reason(lock).into(),
            error => ControlError::System(io::Error::other(error)),
        })
    }

    fn send(&self, message: &FromClient, descriptors: &[BorrowedFd<'_>]) -> Result<(), SendError> {
        let bytes = message::to_bytes(message).expect("numbers always have a JSON form");
        packet::send(self.socket.as_fd(), &bytes, descriptors)
    }

    /// Waits for the next control message. The caller holds the control lock, or is the only user.
    pub(super) fn receive(
        &self,
        deadline: &Deadline,
    ) -> Result<(FromAgent, Vec<OwnedFd>), MessageError> {
        loop {
            match packet::receive(self.socket.as_fd(), PACKET_BYTES_MAX)? {
                Arrival::Packet(packet) => {
                    return match message::from_bytes(&packet.bytes)? {
                        FromAgent::Error { reason } => Err(self.end(reason).into()),
                        FromAgent::TurnedAway { reason } => {
                            drop(self.end(reason.clone()));
                            Err(MessageError::TurnedAway { reason })
                        }
                        message => Ok((message, packet.descriptors)),
                    };
                }
                Arrival::End => {
                    return Err(self.end(NO_REASON.into()).into());
                }
                Arrival::Nothing => (),
            }
            if self.wait_for_packet(deadline) == Wait::TimedOut {
                return Err(MessageError::TimedOut);
            }
        }
    }

    fn wait_for_packet(&self, deadline: &Deadline) -> Wait {
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll_until(&mut polled, deadline) {
            Ok(0) | Err(_) => Wait::TimedOut,
            Ok(_) => Wait::Readable,
        }
    }

    /// Waits until `wakeup` can be read or the connection ends.
    pub(super) fn wait(&self, wakeup: BorrowedFd<'_>, deadline: &Deadline) -> Wait {
        let mut polled = [
            PollFd::from_borrowed_fd(wakeup, PollFlags::IN),
            PollFd::new(&self.socket, PollFlags::RDHUP),
        ];
        match poll_until(&mut polled, deadline) {
            Ok(0) | Err(_) => Wait::TimedOut,
            Ok(_) if polled[0].revents().contains(PollFlags::IN) => Wait::Readable,
            Ok(_) => Wait::Ended,
        }
    }

    /// Handles a late answer to a request whose caller has given up.
    pub(super) fn handle_late(&self, control: &mut Control, answer: &FromAgent) {
        match answer {
            FromAgent::Granted { grant, .. } => self.give_back(control, *grant),
            FromAgent::Published { request } if control.unanswered == Some(*request) => {
                control.unanswered = None;
            }
            _ => (),
        }
    }

    /// Frees a grant whose owner has given up, once for all messages of the grant.
    pub(super) fn give_back(&self, control: &mut Control, grant: GrantId) {
        if control.given_back != Some(grant) {
            control.given_back = Some(grant);
            // An agent that has ended has reclaimed the memory already.
            let _ = self.send_control(control, &FromClient::FreeMemory { grant }, &[]);
        }
    }
}

impl Control {
    pub(super) fn next_request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }
}

fn connect_retrying(socket: &OwnedFd, address: &SocketAddrUnix) -> Result<(), Errno> {
    loop {
        match connect(socket, address) {
            Err(Errno::INTR) => (),
            outcome => return outcome,
        }
    }
}

/// Polls until the deadline. A signal does not end the wait: profilers send many, and a caller that
/// must handle signals waits in short intervals anyway.
fn poll_until(polled: &mut [PollFd<'_>], deadline: &Deadline) -> Result<usize, Errno> {
    loop {
        // A time that no `Timespec` can hold means no limit.
        let timeout = deadline.remaining().and_then(|left| Timespec::try_from(left).ok());
        match poll(polled, timeout.as_ref()) {
            Err(Errno::INTR) => (),
            outcome => return outcome,
        }
    }
}
