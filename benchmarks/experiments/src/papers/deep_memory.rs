//! `DeepMemoryDL`: a node whose memory is short, with CXL memory beside, as trainings with the loaders of today, and
//! with tierfeed.
//!
//! The node is a control group: its memory holds a part of the dataset beside what the processes need. CXL memory is,
//! for the loaders of today, more memory of the group, as fast as main memory; as storage, a RAM disk. Both flatter
//! them. For tierfeed it is a tier whose latency and bandwidth are emulated.

mod caching;
mod environment;
mod memory;
mod preprocess;
mod ram_disk;
mod sizes;
mod tiers;
mod total_time;

use tierfeed_core::units::BytesPerSecond;

use crate::{
    figure::Figure,
    stage::{Extent, Settings, Stage, on_stage},
};

/// The disk of the node.
const DISK: BytesPerSecond = BytesPerSecond(40_000_000);

/// Photographs at most: ratios need no more, and each figure has turns of many sides.
const PHOTOGRAPHS: u32 = 600;
const PHOTOGRAPHS_QUICK: u32 = 320;

type Repeat = fn(&mut Stage<'_>, &mut dyn FnMut(&str)) -> anyhow::Result<Vec<Figure>>;

/// The figures, by name; those of one entry come from the same runs.
const FIGURES: [(&[&str], Repeat); 7] = [
    (&[tiers::NAME], tiers::figures),
    (&[memory::NAME], |stage, step| Ok(vec![memory::figure(stage, step)?])),
    (&[caching::NAME], |stage, step| Ok(vec![caching::figure(stage, step)?])),
    (&total_time::NAMES, total_time::figures),
    (&[preprocess::NAME], |stage, step| Ok(vec![preprocess::figure(stage, step)?])),
    (&[sizes::CXL], |stage, step| Ok(vec![sizes::cxl(stage, step)?])),
    (&[sizes::BATCHES], |stage, step| Ok(vec![sizes::batches(stage, step)?])),
];

/// The names of the figures that [`run`] repeats.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FIGURES.iter().flat_map(|(names, _)| names.iter().copied())
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
    let wanted = FIGURES.iter().filter(|(names, _)| names.iter().any(|name| is_wanted(name)));
    let wanted: Vec<_> = wanted.collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let most = match settings.extent {
        Extent::Full => PHOTOGRAPHS,
        Extent::Quick => PHOTOGRAPHS_QUICK,
    };
    let settings = Settings { photographs: settings.photographs.min(most), ..settings.clone() };
    let mut figures = on_stage(&settings, DISK, 1, step, |stage, step| {
        let mut figures = Vec::new();
        for (_, repeat) in wanted {
            let mut repeated = repeat(stage, step)?;
            if let Some(first) = repeated.first_mut() {
                first.predictions = stage.take_predictions();
            }
            figures.extend(repeated);
        }
        Ok(figures)
    })?;
    figures.retain(|figure| is_wanted(&figure.name));
    Ok(figures)
}
