//! How one process wakes the other when it has put something into a ring.
//!
//! The two directions differ, because the agent must not depend on a client's good manners. Whether
//! a call on a descriptor blocks is a property of the *open file*, which sender and receiver share
//! once it was passed on; a client could switch an eventfd back to blocking and so stop the agent.
//!
//! - Client to agent: an eventfd. The agent watches it edge-triggered and never reads it; every write
//!   is an edge, and the counter cannot overflow in an honest client's life (2^64 writes).
//! - Agent to client: a pipe. Its two ends are separate open files, so the agent's end stays
//!   non-blocking whatever the client does with its own. A full pipe needs no further byte.
//!
//! A wake-up may come without cause; both sides look into the ring before they believe it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    event::{EventfdFlags, eventfd},
    io::{Errno, read, write},
    pipe::{PipeFlags, pipe_with},
};

/// What a client writes to and an agent watches.
pub(super) fn agent_bell() -> Result<OwnedFd, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// What the agent writes to, and what the client waits on.
#[derive(Debug)]
pub(super) struct ClientBell {
    agent_end: OwnedFd,
    /// Sent to the client, and kept: a pipe that has a reader raises no `SIGPIPE`.
    client_end: OwnedFd,
}

impl ClientBell {
    pub(super) fn new() -> Result<Self, Errno> {
        let (client_end, agent_end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { agent_end, client_end })
    }

    pub(super) fn client_end(&self) -> BorrowedFd<'_> {
        self.client_end.as_fd()
    }

    /// Wakes the client. A full pipe is as good, and a client that is gone is noticed at the socket.
    pub(super) fn ring(&self) {
        let _ = write(&self.agent_end, &[1]);
    }
}

/// Wakes the agent. It cannot fail in a way that matters: a counter that is full has been seen, and
/// an agent that is gone is noticed at the socket.
pub(super) fn ring_agent(bell: impl AsFd) {
    let _ = write(bell, &1_u64.to_ne_bytes());
}

/// Takes all wake-ups that wait at the client's end.
pub(super) fn silence(client_end: impl AsFd) {
    let mut bytes = [0; 512];
    while read(&client_end, &mut bytes).is_ok_and(|count| count == bytes.len()) {}
}
