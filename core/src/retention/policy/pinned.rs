//! `MinIO` of `CoorDL` (VLDB 2021, doi:10.14778/3446095.3446100): a sample that fits stays, and
//! none is ever evicted.
//!
//! While there is room, every sample that is read enters the fastest tier with room, so the samples
//! that stay are the first ones read, a random part of the dataset. The paper has one tier, of
//! memory.

use super::{Policy, Read, first_with_room};
use crate::{
    id::{SampleId, TierId},
    retention::{future_accesses::FutureAccesses, residency::Residency},
};

#[derive(Debug)]
pub(super) struct Pinned;

impl Policy for Pinned {
    fn lookahead(&self) -> u32 {
        0
    }

    fn read(&mut self, read: Read, _: &FutureAccesses, residency: &mut Residency) {
        if residency.tier_of(read.sample).is_none()
            && let Some(tier) = first_with_room(read.sample, residency)
        {
            // There is room: the tier was chosen for the sample.
            _ = residency.put(read.sample, tier);
        }
    }

    fn displaced(&mut self, _: SampleId, _: TierId, _: Option<TierId>) {}
}
