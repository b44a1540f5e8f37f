//! The order of an epoch on its way from a trainer: a file in memory that the agent makes, the trainer
//! fills and the agent reads.
//!
//! The agent makes it, so its length is checked before it exists, reading it never waits for a
//! disk, a network or another process, and no descriptor of the trainer enters the agent. The
//! trainer may write to it at any time: the content is checked like everything that a trainer
//! sends.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt,
    },
};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use tierfeed_core::id::{Epoch, SampleId};

use super::violation::Rule;
use crate::message::RequestId;

const SAMPLE_BYTES: usize = 4;

const PIECE_SAMPLES: usize = 16 * 1024;

/// An order that a trainer wrote and that is not read yet. Until it is read the agent has a
/// descriptor and no copy.
#[derive(Debug)]
pub(super) struct OrderFile {
    file: File,
    samples: u32,
}

impl OrderFile {
    /// Creates a file for `samples` samples; it takes memory where the trainer writes.
    fn create(samples: u32) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("tierfeed-order", flags)?;
        ftruncate(&file, u64::from(samples) * SAMPLE_BYTES as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Self { file: file.into(), samples })
    }

    /// Reads the order; this takes 4 bytes a sample, and the time to copy them.
    pub(super) fn read(&self) -> io::Result<Vec<SampleId>> {
        let count = usize::try_from(self.samples).expect("64-bit hosts only");
        let mut samples = Vec::with_capacity(count);
        let mut piece = vec![0; count.min(PIECE_SAMPLES) * SAMPLE_BYTES];
        let mut offset = 0;
        while samples.len() < count {
            let wanted = (count - samples.len()).min(PIECE_SAMPLES) * SAMPLE_BYTES;
            self.file.read_exact_at(&mut piece[..wanted], offset)?;
            let (numbers, _) = piece[..wanted].as_chunks::<SAMPLE_BYTES>();
            samples.extend(numbers.iter().map(|number| SampleId(u32::from_le_bytes(*number))));
            offset += wanted as u64;
        }
        Ok(samples)
    }
}

impl AsFd for OrderFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The one publication that a connection may have on its way.
#[derive(Debug, Default)]
pub(super) enum Publication {
    #[default]
    None,
    /// The trainer has the file.
    Offered { request: RequestId, epoch: Epoch, order: OrderFile },
    /// The agent has the order and has not answered.
    Reported { request: RequestId },
}

impl Publication {
    /// Creates the file for an order. A file that the trainer was offered and did not fill is
    /// dropped.
    pub(super) fn offer(
        &mut self,
        request: RequestId,
        epoch: Epoch,
        samples: u32,
        max: u32,
    ) -> Result<io::Result<&OrderFile>, Rule> {
        if matches!(self, Self::Reported { .. }) {
            return Err(Rule::SecondPublication);
        }
        if samples == 0 || samples > max {
            return Err(Rule::OrderLength { samples, max });
        }
        let order = match OrderFile::create(samples) {
            Ok(order) => order,
            Err(error) => return Ok(Err(error)),
        };
        *self = Self::Offered { request, epoch, order };
        let Self::Offered { order, .. } = self else { unreachable!("it was set just now") };
        Ok(Ok(order))
    }

    pub(super) fn written(&mut self, written: RequestId) -> Result<(Epoch, OrderFile), Rule> {
        match std::mem::take(self) {
            Self::Offered { request, epoch, order } if request == written => {
                *self = Self::Reported { request };
                Ok((epoch, order))
            }
            other => {
                *self = other;
                Err(Rule::NotOffered { request: written })
            }
        }
    }

    /// Whether an answer to this request was open; it is closed by this call.
    pub(super) fn answer(&mut self, answered: RequestId) -> bool {
        let is_open = matches!(self, Self::Reported { request } if *request == answered);
        if is_open {
            *self = Self::None;
        }
        is_open
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::fill_order;

    #[test]
    fn an_order_longer_than_one_piece_arrives_as_it_was_sent() {
        for count in [1, 16 * 1024, 40_000] {
            let samples: Vec<_> = (0..count).map(|it| SampleId(it * 7)).collect();
            let order = OrderFile::create(count).unwrap();
            fill_order(order.file.try_clone().unwrap().into(), &samples).unwrap();
            assert_eq!(order.read().unwrap(), samples);
        }
    }

    #[test]
    fn a_trainer_cannot_change_the_length_of_its_order() {
        let order = OrderFile::create(2).unwrap();
        for len in [0, 4, 12] {
            assert!(order.file.set_len(len).is_err(), "{len}");
        }
        assert_eq!(order.read().unwrap(), [SampleId(0); 2]);
    }

    #[test]
    fn only_one_publication_is_on_its_way() {
        let mut publication = Publication::default();
        for samples in [0, 11] {
            let refused = publication.offer(RequestId(1), Epoch(0), samples, 10);
            assert!(matches!(refused, Err(Rule::OrderLength { max: 10, .. })));
        }
        publication.offer(RequestId(1), Epoch(0), 10, 10).unwrap().unwrap();
        // The trainer has given up the first one.
        publication.offer(RequestId(2), Epoch(1), 5, 10).unwrap().unwrap();
        let forgotten = publication.written(RequestId(1));
        assert!(matches!(forgotten, Err(Rule::NotOffered { .. })));
        let (epoch, order) = publication.written(RequestId(2)).unwrap();
        assert_eq!((epoch, order.samples), (Epoch(1), 5));
        let second = publication.offer(RequestId(3), Epoch(2), 5, 10);
        assert!(matches!(second, Err(Rule::SecondPublication)));
        assert!(!publication.answer(RequestId(3)));
        assert!(publication.answer(RequestId(2)));
        publication.offer(RequestId(3), Epoch(2), 5, 10).unwrap().unwrap();
    }
}
