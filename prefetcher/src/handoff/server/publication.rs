//! Reads the order of an epoch out of the memfd in which a trainer hands it over.
//!
//! The file must be sealed against writing and shrinking. That is not only so that it says the same
//! to everyone: only files in memory have seals at all, so reading one never waits for a disk, a
//! network or another process.

use std::{
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
};

use rustix::fs::{SealFlags, fcntl_get_seals};
use tierfeed_core::id::SampleId;

const SAMPLE_BYTES: usize = 4;

/// Samples that are read at a time.
const PIECE_SAMPLES: usize = 16 * 1024;

/// Why a published order was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// An epoch has samples, and not more than the agent's limit.
    #[error("an epoch of {samples} samples was published; from 1 to {max} are possible")]
    Count {
        /// As published.
        samples: u32,
        /// The limit of the agent.
        max: u32,
    },
    /// The file could change or block while it is read.
    #[error("an order came in a file that is no memfd sealed against writing and shrinking")]
    NotSealed,
    /// The file has another length than its message said.
    #[error("an order of {samples} samples came in a file of another length")]
    Length {
        /// As the message said.
        samples: u32,
        /// What reading it said.
        #[source]
        source: io::Error,
    },
}

/// Reads `count` samples from `file`.
pub(super) fn read(file: OwnedFd, count: u32, max: u32) -> Result<Vec<SampleId>, PublishError> {
    if count == 0 || count > max {
        return Err(PublishError::Count { samples: count, max });
    }
    let seals = fcntl_get_seals(&file).map_err(|_| PublishError::NotSealed)?;
    if !seals.contains(SealFlags::WRITE | SealFlags::SHRINK) {
        return Err(PublishError::NotSealed);
    }
    let wrong_length = |source| PublishError::Length { samples: count, source };
    let file = File::from(file);
    let bytes = u64::from(count) * SAMPLE_BYTES as u64;
    if file.metadata().map_err(wrong_length)?.len() != bytes {
        return Err(wrong_length(io::ErrorKind::InvalidData.into()));
    }
    let count = usize::try_from(count).expect("64-bit hosts only");
    let mut samples = Vec::with_capacity(count);
    let mut piece = vec![0; PIECE_SAMPLES * SAMPLE_BYTES];
    let mut offset = 0;
    while samples.len() < count {
        let wanted = (count - samples.len()).min(PIECE_SAMPLES) * SAMPLE_BYTES;
        file.read_exact_at(&mut piece[..wanted], offset).map_err(wrong_length)?;
        let (numbers, _) = piece[..wanted].as_chunks::<SAMPLE_BYTES>();
        samples.extend(numbers.iter().map(|number| SampleId(u32::from_le_bytes(*number))));
        offset += wanted as u64;
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;
    use crate::handoff::client::sealed_order;

    #[test]
    fn an_order_longer_than_one_piece_arrives_as_it_was_sent() {
        let samples: Vec<_> = (0..40_000).map(|it| SampleId(it * 7)).collect();
        let file = sealed_order(&samples).unwrap();
        assert_eq!(read(file, 40_000, 40_000).unwrap(), samples);
    }

    #[test]
    fn an_order_of_another_length_than_promised_is_refused() {
        let order = || sealed_order(&[SampleId(1), SampleId(2)]).unwrap();
        for count in [1, 3] {
            assert!(matches!(read(order(), count, 10), Err(PublishError::Length { .. })));
        }
        assert!(matches!(read(order(), 2, 1), Err(PublishError::Count { .. })));
        assert!(matches!(read(order(), 0, 1), Err(PublishError::Count { .. })));
    }

    #[test]
    fn a_file_that_could_change_or_block_is_refused() {
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        assert!(matches!(read(pipe, 1, 10), Err(PublishError::NotSealed)));
        let on_disk = tempfile::tempfile().unwrap();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let unsealed = File::from(memfd_create("test-order", flags).unwrap());
        for file in [on_disk, unsealed] {
            file.set_len(4).unwrap();
            assert!(matches!(read(file.into(), 1, 10), Err(PublishError::NotSealed)));
        }
    }
}
