//! Hands staged batches to trainers without copying them.
//!
//! The agent stages batches in shared memory; a trainer maps the same memory and reads them there.
//! Only small messages pass between the two: over a Unix socket at the start and a few times later,
//! over two rings of 64-byte entries for every batch. A batch belongs to the trainer from the
//! moment when its entry is in the ring until the trainer releases it or disconnects.
//!
//! [`Server`] is the agent's side: one thread, which turns the actions of clients into events.
//! [`Client`] is the trainer's side: no thread, no lock shared between processes, nothing that a
//! fork could break. `docs/handoff.md` describes the protocol, its limits, and what happens when
//! either side dies.
//!
//! Deliberately absent: `unsafe` (shared memory is accessed through the checked mappings of
//! `tierfeed-numa-memory`), names in `/dev/shm` (memory is passed as descriptors, so nothing is
//! left behind), asynchronous code (it does not survive a fork).

#![forbid(unsafe_code)]

mod briefing;
mod channel;
mod client;
mod closing;
mod descriptors;
mod endpoint;
mod entry;
mod mapped_words;
mod message;
mod named_dataset;
mod packet;
mod peer;
mod refusal;
mod ring;
mod server;
mod shared_tier;
mod shared_tiers;
mod stamp;
mod table;
mod wake;
mod words;

pub use self::{
    briefing::{Briefing, Emulation, FurtherDataset, OnError},
    channel::{WINDOW_MAX, WINDOW_MIN},
    client::{
        Client, ConnectError, ControlError, Disconnected, Forked, Grant, LeasedBatch, MemoryClient,
        NextError, ReleaseError, Reply, RequestError,
    },
    closing::Closing,
    descriptors::{Descriptors, read_stream},
    endpoint::BindError,
    entry::ReleaseKind,
    message::{GRANT_CHUNKS_MAX, GrantId, Hello, Malformed, PROTOCOL, Pages, RequestId, Role},
    named_dataset::{NamedDataset, NoDataset},
    peer::ForeignUser,
    refusal::Explained,
    server::{
        AdmitError, ClientEvent, Delivery, DisconnectCause, Events, GrantError, LeaseError, Limits,
        Server, StartError, Violation,
    },
    shared_tier::{SharedTier, Starts},
    shared_tiers::SharedTiers,
    stamp::monotonic_now,
    table::{Row, TableError},
};

#[cfg(test)]
mod tests;
