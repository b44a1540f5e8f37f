//! Starting the clock with the data on shared storage: all staging is part of the time of a job.

use std::path::Path;

use serde_json::json;
use tierfeed_core::units::Bytes;

use super::DISK;
use crate::{
    claim::no_slower,
    figure::{Along, Chart, Figure, Paper, Series},
    stage::{BATCH, STAGING, Side, Stage, copy_below, job, value},
    training::{Trained, Training},
};

pub(super) const NAME: &str = "newer-clock";

const EPOCHS: u32 = 3;
/// Copies of the photographs: copying them takes seconds, and the room that a training has beside its memory
/// holds only a small part of them.
const TIMES: u32 = 4;
/// Two thirds of what the shared storage needs for a batch.
const STEP_S: f64 = 0.02;
/// Memory of the node, in per cent of the photographs.
const MEMORY_PERCENT: u64 = 50;
/// Room on the local disk, in per cent of the photographs.
const LOCAL_PERCENT: u64 = 125;

/// Loaders, by their names in the script and for people.
const LOADERS: [(&str, &str); 3] = [
    ("dataloader", "DataLoader from shared storage"),
    ("copy-first", "cp to the local disk, then DataLoader"),
    ("tierfeed-run", "tierfeed run"),
];
const OURS: usize = 2;

pub(super) fn figure(stage: &mut Stage<'_>) -> anyhow::Result<Figure> {
    let data = stage.disk.path().join("shared");
    for time in 0..TIMES {
        copy_below(&stage.made, &data.join(time.to_string()))?;
    }
    let dataset = Bytes(stage.dataset.0 * u64::from(TIMES));
    let local = stage.made.with_file_name("local");
    let copy = stage.made.with_file_name("copy");
    let sides = LOADERS.map(|loader| side(dataset, &data, &copy, &local, loader));
    let turns = stage.turns(&sides)?;
    let total: Vec<_> = turns.iter().map(|it| value(it, |trained| trained.job_s)).collect();
    let against = |theirs: usize| {
        let what = format!("time of the job, against {}", LOADERS[theirs].1);
        no_slower(&what, total[OURS], total[theirs])
    };
    Ok(Figure {
        setting: format!(
            "Bytes of {} photographs ({}) on shared storage of {DISK}; memory for {MEMORY_PERCENT} % of them in a \
             control group, and a local disk for all; steps of {:.0} ms. The clock starts with the process, so that \
             the time until the first epoch has the imports and all copies; tierfeed run starts the agent before the \
             script, which imports PyTorch.",
            stage.settings.photographs * TIMES,
            dataset,
            STEP_S * 1e3,
        ),
        headlines: [against(0), against(1)].into_iter().flatten().collect(),
        charts: vec![by_epoch(&turns)],
        emulated: vec![
            stage.emulated.clone(),
            "that disk is the shared storage; the local disk is that of this machine".to_owned(),
        ],
        ..Figure::named(
            Paper::Newer,
            NAME,
            "Clock from shared storage",
            "The clock starts while the data lie on shared storage",
        )
    })
}

fn side<'a>(
    dataset: Bytes,
    data: &'a Path,
    copy: &Path,
    local: &Path,
    (loader, name): (&'static str, &str),
) -> Side<'a> {
    let share = Bytes(dataset.0 * MEMORY_PERCENT / 100);
    let with_staging = Bytes(share.0 + STAGING.0);
    let size = format!("{} B", dataset.0 * LOCAL_PERCENT / 100);
    let tiers = json!({ "storage": { "path": local, "size": size } });
    let run_dir = local.with_file_name("run");
    let (room, job) = match loader {
        "tierfeed-run" => {
            (with_staging, job(with_staging, &[("tiers", tiers), ("run_dir", json!(run_dir))]))
        }
        "copy-first" => (share, json!({ "copy_to": copy })),
        _ => (share, json!({})),
    };
    Side {
        name: name.to_owned(),
        room: Some(room),
        training: Training {
            loader,
            data,
            batch_size: BATCH,
            epochs: EPOCHS,
            step_s: STEP_S,
            workers: 2,
            decode: false,
            job,
        },
    }
}

/// Seconds since the start of the job, by epoch.
fn by_epoch(turns: &[Vec<Trained>]) -> Chart {
    let epochs = EPOCHS as usize;
    let after = |trained: &Trained, done: usize| {
        trained.job_s - trained.seconds[done..].iter().sum::<f64>()
    };
    let series = LOADERS.iter().zip(turns).map(|((_, name), turns)| {
        Series::measured(
            *name,
            (0..=epochs).map(|done| value(turns, |trained| after(trained, done))).collect(),
        )
    });
    Chart::new(
        "epochs that are done",
        "time since the start of the job, s",
        Along::Positions((0..=EPOCHS).map(f64::from).collect()),
        series.collect(),
    )
}
