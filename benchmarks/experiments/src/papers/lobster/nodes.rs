//! Figures 3, 7 (c) and 8 (b): several nodes.

use tierfeed_core::units::BytesPerSecond;

use super::{
    DISK,
    systems::{
        DALI, DATA_LOADER, LOBSTER, Measured, NO_THRESHOLD, NOPFS, OURS, SHARING, Setting, System,
        chart, derived, described, measure, ours,
    },
};
use crate::{
    claim::{at_least, at_most, fewer_points, times_as_fast},
    figure::{Along, Chart, Figure, Headline, Series, Source, Value},
    ranks::{Nodes, Ranked, on_nodes},
    stage::{Extent, Stage},
};

const STAGES: &str = "lobster-3";
const SPEED: &str = "lobster-7c";
const IMBALANCE: &str = "lobster-8b";

pub(super) const NAMES: [&str; 3] = [STAGES, SPEED, IMBALANCE];

/// A model that computes for less than it takes to load what the caches lack: there loading tells most. The paper
/// prints no times of steps.
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
const TELLING: [System; 2] = [DALI, SHARING];

/// By how many times Lobster is faster with eight nodes.
///
/// # Source
///
/// Lobster (doi:10.1145/3545008.3545090), section 5.2, figure 7 (c). The figures below are from sections 3 and 5.3.
const FASTER_THAN: [(System, f64); 3] = [(DATA_LOADER, 2.0), (DALI, 1.4), (NOPFS, 1.2)];

/// The share of steps with imbalance under Lobster, and under the others as much more as it saves them.
const IMBALANCED: [(System, f64); 4] =
    [(DATA_LOADER, 0.58), (DALI, 0.486), (NOPFS, 0.325), (LOBSTER, 0.228)];
/// The share of steps with imbalance that Lobster saves the others.
const SAVED: [(System, f64); 3] = [(DATA_LOADER, 0.352), (DALI, 0.258), (NOPFS, 0.097)];

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
            let all = measure(nodes, &FOUR_NODES, systems, step)?;
            Ok(Four {
                all,
                setting: FOUR_NODES.described(nodes),
                stopwatch: nodes.stopwatch.clone(),
            })
        })?),
    };
    let speed = speed(&figures[0], &two, four);
    figures.push(speed);
    Ok(figures)
}

/// What the systems did on four nodes.
struct Four {
    all: Vec<Measured>,
    setting: String,
    stopwatch: String,
}

fn emulated(nodes: &Nodes<'_>) -> Vec<String> {
    let steps = format!(
        "steps compute for {:.0} % of the time in which the disks give all photographs; this was chosen so that \
         loading is dearer than computing, since the paper prints no times of steps",
        SMALL_MODEL * 100.0
    );
    vec![steps, nodes.stopwatch.clone()]
}

fn stages(nodes: &Nodes<'_>, all: &[Measured]) -> Figure {
    let dali = Measured::of(all, &DALI);
    let ranked = dali.and_then(|it| it.turns.first());
    let step_s = TWO_NODES.step_s(nodes);
    let seen =
        at_least("steps with imbalance under DALI", 0.653, dali.and_then(|it| it.imbalanced));
    // More of it under another loader is no gain of ours.
    let seen = seen.map(|it| Headline { measured: None, ..it.not_comparable(OBSERVED) });
    Figure {
        number: "Figure 3".to_owned(),
        title: "What ranks do in a step, under DALI".to_owned(),
        charts: ranked.into_iter().flat_map(|it| [parts(it, step_s), waits(it)]).collect(),
        headlines: seen.into_iter().collect(),
        ..described(STAGES, TWO_NODES.described(nodes), emulated(nodes))
    }
}

/// Why the imbalance under DALI is not judged.
const OBSERVED: &str = "it is an observation of the paper about another loader, and depends on how long steps compute \
                        and from which difference on a step has imbalance";

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
    let of = |system: &System| Measured::of(all, system).and_then(|it| it.imbalanced);
    let ours = of(&ours(TWO_NODES.nodes));
    let share = at_most("steps with imbalance", 0.228, ours);
    let claims = SAVED.iter().filter_map(|(system, published)| {
        let what = format!("steps with imbalance, against {}", system.name);
        fewer_points(&what, *published, ours, of(system))
    });
    let published = derived("published, of others by what Lobster saves them", &IMBALANCED);
    Figure {
        number: "Figure 8 (b)".to_owned(),
        title: "Steps with imbalance on several nodes".to_owned(),
        charts: vec![chart(
            "share of steps",
            &[("here", all)],
            |_, it| it.imbalanced,
            Some(published),
        )],
        headlines: claims.chain(share.map(|it| it.not_comparable(NO_THRESHOLD))).collect(),
        ..described(IMBALANCE, TWO_NODES.described(nodes), emulated(nodes))
    }
}

fn speed(of_two: &Figure, two: &[Measured], four: Option<Four>) -> Figure {
    let titled = |title: &str, all: &[Measured]| Chart {
        title: title.to_owned(),
        ..chart("time of an epoch, s", &[("here", all)], |_, it| it.epoch_s, None)
    };
    let mut charts = vec![titled("2 nodes, 30 % of the dataset each", two)];
    let not_judged = claims("2 nodes that hold 59 % together", TWO_NODES.nodes, two);
    let mut headlines: Vec<_> =
        not_judged.into_iter().map(|it| it.not_comparable(NOT_NEAREST)).collect();
    let Figure { mut setting, mut emulated, .. } = of_two.clone();
    if let Some(four) = four {
        charts.push(titled("4 nodes, 6 % of the dataset each", &four.all));
        let judged = claims("4 nodes that hold 25 % together", FOUR_NODES.nodes, &four.all);
        headlines.extend(judged.into_iter().map(|it| it.because(WHY)));
        setting = format!("{setting} Then {}", four.setting);
        emulated.push(format!("of the four nodes: {}", four.stopwatch));
    }
    Figure {
        number: "Figure 7 (c)".to_owned(),
        title: "Training speed on several nodes".to_owned(),
        charts,
        headlines,
        emulated,
        ..described(SPEED, setting, Vec::new())
    }
}

/// Why a claim of speed is not reached.
const WHY: &str = "caches that hold a quarter of the dataset save a quarter of the reads, and all read at the full \
                   rate of their disks: a loader that reads everything takes 1.33 times as long";

/// Why two nodes are not judged.
const NOT_NEAREST: &str = "the paper's ratio is of eight nodes that hold a quarter of the dataset together, to which \
                           four nodes that do so are nearest";

/// The way of tierfeed that is compared on so many nodes, beside the others.
fn claims(setting: &str, nodes: u32, all: &[Measured]) -> Vec<Headline> {
    let of = |system: &System| Measured::of(all, system).and_then(|it| it.epoch_s);
    let claim = |(system, published): &(System, f64)| {
        let what = format!("{setting}, times as fast as {}", system.name);
        times_as_fast(&what, *published, of(&ours(nodes)), of(system))
    };
    FASTER_THAN.iter().filter_map(claim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(system: System, epoch_s: f64) -> Measured {
        let epoch_s = Some(Value::exactly(epoch_s));
        Measured { epoch_s, ..Measured::nothing(system) }
    }

    #[test]
    fn the_side_that_is_compared_is_the_one_of_the_nodes_and_not_the_faster_one() {
        let all = [measured(DALI, 3.0), measured(OURS, 1.0), measured(SHARING, 2.0)];
        let here = |nodes| claims("so", nodes, &all).pop().map(|it| (it.what, it.here));
        let what = "so, times as fast as DALI".to_owned();
        assert_eq!(here(2), Some((what.clone(), "1.50 x (1.50 to 1.50)".to_owned())));
        assert_eq!(here(1), Some((what, "3.00 x (3.00 to 3.00)".to_owned())));
    }
}
