//! Lobster: ranks that wait for each other in every step, on nodes whose memory holds a part of `ImageNet`, and loaders
//! that decode.

mod accuracy;
mod nodes;
mod one_node;
mod reuse;
mod systems;
mod threads;

use super::repetition::{Ground, Repeat, Repeated};
use crate::stage::Settings;

use tierfeed_core::units::BytesPerSecond;

/// The disk of a node.
const DISK: BytesPerSecond = BytesPerSecond(20_000_000);

/// A disk of [`DISK`] reads as many photographs in 3 s.
const GROUND: Ground = Ground { disk: DISK, copies: 1, photographs: 640, photographs_quick: 640 };

/// The figures, by name; those of one entry come from the same runs.
const FIGURES: [(&[&str], Repeat); 5] = [
    (&nodes::NAMES, nodes::figures),
    (&[reuse::NAME], reuse::figures),
    (&[threads::NAME], threads::figures),
    (&one_node::NAMES, one_node::figures),
    (&[accuracy::NAME], accuracy::figures),
];

/// The names of the figures that [`run`] repeats.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FIGURES.iter().flat_map(|(names, _)| names.iter().copied())
}

/// Repeats the figures of this paper that are wanted.
pub(super) fn run(
    settings: &Settings,
    is_wanted: &dyn Fn(&str) -> bool,
    step: &mut dyn FnMut(&str),
    repeated: &mut Repeated,
) {
    repeated.add_on_stage(settings, GROUND, &FIGURES, is_wanted, step);
}
