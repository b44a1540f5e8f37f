//! Carries samples between the nodes of a job: the tier memory of one into the staging memory of another.
//!
//! A node runs one [`Server`] and one [`Client`], both on the threads of one [`Network`]. Which node holds
//! which sample is decided elsewhere.
//!
//! **Asking.** The owner of the client says where each peer listens ([`Client::set_peer`]), gives it the
//! reads of one batch ([`Client::read`]) and ends the batch ([`Client::flush`]). The reads of one peer and
//! one generation between two flushes travel as one request, or as several if they are large. Each [`Read`]
//! is answered once, by its callback: [`Outcome::Held`] with the verified sum of the bytes,
//! [`Outcome::Absent`], or [`Outcome::Failed`]. A read that is not complete at its deadline fails with
//! [`Failure::Timeout`], and the caller reads the cold store.
//!
//! **Answering.** The server gives each request to its owner ([`Event::Asked`]), which answers with pinned
//! views of its memory ([`Server::answer`], [`Held`]); what the node does not hold is `None`. When the bytes
//! have left, or the connection is lost, it says [`Event::Sent`], once for each answer: the owner unpins.
//!
//! **Who may connect.** Both ends prove that they have the secret of the job ([`Access`]).
//!
//! Invariants:
//!
//! 1. No call waits for the network, and no callback is called under a lock of this module.
//! 2. A read is answered exactly once; after that no thread writes to its target.
//! 3. A sample is reported as held only if the sum of its bytes, as they lie in the target, is that which the
//!    peer stated.
//! 4. A view is alive until [`Event::Sent`].
//! 5. A process without the secret of the job causes no [`Event`], and no callback but a failure.
//!
//! The format of the messages is in `docs/peers.md`.

mod channel;
mod client;
mod handshake;
mod held;
pub mod message;
mod server;

use std::{fmt, time::Duration};

use tierfeed_core::{
    fleet::standing,
    id::{NodeId, SampleId},
    units::Bytes,
};
use tokio::time::Instant;

use crate::fetcher::Target;

pub use crate::network::Network;
pub use client::{Client, ClientCounts, ClientSettings};
pub use handshake::Access;
pub use held::Held;
pub use server::{Server, ServerCounts, ServerSettings};

const WITHIN_MAX: Duration = Duration::from_secs(3600);

pub struct Read {
    sample: SampleId,
    to: Target,
    deadline: Instant,
    done: Option<Box<dyn FnOnce(Outcome) + Send>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The target holds the sample.
    Held {
        /// The sum of its bytes, as [`tierfeed_dataset::read::sample_sum`] computes it.
        xxh3: u64,
    },
    Absent,
    /// The content of the target is undefined.
    Failed(Failure),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    #[error("not complete at its deadline")]
    Timeout,
    #[error("the peer has no address")]
    Unknown,
    /// No connection: nothing listens there, the host does not answer, the peer has as many connections as it
    /// may, or an earlier attempt failed just now.
    #[error("the peer accepts no connection")]
    Refused,
    /// The process at the address has another secret, is another node or another process of it, or speaks
    /// another protocol.
    #[error("the process at the address of the peer could not prove that it is the peer")]
    Stranger,
    #[error("the connection was lost")]
    Closed,
    #[error("the peer is silent")]
    Silent,
    #[error("the bytes have another sum than the peer stated")]
    BrokenSum,
    #[error("the peer holds a sample of another length")]
    WrongLength,
    #[error("the peer works by another generation of the plan")]
    OtherGeneration,
    #[error("a message of the peer breaks the protocol")]
    Protocol,
    #[error("too many reads of the peer wait")]
    Full,
    #[error("the bytes could not be written")]
    Target,
    #[error("the client stopped")]
    Stopped,
}

impl Read {
    /// `to` has the length of the sample. The deadline is `within` from now, at most an hour. `done` is
    /// called once, from any thread; it must neither block nor panic.
    #[must_use]
    pub fn new(
        sample: SampleId,
        to: Target,
        within: Duration,
        done: impl FnOnce(Outcome) + Send + 'static,
    ) -> Self {
        let deadline = Instant::now() + within.min(WITHIN_MAX);
        Self { sample, to, deadline, done: Some(Box::new(done)) }
    }

    pub(crate) fn len(&self) -> Bytes {
        self.to.len()
    }

    pub(crate) fn end(mut self, outcome: Outcome) {
        let done = self.done.take();
        // No thread may write to the target once the callback runs.
        drop(self);
        if let Some(done) = done {
            done(outcome);
        }
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done(Outcome::Failed(Failure::Stopped));
        }
    }
}

impl fmt::Debug for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sample, to, .. } = self;
        f.debug_struct("Read").field("sample", sample).field("to", to).finish_non_exhaustive()
    }
}

/// Each needs an action of its owner.
#[derive(Debug)]
pub enum Event {
    /// A peer asks for samples: the owner calls [`Server::answer`], soon.
    Asked(Asked),
    /// The answer of a request has left, or will never: its views are no longer used.
    Sent(AskId),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub id: AskId,
    /// As the peer says; it proved that it belongs to the job.
    pub peer: NodeId,
    pub generation: u64,
    /// The time from now on in which the peer needs the answer.
    pub within: Duration,
    /// At most [`message::SAMPLES_MAX`].
    pub samples: Vec<SampleId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(pub u64);

#[derive(Debug)]
pub enum Answer {
    /// In the order of [`Asked::samples`]; samples that are missing at the end are absent.
    Samples(Vec<Option<Held>>),
    OtherGeneration,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkFigures {
    pub peer: NodeId,
    pub connections: usize,
    /// Bytes of the requests that are not over, those that have arrived included.
    pub in_flight: Bytes,
    /// Counts since the last [`Client::measure_anew`].
    pub measured: standing::Link,
}

#[cfg(test)]
mod tests;
