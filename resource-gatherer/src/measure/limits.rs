//! The time, memory and storage that a measurement may take.

use tierfeed_core::units::{Bytes, Nanoseconds};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    /// Good enough for a plan: each node from its best CPUs, well under half a minute.
    Quick,
    /// Every pair of nodes, narrow intervals, minutes.
    Full,
    Custom(Limits),
}

impl Budget {
    #[must_use]
    pub fn limits(self) -> Limits {
        match self {
            Self::Quick => Limits {
                total: Nanoseconds(27_000_000_000),
                cell: Nanoseconds(600_000_000),
                memory: Nanoseconds(14_000_000_000),
                sample: Nanoseconds(10_000_000),
                buffer_min: Bytes::mib(256),
                buffer_max: Bytes::mib(1024),
                random_buffer: Bytes::mib(256),
                chunk: Bytes::mib(128),
                file: Bytes::mib(256),
                pairs: Pairs::BestInitiator,
            },
            Self::Full => Limits {
                total: Nanoseconds(570_000_000_000),
                cell: Nanoseconds(30_000_000_000),
                memory: Nanoseconds(330_000_000_000),
                sample: Nanoseconds(20_000_000),
                buffer_min: Bytes::mib(256),
                buffer_max: Bytes::mib(4096),
                random_buffer: Bytes::mib(1024),
                chunk: Bytes::mib(512),
                file: Bytes::mib(2048),
                pairs: Pairs::All,
            },
            Self::Custom(limits) => limits,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The time of the whole probe, from the first step to the report. What does not fit is left out and
    /// named.
    pub total: Nanoseconds,
    /// The time in samples of one cell: one kernel on one place.
    pub cell: Nanoseconds,
    /// The time for all pairs of memory nodes together, with everything: buffers, chains, samples.
    pub memory: Nanoseconds,
    /// The time of one sample of memory: long against the clock, short against a time slice.
    pub sample: Nanoseconds,
    /// The least length of each of the four buffers on a memory node, if its room allows.
    pub buffer_min: Bytes,
    /// The greatest length of each of these buffers.
    pub buffer_max: Bytes,
    /// The greatest length of the buffer of the random latency, whose small pages take long to touch.
    pub random_buffer: Bytes,
    /// Bytes that are copied from tier to tier, if the room allows.
    pub chunk: Bytes,
    /// Bytes that are written to a directory, once.
    pub file: Bytes,
    pub pairs: Pairs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairs {
    BestInitiator,
    All,
}
