//! `DLCache`: one job whose data lie on a disk that is slower than its step, and the eviction of a node's datasets.
//!
//! That several jobs share a cache is not repeated: a cache of tierfeed belongs to one job.

mod eviction;
mod loading;

use tierfeed_core::units::BytesPerSecond;

use self::loading::{EXPERIMENTS, Experiment};
use crate::{
    figure::Figure,
    stage::{Extent, Settings, Stage, on_stage},
};

/// The disk that the node reads: decoding takes longer than reading, as in the paper, whose throughput "ultimately
/// depends on the data processing time on CPUs".
const DISK: BytesPerSecond = BytesPerSecond(80_000_000);

/// Photographs, and recordings, at most.
const PHOTOGRAPHS: u32 = 600;

/// Room on the disk, in copies of the photographs.
const COPIES: u64 = 4;

/// The names of the figures that [`run`] repeats.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    EXPERIMENTS.iter().map(|it| it.name).chain([eviction::NAME])
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
    let wanted = EXPERIMENTS.iter().filter(|it| is_wanted(it.name) && is_told(settings, it));
    let wanted: Vec<_> = wanted.collect();
    let few = Settings { photographs: settings.photographs.min(PHOTOGRAPHS), ..settings.clone() };
    let mut figures = Vec::new();
    if !wanted.is_empty() {
        let repeat = |stage: &mut Stage<'_>, step: &mut dyn FnMut(&str)| {
            let repeat = |it: &&Experiment| {
                stage.repeat(|stage, step| loading::figure(stage, it, step), step)
            };
            wanted.iter().map(repeat).collect()
        };
        figures = on_stage(&few, DISK, COPIES, step, repeat)?;
    }
    if is_wanted(eviction::NAME) {
        figures.push(eviction::figure(settings.extent, step));
    }
    Ok(figures)
}

/// A quick run leaves out half of the trainings.
fn is_told(settings: &Settings, experiment: &Experiment) -> bool {
    settings.extent == Extent::Full || experiment.is_quick
}
