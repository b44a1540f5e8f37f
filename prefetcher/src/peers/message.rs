//! The messages between two nodes, and their way over a [`Channel`].
//!
//! A message is its length (4 bytes, little endian), its fields in the format of postcard, and a tag. Behind
//! an answer come the bytes of the samples that are held, in the order of its entries, which no tag covers:
//! their sums stand in the entries.

use std::io;

use ring::hmac;
use serde::{Deserialize, Serialize};
use tierfeed_core::id::{NodeId, SampleId};

use crate::peers::channel::Channel;

/// The most samples of one request.
pub const SAMPLES_MAX: usize = 4096;

/// More than the longest message: an answer in which each number of each entry is as long as it can be.
const MESSAGE_BYTES_MAX: usize = SAMPLES_MAX * 32;

const LENGTH_BYTES: usize = 4;

const TAG_BYTES: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The first one, of the end that connected.
    Hello(Hello),
    /// The answer to it of a server that serves the client.
    Welcome,
    /// The same of a server that has no room for one more connection.
    Full,
    /// The same of a server that is not the one whom the client looks for.
    OtherProcess,
    Ask {
        /// Unique for a request on its connection; its answer has the same.
        id: u64,
        /// The generation of the plan that the client works by.
        generation: u64,
        /// The milliseconds in which the answer is needed.
        within_ms: u32,
        samples: Vec<SampleId>,
    },
    Answer {
        id: u64,
        entries: Vec<Answered>,
    },
    /// From a node that works by another generation of the plan.
    OtherGeneration {
        id: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub from: NodeId,
    /// The node that the client looks for, and the process of it.
    pub to: NodeId,
    pub incarnation: u64,
    pub protection: Protection,
}

/// The bytes behind the handshake of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protection {
    Encrypted,
    /// For a network that only nodes of the job reach.
    Plain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    pub sample: SampleId,
    /// Length and sum of its bytes; `None` if the node does not hold it.
    pub held: Option<(u64, u64)>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// [`io::ErrorKind::WouldBlock`]: the rest is not there yet.
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("a message has at most {MESSAGE_BYTES_MAX} bytes, this {found}")]
    TooLong { found: usize },
    #[error("a message was inserted, changed, repeated or left out")]
    Tag,
    #[error("what came is no message: {0}")]
    Format(#[from] postcard::Error),
    #[error("a message does not fit those before it")]
    Unexpected,
}

impl Message {
    /// Reads the fields of a message; bytes behind them are an error.
    ///
    /// # Errors
    ///
    /// [`MessageError::Format`], and [`MessageError::Unexpected`] for a request of no samples or too many.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let (message, rest) = postcard::take_from_bytes(bytes)?;
        let fits = match &message {
            Self::Ask { samples, .. } => (1..=SAMPLES_MAX).contains(&samples.len()),
            _ => true,
        };
        if rest.is_empty() && fits { Ok(message) } else { Err(MessageError::Unexpected) }
    }

    /// Writes the fields behind the bytes of `to`.
    ///
    /// # Panics
    ///
    /// Never: memory takes every message.
    #[must_use]
    pub fn write(&self, to: Vec<u8>) -> Vec<u8> {
        postcard::to_extend(self, to).expect("memory takes every message")
    }

    /// The bytes of the message, with its length and the next tag.
    pub(crate) fn tagged(&self, tags: &mut Tags) -> Vec<u8> {
        let mut bytes = self.write(vec![0; LENGTH_BYTES]);
        let len = u32::try_from(bytes.len() - LENGTH_BYTES).unwrap_or(u32::MAX);
        bytes[..LENGTH_BYTES].copy_from_slice(&len.to_le_bytes());
        let tag = tags.next(&bytes);
        bytes.extend(&tag.as_ref()[..TAG_BYTES]);
        bytes
    }
}

/// Tags the messages of one direction of a connection: a message that is inserted, changed, repeated or left
/// out is detected, also where nothing is encrypted.
#[derive(Debug)]
pub(crate) struct Tags {
    key: hmac::Key,
    count: u64,
}

impl Tags {
    /// `key` serves this direction of this connection only.
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), count: 0 }
    }

    fn next(&mut self, message: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&self.count.to_le_bytes());
        context.update(message);
        self.count += 1;
        context.sign()
    }

    /// Whether `shown` is the next tag; compared in constant time.
    fn is_next(&mut self, message: &[u8], shown: &[u8]) -> bool {
        let tag = self.next(message);
        let differences =
            tag.as_ref().iter().zip(shown).fold(0, |all, (own, other)| all | (own ^ other));
        shown.len() == TAG_BYTES && std::hint::black_box(differences) == 0
    }
}

/// Assembles messages from the bytes of a connection.
#[derive(Debug, Default)]
pub(crate) struct MessageReader {
    bytes: Vec<u8>,
    done: usize,
}

impl MessageReader {
    pub(crate) fn receive(
        &mut self,
        channel: &mut Channel,
        tags: &mut Tags,
    ) -> Result<Message, MessageError> {
        self.fill(channel, LENGTH_BYTES)?;
        let (length, _) = self.bytes.as_chunks::<LENGTH_BYTES>();
        let len = usize::try_from(u32::from_le_bytes(length[0])).unwrap_or(usize::MAX);
        if len > MESSAGE_BYTES_MAX {
            return Err(MessageError::TooLong { found: len });
        }
        let end = LENGTH_BYTES + len;
        self.fill(channel, end + TAG_BYTES)?;
        self.done = 0;
        // Connections are many, and few messages are long.
        let bytes = std::mem::take(&mut self.bytes);
        let (message, tag) = bytes.split_at(end);
        if !tags.is_next(message, &tag[..TAG_BYTES]) {
            return Err(MessageError::Tag);
        }
        Message::parse(&message[LENGTH_BYTES..])
    }

    /// Receives until there are `wanted` bytes.
    fn fill(&mut self, channel: &mut Channel, wanted: usize) -> io::Result<()> {
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
        while self.done < wanted {
            self.done += channel.receive(&mut self.bytes[self.done..wanted])?;
        }
        Ok(())
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.done > 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_message() -> impl Strategy<Value = Message> {
        let sample = || any::<u32>().prop_map(SampleId);
        let entry = (sample(), any::<Option<(u64, u64)>>());
        let entry = entry.prop_map(|(sample, held)| Answered { sample, held });
        let samples = prop::collection::vec(sample(), 1..=SAMPLES_MAX);
        let entries = prop::collection::vec(entry, 0..=SAMPLES_MAX);
        prop_oneof![
            any::<(u32, u32, u64, bool)>().prop_map(|(from, to, incarnation, is_plain)| {
                let protection = if is_plain { Protection::Plain } else { Protection::Encrypted };
                let (from, to) = (NodeId(from), NodeId(to));
                Message::Hello(Hello { from, to, incarnation, protection })
            }),
            Just(Message::Welcome),
            Just(Message::Full),
            Just(Message::OtherProcess),
            (any::<(u64, u64, u32)>(), samples).prop_map(
                |((id, generation, within_ms), samples)| {
                    Message::Ask { id, generation, within_ms, samples }
                }
            ),
            (any::<u64>(), entries).prop_map(|(id, entries)| Message::Answer { id, entries }),
            any::<u64>().prop_map(|id| Message::OtherGeneration { id }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_message_is_read_as_it_was_written(message in any_message()) {
            let bytes = message.write(Vec::new());
            prop_assert!(bytes.len() <= MESSAGE_BYTES_MAX);
            prop_assert_eq!(Message::parse(&bytes).unwrap(), message);
        }

        #[test]
        fn other_bytes_are_refused_or_are_a_message(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Ok(message) = Message::parse(&bytes) {
                prop_assert_eq!(Message::parse(&message.write(Vec::new())).unwrap(), message);
            }
        }
    }

    #[test]
    fn a_tag_is_that_of_one_place_in_one_direction_of_one_connection() {
        let [mut sent, other] = [[1; 32], [2; 32]].map(|key| Tags::new(&key));
        let tags: Vec<_> =
            (0..2).map(|_| sent.next(b"message").as_ref()[..TAG_BYTES].to_vec()).collect();
        let fresh = || Tags::new(&[1; 32]);
        let mut received = fresh();
        assert!(tags.iter().all(|tag| received.is_next(b"message", tag)));
        let mut repeated = fresh();
        assert!(repeated.is_next(b"message", &tags[0]) && !repeated.is_next(b"message", &tags[0]));
        assert!(!fresh().is_next(b"message", &tags[1]), "one is missing");
        assert!(!fresh().is_next(b"massage", &tags[0]), "it was changed");
        assert!(!{ other }.is_next(b"message", &tags[0]), "it is of another direction");
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let ask = |count| Message::Ask {
            id: 1,
            generation: 2,
            within_ms: 3,
            samples: vec![SampleId(u32::MAX); count],
        };
        let parse = |message: &Message| Message::parse(&message.write(Vec::new()));
        assert!(parse(&ask(SAMPLES_MAX)).is_ok());
        for count in [0, SAMPLES_MAX + 1] {
            assert!(matches!(parse(&ask(count)), Err(MessageError::Unexpected)), "{count}");
        }
        let mut longer = Message::Welcome.write(Vec::new());
        longer.push(0);
        assert!(matches!(Message::parse(&longer), Err(MessageError::Unexpected)));
        assert!(matches!(Message::parse(&[200]), Err(MessageError::Format(_))));
        let full = ask(SAMPLES_MAX).write(Vec::new());
        assert!(Message::parse(&full[..full.len() - 1]).is_err());
    }
}
