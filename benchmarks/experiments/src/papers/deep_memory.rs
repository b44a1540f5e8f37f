//! `DeepMemoryDL`: a node whose memory is short, with CXL memory beside, as trainings with the loaders of today, and
//! with tierfeed.
//!
//! The node is a control group: its memory holds a part of the dataset beside what the processes need. CXL memory is,
//! for the loaders of today, more memory of the group, as fast as main memory; as storage, a RAM disk. Both flatter
//! them. For tierfeed it is a tier whose latency and bandwidth are emulated.

mod caching;
mod environments;
mod memory;
mod sizes;

use tierfeed_core::units::BytesPerSecond;

use crate::{
    figure::Figure,
    stage::{Settings, Stage, on_stage},
};

/// The disk of the node.
const DISK: BytesPerSecond = BytesPerSecond(40_000_000);

type Repeat = fn(&mut Stage<'_>, &mut dyn FnMut(&str)) -> anyhow::Result<Figure>;

/// The figures, by name.
const FIGURES: [(&str, Repeat); 6] = [
    (memory::NAME, memory::figure),
    (caching::RATE, caching::rate),
    (environments::NAME, environments::figure),
    (sizes::CXL, sizes::cxl),
    (sizes::BATCHES, sizes::batches),
    (caching::TIME, caching::time),
];

/// The names of the figures that [`run`] repeats.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FIGURES.iter().map(|(name, _)| *name)
}

/// Repeats the figures of this paper that are wanted.
///
/// # Errors
///
/// If the disk cannot be made (this needs root), or a training fails.
pub(super) fn run(
    settings: &Settings,
    is_wanted: impl Fn(&str) -> bool,
    step: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Figure>> {
    let wanted = FIGURES.iter().filter(|(name, _)| is_wanted(name));
    let wanted: Vec<_> = wanted.collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    on_stage(settings, DISK, 1, step, |stage, step| {
        wanted.iter().map(|(_, repeat)| stage.repeat(repeat, step)).collect()
    })
}
