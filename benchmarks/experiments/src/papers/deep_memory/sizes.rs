//! Figures 10 and 11: total time against the size of CXL memory, of buffers and of batches.

use std::path::Path;

use serde_json::json;
use tierfeed_core::units::Bytes;

use super::DISK;
use crate::{
    claim::falls,
    figure::{Along, Figure, Headline, Paper, Series},
    stage::{BATCH, Extent, Side, Stage, cxl_memory, job},
    training::{Trained, Training},
};

pub(super) const CXL: &str = "deep-memory-10";
pub(super) const BATCHES: &str = "deep-memory-11";

const EPOCHS: u32 = 3;
const STEP_S: f64 = 0.01;

/// Sizes of CXL memory and of buffers, in per cent of the dataset.
const PERCENT: [u32; 3] = [10, 40, 75];
const ENDS: [u32; 2] = [PERCENT[0], PERCENT[2]];
const BATCH_SIZES: [u32; 2] = [8, 32];

/// Time against CXL memory beside main memory for a tenth.
pub(super) fn cxl(stage: &mut Stage<'_>) -> anyhow::Result<Figure> {
    let data = stage.photographs();
    let main = memory_for(stage, 10, &data, BATCH)?;
    let percent = match stage.settings.extent {
        Extent::Full => PERCENT.to_vec(),
        Extent::Quick => ENDS.to_vec(),
    };
    let sides = percent.iter().map(|percent| {
        let tier = cxl_memory(stage.percent(u64::from(*percent)));
        let job = job(main, &[("tiers", tier), ("page_cache", "off".into())]);
        let name = format!("CXL memory for {percent} %");
        Side { name, room: None, training: training(&data, BATCH, job) }
    });
    let sides = sides.collect();
    let along = along(&percent);
    let axes = ("CXL memory, % of the dataset", "total time of 3 epochs, s");
    let rows = vec![("tierfeed".to_owned(), sides)];
    let chart = stage.chart(axes, along, rows, Trained::total_s)?;
    let headline = claim("total time, CXL memory", &chart.series[0]);
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

/// Time against buffers, with a small and a large batch; as many samples a second are computed with all.
pub(super) fn batches(stage: &mut Stage<'_>) -> anyhow::Result<Figure> {
    let data = stage.photographs();
    let batch_sizes = match stage.settings.extent {
        Extent::Full => BATCH_SIZES.to_vec(),
        Extent::Quick => vec![BATCH],
    };
    let mut rows = Vec::new();
    for batch_size in batch_sizes {
        let mut sides = Vec::new();
        for percent in ENDS {
            let main = memory_for(stage, percent, &data, batch_size)?;
            let job = job(main, &[("page_cache", json!("off"))]);
            let name = format!("batches of {batch_size}, buffers for {percent} %");
            sides.push(Side { name, room: None, training: training(&data, batch_size, job) });
        }
        rows.push((format!("batches of {batch_size}"), sides));
    }
    let along = along(&ENDS);
    let axes = ("main memory, % of the dataset", "total time of 3 epochs, s");
    let chart = stage.chart(axes, along, rows, Trained::total_s)?;
    let headlines = chart.series.iter();
    let headlines =
        headlines.filter_map(|it| claim(&format!("total time, {}, buffers", it.name), it));
    Ok(Figure {
        number: "Figure 11".to_owned(),
        title: "Total time against buffers and batches".to_owned(),
        headlines: headlines.collect(),
        charts: vec![chart],
        ..described(stage, BATCHES)
    })
}

fn along(percent: &[u32]) -> Along {
    Along::Positions(percent.iter().map(|it| f64::from(*it)).collect())
}

fn claim(what: &str, series: &Series) -> Option<Headline> {
    let [first, .., last] = series.values[..] else { return None };
    falls(&format!("{what} for {} % against {} %", PERCENT[2], PERCENT[0]), first, last)
}

/// Main memory with a cache for so many per cent of the dataset.
fn memory_for(
    stage: &mut Stage<'_>,
    percent: u32,
    data: &Path,
    batch_size: u32,
) -> anyhow::Result<Bytes> {
    let cached = stage.percent(u64::from(percent));
    stage.memory_for(cached, &training(data, batch_size, json!({})))
}

fn training(data: &Path, batch_size: u32, job: serde_json::Value) -> Training<'_> {
    let step_s = STEP_S * f64::from(batch_size) / f64::from(BATCH);
    let (loader, epochs, workers, decode) = ("tierfeed", EPOCHS, 2, false);
    Training { loader, data, batch_size, epochs, step_s, workers, decode, job }
}

fn described(stage: &Stage<'_>, name: &str) -> Figure {
    Figure {
        setting: format!(
            "Bytes of {} photographs ({}) on a disk of {DISK}, read past the page cache; a step of 16 samples sleeps \
             {:.0} ms. A size is that of the cache, in whole MiB; beside it is what the job stages, as a run of one \
             epoch reported it.",
            stage.settings.photographs,
            stage.dataset,
            STEP_S * 1e3
        ),
        emulated: vec![stage.emulated.clone()],
        ..Figure::named(Paper::DeepMemory, name, "", "")
    }
}
