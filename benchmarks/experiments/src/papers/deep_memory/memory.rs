//! Figure 2: total time against the memory of the node.

use tierfeed_core::units::Bytes;

use tierfeed_harness::output::step;

use super::{DISK, environment::for_page_cache};
use crate::{
    claim::{falls, no_slower},
    figure::{Along, Chart, Figure, Headline, Paper, Series, Value},
    stage::{BATCH, Extent, STAGING, Side, Stage, job, value},
    training::{Trained, Training},
};

pub(super) const NAME: &str = "deep-memory-2";

/// Memory for data, in per cent of the dataset.
const MEMORY: [u32; 2] = [25, 125];
/// A hog takes this percentage of the dataset from twice as much memory.
const HOG: u32 = 50;
const EPOCHS: u32 = 3;
/// Less than the time to read and decode a batch.
const STEP_S: f64 = 0.005;

/// Loaders, by their names in the script and for people.
const TF_DATA: (&str, &str) = ("tf.data", "tf.data");
const DATA_LOADER: (&str, &str) = ("dataloader", "DataLoader");
const OURS: (&str, &str) = ("tierfeed", "tierfeed");

pub(super) fn figure(stage: &mut Stage<'_>) -> anyhow::Result<Figure> {
    let data = stage.photographs();
    let loaders = match stage.settings.extent {
        Extent::Full => vec![TF_DATA, OURS],
        Extent::Quick => vec![OURS],
    };
    let side = |stage: &Stage<'_>, (loader, name): (&'static str, &str), percent: u32| {
        let share = stage.percent(u64::from(percent));
        let with_staging = Bytes(share.0 + STAGING.0);
        Side {
            name: format!("{name}, memory for {percent} %"),
            room: Some(if loader == OURS.0 { with_staging } else { for_page_cache(share) }),
            training: Training {
                loader,
                data: &data,
                batch_size: BATCH,
                epochs: EPOCHS,
                step_s: STEP_S,
                workers: 2,
                decode: true,
                job: job(with_staging, &[("page_cache", "off".into())]),
            },
        }
    };
    let rows = loaders.iter().map(|loader| {
        let sides = MEMORY.iter().map(|percent| side(stage, *loader, *percent));
        (loader.1.to_owned(), sides.collect())
    });
    let rows: Vec<_> = rows.collect();
    let along = Along::Positions(MEMORY.iter().map(|it| f64::from(*it)).collect());
    let total = format!("total time of {EPOCHS} epochs, s");
    let axes = ("memory for data, % of the dataset", total.as_str());
    let chart = stage.chart(axes, along, rows, Trained::total_s)?;
    let mut headlines: Vec<_> = chart.series.iter().filter_map(claim).collect();
    let mut charts = vec![chart];
    if stage.settings.extent == Extent::Full {
        let sides = [DATA_LOADER, OURS].map(|loader| side(stage, loader, HOG));
        let hogged = beside_hog(stage, &sides)?;
        headlines.extend(no_slower(
            "total time beside a hog, against DataLoader",
            hogged[1],
            hogged[0],
        ));
        charts.push(hogged_chart(&hogged));
    }
    Ok(described(stage, charts, headlines))
}

fn claim(series: &Series) -> Option<Headline> {
    let [little, much] = MEMORY;
    let what = format!("total time with {}, memory for {much} % against {little} %", series.name);
    let [first, .., last] = series.values[..] else { return None };
    falls(&what, first, last).map(|it| it.because(DECODES))
}

/// The reason why more memory may save a loader little time.
const DECODES: &str = "two workers decode for longer than the disk reads, so memory that saves reads saves little time";

/// The total time of each side beside a hog, in turns.
fn beside_hog(stage: &mut Stage<'_>, sides: &[Side<'_>; 2]) -> anyhow::Result<[Option<Value>; 2]> {
    let take = stage.percent(u64::from(HOG));
    let mut turns = [Vec::new(), Vec::new()];
    for round in 1..=stage.settings.rounds {
        for (side, turns) in sides.iter().zip(&mut turns) {
            step(&format!(
                "{}, beside a hog: turn {round} of {}",
                side.name, stage.settings.rounds
            ));
            turns.push(stage.train_beside_hog(side, take)?);
        }
    }
    Ok(turns.map(|turns| value(&turns, Trained::total_s)))
}

fn hogged_chart(hogged: &[Option<Value>; 2]) -> Chart {
    let series = |(name, value): (&str, &Option<Value>)| Series::measured(name, vec![*value]);
    Chart::new(
        "",
        &format!("total time of {EPOCHS} epochs, s"),
        Along::Groups(vec![format!("memory for {} %, {HOG} % taken", 2 * HOG)]),
        [DATA_LOADER.1, OURS.1].into_iter().zip(hogged).map(series).collect(),
    )
    .titled("beside a hog that takes half")
}

fn described(stage: &Stage<'_>, charts: Vec<Chart>, headlines: Vec<Headline>) -> Figure {
    Figure {
        setting: format!(
            "{} photographs ({}) on a disk of {DISK}, decoded and cropped by 2 workers or threads, steps of \
             {:.0} ms that sleep.",
            stage.settings.photographs,
            stage.dataset,
            STEP_S * 1e3
        ),
        charts,
        headlines,
        emulated: vec![
            stage.emulated.clone(),
            "the memory of the node is the limit of a control group, in which page cache counts too; the hog is \
             tierfeed hog in the same group, which keeps 32 MiB free for others"
                .to_owned(),
            "each loader decodes by its own library, so lines are compared along memory and not with each other"
                .to_owned(),
            "there is no swap: what these loaders keep is page cache, which is dropped and never swapped, so swap \
             behind CXL would hold nothing of it"
                .to_owned(),
        ],
        ..Figure::named(Paper::DeepMemory, NAME, "Figure 2", "Total time against memory")
    }
}
