//! What a schedule sets anew while a session runs, at the plan of an epoch.

use crate::units::Bytes;

/// The values that later generations of a schedule change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetPoints {
    /// The room of the tiers that is kept free of retained samples, for samples to come.
    pub room: Bytes,
    /// Batches staged ahead for each rank, the one in use included.
    pub depth: u32,
}
