//! Figure 3, and a part of figure 13: what caching and prefetching add, alone and together.

use std::path::Path;

use serde_json::{Value as Json, json};
use tierfeed_core::units::{Bytes, BytesPerSecond};

use super::DISK;
use crate::{
    claim::times_as_much,
    figure::{Along, Chart, Figure, Paper},
    stage::{BATCH, Extent, STAGING, Side, Stage, job},
    training::{Trained, Training},
};

pub(super) const NAME: &str = "deep-memory-3";

const EPOCHS: u32 = 3;

/// How long a step sleeps: half of what reading a batch takes.
const STEP_S: f64 = 0.015;

/// The disk of the paper, and of its claim.
const PAPERS_DISK: BytesPerSecond = BytesPerSecond(320_000_000);

/// How many times as many bytes a second both load as neither.
///
/// # Source
///
/// `DeepMemoryDL`, figure 3: 320 to 5,284 MB/s.
const PUBLISHED_RATE: f64 = 16.5;

/// What caching and prefetching are here.
const VARIANTS_ARE: &str = "caching means tiers for all samples, prefetching 8 staged batches instead of 3: the one in \
                            use, the next, and one that is read";

const VARIANTS: [(&str, bool, bool); 4] = [
    ("neither", false, false),
    ("prefetching", false, true),
    ("caching", true, false),
    ("both", true, true),
];

/// Bytes a second from the second epoch on, without steps, from a disk as fast as the paper's.
pub(super) fn figure(stage: &mut Stage<'_>, step: &mut dyn FnMut(&str)) -> anyhow::Result<Figure> {
    stage.limit_disk(PAPERS_DISK)?;
    let figure = rates(stage, step);
    stage.limit_disk(DISK)?;
    figure
}

fn rates(stage: &mut Stage<'_>, step: &mut dyn FnMut(&str)) -> anyhow::Result<Figure> {
    let (data, megabytes) = (stage.photographs(), stage.megabytes());
    let variants = match stage.settings.extent {
        Extent::Full => VARIANTS.to_vec(),
        Extent::Quick => vec![VARIANTS[0], VARIANTS[3]],
    };
    let sides = variants.iter().map(|it| side(stage, &data, 0.0, *it)).collect();
    let along = Along::Groups(variants.iter().map(|it| it.0.to_owned()).collect());
    let rows = vec![("tierfeed".to_owned(), sides)];
    let rate = |trained: &Trained| megabytes / trained.epoch_s(1);
    let chart = stage.chart(("", "MB/s from the second epoch on"), along, rows, rate, step)?;
    let values = &chart.series[0].values;
    let what = "bytes a second, both over neither";
    let both = values.last().copied().flatten();
    let headline = times_as_much(what, PUBLISHED_RATE, both, values[0]);
    Ok(Figure {
        name: NAME.to_owned(),
        paper: Paper::DeepMemory,
        number: "Figure 3".to_owned(),
        title: "Load rate with and without caching and prefetching".to_owned(),
        setting: format!(
            "Bytes of {} photographs ({}) on a disk as fast as the paper's, {PAPERS_DISK}, read past the page cache; \
             no steps; {VARIANTS_ARE}.",
            stage.settings.photographs, stage.dataset
        ),
        charts: vec![chart],
        headlines: headline.into_iter().collect(),
        predictions: Vec::new(),
        emulated: vec![stage.emulated.clone()],
        command: format!("tierfeed-bench paper {NAME}"),
    })
}

/// Total time with steps that sleep.
pub(super) fn time(stage: &mut Stage<'_>, step: &mut dyn FnMut(&str)) -> anyhow::Result<Chart> {
    let data = stage.photographs();
    let variants = [VARIANTS[0], VARIANTS[3]];
    let sides = variants.map(|it| side(stage, &data, STEP_S, it)).to_vec();
    let along = Along::Groups(variants.map(|it| it.0.to_owned()).to_vec());
    let axes = ("", "total time of 3 epochs, s");
    let rows = vec![(format!("step of {:.0} ms", STEP_S * 1e3), sides)];
    let chart = stage.chart(axes, along, rows, Trained::total_s, step)?;
    Ok(Chart { title: format!("tierfeed: {VARIANTS_ARE}"), ..chart })
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
