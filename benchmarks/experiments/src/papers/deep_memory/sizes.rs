//! Figures 10 and 11: total time against the size of CXL memory, of buffers and of batches.

use serde_json::json;
use tierfeed_core::units::Bytes;

use super::DISK;
use crate::{
    claim::falls,
    figure::{Along, Figure, Paper},
    stage::{BATCH, STAGING, Side, Stage, cxl_memory, job},
    training::{Trained, Training},
};

pub(super) const CXL: &str = "deep-memory-10";
pub(super) const BATCHES: &str = "deep-memory-11";

const EPOCHS: u32 = 3;
const STEP_S: f64 = 0.01;

/// Sizes of tiers, in per cent of the dataset.
const PERCENT: [u32; 4] = [10, 25, 50, 75];
const BATCH_SIZES: [u32; 3] = [8, 16, 32];

/// Time against CXL memory beside main memory for a tenth.
pub(super) fn cxl(stage: &mut Stage<'_>, step: &mut dyn FnMut(&str)) -> anyhow::Result<Figure> {
    let data = stage.photographs();
    let main = Bytes(stage.percent(10).0 + STAGING.0);
    let sides = PERCENT.map(|percent| {
        let tier = cxl_memory(stage.percent(u64::from(percent)));
        let job = job(main, &[("tiers", tier), ("page_cache", "off".into())]);
        let name = format!("CXL memory for {percent} %");
        Side { name, room: None, training: training(&data, BATCH, job) }
    });
    let along = Along::Positions(PERCENT.map(f64::from).to_vec());
    let axes = ("CXL memory, % of the dataset", "total time of 3 epochs, s");
    let rows = vec![("tierfeed".to_owned(), sides.to_vec())];
    let chart = stage.chart(axes, along, rows, Trained::total_s, step)?;
    let values = &chart.series[0].values;
    let what = "total time, CXL memory for 75 % against 10 %";
    let headline = falls(what, values[0], values[3]);
    Ok(Figure {
        number: "Figure 10".to_owned(),
        title: "Total time against CXL memory".to_owned(),
        charts: vec![chart],
        headlines: headline.into_iter().collect(),
        emulated: vec![
            stage.emulated.clone(),
            "the CXL tier waits 350 ns an access and passes 20 GB/s".to_owned(),
        ],
        ..described(stage, CXL)
    })
}

/// Time against buffers, with three sizes of batches; as many samples a second are computed with all.
pub(super) fn batches(stage: &mut Stage<'_>, step: &mut dyn FnMut(&str)) -> anyhow::Result<Figure> {
    let data = stage.photographs();
    let rows = BATCH_SIZES.map(|batch_size| {
        let sides = PERCENT.map(|percent| {
            let main = Bytes(stage.percent(u64::from(percent)).0 + STAGING.0);
            let job = job(main, &[("page_cache", json!("off"))]);
            let name = format!("batches of {batch_size}, buffers for {percent} %");
            Side { name, room: None, training: training(&data, batch_size, job) }
        });
        (format!("batches of {batch_size}"), sides.to_vec())
    });
    let along = Along::Positions(PERCENT.map(f64::from).to_vec());
    let axes = ("main memory, % of the dataset", "total time of 3 epochs, s");
    let chart = stage.chart(axes, along, rows.to_vec(), Trained::total_s, step)?;
    let headlines = chart.series.iter().filter_map(|series| {
        let what = format!("total time, {}, buffers for 75 % against 10 %", series.name);
        falls(&what, series.values[0], series.values[3])
    });
    Ok(Figure {
        number: "Figure 11".to_owned(),
        title: "Total time against buffers and batches".to_owned(),
        headlines: headlines.collect(),
        charts: vec![chart],
        ..described(stage, BATCHES)
    })
}

fn training(data: &std::path::Path, batch_size: u32, job: serde_json::Value) -> Training<'_> {
    let step_s = STEP_S * f64::from(batch_size) / f64::from(BATCH);
    let (loader, epochs, workers, decode) = ("tierfeed", EPOCHS, 2, false);
    Training { loader, data, batch_size, epochs, step_s, workers, decode, job }
}

fn described(stage: &Stage<'_>, name: &str) -> Figure {
    Figure {
        name: name.to_owned(),
        paper: Paper::DeepMemory,
        number: String::new(),
        title: String::new(),
        setting: format!(
            "Bytes of {} photographs ({}) on a disk of {DISK}, read past the page cache; a step of 16 samples sleeps \
             {:.0} ms.",
            stage.settings.photographs,
            stage.dataset,
            STEP_S * 1e3
        ),
        charts: Vec::new(),
        headlines: Vec::new(),
        predictions: Vec::new(),
        emulated: vec![stage.emulated.clone()],
        command: format!("tierfeed-bench paper {name}"),
    }
}
