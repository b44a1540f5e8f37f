//! Loss of a node: three nodes share their caches, and one of them loses its agent in the middle of an epoch.

use serde_json::json;
use tierfeed_core::units::Bytes;

use super::DISK;
use crate::{
    claim::less_time,
    figure::{Along, Chart, Figure, Headline, Paper, Series, Verdict},
    stage::{Extent, Side, Stage, job, value},
    training::{Trained, Training},
};

pub(super) const NAME: &str = "newer-loss";

const NODES: u32 = 3;
const EPOCHS: u32 = 10;
/// An agent is killed in the middle of the epoch with this number, which counts from 0.
const LOST_IN: u32 = 2;
const BATCH: u32 = 8;
/// Less than the shared disk needs for a batch of a rank: what is read there again costs time.
const STEP_S: f64 = 0.005;
/// Few, and room for hardly more: what staging does not use becomes cache.
const STAGED_BATCHES: u32 = 4;
const STAGED: Bytes = Bytes::mib(4);
/// The share of the dataset that the cache of each node holds: two of three nodes still hold all of it.
const CACHED_PERCENT: u64 = 55;
/// As much as three nodes need for all of it: two have no room for what the third held.
const FULL_PERCENT: u64 = 36;

/// The per cent by which a ring that caches lost samples anew shortens the time with a loss.
///
/// # Source
///
/// HVAC with a fault-tolerant ring (SC24 workshops): against reading lost samples from the parallel file system.
const PUBLISHED: f64 = 25.0;

/// The sides: name, policy, node that is lost, per cent of the dataset that a node has room for. A quick run has the
/// first two.
const SIDES: [(&str, &str, i32, u64); 4] = [
    ("a node is lost in epoch 3", "partitioned", 1, CACHED_PERCENT),
    ("the same, without room for what it held", "partitioned", 1, FULL_PERCENT),
    ("no node is lost", "partitioned", -1, CACHED_PERCENT),
    ("no caches, all from the shared disk", "none", -1, CACHED_PERCENT),
];
const CACHED_ANEW: usize = 0;
const NOT_CACHED: usize = 1;

pub(super) fn figure(stage: &mut Stage<'_>) -> anyhow::Result<Figure> {
    let (data, made) = (stage.photographs(), stage.made.display().to_string());
    let dataset = stage.dataset;
    let side = |(name, policy, lost, percent): (&str, &str, i32, u64)| {
        let room = Bytes(dataset.0 * percent / 100 + STAGED.0);
        let nodes = json!({
            "count": NODES, "lost": lost, "epoch": LOST_IN, "originals": made, "run_dirs": "nodes",
        });
        let more = [
            ("policy", json!(policy)),
            ("page_cache", json!("off")),
            ("prefetch", json!({ "batches": STAGED_BATCHES })),
            ("nodes", nodes),
        ];
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
    let sides: Vec<_> = match stage.settings.extent {
        Extent::Full => SIDES.map(side).into(),
        Extent::Quick => [SIDES[CACHED_ANEW], SIDES[NOT_CACHED]].map(side).into(),
    };
    let turns = stage.turns(&sides)?;
    Ok(Figure {
        setting: format!(
            "Bytes of {} photographs ({}) on a disk of {DISK} that {NODES} nodes on this host share; each has one rank \
             and room for {CACHED_PERCENT} % of them, or, where two nodes cannot hold what the third held, for \
             {FULL_PERCENT} %; ranks in lock-step with steps of {:.0} ms. The agent of node 1 is killed in the middle \
             of epoch {}; its rank reads on by itself. Every rank compared the order of all batches with PyTorch's \
             sampler, and their bytes with the files.",
            stage.settings.photographs,
            stage.dataset,
            STEP_S * 1e3,
            LOST_IN + 1,
        ),
        charts: vec![by_epoch(&turns)],
        headlines: headline(&turns).into_iter().collect(),
        emulated: vec![
            stage.emulated.clone(),
            "nodes are processes of this host, and their network is the loopback".to_owned(),
        ],
        ..Figure::named(
            Paper::Newer,
            NAME,
            "Loss of a node",
            "A node is lost while three share their caches",
        )
    })
}

/// The epochs after the loss, with and without room for what was lost.
fn headline(turns: &[Vec<Trained>]) -> Option<Headline> {
    let after = |turns| value(turns, |trained| trained.epoch_s(LOST_IN as usize + 1));
    let headline = less_time(
        "time of the epochs after the loss, against reading lost samples from the shared disk in each",
        PUBLISHED,
        after(&turns[CACHED_ANEW]),
        after(&turns[NOT_CACHED]),
    );
    headline.map(|it| Headline {
        verdict: Verdict::NotComparable,
        why: "the paper goes on without the lost node; here its rank reads all of its batches from the shared disk by \
              itself, and the others wait for it on both sides"
            .to_owned(),
        ..it
    })
}

fn by_epoch(turns: &[Vec<Trained>]) -> Chart {
    let epochs = 0..EPOCHS as usize;
    let series = SIDES.iter().zip(turns).map(|((name, ..), turns)| {
        Series::measured(
            *name,
            epochs.clone().map(|epoch| value(turns, |trained| trained.seconds[epoch])).collect(),
        )
    });
    Chart::new(
        "epoch",
        "time of the epoch, s",
        Along::Positions((1..=EPOCHS).map(f64::from).collect()),
        series.collect(),
    )
}
