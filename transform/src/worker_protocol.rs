//! The packets between a transform worker and the process that started it, over a `SOCK_SEQPACKET`
//! socket.
//!
//! The starter sends [`Setup`] once, which the worker answers with [`FromWorker::Ready`] or with a
//! reason why it cannot work, and then memory ([`ToWorker::Arena`], a memfd beside it) and requests.
//! Each request is answered once, in the order of requests. Samples travel in the memory, never in
//! packets.
//!
//! A packet is the [`VERSION`] as one byte, and the message as `postcard` writes it. Both sides treat the
//! other as broken or hostile: a packet is read whole, its texts are cut, and an offset counts only after
//! it was compared with the length of the memory ([`Request::check`]).

mod socket;

use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use self::socket::{Arrival, receive, send};
use crate::Pipeline;

/// The version of these packets. Starter and worker are one program, unless it was replaced meanwhile.
pub const VERSION: u8 = 5;

/// The longest packet, in bytes.
pub const PACKET_BYTES_MAX: usize = 64 << 10;

/// The longest message of an answer, in bytes; the rest is cut off.
pub const MESSAGE_BYTES_MAX: usize = 512;

/// The most arenas that a worker maps.
pub const ARENAS_MAX: usize = 1024;

/// The longest time that a sample may take, unless something else is wanted: many times what the slowest
/// image within the default limits takes.
pub const TIME_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The process that starts the worker, which ends with it.
    pub parent: u32,
    /// The seed of the job, which keys all draws.
    pub seed: u64,
    /// The most pixels of an image that is decoded.
    pub pixels_max: u64,
    /// The longest time that one sample may take.
    pub time_limit: Duration,
    /// How far the worker stands back behind other processes, from 0 to 19 (`nice(2)`).
    pub niceness: u8,
    /// The pipelines in their serialised form, a list of [`DatasetPipeline`] as JSON.
    pub pipeline: String,
}

/// The pipeline of a dataset, whose samples are numbered over all datasets of the job. Its draws are by the
/// number of a sample in the dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetPipeline {
    /// The first sample of the dataset.
    pub first: u64,
    /// The first sample behind the dataset.
    pub end: u64,
    pub pipeline: Pipeline,
}

impl Setup {
    /// A worker for a pipeline, started by this process, with a usual limit and no niceness.
    #[must_use]
    pub fn of(pipeline: &Pipeline, seed: u64) -> Self {
        Self::of_datasets(
            &[DatasetPipeline { first: 0, end: u64::MAX, pipeline: pipeline.clone() }],
            seed,
        )
    }

    /// The same for the pipelines of several datasets, in the order of their samples.
    ///
    /// # Panics
    ///
    /// Never: a pipeline has a form in JSON.
    #[must_use]
    pub fn of_datasets(pipelines: &[DatasetPipeline], seed: u64) -> Self {
        let text = serde_json::to_string(pipelines);
        let pixels = pipelines.iter().map(|it| it.pipeline.limits().pixels);
        Self {
            parent: std::process::id(),
            seed,
            pixels_max: pixels.max().unwrap_or_default(),
            time_limit: TIME_LIMIT,
            niceness: 0,
            pipeline: text.expect("a mapping with keys of text has a form in JSON"),
        }
    }
}

/// A memory that both sides map, by a number that the starter chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ArenaId(pub u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputForm {
    /// As the cold store has them.
    Stored,
    /// After the last deterministic step of the pipeline.
    Prepared,
}

/// Whether the input shall be in prepared form afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AfterTransform {
    /// Its bytes have no further use.
    Unused,
    /// The prepared form stands at the start of its place, if it is as long as was foreseen and was made of
    /// the bytes that arrived.
    Prepared {
        /// Its length in bytes.
        len: u64,
        /// The checksum of the input as it arrived. Trainers map the memory too: input of another sum becomes
        /// a row, and no prepared form.
        input_sum: u64,
    },
}

/// A part of an arena, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub offset: u64,
    pub len: u64,
}

impl Part {
    /// `None` if the end exceeds 64 bits.
    fn end(self) -> Option<u64> {
        self.offset.checked_add(self.len)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The number of the request, which its answer repeats.
    pub id: u64,
    pub arena: ArenaId,
    /// The place of the input, which starts at its beginning.
    pub slot: Part,
    pub input_len: u64,
    pub form: InputForm,
    /// The content of the slot afterwards.
    pub after: AfterTransform,
    pub row: Part,
    /// The sample, which chooses the draws.
    pub sample: u64,
    /// The epoch, which chooses the draws too.
    pub epoch: u32,
}

impl Request {
    /// Checks that it stays inside of an arena of `arena_len` bytes.
    ///
    /// # Errors
    ///
    /// [`PacketError::Outside`] if slot or row leaves the arena, or the input its slot;
    /// [`PacketError::Overlap`] if slot and row share bytes.
    pub fn check(&self, arena_len: u64) -> Result<(), PacketError> {
        for part in [self.slot, self.row] {
            if part.end().is_none_or(|end| end > arena_len) {
                return Err(PacketError::Outside { part, len: arena_len });
            }
        }
        if self.input_len > self.slot.len {
            let part = Part { len: self.input_len, ..self.slot };
            return Err(PacketError::Outside { part, len: self.slot.len });
        }
        let apart = self.slot.end() <= Some(self.row.offset)
            || self.row.end() <= Some(self.slot.offset)
            || self.slot.len == 0
            || self.row.len == 0;
        if apart { Ok(()) } else { Err(PacketError::Overlap { slot: self.slot, row: self.row }) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWorker {
    Setup(Setup),
    /// Memory to map; its memfd comes with the packet.
    Arena {
        arena: ArenaId,
        /// Its length, in bytes.
        len: u64,
    },
    /// Memory to unmap.
    DropArena(ArenaId),
    Request(Request),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The row is written, and the prepared form if it was asked for.
    Done {
        /// The checksum of the prepared form in its place; `None` if none stands there.
        prepared_sum: Option<u64>,
    },
    /// The sample cannot be transformed. Another attempt fails too.
    Untransformable(Defect),
    /// The worker could not do it, with the reason, which is not the sample.
    Failed(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Defect {
    pub kind: DefectKind,
    /// A sentence without its end.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DefectKind {
    /// Its bytes are not what they should be.
    Damaged,
    /// It has more pixels than the job allows.
    TooLarge,
    /// It is sound, but the steps of the job are not for it.
    Unsuitable,
    OutOfMemory,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromWorker {
    /// It takes requests.
    Ready,
    /// It cannot work, with the reason; it ends.
    Unfit(String),
    /// The row is written, and the input is being replaced by its prepared form: if the worker ends before
    /// it answers, the bytes in the slot are neither.
    Replacing { id: u64 },
    Answer {
        id: u64,
        outcome: Outcome,
        /// The processor time that it took.
        took: Duration,
    },
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    #[error("version {found} of the packets of a transform worker; this program speaks {VERSION}")]
    Version { found: u8 },
    #[error("a packet of {len} bytes that makes no sense")]
    Malformed { len: usize },
    #[error("{} bytes at offset {} leave {len} bytes", .part.len, .part.offset)]
    Outside { part: Part, len: u64 },
    #[error("the row at offset {} ({} bytes) overlaps the input at {} ({} bytes)",
        .row.offset, .row.len, .slot.offset, .slot.len)]
    Overlap { slot: Part, row: Part },
    #[error("a packet of {len} bytes; at most {PACKET_BYTES_MAX} are allowed")]
    TooLong {
        /// Its length, or the least that it has.
        len: usize,
    },
    #[error("the socket of a transform worker: {0}")]
    Socket(#[from] Errno),
}

/// The bytes of a packet.
fn encode(message: &impl Serialize) -> Vec<u8> {
    let bytes = postcard::to_extend(message, vec![VERSION]);
    bytes.expect("a vector takes any message")
}

/// Reads a packet.
fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, PacketError> {
    let malformed = || PacketError::Malformed { len: bytes.len() };
    match bytes.split_first() {
        None => Err(malformed()),
        Some((&found, _)) if found != VERSION => Err(PacketError::Version { found }),
        Some((_, message)) => match postcard::take_from_bytes(message) {
            Ok((message, [])) => Ok(message),
            _ => Err(malformed()),
        },
    }
}

impl ToWorker {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads a packet.
    ///
    /// # Errors
    ///
    /// [`PacketError::Version`] and [`PacketError::Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, PacketError> {
        decode(bytes)
    }
}

impl FromWorker {
    /// The packet, with its message cut to what a packet may carry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(&self.clone().cut())
    }

    /// Reads a packet.
    ///
    /// # Errors
    ///
    /// [`PacketError::Version`] and [`PacketError::Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, PacketError> {
        decode(bytes).map(Self::cut)
    }

    fn cut(mut self) -> Self {
        let message = match &mut self {
            Self::Unfit(why) | Self::Answer { outcome: Outcome::Failed(why), .. } => why,
            Self::Answer { outcome: Outcome::Untransformable(defect), .. } => &mut defect.message,
            Self::Ready | Self::Replacing { .. } | Self::Answer { .. } => return self,
        };
        let most = message.len().min(MESSAGE_BYTES_MAX);
        let end = (0..=most).rev().find(|at| message.is_char_boundary(*at));
        message.truncate(end.unwrap_or(0));
        self
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use proptest::prelude::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    const REQUEST: Request = Request {
        id: 7,
        arena: ArenaId(3),
        slot: Part { offset: 4096, len: 1000 },
        input_len: 900,
        form: InputForm::Stored,
        after: AfterTransform::Prepared { len: 950, input_sum: 1 << 60 },
        row: Part { offset: 0, len: 4096 },
        sample: 1 << 40,
        epoch: 9,
    };

    fn setup() -> Setup {
        Setup {
            parent: 17,
            seed: 42,
            pixels_max: 100_000_000,
            time_limit: Duration::from_secs(30),
            niceness: 5,
            pipeline: "{\"steps\": []}".to_owned(),
        }
    }

    fn all_to_worker() -> Vec<ToWorker> {
        vec![
            ToWorker::Setup(setup()),
            ToWorker::Arena { arena: ArenaId(3), len: 1 << 33 },
            ToWorker::DropArena(ArenaId(3)),
            ToWorker::Request(REQUEST),
            ToWorker::Request(Request {
                form: InputForm::Prepared,
                after: AfterTransform::Unused,
                ..REQUEST
            }),
        ]
    }

    fn all_from_worker() -> Vec<FromWorker> {
        let took = Duration::from_millis(2);
        let answer = |outcome| FromWorker::Answer { id: 7, outcome, took };
        let defect = |kind| Defect { kind, message: "not a JPEG".to_owned() };
        let kinds = [
            DefectKind::Damaged,
            DefectKind::TooLarge,
            DefectKind::Unsuitable,
            DefectKind::OutOfMemory,
        ];
        let defects = kinds.map(|kind| answer(Outcome::Untransformable(defect(kind))));
        let others = [
            FromWorker::Ready,
            FromWorker::Unfit("no pipeline".to_owned()),
            FromWorker::Replacing { id: 7 },
            answer(Outcome::Done { prepared_sum: Some(1 << 50) }),
            answer(Outcome::Done { prepared_sum: None }),
            answer(Outcome::Failed("no arena 3".to_owned())),
        ];
        others.into_iter().chain(defects).collect()
    }

    #[test]
    fn every_packet_is_read_as_it_was_written() {
        for packet in all_to_worker() {
            assert_eq!(ToWorker::decode(&packet.encode()).unwrap(), packet);
        }
        for packet in all_from_worker() {
            assert_eq!(FromWorker::decode(&packet.encode()).unwrap(), packet);
        }
    }

    #[test]
    fn packets_are_refused_at_any_other_length() {
        for whole in all_to_worker().iter().map(ToWorker::encode) {
            let longer = [&whole[..], &[0]].concat();
            assert!(ToWorker::decode(&longer).is_err(), "{longer:?}");
            for len in 0..whole.len() {
                assert!(ToWorker::decode(&whole[..len]).is_err(), "{len} of {whole:?}");
            }
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut setup = ToWorker::Setup(setup()).encode();
        setup[0] = 9;
        let error = ToWorker::decode(&setup).unwrap_err();
        assert!(matches!(error, PacketError::Version { found: 9 }), "{error}");
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let why = "ä".repeat(MESSAGE_BYTES_MAX);
        let FromWorker::Unfit(read) = FromWorker::decode(&FromWorker::Unfit(why).encode()).unwrap()
        else {
            panic!("another kind of packet")
        };
        assert_eq!(read, "ä".repeat(MESSAGE_BYTES_MAX / 2));
    }

    #[test]
    fn a_request_stays_inside_of_its_arena() {
        let arena = 5096;
        REQUEST.check(arena).unwrap();
        let outside = [
            Request { slot: Part { offset: 4097, ..REQUEST.slot }, ..REQUEST },
            Request { slot: Part { offset: u64::MAX, ..REQUEST.slot }, ..REQUEST },
            Request { row: Part { offset: 1001, ..REQUEST.row }, ..REQUEST },
            Request { row: Part { len: u64::MAX, ..REQUEST.row }, ..REQUEST },
            Request { input_len: 1001, ..REQUEST },
        ];
        for request in outside {
            let error = request.check(arena).unwrap_err();
            assert!(matches!(error, PacketError::Outside { .. }), "{error}");
        }
        let overlapping = Request { row: Part { offset: 100, len: 4000 }, ..REQUEST };
        let error = overlapping.check(arena).unwrap_err();
        assert!(matches!(error, PacketError::Overlap { .. }), "{error}");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = ToWorker::decode(&bytes);
            let _ = FromWorker::decode(&bytes);
        }
    }

    #[test]
    fn a_packet_brings_its_descriptor_and_the_end_is_told() {
        let flags = SocketFlags::CLOEXEC;
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        let mut next = || receive(there.as_fd(), &mut buffer, ToWorker::decode).unwrap();
        assert!(matches!(next(), Arrival::Nothing));
        let sent = ToWorker::DropArena(ArenaId(1));
        send(here.as_fd(), &sent.encode(), Some(here.as_fd())).unwrap();
        let Arrival::Packet(got, Some(came)) = next() else { panic!("no descriptor") };
        assert_eq!(got, sent);
        // The descriptor that came is another one of the same socket.
        drop((came, here));
        assert!(matches!(next(), Arrival::End));
    }
}
