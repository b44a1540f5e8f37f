//! Loss of a node: three nodes share their caches, and one of them loses its agent in the middle of an epoch.

use serde_json::json;
use tierfeed_core::units::Bytes;

use super::{DISK, blank};
use crate::{
    claim::less_time,
    figure::{Along, Chart, Figure, Series, Source},
    stage::{STAGING, Side, Stage, job, value},
    training::{Trained, Training},
};

pub(super) const NAME: &str = "newer-loss";

const NODES: u32 = 3;
const EPOCHS: u32 = 6;
/// In the middle of the epoch of this number, from 0, an agent is killed.
const LOST_IN: u32 = 2;
const BATCH: u32 = 8;
const STEP_S: f64 = 0.02;
/// What the cache of each node holds of the dataset: two of three still hold all of it.
const CACHED_PERCENT: u64 = 55;

/// By how many per cent a ring that caches lost samples anew shortens the time after a loss.
///
/// # Source
///
/// HVAC with a fault-tolerant ring (SC24 workshops): against reading lost samples from the parallel file system.
const PUBLISHED: f64 = 25.0;

/// The sides: name, policy, node that is lost.
const SIDES: [(&str, &str, i32); 3] = [
    ("no node is lost", "partitioned", -1),
    ("a node is lost in epoch 3", "partitioned", 1),
    ("no caches, all from the shared disk", "none", -1),
];

pub(super) fn figure(stage: &mut Stage<'_>, step: &mut dyn FnMut(&str)) -> anyhow::Result<Figure> {
    let (data, made) = (stage.photographs(), stage.made.display().to_string());
    let room = Bytes(stage.percent(CACHED_PERCENT).0 + STAGING.0);
    let side = |(name, policy, lost): (&str, &str, i32)| {
        let nodes = json!({
            "count": NODES, "lost": lost, "epoch": LOST_IN, "originals": made, "run_dirs": "nodes",
        });
        let more = [("policy", json!(policy)), ("page_cache", json!("off")), ("nodes", nodes)];
        Side {
            name: name.to_owned(),
            // All reads of the photographs go past the page cache, or find it empty.
            room: None,
            training: Training {
                loader: "tierfeed-nodes",
                data: &data,
                batch_size: BATCH,
                epochs: EPOCHS,
                step_s: STEP_S,
                workers: 0,
                decode: false,
                job: job(room, &more),
            },
        }
    };
    let turns = stage.turns(&SIDES.map(side), step)?;
    let after = |turns| value(turns, |trained| trained.epoch_s(LOST_IN as usize + 1));
    let headline = less_time(
        "time of the epochs after the loss, against reading all from the shared disk",
        PUBLISHED,
        after(&turns[1]),
        after(&turns[2]),
    );
    Ok(Figure {
        setting: format!(
            "Bytes of {} photographs ({}) on a disk of {DISK} that {NODES} nodes on this host share; each has one rank \
             and room for {CACHED_PERCENT} % of them, ranks in lock-step with steps of {:.0} ms. The agent of node 1 \
             is killed in the middle of epoch {}; its rank reads on by itself. Every rank compared the order of all \
             batches with PyTorch's sampler, and their bytes with the files.",
            stage.settings.photographs,
            stage.dataset,
            STEP_S * 1e3,
            LOST_IN + 1,
        ),
        charts: vec![by_epoch(&turns)],
        headlines: headline.into_iter().collect(),
        emulated: vec![
            stage.emulated.clone(),
            "nodes are processes of this host, and their network is the loopback".to_owned(),
        ],
        ..blank(NAME, "Loss of a node", "A node is lost while three share their caches")
    })
}

fn by_epoch(turns: &[Vec<Trained>]) -> Chart {
    let epochs = 0..EPOCHS as usize;
    let series = SIDES.iter().zip(turns).map(|((name, ..), turns)| Series {
        name: (*name).to_owned(),
        source: Source::Measured,
        values: epochs
            .clone()
            .map(|epoch| value(turns, |trained| trained.seconds[epoch]))
            .collect(),
    });
    Chart {
        title: String::new(),
        x: "epoch".to_owned(),
        y: "time of the epoch, s".to_owned(),
        along: Along::Positions((1..=EPOCHS).map(f64::from).collect()),
        series: series.collect(),
    }
}
