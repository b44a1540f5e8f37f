//! Figures 3, 7 (c) and 8 (b): several nodes.

use tierfeed_core::units::BytesPerSecond;

use super::{
    DISK,
    systems::{
        DALI, DATA_LOADER, LOBSTER, Measured, NO_THRESHOLD, NOPFS, OURS, Published, SHARING,
        Setting, System, chart, derived, described, measure, ours,
    },
};
use crate::{
    claim::{at_least, at_most, fewer_points, times_as_fast},
    figure::{Along, Chart, Figure, Headline, Series, Value},
    ranks::{Ranked, on_nodes},
    stage::{Extent, Stage},
};

const STAGES: &str = "lobster-3";
const SPEED: &str = "lobster-7c";
const IMBALANCE: &str = "lobster-8b";

pub(super) const NAMES: [&str; 3] = [STAGES, SPEED, IMBALANCE];

/// A model that computes for less time than it takes to load what the caches lack: there loading matters
/// most. The paper prints no times of steps.
const SMALL_MODEL: f64 = 0.4;

/// Each node caches 40 of 135 GB: the nodes together hold a part of the dataset more than once, or all of it.
const TWO_NODES: Setting = Setting {
    nodes: 2,
    ranks_per_node: 2,
    cached_per_mille: 296,
    disk: BytesPerSecond(DISK.0 / 2),
    compute_to_load: SMALL_MODEL,
};
/// In the paper, eight nodes together cache 320 GB of 1.3 TB.
const FOUR_NODES: Setting = Setting {
    nodes: 4,
    ranks_per_node: 1,
    cached_per_mille: 62,
    disk: BytesPerSecond(DISK.0 / 4),
    compute_to_load: SMALL_MODEL,
};

const SYSTEMS: [System; 6] = [DATA_LOADER, DALI, NOPFS, LOBSTER, OURS, SHARING];
const TELLING: [System; 2] = [DALI, SHARING];

/// The speed of Lobster over that of others, with eight nodes.
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

pub(super) fn figures(stage: &mut Stage<'_>) -> anyhow::Result<Vec<Figure>> {
    let extent = stage.settings.extent;
    let systems = match extent {
        Extent::Full => &SYSTEMS[..],
        Extent::Quick => &TELLING[..],
    };
    let mut measured = |setting: &Setting| {
        on_nodes(stage, usize::try_from(setting.nodes)?, setting.disk, |nodes| {
            Ok(OfNodes {
                all: measure(nodes, setting, systems)?,
                setting: setting.described(nodes),
                step_s: setting.step_s(nodes),
                stopwatch: nodes.stopwatch.clone(),
            })
        })
    };
    let two = measured(&TWO_NODES)?;
    let four = match extent {
        Extent::Quick => None,
        Extent::Full => Some(measured(&FOUR_NODES)?),
    };
    let both = both(two, four);
    Ok(vec![stages(&both[0].1), speed(&both), imbalance(&both)])
}

struct OfNodes {
    all: Vec<Measured>,
    setting: String,
    step_s: f64,
    stopwatch: String,
}

/// The name of nodes in charts and claims, and the reason why claims of them are not judged, if so.
struct Cluster {
    nodes: u32,
    chart: &'static str,
    claim: &'static str,
    not_judged: Option<&'static str>,
}

const CLUSTERS: [Cluster; 2] = [
    Cluster {
        nodes: TWO_NODES.nodes,
        chart: "2 nodes, 30 % of the dataset each",
        claim: "2 nodes that hold 59 % together",
        not_judged: Some(NOT_NEAREST),
    },
    Cluster {
        nodes: FOUR_NODES.nodes,
        chart: "4 nodes, 6 % of the dataset each",
        claim: "4 nodes that hold 25 % together",
        not_judged: None,
    },
];

fn both(two: OfNodes, four: Option<OfNodes>) -> Vec<(Cluster, OfNodes)> {
    CLUSTERS.into_iter().zip([two].into_iter().chain(four)).collect()
}

/// Claims against each system by `claim`, judged where both the nodes and the system are as in the paper.
fn claims(
    cluster: &Cluster,
    of: &OfNodes,
    published: &[(System, f64)],
    why: &str,
    claim: impl Fn(&str, f64, &Measured, &Measured) -> Option<Headline>,
) -> Vec<Headline> {
    let claim = |(system, published): &(System, f64)| {
        let ours = Measured::of(&of.all, &ours(cluster.nodes))?;
        let what = format!("against {}", system.name);
        let claim = claim(&what, *published, ours, Measured::of(&of.all, system)?)?;
        let claim = Headline { what: format!("{}, {}", cluster.claim, claim.what), ..claim };
        Some(match cluster.not_judged {
            Some(why) => claim.not_comparable(why),
            None if *system == NOPFS => claim.not_comparable(WITHOUT_PEERS),
            None => claim.because(why),
        })
    };
    published.iter().filter_map(claim).collect()
}

fn emulated<'a>(all: impl IntoIterator<Item = &'a OfNodes>) -> Vec<String> {
    let steps = format!(
        "steps compute for {:.0} % of the time in which the disks give all photographs; this was chosen so that \
         loading is dearer than computing, since the paper prints no times of steps",
        SMALL_MODEL * 100.0
    );
    [steps].into_iter().chain(all.into_iter().map(|it| it.stopwatch.clone())).collect()
}

fn setting(all: &[(Cluster, OfNodes)]) -> String {
    all.iter().map(|(_, it)| &it.setting[..]).collect::<Vec<_>>().join(" Then ")
}

fn stages(two: &OfNodes) -> Figure {
    let dali = Measured::of(&two.all, &DALI);
    let ranked = dali.and_then(|it| it.turns.first());
    let step_s = two.step_s;
    let seen =
        at_least("steps with imbalance under DALI", 0.653, dali.and_then(|it| it.imbalanced));
    // More of it under another loader is no gain of ours.
    let seen = seen.map(|it| Headline { measured: None, ..it.not_comparable(OBSERVED) });
    Figure {
        number: "Figure 3".to_owned(),
        title: "What ranks do in a step, under DALI".to_owned(),
        charts: ranked.into_iter().flat_map(|it| [parts(it, step_s), waits(it)]).collect(),
        headlines: seen.into_iter().collect(),
        ..described(STAGES, two.setting.clone(), emulated([two]))
    }
}

const OBSERVED: &str = "it is an observation of the paper about another loader, and depends on how long steps compute \
                        and from which difference on a step has imbalance";

/// Seconds of an epoch that ranks spend on each part of their steps.
fn parts(ranked: &Ranked, step_s: f64) -> Chart {
    let of = |name: &str, seconds: &dyn Fn(&Ranked, usize) -> f64| {
        Series::measured(
            name,
            (0..RANKS.len()).map(|rank| Some(Value::exactly(seconds(ranked, rank)))).collect(),
        )
    };
    Chart::new(
        "",
        "seconds",
        Along::groups(RANKS),
        vec![
            of("waits for its batch", &|it, rank| it.ranks[rank][1].waits.iter().sum()),
            of("computes", &|it, rank| it.ranks[rank][1].waits.iter().map(|_| step_s).sum()),
            of("waits for other ranks", &|it, rank| it.ranks[rank][1].idles.iter().sum()),
        ],
    )
    .titled("Parts of the second epoch")
}

/// The time that ranks wait for their batches, step by step.
fn waits(ranked: &Ranked) -> Chart {
    let steps: Vec<_> = (0_u32..).zip(&ranked.ranks[0][1].waits).collect();
    let series = RANKS.iter().zip(&ranked.ranks).map(|(name, epochs)| {
        Series::measured(
            *name,
            epochs[1].waits.iter().map(|wait| Some(Value::exactly(*wait))).collect(),
        )
    });
    Chart::new(
        "step",
        "seconds",
        Along::Positions(steps.iter().map(|(number, _)| f64::from(*number)).collect()),
        series.collect(),
    )
    .titled("Waits for batches in the second epoch")
}

fn charts(
    y: &str,
    all: &[(Cluster, OfNodes)],
    figure: fn(&Measured) -> Option<Value>,
    published: Option<Published<'_>>,
) -> Vec<Chart> {
    let of = |(cluster, of): &(Cluster, OfNodes)| Chart {
        title: cluster.chart.to_owned(),
        ..chart(y, &[("here", &of.all)], |_, it| figure(it), published)
    };
    all.iter().map(of).collect()
}

fn imbalance(all: &[(Cluster, OfNodes)]) -> Figure {
    let claims = all.iter().flat_map(|(cluster, of)| {
        let saved = claims(cluster, of, &SAVED, ALL_WAIT, |against, published, ours, theirs| {
            let what = format!("steps with imbalance, {against}");
            fewer_points(&what, published, ours.imbalanced, theirs.imbalanced)
        });
        let ours = Measured::of(&of.all, &ours(cluster.nodes)).and_then(|it| it.imbalanced);
        let share = at_most(&format!("{}, steps with imbalance", cluster.claim), 0.228, ours);
        saved.into_iter().chain(share.map(|it| it.not_comparable(NO_THRESHOLD)))
    });
    let published = derived("published, of others by what Lobster saves them", &IMBALANCED);
    Figure {
        number: "Figure 8 (b)".to_owned(),
        title: "Steps with imbalance on several nodes".to_owned(),
        headlines: claims.collect(),
        charts: charts("share of steps", all, |it| it.imbalanced, Some(published)),
        ..described(IMBALANCE, setting(all), emulated(all.iter().map(|(_, it)| it)))
    }
}

fn speed(all: &[(Cluster, OfNodes)]) -> Figure {
    let claims = all.iter().flat_map(|(cluster, of)| {
        claims(cluster, of, &FASTER_THAN, SAVED_READS, |against, published, ours, theirs| {
            times_as_fast(&format!("speed {against}"), published, ours.epoch_s, theirs.epoch_s)
        })
    });
    Figure {
        number: "Figure 7 (c)".to_owned(),
        title: "Training speed on several nodes".to_owned(),
        headlines: claims.collect(),
        charts: charts("time of an epoch, s", all, |it| it.epoch_s, None),
        ..described(SPEED, setting(all), emulated(all.iter().map(|(_, it)| it)))
    }
}

const SAVED_READS: &str = "caches that hold a quarter of the dataset save a quarter of the reads, and all read at the \
                           full rate of their disks: a loader that reads everything takes 1.33 times as long";

const ALL_WAIT: &str = "the disks give less than the ranks need, so all wait in every step";

const NOT_NEAREST: &str = "the paper's ratio is of eight nodes that hold a quarter of the dataset together, to which \
                           four nodes that do so are nearest";

const WITHOUT_PEERS: &str = "nodes of NoPFS read from each other, and its policy here does not";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Verdict;

    fn measured(system: System, epoch_s: f64) -> Measured {
        let epoch_s = Some(Value::exactly(epoch_s));
        Measured { epoch_s, ..Measured::nothing(system) }
    }

    fn of_nodes(all: Vec<Measured>) -> OfNodes {
        OfNodes { all, setting: String::new(), step_s: 0.0, stopwatch: String::new() }
    }

    #[test]
    fn the_side_that_is_compared_is_the_one_that_shares_and_not_the_faster_one() {
        let all = vec![measured(DALI, 3.0), measured(OURS, 1.0), measured(SHARING, 2.0)];
        let Figure { headlines, .. } = speed(&both(of_nodes(all), None));
        let here: Vec<_> = headlines.iter().map(|it| (&it.what[..], &it.here[..])).collect();
        let what = "2 nodes that hold 59 % together, speed against DALI";
        assert_eq!(here, [(what, "1.50 x (1.50 to 1.50)")]);
    }

    #[test]
    fn claims_are_judged_only_of_the_nodes_and_systems_that_the_paper_has() {
        let all = || of_nodes([DALI, NOPFS, SHARING].map(|it| measured(it, 2.0)).to_vec());
        let Figure { headlines, .. } = speed(&both(all(), Some(all())));
        let verdicts: Vec<_> = headlines.iter().map(|it| it.verdict).collect();
        let not = Verdict::NotComparable;
        assert_eq!(verdicts, [not, not, Verdict::NotReached, not]);
    }
}
