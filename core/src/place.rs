//! Where a sample lies in the tiers of a node.

use alloc::vec::Vec;

use crate::{id::TierId, space::Piece};

/// Where a cached sample lies: pieces of chunks of one tier, in the order of the sample's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The tier that holds it.
    pub tier: TierId,
    /// At least one piece; together as long as the sample, or up to 63 bytes longer.
    pub pieces: Vec<Piece>,
}
