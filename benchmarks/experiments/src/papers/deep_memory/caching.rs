//! Figure 3: what caching and prefetching add, alone and together; and what fast storage adds.

use std::path::Path;

use serde_json::{Value as Json, json};
use tierfeed_core::units::{Bytes, BytesPerSecond};

use super::{DISK, environment::cxl_storage};
use crate::{
    claim::times_as_much,
    figure::{Along, Figure, Paper},
    stage::{BATCH, Extent, STAGING, Side, Stage, job},
    training::{Trained, Training},
};

pub(super) const NAME: &str = "deep-memory-3";

/// At these rates an epoch is short.
const EPOCHS: u32 = 12;

/// The disk of the paper and its storage behind CXL.
///
/// # Source
///
/// `DeepMemoryDL`, section 2.3: "~ 320 MB/s when loaded from the SSD", "~ 5284 MB/s when reading data from CXL-based
/// storage".
const PAPERS_DISK: BytesPerSecond = BytesPerSecond(320_000_000);
const PAPERS_STORAGE: BytesPerSecond = BytesPerSecond(5_284_000_000);

/// The storage is this many times as fast as the disk, by the same section.
const PUBLISHED_RATE: f64 = 16.5;

#[derive(Debug, Clone, Copy)]
enum Cache {
    None,
    MainMemory,
    FastStorage,
}

/// The sides: whether they prefetch, and the cache that they have. The paper's ratio is of the second and the
/// last.
const VARIANTS: [(&str, Cache, u32); 5] = [
    ("neither", Cache::None, STAGED),
    ("prefetching", Cache::None, PREFETCHED),
    ("caching", Cache::MainMemory, STAGED),
    ("both", Cache::MainMemory, PREFETCHED),
    ("prefetching from fast storage", Cache::FastStorage, PREFETCHED),
];

/// Staged batches without prefetching: the one in use, the next, and one that is read.
const STAGED: u32 = 3;
/// Staged batches with it.
const PREFETCHED: u32 = 8;

/// Bytes a second from the second epoch on, without steps, from a disk and storage as fast as the paper's.
pub(super) fn figure(stage: &mut Stage<'_>) -> anyhow::Result<Figure> {
    stage.limit_disk(PAPERS_DISK)?;
    let figure = rates(stage);
    stage.limit_disk(DISK)?;
    figure
}

fn rates(stage: &mut Stage<'_>) -> anyhow::Result<Figure> {
    let (data, megabytes) = (stage.photographs(), stage.megabytes());
    let variants = match stage.settings.extent {
        Extent::Full => VARIANTS.to_vec(),
        Extent::Quick => vec![VARIANTS[1], VARIANTS[4]],
    };
    let sides = variants.iter().map(|it| side(stage, &data, *it)).collect();
    let along = Along::Groups(variants.iter().map(|it| it.0.to_owned()).collect());
    let rows = vec![("tierfeed".to_owned(), sides)];
    let rate = |trained: &Trained| megabytes / trained.epoch_s(1);
    let chart = stage.chart(("", "MB/s from the second epoch on"), along, rows, rate)?;
    let of = |name: &str| {
        let at = variants.iter().position(|it| it.0 == name)?;
        chart.series[0].values[at]
    };
    let what = "bytes a second, fast storage over the disk";
    let headline = times_as_much(what, PUBLISHED_RATE, of(VARIANTS[4].0), of(VARIANTS[1].0));
    let why = "the limits of both are as far apart as published, so all that taking a batch costs beside makes it less";
    Ok(Figure {
        setting: format!(
            "Bytes of {} photographs ({}) on a disk as fast as the paper's, {PAPERS_DISK}, read past the page cache; \
             no steps. Prefetching is {PREFETCHED} staged batches instead of {STAGED}: the one in use, the next, and \
             one that is read. Caching is main memory for all samples, and fast storage a tier for all of them. The \
             paper has a ratio for storage only, and none for caching and prefetching.",
            stage.settings.photographs, stage.dataset
        ),
        headlines: headline.map(|it| it.because(why)).into_iter().collect(),
        charts: vec![chart],
        emulated: vec![
            stage.emulated.clone(),
            format!(
                "fast storage is a tier whose reads wait 1 us and pass {PAPERS_STORAGE}: the rate of the tier is set, \
                 and what is measured is how much of it reaches a training"
            ),
        ],
        ..Figure::named(
            Paper::DeepMemory,
            NAME,
            "Figure 3",
            "Load rate with and without caching and prefetching",
        )
    })
}

fn side<'a>(
    stage: &Stage<'_>,
    data: &'a Path,
    (name, cache, batches): (&str, Cache, u32),
) -> Side<'a> {
    let all = stage.percent(125);
    let (policy, room) = match cache {
        Cache::None => ("none", Bytes(0)),
        Cache::MainMemory => ("gap", all),
        Cache::FastStorage => ("gap", Bytes(0)),
    };
    let prefetch = json!({ "look_ahead": "off", "batches": batches });
    let mut more: Vec<(&str, Json)> =
        vec![("policy", policy.into()), ("prefetch", prefetch), ("page_cache", "off".into())];
    if matches!(cache, Cache::FastStorage) {
        more.push(("tiers", cxl_storage(all, PAPERS_STORAGE)));
    }
    Side {
        name: name.to_owned(),
        room: None,
        training: Training {
            loader: "tierfeed",
            data,
            batch_size: BATCH,
            epochs: EPOCHS,
            step_s: 0.0,
            workers: 2,
            decode: false,
            job: job(Bytes(room.0 + STAGING.0), &more),
        },
    }
}
