//! Figures 3, 7 (c) and 8 (b): several nodes.

use tierfeed_core::units::BytesPerSecond;

use super::{
    DISK,
    systems::{
        DALI, DATA_LOADER, LOBSTER, Measured, NOPFS, OURS, SHARING, Setting, System, chart,
        described, measure,
    },
};
use crate::{
    claim::{at_least, at_most, times_as_much},
    figure::{Along, Chart, Figure, Headline, Series, Source, Value},
    ranks::{Nodes, Ranked, on_nodes},
    stage::{Extent, Stage},
};

const STAGES: &str = "lobster-3";
const SPEED: &str = "lobster-7c";
const IMBALANCE: &str = "lobster-8b";

pub(super) const NAMES: [&str; 3] = [STAGES, SPEED, IMBALANCE];

/// A model that computes for less than it takes to load what the caches lack: there loading tells most.
const SMALL_MODEL: f64 = 0.4;

/// Of 135 GB, each node 40 GB: the nodes together hold a part of the dataset more than once, or all of it.
const TWO_NODES: Setting = Setting {
    nodes: 2,
    ranks_per_node: 2,
    cached_per_mille: 296,
    disk: BytesPerSecond(DISK.0 / 2),
    compute_to_load: SMALL_MODEL,
};
/// Of 1.3 TB, eight nodes 320 GB.
const FOUR_NODES: Setting = Setting {
    nodes: 4,
    ranks_per_node: 1,
    cached_per_mille: 62,
    disk: BytesPerSecond(DISK.0 / 4),
    compute_to_load: SMALL_MODEL,
};

const SYSTEMS: [System; 6] = [DATA_LOADER, DALI, NOPFS, LOBSTER, OURS, SHARING];
const TELLING: [System; 2] = [DALI, OURS];

/// By how many times Lobster is faster with eight nodes.
///
/// # Source
///
/// Lobster (doi:10.1145/3545008.3545090), section 5.2, figure 7 (c). The figures below are from sections 3 and 5.3.
const FASTER_THAN: [(System, f64); 3] = [(DATA_LOADER, 2.0), (DALI, 1.4), (NOPFS, 1.2)];

/// The share of steps with imbalance: of Lobster, and what it saves the others.
const IMBALANCED: [(System, f64); 4] =
    [(DATA_LOADER, 0.58), (DALI, 0.486), (NOPFS, 0.325), (LOBSTER, 0.228)];

/// The ranks of figure 3: two on one node, the third on another.
const RANKS: [&str; 3] = ["node 0, rank 0", "node 0, rank 1", "node 1, rank 2"];

pub(super) fn figures(
    stage: &mut Stage<'_>,
    step: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Figure>> {
    let systems = match stage.settings.extent {
        Extent::Full => &SYSTEMS[..],
        Extent::Quick => &TELLING[..],
    };
    let (two, mut figures) = on_nodes(stage, 2, TWO_NODES.disk, |nodes| {
        let two = measure(nodes, &TWO_NODES, systems, step)?;
        let figures = vec![stages(nodes, &two), imbalance(nodes, &two)];
        Ok((two, figures))
    })?;
    let four = match stage.settings.extent {
        Extent::Quick => None,
        Extent::Full => Some(on_nodes(stage, 4, FOUR_NODES.disk, |nodes| {
            Ok((measure(nodes, &FOUR_NODES, systems, step)?, FOUR_NODES.described(nodes)))
        })?),
    };
    let setting = figures[0].setting.clone();
    figures.push(speed(&setting, &two, four.as_ref()));
    Ok(figures)
}

fn stages(nodes: &Nodes<'_>, all: &[Measured]) -> Figure {
    let dali = Measured::of(all, &DALI);
    let ranked = dali.and_then(|it| it.turns.first());
    let step_s = TWO_NODES.step_s(nodes);
    let claim =
        at_least("steps with imbalance under DALI", 0.653, dali.and_then(|it| it.imbalanced));
    let ours = at_most(
        "steps with imbalance under tierfeed",
        0.653,
        Measured::of(all, &OURS).and_then(|it| it.imbalanced),
    );
    Figure {
        number: "Figure 3".to_owned(),
        title: "What ranks do in a step, under DALI".to_owned(),
        charts: ranked.into_iter().flat_map(|it| [parts(it, step_s), waits(it)]).collect(),
        headlines: claim.into_iter().chain(ours).collect(),
        ..described(STAGES, TWO_NODES.described(nodes))
    }
}

/// Seconds of an epoch that ranks spend on each part of their steps.
fn parts(ranked: &Ranked, step_s: f64) -> Chart {
    let of = |name: &str, seconds: &dyn Fn(&Ranked, usize) -> f64| Series {
        name: name.to_owned(),
        source: Source::Measured,
        values: (0..RANKS.len()).map(|rank| Some(Value::exactly(seconds(ranked, rank)))).collect(),
    };
    Chart {
        title: "Parts of the second epoch".to_owned(),
        x: String::new(),
        y: "seconds".to_owned(),
        along: Along::Groups(RANKS.map(str::to_owned).to_vec()),
        series: vec![
            of("waits for its batch", &|it, rank| it.ranks[rank][1].waits.iter().sum()),
            of("computes", &|it, rank| it.ranks[rank][1].waits.iter().map(|_| step_s).sum()),
            of("waits for other ranks", &|it, rank| it.ranks[rank][1].idles.iter().sum()),
        ],
    }
}

/// How long ranks wait for their batches, step by step.
fn waits(ranked: &Ranked) -> Chart {
    let steps: Vec<_> = (0_u32..).zip(&ranked.ranks[0][1].waits).collect();
    let series = RANKS.iter().zip(&ranked.ranks).map(|(name, epochs)| Series {
        name: (*name).to_owned(),
        source: Source::Measured,
        values: epochs[1].waits.iter().map(|wait| Some(Value::exactly(*wait))).collect(),
    });
    Chart {
        title: "Waits for batches in the second epoch".to_owned(),
        x: "step".to_owned(),
        y: "seconds".to_owned(),
        along: Along::Positions(steps.iter().map(|(number, _)| f64::from(*number)).collect()),
        series: series.collect(),
    }
}

fn imbalance(nodes: &Nodes<'_>, all: &[Measured]) -> Figure {
    let ours = Measured::of(all, &OURS).and_then(|it| it.imbalanced);
    Figure {
        number: "Figure 8 (b)".to_owned(),
        title: "Steps with imbalance on several nodes".to_owned(),
        charts: vec![chart("share of steps", &[("here", all)], |_, it| it.imbalanced, &IMBALANCED)],
        headlines: at_most("steps with imbalance", 0.228, ours).into_iter().collect(),
        ..described(IMBALANCE, TWO_NODES.described(nodes))
    }
}

fn speed(setting: &str, two: &[Measured], four: Option<&(Vec<Measured>, String)>) -> Figure {
    let titled = |title: &str, all: &[Measured]| Chart {
        title: title.to_owned(),
        ..chart("time of an epoch, s", &[("here", all)], |_, it| it.epoch_s, &[])
    };
    let mut charts = vec![titled("2 nodes, 30 % of the dataset each", two)];
    let mut headlines = claims("2 nodes that hold 59 % together", two);
    let mut settings = setting.to_owned();
    if let Some((four, setting)) = four {
        charts.push(titled("4 nodes, 6 % of the dataset each", four));
        headlines.extend(claims("4 nodes that hold 25 % together", four));
        settings = format!("{settings} Then {setting}");
    }
    Figure {
        number: "Figure 7 (c)".to_owned(),
        title: "Training speed on several nodes".to_owned(),
        charts,
        headlines,
        ..described(SPEED, settings)
    }
}

/// Why a claim of speed is not reached.
const WHY: &str = "caches that hold a quarter of the dataset save a quarter of the reads, and all read at the full rate of \
                   their disks: a loader that reads everything takes 1.33 times as long";

/// The faster of the two ways of tierfeed, each of which is a line of the job file, beside the others.
fn claims(setting: &str, all: &[Measured]) -> Vec<Headline> {
    let of = |system: &System| Measured::of(all, system).and_then(|it| it.epoch_s);
    let ways = [OURS, SHARING].iter().filter_map(|system| Some((system.name, of(system)?)));
    let Some((name, ours)) = ways.min_by(|a, b| a.1.median.total_cmp(&b.1.median)) else {
        return Vec::new();
    };
    let claim = |(system, published): &(System, f64)| {
        let what = format!("{setting}: {name}, times as fast as {}", system.name);
        // Of times, the other way round.
        Some(times_as_much(&what, *published, of(system), Some(ours))?.because(WHY))
    };
    FASTER_THAN.iter().filter_map(claim).collect()
}
