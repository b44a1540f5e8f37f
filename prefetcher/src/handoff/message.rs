//! The control messages: small JSON documents, one per packet.
//!
//! They carry what happens a few times in the life of a connection; batches go through the rings.
//! Every message of a client is typed, has a size limit and is checked here for its form. What it
//! means at this point of the conversation is checked by the server.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tierfeed_core::id::Rank;

use super::briefing::Briefing;

/// The version of everything that passes between agent and client. Both must speak the same.
pub const PROTOCOL: u32 = 2;

/// The longest message of a client, in bytes.
pub(super) const CLIENT_MESSAGE_BYTES_MAX: usize = 4096;

/// Requests for memory of one connection that may be open at a time.
pub(super) const MEMORY_REQUESTS_MAX: usize = 8;

/// Chunks in one grant. Descriptors on their way count against the sender's limit of open files.
pub const GRANT_CHUNKS_MAX: usize = 256;

/// Tiers that trainers of one node may map. A welcome has a descriptor for each.
pub const SHELVES_MAX: usize = 16;

/// Names one control request on its connection, so that an answer that comes late is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub u64);

/// Names memory that an agent granted; chosen by the agent, unique while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GrantId(pub u64);

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The training process of a rank.
    Trainer,
    /// A worker process of its data loader.
    Worker,
    /// Only wants memory; reads no batches and belongs to no rank.
    Memory,
}

/// Who a client says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The rank that it reads for; without meaning for [`Role::Memory`].
    pub rank: Rank,
    /// What the connection is for.
    pub role: Role,
}

/// A message from a client.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum FromClient {
    /// Must come first, once.
    Hello {
        protocol: u32,
        rank: u32,
        role: Role,
        pid: u32,
    },
    /// Comes with a sealed memfd of `samples` sample numbers, 32 bits each, little-endian.
    Publish {
        request: RequestId,
        epoch: u32,
        samples: u32,
    },
    AllocateMemory {
        request: RequestId,
        bytes: u64,
    },
    FreeMemory {
        grant: GrantId,
    },
}

/// A message from the agent.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum FromAgent {
    /// Comes with four descriptors: memfd of the rings, memfd of the arena, read end of the pipe that
    /// wakes the client, eventfd that wakes the agent; then one for each shelf, in order. For [`Role::Memory`] with none.
    Welcome {
        reading: Option<Box<Reading>>,
    },
    Published {
        request: RequestId,
    },
    /// Comes with a memfd per chunk. A grant of many chunks takes several messages, in order.
    Granted {
        request: RequestId,
        grant: GrantId,
        chunks_total: u32,
        chunk_bytes: Vec<u64>,
    },
    Denied {
        request: RequestId,
        reason: String,
    },
    /// The last message of a connection.
    Error {
        reason: String,
    },
}

/// The part of a welcome that only readers of batches get.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reading {
    pub(super) briefing: Briefing,
    pub(super) window: u32,
    pub(super) ring_bytes: u64,
    pub(super) arena_bytes: u64,
    pub(super) shelves: Vec<ShelfBytes>,
}

/// The memory of a tier that clients map for reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShelfBytes {
    pub(super) tier: u8,
    pub(super) bytes: u64,
}

/// A message that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("a control message makes no sense")]
pub struct Malformed(#[source] serde_json::Error);

/// Writes a message.
pub(super) fn to_bytes(message: &impl Serialize) -> Result<Vec<u8>, Malformed> {
    serde_json::to_vec(message).map_err(Malformed)
}

/// Reads a message.
pub(super) fn from_bytes<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, Malformed> {
    serde_json::from_slice(bytes).map_err(Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let hello = FromClient::Hello { protocol: 2, rank: 3, role: Role::Worker, pid: 42 };
        let text = to_bytes(&hello).unwrap();
        assert_eq!(text, br#"{"type":"hello","protocol":2,"rank":3,"role":"worker","pid":42}"#);
        assert_eq!(from_bytes::<FromClient>(&text).unwrap(), hello);
        let granted = FromAgent::Granted {
            request: RequestId(1),
            grant: GrantId(u64::MAX),
            chunks_total: 2,
            chunk_bytes: vec![1 << 29; 2],
        };
        let text = to_bytes(&granted).unwrap();
        assert_eq!(from_bytes::<FromAgent>(&text).unwrap(), granted);
    }

    #[test]
    fn unknown_types_fields_and_values_are_refused() {
        for text in [
            "",
            "null",
            "[]",
            "{}",
            r#"{"type":"welcome"}"#,
            r#"{"type":"free_memory","grant":-1}"#,
            r#"{"type":"free_memory","grant":1,"more":2}"#,
            r#"{"type":"hello","protocol":1,"rank":3,"role":"king","pid":42}"#,
            r#"{"type":"free_memory","grant":1} trailing"#,
        ] {
            assert!(from_bytes::<FromClient>(text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = from_bytes::<FromClient>(&bytes);
            let _ = from_bytes::<FromAgent>(&bytes);
        }
    }
}
