//! Wakes the other process after an entry was put into a ring.
//!
//! The two directions differ, because the agent must not depend on the behaviour of a client.
//! Whether a call on a descriptor blocks is a property of the *open file description*, which sender
//! and receiver share once it was passed on; a client could switch an eventfd back to blocking and
//! so block the agent.
//!
//! - Client to agent: an eventfd. The agent watches it edge-triggered and never reads it; every
//!   write is an edge, and the counter cannot overflow in the life of a correct client (2^64
//!   writes).
//! - Agent to client: a pipe. Its two ends are separate open file descriptions, so the agent's end
//!   stays non-blocking even if the client changes its own. A full pipe needs no further byte.
//!
//! A wake-up may be spurious; both sides read the ring to find out.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    event::{EventfdFlags, eventfd},
    io::{Errno, read, write},
    pipe::{PipeFlags, pipe_with},
};

/// Creates the eventfd that a client writes to and an agent watches.
pub(super) fn agent_wakeup() -> Result<OwnedFd, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

#[derive(Debug)]
pub(super) struct ClientWakeup {
    agent_end: OwnedFd,
    /// Sent to the client, and kept: a pipe that has a reader raises no `SIGPIPE`.
    client_end: OwnedFd,
}

impl ClientWakeup {
    pub(super) fn new() -> Result<Self, Errno> {
        let (client_end, agent_end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { agent_end, client_end })
    }

    pub(super) fn client_end(&self) -> BorrowedFd<'_> {
        self.client_end.as_fd()
    }

    /// A full pipe wakes the client too, and the socket shows that a client has ended.
    pub(super) fn wake(&self) {
        let _ = write(&self.agent_end, &[1]);
    }
}

/// Wakes the agent. Errors are ignored: a full counter has an unhandled wake-up already, and the
/// socket shows that an agent has ended.
pub(super) fn wake_agent(wakeup: impl AsFd) {
    let _ = write(wakeup, &1_u64.to_ne_bytes());
}

pub(super) fn drain_wakeups(client_end: impl AsFd) {
    let mut bytes = [0; 512];
    while read(&client_end, &mut bytes).is_ok_and(|count| count == bytes.len()) {}
}
