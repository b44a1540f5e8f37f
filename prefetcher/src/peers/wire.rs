//! The messages between two nodes, and their bytes.
//!
//! A message is a head, which is one [`Header`] and its entries, a tag over the head (`peers/access.rs`),
//! and, in an answer, the bytes of the samples that are held, in the order of their entries. All numbers are
//! in little endian.

use tierfeed_core::id::SampleId;

pub const HEADER_BYTES: usize = 32;

pub const ASKED_BYTES: usize = 4;

pub const ANSWERED_BYTES: usize = 24;

/// The most samples of one request.
pub const SAMPLES_MAX: usize = 4096;

/// The first bytes of every message: name and version.
const MAGIC: [u8; 4] = *b"tfp1";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ask,
    Answer,
    /// From a node that works by another generation of the plan. It has no entries.
    OtherGeneration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    /// Unique for a request on its connection; its answer has the same.
    pub id: u64,
    /// The generation of the plan that the sender works by.
    pub generation: u64,
    pub count: u32,
    /// For a request: the milliseconds in which the answer is needed.
    pub within_ms: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    pub sample: SampleId,
    /// Length and sum of its bytes; `None` if the node does not hold it.
    pub held: Option<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    #[error("a message starts with the bytes {MAGIC:02x?}, this with {found:02x?}")]
    Magic { found: [u8; 4] },
    #[error("a message has kind 1 to 3, this {found}")]
    Kind { found: u8 },
    #[error(
        "a message of this kind has no {found} entries; at most {SAMPLES_MAX}, requests at least 1"
    )]
    Count { found: u32 },
    #[error("a field without meaning is {found}; it must be 0")]
    Blank { found: u64 },
}

impl Kind {
    fn number(self) -> u8 {
        match self {
            Self::Ask => 1,
            Self::Answer => 2,
            Self::OtherGeneration => 3,
        }
    }

    fn entry_bytes(self) -> usize {
        match self {
            Self::Ask => ASKED_BYTES,
            Self::Answer => ANSWERED_BYTES,
            Self::OtherGeneration => 0,
        }
    }
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    ///
    /// [`WireError`] for bytes that [`Self::write`] does not make.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, WireError> {
        let magic = array(bytes, 0);
        if magic != MAGIC {
            return Err(WireError::Magic { found: magic });
        }
        let kind = match bytes[4] {
            1 => Kind::Ask,
            2 => Kind::Answer,
            3 => Kind::OtherGeneration,
            found => return Err(WireError::Kind { found }),
        };
        let blank = u64::from(bytes[5]) + u64::from(bytes[6]) + u64::from(bytes[7]);
        if blank != 0 {
            return Err(WireError::Blank { found: blank });
        }
        let count = u32::from_le_bytes(array(bytes, 24));
        let allowed = match kind {
            Kind::Ask | Kind::Answer => 1..=SAMPLES_MAX,
            Kind::OtherGeneration => 0..=0,
        };
        if !usize::try_from(count).is_ok_and(|count| allowed.contains(&count)) {
            return Err(WireError::Count { found: count });
        }
        Ok(Self {
            kind,
            id: u64::from_le_bytes(array(bytes, 8)),
            generation: u64::from_le_bytes(array(bytes, 16)),
            count,
            within_ms: u32::from_le_bytes(array(bytes, 28)),
        })
    }

    pub fn write(&self, head: &mut Vec<u8>) {
        head.extend(MAGIC);
        head.extend([self.kind.number(), 0, 0, 0]);
        head.extend(self.id.to_le_bytes());
        head.extend(self.generation.to_le_bytes());
        head.extend(self.count.to_le_bytes());
        head.extend(self.within_ms.to_le_bytes());
    }

    #[must_use]
    pub fn entries_bytes(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX).saturating_mul(self.kind.entry_bytes())
    }
}

/// The entries of a request; bytes behind the last whole one are ignored.
#[must_use]
pub fn asked(entries: &[u8]) -> Vec<SampleId> {
    let entries = entries.chunks_exact(ASKED_BYTES);
    entries.map(|entry| SampleId(u32::from_le_bytes(array(entry, 0)))).collect()
}

pub fn write_asked(sample: SampleId, head: &mut Vec<u8>) {
    head.extend(sample.0.to_le_bytes());
}

impl Answered {
    /// The entries of an answer; bytes behind the last whole one are ignored.
    ///
    /// # Errors
    ///
    /// [`WireError::Blank`] for an entry that [`Self::write`] does not make.
    pub fn parse_all(entries: &[u8]) -> Result<Vec<Self>, WireError> {
        entries.chunks_exact(ANSWERED_BYTES).map(Self::parse).collect()
    }

    fn parse(entry: &[u8]) -> Result<Self, WireError> {
        let sample = SampleId(u32::from_le_bytes(array(entry, 0)));
        let numbers = (u64::from_le_bytes(array(entry, 8)), u64::from_le_bytes(array(entry, 16)));
        let held = match (u32::from_le_bytes(array(entry, 4)), numbers) {
            (0, (0, 0)) => None,
            (0, (found, 0) | (_, found)) => return Err(WireError::Blank { found }),
            (1, numbers) => Some(numbers),
            (found, _) => return Err(WireError::Blank { found: found.into() }),
        };
        Ok(Self { sample, held })
    }

    pub fn write(&self, head: &mut Vec<u8>) {
        head.extend(self.sample.0.to_le_bytes());
        head.extend(u32::from(self.held.is_some()).to_le_bytes());
        let (len, xxh3) = self.held.unwrap_or_default();
        head.extend(len.to_le_bytes());
        head.extend(xxh3.to_le_bytes());
    }
}

/// The bytes from `at` on; zeros behind the end.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    let from = bytes.get(at..).unwrap_or_default();
    let len = from.len().min(N);
    array[..len].copy_from_slice(&from[..len]);
    array
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header_bytes(header: Header) -> [u8; HEADER_BYTES] {
        let mut head = Vec::new();
        header.write(&mut head);
        head.try_into().unwrap()
    }

    proptest! {
        #[test]
        fn a_header_is_read_as_it_was_written(id: u64, generation: u64, count in 1..=4096_u32,
                                              within_ms: u32) {
            for (kind, count) in
                [(Kind::Ask, count), (Kind::Answer, count), (Kind::OtherGeneration, 0)]
            {
                let header = Header { kind, id, generation, count, within_ms };
                prop_assert_eq!(Header::parse(&header_bytes(header)), Ok(header));
            }
        }

        #[test]
        fn what_is_read_as_a_header_is_written_as_it_was(bytes: [u8; HEADER_BYTES], kind in 0..5_u8,
                                                         count in 0..5000_u32) {
            let mut bytes = bytes;
            bytes[..8].copy_from_slice(&[b't', b'f', b'p', b'1', kind, 0, 0, 0]);
            bytes[24..28].copy_from_slice(&count.to_le_bytes());
            if let Ok(header) = Header::parse(&bytes) {
                prop_assert_eq!(header_bytes(header), bytes);
            }
        }

        #[test]
        fn entries_are_read_as_they_were_written(samples: Vec<(u32, Option<(u64, u64)>)>) {
            let entries: Vec<Answered> = samples
                .into_iter()
                .map(|(sample, held)| Answered { sample: SampleId(sample), held })
                .collect();
            let (mut answered, mut wanted) = (Vec::new(), Vec::new());
            for entry in &entries {
                entry.write(&mut answered);
                write_asked(entry.sample, &mut wanted);
            }
            prop_assert_eq!(asked(&wanted), entries.iter().map(|it| it.sample).collect::<Vec<_>>());
            prop_assert_eq!(Answered::parse_all(&answered), Ok(entries));
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let header = Header { kind: Kind::Ask, id: 1, generation: 2, count: 3, within_ms: 4 };
        let with = |at: usize, byte: u8| {
            let mut bytes = header_bytes(header);
            bytes[at] = byte;
            Header::parse(&bytes)
        };
        assert!(matches!(with(3, b'2'), Err(WireError::Magic { .. })));
        assert_eq!(with(4, 0), Err(WireError::Kind { found: 0 }));
        assert_eq!(with(4, 3), Err(WireError::Count { found: 3 }));
        assert_eq!(with(24, 0), Err(WireError::Count { found: 0 }));
        assert_eq!(with(26, 1), Err(WireError::Count { found: (1 << 16) + 3 }));
        assert_eq!(with(6, 9), Err(WireError::Blank { found: 9 }));
        let mut entry = Vec::new();
        Answered { sample: SampleId(1), held: None }.write(&mut entry);
        for at in [4, 5, 8, 16] {
            let mut entry = entry.clone();
            entry[at] = 2;
            assert!(matches!(Answered::parse_all(&entry), Err(WireError::Blank { .. })), "{at}");
        }
    }
}
