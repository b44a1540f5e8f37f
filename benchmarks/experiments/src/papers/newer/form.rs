//! Cached encoded or decoded: tiers keep photographs as they are stored, or decoded, or in the faster form.

use serde_json::json;
use tierfeed_core::units::Bytes;

use super::DISK;
use crate::{
    claim::{less_time, no_slower},
    figure::{Along, Chart, Figure, Headline, Paper, Series, Value, Verdict},
    stage::{BATCH, Extent, STAGING, Side, Stage, job, value},
    training::Training,
};

pub(super) const NAME: &str = "newer-form";

const EPOCHS: u32 = 6;

/// Memory, in per cent of the stored photographs: for all of them stored, and for all of them decoded. A quick run has
/// the last.
const MEMORY_PERCENT: [u64; 2] = [110, 900];

/// The per cent by which the makespan of several jobs is shorter than with the caches of other loaders.
///
/// # Source
///
/// Seneca (FAST '26).
const PUBLISHED: f64 = 45.0;

/// Sides: name, loader, form.
const SIDES: [(&str, &str, &str); 4] = [
    ("DataLoader", "dataloader", ""),
    ("tierfeed, stored", "tierfeed", "stored"),
    ("tierfeed, decoded", "tierfeed", "prepared"),
    ("tierfeed, auto", "tierfeed", "auto"),
];
const STORED: usize = 1;
const DECODED: usize = 2;
const AUTO: usize = 3;

pub(super) fn figure(stage: &mut Stage<'_>) -> anyhow::Result<Figure> {
    let data = stage.photographs();
    let side = |percent: u64, (name, loader, form): (&str, &'static str, &str)| {
        let share = stage.percent(percent);
        let with_staging = Bytes(share.0 + STAGING.0);
        let more = [("transform", json!({ "cache": form })), ("page_cache", json!("off"))];
        Side {
            name: format!("memory for {percent} %, {name}"),
            room: Some(if loader == "tierfeed" { with_staging } else { share }),
            training: Training {
                loader,
                data: &data,
                batch_size: BATCH,
                epochs: EPOCHS,
                step_s: 0.0,
                workers: 2,
                decode: true,
                // Less than its room: an agent refuses what is not free when it starts.
                job: job(Bytes(with_staging.0 * 19 / 20), &more),
            },
        }
    };
    let memory: &[u64] = match stage.settings.extent {
        Extent::Full => &MEMORY_PERCENT,
        Extent::Quick => &MEMORY_PERCENT[1..],
    };
    let sides = memory.iter().flat_map(|percent| SIDES.map(|it| side(*percent, it)));
    let sides: Vec<_> = sides.collect();
    let turns = stage.turns(&sides)?;
    let seconds: Vec<_> = turns.iter().map(|it| value(it, |trained| trained.epoch_s(1))).collect();
    let by_memory: Vec<_> = memory.iter().copied().zip(seconds.chunks(SIDES.len())).collect();
    let headlines = by_memory.iter().flat_map(|(percent, seconds)| headlines(*percent, seconds));
    Ok(Figure {
        setting: format!(
            "{} photographs ({}) on a disk of {DISK}, decoded and cropped at random by 2 workers or threads, no steps; \
             memory in a control group, in per cent of the photographs as they are stored; tierfeed reads past the \
             page cache.",
            stage.settings.photographs, stage.dataset
        ),
        headlines: headlines.collect(),
        charts: vec![Chart::new("", "time of an epoch from the second one on, s", Along::Groups(SIDES.map(|(name, ..)| name.to_owned()).to_vec()), by_memory.iter().map(|(percent, seconds)| series(*percent, seconds)).collect())],
        emulated: vec![
            stage.emulated.clone(),
            "tierfeed decodes of a stored photograph only what the crop needs, DataLoader all of it: the time against \
             DataLoader is that of both, caching and decoding"
                .to_owned(),
        ],
        ..Figure::named(Paper::Newer, NAME, "Cached encoded or decoded", "The form in which samples are kept")
    })
}

fn series(percent: u64, seconds: &[Option<Value>]) -> Series {
    Series::measured(format!("memory for {percent} % of the photographs"), seconds.to_vec())
}

fn headlines(percent: u64, seconds: &[Option<Value>]) -> Vec<Headline> {
    let of = |what: &str| format!("memory for {percent} %: {what}");
    let against = less_time(&of("time against DataLoader"), PUBLISHED, seconds[AUTO], seconds[0]);
    let against = against.map(|it| Headline {
        verdict: Verdict::NotComparable,
        why: "the paper compares the makespan of several jobs with that of other loaders that cache; DataLoader has no \
              cache but that of the kernel"
            .to_owned(),
        ..it
    });
    let better = [seconds[STORED], seconds[DECODED]].into_iter().flatten();
    let better = better.min_by(|a, b| a.median.total_cmp(&b.median));
    let chosen =
        no_slower(&of("the form that is chosen, against the better one"), seconds[AUTO], better);
    against.into_iter().chain(chosen).collect()
}
