//! The control messages: small JSON documents, one per packet.
//!
//! They carry what happens a few times in the life of a connection; batches use the rings. Every
//! message of a client is typed, has a size limit and is checked here for its form. The server
//! checks whether it is allowed at this point of the conversation.

use std::{collections::BTreeMap, process};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tierfeed_core::{fleet::launch, id::Rank};

use super::briefing::Briefing;

/// The version of everything that agent and client exchange. Both must use the same.
pub const PROTOCOL: u32 = 7;

pub(super) const CLIENT_MESSAGE_BYTES_MAX: usize = 4096;

/// The number of memory requests that one connection may have open at a time.
pub(super) const MEMORY_REQUESTS_MAX: usize = 8;

/// In bytes. Values that number processes are shorter.
pub(super) const VARIABLE_BYTES_MAX: usize = 40;

/// Samples whose failure one message may ask about: their reasons fit in one packet.
pub(super) const EXPLAINED_MAX: usize = 32;

/// The longest reason of a failure that is sent, in bytes; the rest is cut off.
const REASON_BYTES_MAX: usize = 512;

/// Chunks in one grant. Descriptors in flight count against the sender's limit of open files.
pub const GRANT_CHUNKS_MAX: usize = 256;

/// Identifies a control request on its connection, so that a late answer is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub u64);

/// Identifies memory that an agent granted; the agent chooses it, unique while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GrantId(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Trainer,
    Worker,
    /// A process that only requests memory; it reads no batches and belongs to no rank.
    Memory,
}

/// Whether the agent may take memory away behind the staging memory that a client maps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pages {
    /// The agent may give pages back that hold no batch, and take others later.
    #[default]
    Pageable,
    /// A device reads the pages without the tables of this process, as after `cudaHostRegister`: it
    /// would go on with those that were given back.
    Pinned,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The variables that its launcher set, limited to the table of [`launch`]. The agent knows the
    /// job, so it derives the rank from them.
    pub variables: BTreeMap<String, String>,
    pub role: Role,
    /// Process number of the training process: this one, or the one that started it as a worker.
    pub trainer: u32,
    pub pages: Pages,
}

impl Hello {
    #[must_use]
    pub fn launched(variables: BTreeMap<String, String>, role: Role) -> Self {
        Self { variables, role, trainer: process::id(), pages: Pages::Pageable }
    }

    #[must_use]
    pub fn of_rank(rank: Rank, role: Role) -> Self {
        let variable = (launch::RANK_ARGUMENT.to_owned(), rank.0.to_string());
        Self::launched(BTreeMap::from([variable]), role)
    }

    /// As process `pid` sends it: the variables of the table only, cut to the length that a message can hold.
    pub(super) fn sent_by(&self, pid: u32) -> SentHello {
        let known = self.variables.iter().filter(|(name, _)| launch::is_known(name));
        let cut = |(name, value): (&String, &String)| {
            (name.clone(), cut(value, VARIABLE_BYTES_MAX).to_owned())
        };
        SentHello {
            protocol: PROTOCOL,
            role: self.role,
            pid,
            trainer: self.trainer,
            pages: self.pages,
            variables: known.map(cut).collect(),
        }
    }
}

/// The beginning of a text, in whole characters.
fn cut(text: &str, bytes_max: usize) -> &str {
    let len = (0..=bytes_max.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..len.unwrap_or(0)]
}

/// A hello as it is sent, with who sends it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SentHello {
    pub(super) protocol: u32,
    pub(super) role: Role,
    pub(super) pid: u32,
    /// The training process that the client reads for, itself or an ancestor.
    pub(super) trainer: u32,
    pub(super) pages: Pages,
    pub(super) variables: BTreeMap<String, String>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum FromClient {
    /// Must be the first message, once.
    Hello(SentHello),
    /// Asks for a file to write the order of an epoch into.
    Publish {
        request: RequestId,
        epoch: u32,
        samples: u32,
    },
    /// The trainer has filled the file: all samples, 32 bits each, little-endian.
    OrderWritten {
        request: RequestId,
    },
    Explain {
        request: RequestId,
        samples: Vec<u32>,
    },
    AllocateMemory {
        request: RequestId,
        bytes: u64,
    },
    FreeMemory {
        grant: GrantId,
    },
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum FromAgent {
    /// Comes with four descriptors: memfd of the rings, memfd of the arena, read end of the pipe
    /// that wakes the client, eventfd that wakes the agent; then one for each shared tier, in
    /// order. For [`Role::Memory`] with none.
    Welcome {
        reading: Option<Box<Reading>>,
    },
    /// Comes with a memfd of the length of the announced order.
    OrderFile {
        request: RequestId,
    },
    Published {
        request: RequestId,
    },
    /// The reasons that the agent still knows.
    Explained {
        request: RequestId,
        reasons: Vec<SampleReason>,
    },
    /// Comes with a memfd per chunk. A grant of many chunks takes several messages, in order.
    Granted {
        request: RequestId,
        grant: GrantId,
        chunks_total: u32,
        chunk_bytes: Vec<u64>,
    },
    /// Answers a request for memory, or for a file.
    Denied {
        request: RequestId,
        reason: String,
    },
    /// The last message of a connection: the process is not one of the ranks of the job, and must
    /// not read for one of them in any other way.
    TurnedAway {
        reason: String,
    },
    /// The last message of a connection.
    Error {
        reason: String,
    },
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SampleReason {
    pub(super) sample: u32,
    pub(super) reason: String,
}

impl SampleReason {
    /// The reason as it is sent: on one line, and no longer than a packet has room for.
    pub(super) fn new(sample: u32, reason: &str) -> Self {
        Self { sample, reason: cut(reason, REASON_BYTES_MAX).replace(char::is_control, " ") }
    }
}

/// The part of a welcome that only readers of batches get.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reading {
    pub(super) briefing: Briefing,
    pub(super) window: u32,
    pub(super) ring_bytes: u64,
    pub(super) arena_bytes: u64,
    #[serde(rename = "shelves")]
    pub(super) shared_tiers: Vec<SharedTierBytes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SharedTierBytes {
    pub(super) tier: u8,
    pub(super) bytes: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("a control message makes no sense")]
pub struct Malformed(#[source] serde_json::Error);

pub(super) fn to_bytes(message: &impl Serialize) -> Result<Vec<u8>, Malformed> {
    serde_json::to_vec(message).map_err(Malformed)
}

/// The protocol version in a message that could not be parsed.
pub(super) fn protocol_of(bytes: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct Versioned {
        protocol: u32,
    }
    from_bytes::<Versioned>(bytes).ok().map(|message| message.protocol)
}

pub(super) fn from_bytes<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, Malformed> {
    serde_json::from_slice(bytes).map_err(Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packet::PACKET_BYTES_MAX;

    #[test]
    fn messages_survive_the_wire() {
        let variables = BTreeMap::from([("RANK".to_owned(), "3".to_owned())]);
        let hello = FromClient::Hello(SentHello {
            protocol: PROTOCOL,
            role: Role::Worker,
            pid: 42,
            trainer: 41,
            pages: Pages::Pinned,
            variables,
        });
        let text = to_bytes(&hello).unwrap();
        let expected = br#"{"type":"hello","protocol":7,"role":"worker","pid":42,"trainer":41,"pages":"pinned","variables":{"RANK":"3"}}"#;
        assert_eq!(text, expected);
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
            r#"{"type":"hello","protocol":7,"role":"king","pid":42,"trainer":42,"pages":"pageable","variables":{}}"#,
            r#"{"type":"hello","protocol":7,"role":"trainer","pid":42,"trainer":42,"pages":"none","variables":{}}"#,
            r#"{"type":"hello","protocol":7,"role":"trainer","pid":42,"trainer":42,"pages":"pageable","variables":{},"more":2}"#,
            r#"{"type":"free_memory","grant":1} trailing"#,
        ] {
            assert!(from_bytes::<FromClient>(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_hello_sends_what_the_table_knows_and_no_more_of_it_than_fits() {
        let long = "é".repeat(VARIABLE_BYTES_MAX);
        let variables = [("RANK", "3"), ("AWS_SECRET_ACCESS_KEY", "x"), ("WORLD_SIZE", &long)];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let sent = Hello::launched(BTreeMap::from(variables), Role::Trainer).sent_by(1).variables;
        let names: Vec<_> = sent.keys().map(String::as_str).collect();
        assert_eq!(names, ["RANK", "WORLD_SIZE"]);
        assert_eq!(sent["WORLD_SIZE"], "é".repeat(VARIABLE_BYTES_MAX / 2));
        // All variables there are, each as long as it may be, fit in one message.
        let all = launch::variables().map(|name| (name.to_owned(), "9".repeat(500))).collect();
        let hello = Hello { trainer: u32::MAX, ..Hello::launched(all, Role::Trainer) };
        let hello = FromClient::Hello(hello.sent_by(u32::MAX));
        assert!(to_bytes(&hello).unwrap().len() <= CLIENT_MESSAGE_BYTES_MAX);
    }

    #[test]
    fn questions_and_reasons_of_many_samples_fit_in_one_packet() {
        let (request, samples) = (RequestId(u64::MAX), vec![u32::MAX; EXPLAINED_MAX]);
        let question = to_bytes(&FromClient::Explain { request, samples }).unwrap();
        assert!(question.len() <= CLIENT_MESSAGE_BYTES_MAX, "{}", question.len());
        for text in ["\"", "\n", "é", "\u{1}"] {
            let reason = SampleReason::new(u32::MAX, &text.repeat(1000));
            let reasons = (0..EXPLAINED_MAX).map(|_| SampleReason::new(1, &reason.reason));
            let answer = FromAgent::Explained { request, reasons: reasons.collect() };
            let bytes = to_bytes(&answer).unwrap();
            assert!(bytes.len() <= PACKET_BYTES_MAX, "{text:?}: {}", bytes.len());
            assert_eq!(from_bytes::<FromAgent>(&bytes).unwrap(), answer);
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
