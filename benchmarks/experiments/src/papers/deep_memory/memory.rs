//! Figure 2: total time against the memory of the node.

use tierfeed_core::units::Bytes;

use super::DISK;
use crate::{
    claim::falls,
    figure::{Along, Figure, Paper},
    stage::{BATCH, STAGING, Side, Stage, job},
    training::{Trained, Training},
};

pub(super) const NAME: &str = "deep-memory-2";

/// Memory for data, in per cent of the dataset.
const MEMORY: [u32; 4] = [25, 50, 75, 100];
const EPOCHS: u32 = 3;
const STEP_S: f64 = 0.015;

/// Loaders, by their names in the script and for people.
const LOADERS: [(&str, &str); 3] =
    [("dataloader", "DataLoader"), ("tf.data", "tf.data"), ("tierfeed", "tierfeed")];

pub(super) fn figure(stage: &mut Stage<'_>, step: &mut dyn FnMut(&str)) -> anyhow::Result<Figure> {
    let data = stage.photographs();
    let side = |(loader, name), percent| {
        let share = stage.percent(u64::from(percent));
        let with_staging = Bytes(share.0 + STAGING.0);
        Side {
            name: format!("{name}, memory for {percent} %"),
            room: Some(if loader == "tierfeed" { with_staging } else { share }),
            training: Training {
                loader,
                data: &data,
                batch_size: BATCH,
                epochs: EPOCHS,
                step_s: STEP_S,
                workers: 2,
                decode: true,
                job: job(with_staging, &[]),
            },
        }
    };
    let rows = LOADERS
        .map(|loader| (loader.1.to_owned(), MEMORY.map(|percent| side(loader, percent)).to_vec()));
    let along = Along::Positions(MEMORY.map(f64::from).to_vec());
    let axes = ("memory for data, % of the dataset", "total time of 3 epochs, s");
    let chart = stage.chart(axes, along, rows.to_vec(), Trained::total_s, step)?;
    let headlines = chart.series.iter().filter_map(|series| {
        let what = format!("total time with {}, memory for 100 % against 25 %", series.name);
        falls(&what, series.values[0], series.values[3])
    });
    let headlines = headlines.collect();
    Ok(Figure {
        name: NAME.to_owned(),
        paper: Paper::DeepMemory,
        number: "Figure 2".to_owned(),
        title: "Total time against memory".to_owned(),
        setting: format!(
            "{} photographs ({}) on a disk of {DISK}, decoded and cropped by 2 workers or threads, steps of \
             {:.0} ms that sleep.",
            stage.settings.photographs,
            stage.dataset,
            STEP_S * 1e3
        ),
        charts: vec![chart],
        headlines,
        predictions: Vec::new(),
        emulated: vec![
            stage.emulated.clone(),
            "the memory of the node is the limit of a control group".to_owned(),
        ],
        command: format!("tierfeed-bench paper {NAME}"),
    })
}
