//! What is measured otherwise than by trials.

pub(super) mod accuracy;
pub(super) mod eviction;
pub(super) mod probe;
pub(super) mod reuse;

use crate::figure::{Chart, Headline};

/// The charts and claims of a figure, and what its texts may name.
#[derive(Debug, Default)]
pub(super) struct Drawn {
    pub(super) charts: Vec<Chart>,
    pub(super) claims: Vec<Headline>,
    pub(super) told: Vec<(&'static str, String)>,
}
