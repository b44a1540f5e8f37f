//! Figures 3 and 13: what caching and prefetching add, alone and together.

use std::path::Path;

use serde_json::{Value as Json, json};
use tierfeed_core::units::Bytes;

use super::DISK;
use crate::{
    claim::{less_time, times_as_much},
    figure::{Along, Figure, Paper},
    stage::{BATCH, STAGING, Side, Stage, job},
    training::{Trained, Training},
};

pub(super) const RATE: &str = "deep-memory-3";
pub(super) const TIME: &str = "deep-memory-13";

const EPOCHS: u32 = 3;

/// Steps of three models, in seconds.
const STEPS_S: [f64; 3] = [0.005, 0.015, 0.04];

/// How many times as many bytes a second both load as neither.
///
/// # Source
///
/// `DeepMemoryDL`, figure 3: 320 to 5,284 MB/s.
const PUBLISHED_RATE: f64 = 16.5;

/// By how many per cent both shorten the total time, of three models.
///
/// # Source
///
/// `DeepMemoryDL`, figure 13.
const PUBLISHED_TIME: [f64; 3] = [30.0, 25.0, 15.0];

const VARIANTS: [(&str, bool, bool); 4] = [
    ("neither", false, false),
    ("prefetching", false, true),
    ("caching", true, false),
    ("both", true, true),
];

/// Bytes a second from the second epoch on, without steps.
pub(super) fn rate(stage: &mut Stage<'_>, step: &mut dyn FnMut(&str)) -> anyhow::Result<Figure> {
    let (data, megabytes) = (stage.photographs(), stage.megabytes());
    let sides = VARIANTS.map(|it| side(stage, &data, 0.0, it)).to_vec();
    let along = Along::Groups(VARIANTS.map(|it| it.0.to_owned()).to_vec());
    let rows = vec![("tierfeed".to_owned(), sides)];
    let rate = |trained: &Trained| megabytes / trained.epoch_s(1);
    let chart = stage.chart(("", "MB/s from the second epoch on"), along, rows, rate, step)?;
    let values = &chart.series[0].values;
    let what = "bytes a second, both over neither";
    let headline = times_as_much(what, PUBLISHED_RATE, values[3], values[0]);
    Ok(Figure {
        name: RATE.to_owned(),
        number: "Figure 3".to_owned(),
        title: "Load rate with and without caching and prefetching".to_owned(),
        headlines: headline.into_iter().collect(),
        charts: vec![chart],
        ..described(stage, RATE, "no steps")
    })
}

/// Total time at three step times.
pub(super) fn time(stage: &mut Stage<'_>, step: &mut dyn FnMut(&str)) -> anyhow::Result<Figure> {
    let data = stage.photographs();
    let rows = STEPS_S.map(|step_s| {
        let sides = VARIANTS.map(|it| side(stage, &data, step_s, it)).to_vec();
        (format!("step of {:.0} ms", step_s * 1e3), sides)
    });
    let along = Along::Groups(VARIANTS.map(|it| it.0.to_owned()).to_vec());
    let axes = ("", "total time of 3 epochs, s");
    let chart = stage.chart(axes, along, rows.to_vec(), Trained::total_s, step)?;
    let headlines = chart.series.iter().zip(PUBLISHED_TIME).filter_map(|(series, published)| {
        let what = format!("total time, {}, both against neither", series.name);
        less_time(&what, published, series.values[3], series.values[0])
    });
    Ok(Figure {
        name: TIME.to_owned(),
        number: "Figure 13".to_owned(),
        title: "Total time with and without caching and prefetching".to_owned(),
        headlines: headlines.collect(),
        charts: vec![chart],
        ..described(stage, TIME, "steps that sleep")
    })
}

fn side<'a>(
    stage: &Stage<'_>,
    data: &'a Path,
    step_s: f64,
    (name, caches, prefetches): (&str, bool, bool),
) -> Side<'a> {
    let room = if caches { stage.percent(125) } else { Bytes(0) };
    let policy = if caches { "gap" } else { "none" };
    let batches = if prefetches { 8 } else { 3 };
    let prefetch = json!({ "look_ahead": "off", "batches": batches });
    let more: [(&str, Json); 3] =
        [("policy", policy.into()), ("prefetch", prefetch), ("page_cache", "off".into())];
    Side {
        name: format!("{name}, step of {:.0} ms", step_s * 1e3),
        room: None,
        training: Training {
            loader: "tierfeed",
            data,
            batch_size: BATCH,
            epochs: EPOCHS,
            step_s,
            workers: 2,
            decode: false,
            job: job(Bytes(room.0 + STAGING.0), &more),
        },
    }
}

fn described(stage: &Stage<'_>, name: &str, steps: &str) -> Figure {
    Figure {
        name: String::new(),
        paper: Paper::DeepMemory,
        number: String::new(),
        title: String::new(),
        setting: format!(
            "Bytes of {} photographs ({}) on a disk of {DISK}, read past the page cache; {steps}. Caching: tiers for \
             all of them; prefetching: 8 staged batches instead of 3: the one in use, the next, and one that is read.",
            stage.settings.photographs, stage.dataset
        ),
        charts: Vec::new(),
        headlines: Vec::new(),
        predictions: Vec::new(),
        emulated: vec![stage.emulated.clone()],
        command: format!("tierfeed-bench paper {name}"),
    }
}
