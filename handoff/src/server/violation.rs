//! The rules that a client can break. A violation ends its connection and affects no other.

use std::io;

use tierfeed_core::id::LeaseId;

use crate::{
    entry::UnknownEntry,
    message::{EXPLAINED_MAX, GrantId, MEMORY_REQUESTS_MAX, Malformed, PROTOCOL, RequestId},
    packet::ReceiveError,
    ring::Corrupt,
};

/// A rule that a client broke; the text is sent to the client.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Violation(#[from] pub(super) Rule);

#[derive(Debug, thiserror::Error)]
pub(super) enum Rule {
    #[error("the client speaks protocol {theirs}; this agent speaks {PROTOCOL}")]
    Protocol { theirs: u32 },
    #[error("the first message was no hello")]
    NoHello,
    #[error("a hello names variables that are not in the table, or have endless values")]
    Variables,
    #[error("the client said hello twice")]
    SecondHello,
    #[error("a connection for memory asks for batches or publishes orders")]
    NotAReader,
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("an epoch of {samples} samples was published; from 1 to {max} are possible")]
    OrderLength { samples: u32, max: u32 },
    #[error("an order cannot be read: {0}")]
    Order(#[source] io::Error),
    #[error("an order was published before the one before it was answered")]
    SecondPublication,
    #[error("request {} has no file that an order could be written to", .request.0)]
    NotOffered { request: RequestId },
    #[error("it asks about {samples} samples at once; {EXPLAINED_MAX} at most are possible")]
    TooManyQuestions { samples: usize },
    #[error("more than {window} batches are asked for and not given back")]
    TooManyUnsettled { window: u32 },
    #[error("it used or released lease {}, which it does not hold or used before", .lease.0)]
    NotHeld { lease: LeaseId },
    #[error("the client freed grant {}, which it does not have", .grant.0)]
    NotGranted { grant: GrantId },
    #[error("more than {MEMORY_REQUESTS_MAX} requests for memory are open, or two share a number")]
    TooManyMemoryRequests,
    #[error("the client asked for 0 B of memory")]
    NoMemory,
    #[error("the ring is broken: {0}")]
    Ring(#[from] Corrupt),
    #[error("the ring is broken: {0}")]
    Entry(#[from] UnknownEntry),
}
