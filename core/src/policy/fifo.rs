//! FIFO buffers without foresight: everything enters the fastest tier and sinks as it ages.
//!
//! On a shuffled epoch this keeps almost nothing until its next use: it is the field's baseline.

use crate::{
    id::TierId,
    policy::{Candidate, Level, Outlook, Policy, fastest},
};

/// Wants everything, for it knows nothing.
#[derive(Debug)]
pub(super) struct Fifo;

impl Policy for Fifo {
    fn admit(&self, sample: Candidate, _: &dyn Outlook, tiers: &[Level]) -> Option<TierId> {
        fastest(sample, tiers)
    }

    fn wants(&self, _: Candidate, _: &dyn Outlook, _: &[Level]) -> bool {
        true
    }
}
