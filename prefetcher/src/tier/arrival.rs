//! A sample that is read from the cold store into a tier, ahead of its use.
//!
//! Its bytes pass through memory that only this process maps ([`tierfeed_dataset::read::Target`]), go from
//! there to the pieces of its place, and are summed in the same pass.

use std::io;

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

/// The place of a sample in a tier, while it is being written.
#[derive(Debug)]
pub(crate) struct Arrival {
    segments: Vec<Segment>,
    /// Memory errors of its chunks before it was written.
    bus_errors: u64,
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
        Ok(Self { bus_errors: bus_errors_of(&segments), segments })
    }

    /// Keeps the sum of the bytes that arrived.
    ///
    /// # Errors
    ///
    /// [`TransferError::Poisoned`] if memory failed meanwhile, and [`TransferError::NotThere`] without a
    /// sum: not all bytes arrived.
    pub(crate) fn complete(&self, sample: SampleId, sum: Option<u64>) -> Result<(), TransferError> {
        self.check()?;
        let sum = sum.ok_or(TransferError::NotThere)?;
        self.segments.first().into_iter().for_each(|first| record_arrival(sample, first, sum));
        Ok(())
    }

    /// # Errors
    ///
    /// [`TransferError::Poisoned`] if its memory failed since it was prepared.
    pub(crate) fn check(&self) -> Result<(), TransferError> {
        check_new_errors(&self.segments, self.bus_errors, Side::To)
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
            store.put(Bytes(offset.0 + start), piece, sum)?;
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
