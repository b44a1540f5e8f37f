//! `DLCache`: one job whose data lie on a disk that is slower than its step, and the eviction of a node's datasets.
//!
//! That several jobs share a cache is not repeated: a cache of tierfeed belongs to one job.

mod eviction;
mod loading;

use tierfeed_core::units::BytesPerSecond;

use self::loading::{EXPERIMENTS, Experiment};
use super::repetition::{Ground, Repeated};
use crate::stage::{Extent, Settings, on_stage};

/// The disk that the node reads: decoding takes longer than reading, as in the paper, whose throughput "ultimately
/// depends on the data processing time on CPUs".
const DISK: BytesPerSecond = BytesPerSecond(80_000_000);

/// Photographs, and recordings, at most.
const GROUND: Ground = Ground { disk: DISK, copies: 4, photographs: 600, photographs_quick: 600 };

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    EXPERIMENTS.iter().map(|it| it.name).chain([eviction::NAME])
}

pub(super) fn run(settings: &Settings, is_wanted: &dyn Fn(&str) -> bool, repeated: &mut Repeated) {
    let wanted = EXPERIMENTS.iter().filter(|it| is_wanted(it.name) && has(settings.extent, it));
    let wanted: Vec<_> = wanted.collect();
    if !wanted.is_empty() {
        let few = GROUND.settings(settings);
        let made = on_stage(&few, DISK, GROUND.copies, |stage| {
            let repeat = |it: &&Experiment| stage.repeat(|stage| loading::figure(stage, it));
            wanted.iter().map(repeat).collect()
        });
        repeated.add(&wanted.iter().map(|it| it.name).collect::<Vec<_>>(), made);
    }
    if is_wanted(eviction::NAME) {
        repeated.figures.push(eviction::figure(settings.extent));
    }
}

/// A quick run leaves out half of the trainings.
fn has(extent: Extent, experiment: &Experiment) -> bool {
    extent == Extent::Full || experiment.is_quick
}
