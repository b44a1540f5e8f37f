//! Figure 6: images a second by the number of preprocessing threads.

use tierfeed_core::units::{Bytes, BytesPerSecond};

use super::systems::processors;
use crate::{
    figure::{Along, Figure, Paper},
    stage::{BATCH, Extent, STAGING, Side, Stage, job},
    training::{Trained, Training},
};

pub(super) const NAME: &str = "lobster-6";

/// Only the first epoch reads from it.
const DISK: BytesPerSecond = BytesPerSecond(200_000_000);
const EPOCHS: u32 = 3;
const THREADS: [u32; 4] = [1, 2, 3, 4];
const THREADS_QUICK: [u32; 1] = [2];

/// Loaders, by their names in the script and for people.
const LOADERS: [(&str, &str); 3] = [
    ("dataloader", "DataLoader, workers"),
    ("dali", "DALI, threads"),
    ("tierfeed", "tierfeed, threads"),
];

pub(super) fn figures(stage: &mut Stage<'_>) -> anyhow::Result<Vec<Figure>> {
    let data = stage.photographs();
    let images = f64::from(stage.settings.photographs);
    // Samples are kept as they are stored, so that each epoch decodes them.
    let room = Bytes(stage.percent(125).0 + STAGING.0);
    stage.limit_disk(DISK)?;
    let threads = match stage.settings.extent {
        Extent::Full => &THREADS[..],
        Extent::Quick => &THREADS_QUICK[..],
    };
    let rows = LOADERS.map(|(loader, name)| {
        let sides = threads.iter().map(|workers| Side {
            name: format!("{workers} {name}"),
            room: None,
            training: Training {
                loader,
                data: &data,
                batch_size: BATCH,
                epochs: EPOCHS,
                step_s: 0.0,
                workers: *workers,
                decode: true,
                job: job(room, &[]),
            },
        });
        (name.to_owned(), sides.collect())
    });
    let along = Along::Positions(threads.iter().copied().map(f64::from).collect());
    let axes = ("preprocessing threads or workers", "images/s from the second epoch on");
    let rate = |trained: &Trained| images / trained.epoch_s(1);
    let chart = stage.chart(axes, along, rows.to_vec(), rate)?;
    Ok(vec![Figure {
        setting: format!(
            "{} photographs ({}) in memory, decoded and cropped; nothing is computed. The paper has its peak at 6 \
             threads beside loading; this machine has {}.",
            stage.settings.photographs,
            stage.dataset,
            processors()
        ),
        charts: vec![chart],
        emulated: vec![format!("in the first epoch, {}", stage.emulated)],
        ..Figure::named(Paper::Lobster, NAME, "Figure 6", "Preprocessing throughput by threads")
    }])
}
