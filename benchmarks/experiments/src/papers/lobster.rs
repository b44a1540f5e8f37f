//! Lobster: ranks that wait for each other in every step, on nodes whose memory holds a part of `ImageNet`, and loaders
//! that decode.

mod accuracy;
mod nodes;
mod one_node;
mod reuse;
mod systems;
mod threads;

use super::repetition::{Ground, OnStage};

use tierfeed_core::units::BytesPerSecond;

const DISK: BytesPerSecond = BytesPerSecond(20_000_000);

/// The figures, by name; those of one entry come from the same runs.
pub(super) const FIGURES: OnStage = OnStage {
    // A disk of [`DISK`] reads as many photographs in 3 s.
    ground: Ground { disk: DISK, copies: 1, photographs: 640, photographs_quick: 640 },
    figures: &[
        (&nodes::NAMES, nodes::figures),
        (&[reuse::NAME], reuse::figures),
        (&[threads::NAME], threads::figures),
        (&one_node::NAMES, one_node::figures),
        (&[accuracy::NAME], accuracy::figures),
    ],
};
