//! Lobster: ranks that wait for each other in every step, on nodes whose memory holds a part of `ImageNet`, and loaders
//! that decode.

mod accuracy;
mod nodes;
mod one_node;
mod reuse;
mod systems;
mod threads;

use crate::{
    figure::Figure,
    stage::{Settings, Stage, on_stage},
};

use tierfeed_core::units::BytesPerSecond;

/// The disk of a node.
const DISK: BytesPerSecond = BytesPerSecond(20_000_000);

/// A disk of [`DISK`] reads as many in 3 s.
const PHOTOGRAPHS_MAX: u32 = 640;

type Repeat = fn(&mut Stage<'_>, &mut dyn FnMut(&str)) -> anyhow::Result<Vec<Figure>>;

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
    is_wanted: impl Fn(&str) -> bool,
    step: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Figure>> {
    let wanted = FIGURES.iter().filter(|(names, _)| names.iter().any(|name| is_wanted(name)));
    let wanted: Vec<_> = wanted.collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let photographs = settings.photographs.min(PHOTOGRAPHS_MAX);
    let settings = &Settings { photographs, ..settings.clone() };
    let mut figures = on_stage(settings, DISK, 1, step, |stage, step| {
        let mut figures = Vec::new();
        for (_, repeat) in wanted {
            let mut repeated = repeat(stage, step)?;
            if let Some(first) = repeated.first_mut() {
                first.predictions.extend(stage.take_predictions());
            }
            figures.extend(repeated);
        }
        Ok(figures)
    })?;
    figures.retain(|figure| is_wanted(&figure.name));
    Ok(figures)
}
