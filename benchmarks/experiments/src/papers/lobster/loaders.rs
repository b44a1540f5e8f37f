//! Figures 7 and 10, and the hit ratios of the text: speed, utilisation and hits by loader.

use serde_json::json;
use tierfeed_core::units::Bytes;

use super::DISK;
use crate::{
    claim::{at_least, times_as_much},
    figure::{Along, Chart, Figure, Paper, Series, Source, Value},
    stage::{BATCH, STAGING, Side, Stage, job, value},
    training::{Trained, Training},
};

const SPEED: &str = "lobster-7";
const UTILISATION: &str = "lobster-10";
const HITS: &str = "lobster-hits";

pub(super) const NAMES: [&str; 3] = [SPEED, UTILISATION, HITS];

/// Of 135 GB, 40 GB.
const CACHED_PERCENT: u64 = 30;
const EPOCHS: u32 = 4;

/// Steps of three models, in seconds.
const STEPS_S: [f64; 3] = [0.005, 0.015, 0.03];

/// A loader, or a policy of tierfeed.
struct System {
    name: &'static str,
    loader: &'static str,
    policy: &'static str,
    assignment: &'static str,
    /// By how many times Lobster is faster.
    speed: Option<f64>,
    /// Hits of its cache, as a share.
    hits: Option<f64>,
    /// Utilisation of the GPU, as a share.
    utilisation: Option<f64>,
}

/// # Source
///
/// Lobster (doi:10.1145/3545008.3545090), section 5: figure 7 with 8 GPUs of one node, figure 10, and "Memory cache hit
/// ratio".
const SYSTEMS: [System; 5] = [
    System {
        name: "DataLoader",
        loader: "dataloader",
        policy: "",
        assignment: "",
        speed: Some(1.6),
        hits: Some(0.245),
        utilisation: Some(0.523),
    },
    System {
        name: "DALI",
        loader: "dali",
        policy: "",
        assignment: "",
        speed: Some(1.7),
        hits: Some(0.326),
        utilisation: Some(0.575),
    },
    System {
        name: "NoPFS's policy",
        loader: "tierfeed",
        policy: "nopfs",
        assignment: "shared",
        speed: Some(1.2),
        hits: Some(0.489),
        utilisation: Some(0.724),
    },
    System {
        name: "Lobster's policy",
        loader: "tierfeed",
        policy: "lobster",
        assignment: "lobster",
        speed: None,
        hits: Some(0.632),
        utilisation: Some(0.761),
    },
    System {
        name: "tierfeed",
        loader: "tierfeed",
        policy: "gap",
        assignment: "shared",
        speed: None,
        hits: None,
        utilisation: None,
    },
];

/// A batch is there if it is waited for no longer than this: what handing it over takes.
const READY_S: f64 = 0.002;

/// Which of [`SYSTEMS`] is the paper's, and which is ours.
const LOBSTER: usize = 3;
const OURS: usize = 4;

/// What the turns of all systems gave, by model.
struct Measured {
    model: String,
    total_s: Vec<Option<Value>>,
    ready: Vec<Option<Value>>,
    kept: Vec<Option<Value>>,
    utilisation: Vec<Option<Value>>,
}

pub(super) fn figures(
    stage: &mut Stage<'_>,
    step: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Figure>> {
    let mut measured = Vec::new();
    for step_s in STEPS_S {
        measured.push(measure(stage, step_s, step)?);
    }
    Ok(vec![speed(stage, &measured), utilisation(stage, &measured), hits(stage, &measured)])
}

fn measure(
    stage: &mut Stage<'_>,
    step_s: f64,
    step: &mut dyn FnMut(&str),
) -> anyhow::Result<Measured> {
    let (data, share) = (stage.photographs(), stage.percent(CACHED_PERCENT));
    let model = format!("step of {:.0} ms", step_s * 1e3);
    let side = |system: &System| {
        let is_tierfeed = system.loader == "tierfeed";
        let more = [
            ("policy", json!(system.policy)),
            ("prefetch", json!({ "assignment": system.assignment })),
            ("page_cache", json!("off")),
        ];
        let with_staging = Bytes(share.0 + STAGING.0);
        Side {
            name: format!("{model}, {}", system.name),
            room: Some(if is_tierfeed { with_staging } else { share }),
            training: Training {
                loader: system.loader,
                data: &data,
                batch_size: BATCH,
                epochs: EPOCHS,
                step_s,
                workers: 2,
                decode: true,
                job: job(with_staging, &more),
            },
        }
    };
    let sides: Vec<_> = SYSTEMS.iter().map(side).collect();
    let turns = stage.turns(&sides, step)?;
    let (dataset, count) = (stage.megabytes(), f64::from(stage.steps()));
    let kept = |trained: &Trained| {
        let read = trained.read_megabytes() - dataset;
        1.0 - read / (dataset * f64::from(EPOCHS - 1))
    };
    let utilisation = |trained: &Trained| step_s * count / trained.epoch_s(1);
    let of = |figure: &dyn Fn(&Trained) -> f64| turns.iter().map(|it| value(it, figure)).collect();
    Ok(Measured {
        model,
        total_s: of(&Trained::total_s),
        ready: of(&|trained| trained.ready(1, READY_S)),
        kept: of(&kept),
        utilisation: of(&utilisation),
    })
}

fn speed(stage: &Stage<'_>, measured: &[Measured]) -> Figure {
    let mut headlines = Vec::new();
    for Measured { model, total_s, .. } in measured {
        for (system, theirs) in SYSTEMS.iter().zip(total_s) {
            let Some(published) = system.speed else { continue };
            let what = format!("{model}: times as fast as {}", system.name);
            // Of times, the other way round.
            headlines.extend(times_as_much(&what, published, *theirs, total_s[OURS]));
        }
    }
    Figure {
        number: "Figure 7".to_owned(),
        title: "Training speed".to_owned(),
        charts: vec![chart(measured, "total time of 4 epochs, s", |it| &it.total_s, None)],
        headlines,
        ..described(stage, SPEED)
    }
}

fn utilisation(stage: &Stage<'_>, measured: &[Measured]) -> Figure {
    let published = |system: &System| system.utilisation;
    let claims = measured.iter().filter_map(|Measured { model, utilisation, .. }| {
        let what = format!("{model}: time of the GPU that is used");
        at_least(&what, SYSTEMS[LOBSTER].utilisation?, utilisation[OURS])
    });
    Figure {
        number: "Figure 10".to_owned(),
        title: "Utilisation of the GPU".to_owned(),
        headlines: claims.collect(),
        charts: vec![chart(measured, "share of time", |it| &it.utilisation, Some(published))],
        ..described(stage, UTILISATION)
    }
}

fn hits(stage: &Stage<'_>, measured: &[Measured]) -> Figure {
    let published = |system: &System| system.hits;
    let claims = measured.iter().filter_map(|Measured { model, ready, .. }| {
        let what = format!("{model}: batches that are there when they are asked for");
        at_least(&what, SYSTEMS[LOBSTER].hits?, ready[OURS])
    });
    let ready = chart(measured, "share of batches", |it| &it.ready, Some(published));
    let kept = chart(measured, "share of bytes", |it| &it.kept, None);
    Figure {
        number: "Hit ratios".to_owned(),
        title: "Batches that are there when they are asked for".to_owned(),
        headlines: claims.collect(),
        charts: vec![
            Chart { title: "Waited for less than 2 ms".to_owned(), ..ready },
            Chart { title: "Not read from the disk again".to_owned(), ..kept },
        ],
        ..described(stage, HITS)
    }
}

fn chart(
    measured: &[Measured],
    y: &str,
    values: fn(&Measured) -> &Vec<Option<Value>>,
    published: Option<fn(&System) -> Option<f64>>,
) -> Chart {
    let paper = published.map(|of| Series {
        name: "published".to_owned(),
        source: Source::Published,
        values: SYSTEMS.iter().map(|system| of(system).map(Value::exactly)).collect(),
    });
    let here = measured.iter().map(|it| Series {
        name: it.model.clone(),
        source: Source::Measured,
        values: values(it).clone(),
    });
    Chart {
        title: String::new(),
        x: String::new(),
        y: y.to_owned(),
        along: Along::Groups(SYSTEMS.iter().map(|system| system.name.to_owned()).collect()),
        series: paper.into_iter().chain(here).collect(),
    }
}

fn described(stage: &Stage<'_>, name: &str) -> Figure {
    Figure {
        name: name.to_owned(),
        paper: Paper::Lobster,
        number: String::new(),
        title: String::new(),
        setting: format!(
            "{} photographs ({}) on a disk of {DISK}, decoded and cropped by 2 workers or threads; memory for \
             {CACHED_PERCENT} % of them in a control group; one rank, whose step sleeps.",
            stage.settings.photographs, stage.dataset
        ),
        charts: Vec::new(),
        headlines: Vec::new(),
        predictions: Vec::new(),
        emulated: vec![
            "the GPU is a sleep, and the disk a loop device whose reads the kernel limits"
                .to_owned(),
            "NoPFS and Lobster are their policies in tierfeed, not their programs".to_owned(),
        ],
        command: format!("tierfeed-bench paper {name}"),
    }
}
