//! Questions of papers that came after the four: each is asked of the whole system, beside what people use otherwise.

mod clock;
mod form;
mod loss;
mod slow;

use tierfeed_core::units::BytesPerSecond;

use crate::{
    figure::{Figure, Paper},
    stage::{Extent, Settings, Stage, on_stage},
};

/// The disk that the photographs lie on.
const DISK: BytesPerSecond = BytesPerSecond(40_000_000);

/// Photographs at most: ratios need no more, and each figure has turns of many sides.
const PHOTOGRAPHS: u32 = 480;
const PHOTOGRAPHS_QUICK: u32 = 240;

/// Room on the disk, in copies of the photographs.
const COPIES: u64 = 8;

type Repeat = fn(&mut Stage<'_>, &mut dyn FnMut(&str)) -> anyhow::Result<Figure>;

/// The figures, by name.
const FIGURES: [(&str, Repeat); 4] = [
    (slow::NAME, slow::figure),
    (form::NAME, form::figure),
    (loss::NAME, loss::figure),
    (clock::NAME, clock::figure),
];

/// The names of the figures that [`run`] repeats.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FIGURES.iter().map(|(name, _)| *name)
}

/// Answers the questions that are wanted.
///
/// # Errors
///
/// If the disk cannot be made (this needs root), or a training fails.
pub(super) fn run(
    settings: &Settings,
    is_wanted: impl Fn(&str) -> bool,
    step: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Figure>> {
    let wanted: Vec<_> = FIGURES.iter().filter(|(name, _)| is_wanted(name)).collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let most = match settings.extent {
        Extent::Full => PHOTOGRAPHS,
        Extent::Quick => PHOTOGRAPHS_QUICK,
    };
    let settings = Settings { photographs: settings.photographs.min(most), ..settings.clone() };
    on_stage(&settings, DISK, COPIES, step, |stage, step| {
        wanted.iter().map(|(_, repeat)| stage.repeat(repeat, step)).collect()
    })
}

/// A figure of this module without what it shows.
fn blank(name: &str, number: &str, title: &str) -> Figure {
    Figure {
        name: name.to_owned(),
        paper: Paper::Newer,
        number: number.to_owned(),
        title: title.to_owned(),
        setting: String::new(),
        charts: Vec::new(),
        headlines: Vec::new(),
        predictions: Vec::new(),
        emulated: Vec::new(),
        command: format!("tierfeed-bench paper {name}"),
    }
}
