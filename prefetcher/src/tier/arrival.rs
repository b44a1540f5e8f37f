//! A sample that is read from the cold store into a tier, ahead of its use.
//!
//! Its bytes pass through memory that only this process maps ([`tierfeed_dataset::read::Target`]), go from
//! there to the pieces of its place, and are summed in the same pass.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use tierfeed_core::{id::SampleId, units::Bytes};
use tierfeed_dataset::read::Sink;
use tierfeed_numa_memory::Checksum;

use crate::tier::{
    store::Segment,
    transfer::{
        Side, TransferError, bus_errors_of, check_length, check_new_errors, forget_sums,
        record_arrival, refuse_poisoned,
    },
};

#[derive(Debug)]
pub(crate) struct Arrival {
    segments: Vec<Segment>,
    /// Memory errors of its chunks before it was written.
    bus_errors: u64,
    /// Why a chunk had no memory for it. The reader only learns that a write failed.
    refused: Mutex<Option<TransferError>>,
}

impl Arrival {
    /// Prepares a place for a sample of `len` bytes. What lay there is forgotten.
    ///
    /// # Errors
    ///
    /// [`TransferError`] if the place is too short, or cannot be used any more.
    pub(crate) fn new(segments: Vec<Segment>, len: Bytes) -> Result<Self, TransferError> {
        check_length(&segments, len)?;
        refuse_poisoned(&segments, Side::To)?;
        forget_sums(&segments);
        let bus_errors = bus_errors_of(&segments);
        Ok(Self { segments, bus_errors, refused: Mutex::default() })
    }

    /// Keeps the sum of the bytes that arrived.
    ///
    /// # Errors
    ///
    /// As [`Self::check`], and [`TransferError::NotThere`] without a sum: not all bytes arrived.
    pub(crate) fn complete(&self, sample: SampleId, sum: Option<u64>) -> Result<(), TransferError> {
        self.check()?;
        let sum = sum.ok_or(TransferError::NotThere)?;
        self.segments.first().into_iter().for_each(|first| record_arrival(sample, first, sum));
        Ok(())
    }

    /// # Errors
    ///
    /// [`TransferError::Poisoned`] if its memory failed since it was prepared, and
    /// [`TransferError::NoMemory`] if a chunk had no memory for it.
    pub(crate) fn check(&self) -> Result<(), TransferError> {
        if let Some(refused) = self.refused.lock().take() {
            return Err(refused);
        }
        check_new_errors(&self.segments, self.bus_errors, Side::To)
    }

    /// Makes sure that a part of a segment has memory. The place is prepared on a thread that must not wait
    /// for it, so this is done before each write.
    fn ensure(&self, segment: &Segment) -> io::Result<()> {
        let Err(refused) = segment.ensure() else { return Ok(()) };
        *self.refused.lock() = Some(refused);
        Err(io::ErrorKind::OutOfMemory.into())
    }
}

impl Sink for Arrival {
    fn write_summed(&self, at: Bytes, bytes: &[u8], sum: &mut Checksum) -> io::Result<()> {
        let (mut start, mut rest) = (at.0, bytes);
        for Segment { store, offset, len } in &self.segments {
            if start >= len.0 {
                start -= len.0;
                continue;
            }
            let here = usize::try_from(len.0 - start).unwrap_or(usize::MAX).min(rest.len());
            let (piece, behind) = rest.split_at(here);
            let offset = Bytes(offset.0 + start);
            let len = Bytes(piece.len() as u64);
            self.ensure(&Segment { store: Arc::clone(store), offset, len })?;
            store.put(offset, piece, sum)?;
            (start, rest) = (0, behind);
            if rest.is_empty() {
                return Ok(());
            }
        }
        match rest {
            [] => Ok(()),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}
