//! Lobster: one node whose cache holds 40 of 135 GB of ImageNet, and loaders that decode.
//!
//! What a system keeps is told by its reads: each runs in a control group whose memory holds that part of the dataset,
//! and what is read from the disk after the first epoch was not kept. The policies of `NoPFS` and Lobster run in
//! tierfeed, with all else equal; Lobster's with its Algorithm 1.

mod loaders;
mod threads;

use crate::{
    figure::Figure,
    stage::{Settings, Stage, on_stage},
};

use tierfeed_core::units::BytesPerSecond;

/// The disk of the node.
const DISK: BytesPerSecond = BytesPerSecond(40_000_000);

type Repeat = fn(&mut Stage<'_>, &mut dyn FnMut(&str)) -> anyhow::Result<Vec<Figure>>;

/// The figures, by name; those of one entry come from the same runs.
const FIGURES: [(&[&str], Repeat); 2] =
    [(&loaders::NAMES, loaders::figures), (&[threads::NAME], threads::figures)];

/// The names of the figures that [`run`] repeats.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FIGURES.iter().flat_map(|(names, _)| names.iter().copied())
}

/// Repeats the figures of this paper that are wanted.
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
    let mut figures = on_stage(settings, DISK, 1, step, |stage, step| {
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
