//! Figures 7 (a), 8 (a) and (c), 10, 11 and the hit ratios: one node with several ranks.

use super::{
    DISK,
    systems::{
        DALI, DATA_LOADER, LOBSTER, LOBSTER_EVICTION, LOBSTER_THREADS, Measured, NOPFS, OURS,
        PERCENTILES, Setting, System, chart, described, measure,
    },
};
use crate::{
    claim::{at_least, at_most, times_as_much},
    figure::{Along, Chart, Figure, Series, Source, Value},
    ranks::{Nodes, on_nodes},
    stage::{Extent, Stage},
};

const SPEED: &str = "lobster-7";
const IMBALANCE: &str = "lobster-8";
const UTILISATION: &str = "lobster-10";
const ABLATION: &str = "lobster-11";
const HITS: &str = "lobster-hits";

pub(super) const NAMES: [&str; 5] = [SPEED, IMBALANCE, UTILISATION, ABLATION, HITS];

/// Of 135 GB, 40 GB.
const CACHED_PER_MILLE: u64 = 296;

/// # Source
///
/// In figure 10 of Lobster the GPUs compute for 52 and 58 % of the time under `DataLoader` and DALI, which wait for their
/// reads.
const COMPUTE_TO_LOAD: f64 = 0.55;

const SYSTEMS: [System; 7] =
    [DATA_LOADER, DALI, NOPFS, LOBSTER, LOBSTER_THREADS, LOBSTER_EVICTION, OURS];
const TELLING: [System; 3] = [DATA_LOADER, NOPFS, OURS];

/// By how many times Lobster is faster.
///
/// # Source
///
/// Lobster (doi:10.1145/3545008.3545090), section 5.2, figure 7 (a). The figures below are from sections 5.3, 5.5
/// and 5.6.
const FASTER_THAN: [(System, f64); 3] = [(DATA_LOADER, 1.6), (DALI, 1.7), (NOPFS, 1.2)];

/// The share of steps with imbalance: of Lobster, and what it saves the others.
const IMBALANCED: [(System, f64); 4] =
    [(DATA_LOADER, 0.489), (DALI, 0.339), (NOPFS, 0.254), (LOBSTER, 0.175)];

/// Utilisation of the GPU, as a share.
const UTILISED: [(System, f64); 4] =
    [(DATA_LOADER, 0.523), (DALI, 0.575), (NOPFS, 0.724), (LOBSTER, 0.761)];

/// Hits of the memory cache, as a share.
const HIT: [(System, f64); 4] =
    [(DATA_LOADER, 0.245), (DALI, 0.326), (NOPFS, 0.489), (LOBSTER, 0.632)];

/// Speed of parts of Lobster over DALI's.
const PARTS: [(System, f64); 3] = [(DALI, 1.0), (LOBSTER_THREADS, 1.3), (LOBSTER_EVICTION, 1.15)];

pub(super) fn figures(
    stage: &mut Stage<'_>,
    step: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Figure>> {
    let setting = Setting {
        nodes: 1,
        ranks_per_node: 4,
        cached_per_mille: CACHED_PER_MILLE,
        disk: DISK,
        compute_to_load: COMPUTE_TO_LOAD,
    };
    on_nodes(stage, 1, DISK, |nodes| {
        let systems = match nodes.extent() {
            Extent::Full => &SYSTEMS[..],
            Extent::Quick => &TELLING[..],
        };
        let measured = measure(nodes, &setting, systems, step)?;
        let figures = [speed, imbalance, utilisation, ablation, hits];
        Ok(figures.map(|figure| figure(nodes, &setting, &measured)).to_vec())
    })
}

type All = [Measured];

fn speed(nodes: &Nodes<'_>, setting: &Setting, all: &All) -> Figure {
    let ours = Measured::of(all, &OURS).and_then(|it| it.epoch_s);
    let claims = FASTER_THAN.iter().filter_map(|(system, published)| {
        let what = format!("times as fast as {}", system.name);
        let theirs = Measured::of(all, system)?.epoch_s;
        // Of times, the other way round.
        times_as_much(&what, *published, theirs, ours)
    });
    Figure {
        number: "Figure 7 (a)".to_owned(),
        title: "Training speed on one node".to_owned(),
        charts: vec![chart("time of an epoch, s", all, |it| it.epoch_s, &[])],
        headlines: claims.collect(),
        ..described(SPEED, setting.described(nodes))
    }
}

fn imbalance(nodes: &Nodes<'_>, setting: &Setting, all: &All) -> Figure {
    let ours = Measured::of(all, &OURS).and_then(|it| it.imbalanced);
    let steps = chart("share of steps", all, |it| it.imbalanced, &IMBALANCED);
    let curves = all.iter().map(|it| Series {
        name: it.system.name.to_owned(),
        source: Source::Measured,
        values: it.step_s.clone(),
    });
    let times = Chart {
        title: "Time of a step".to_owned(),
        x: "percentile".to_owned(),
        y: "seconds".to_owned(),
        along: Along::Groups(PERCENTILES.map(|it| it.to_string()).to_vec()),
        series: curves.collect(),
    };
    Figure {
        number: "Figure 8 (a), (c)".to_owned(),
        title: "Steps with imbalance on one node".to_owned(),
        charts: vec![Chart { title: "Steps with imbalance".to_owned(), ..steps }, times],
        headlines: at_most("steps with imbalance", 0.175, ours).into_iter().collect(),
        ..described(IMBALANCE, setting.described(nodes))
    }
}

fn utilisation(nodes: &Nodes<'_>, setting: &Setting, all: &All) -> Figure {
    let ours = Measured::of(all, &OURS).and_then(|it| it.utilisation);
    Figure {
        number: "Figure 10".to_owned(),
        title: "Utilisation of the GPU".to_owned(),
        charts: vec![chart("share of time", all, |it| it.utilisation, &UTILISED)],
        headlines: at_least("time of the GPU that is used", 0.761, ours).into_iter().collect(),
        ..described(UTILISATION, setting.described(nodes))
    }
}

fn ablation(nodes: &Nodes<'_>, setting: &Setting, all: &All) -> Figure {
    let epoch_s = |system: &System| Measured::of(all, system).and_then(|it| it.epoch_s);
    let claim = |what: &str, published, ours: &System| {
        times_as_much(what, published, epoch_s(&DALI), epoch_s(ours))
    };
    let claims = [
        claim("Lobster's threads alone, times as fast as DALI", 1.3, &LOBSTER_THREADS),
        claim("Lobster's eviction alone, times as fast as DALI", 1.15, &LOBSTER_EVICTION),
    ];
    let faster = |it: &Measured| {
        let (dali_s, Value { median, least, most }) = (epoch_s(&DALI)?.median, it.epoch_s?);
        Some(Value { median: dali_s / median, least: dali_s / most, most: dali_s / least })
    };
    Figure {
        number: "Figure 11".to_owned(),
        title: "What threads and eviction bring alone".to_owned(),
        charts: vec![chart("times as fast as DALI", all, faster, &PARTS)],
        headlines: claims.into_iter().flatten().collect(),
        ..described(ABLATION, setting.described(nodes))
    }
}

fn hits(nodes: &Nodes<'_>, setting: &Setting, all: &All) -> Figure {
    let ours = Measured::of(all, &OURS);
    let claims = [
        at_least(
            "bytes in memory when they are asked for",
            0.632,
            ours.and_then(|it| it.ready_bytes),
        ),
        at_least(
            "batches that are there when they are asked for",
            0.632,
            ours.and_then(|it| it.ready),
        ),
    ];
    let titled = |title: &str, chart: Chart| Chart { title: title.to_owned(), ..chart };
    Figure {
        number: "Hit ratios".to_owned(),
        title: "What is in memory when it is asked for".to_owned(),
        charts: vec![
            titled(
                "In memory when asked for, by the reports of tierfeed",
                chart("share of bytes", all, |it| it.ready_bytes, &HIT),
            ),
            titled(
                "Batches waited for less than 2 ms",
                chart("share of batches", all, |it| it.ready, &HIT),
            ),
            titled(
                "Not read from the disk again",
                chart("share of bytes", all, |it| it.kept, &HIT),
            ),
        ],
        headlines: claims.into_iter().flatten().collect(),
        ..described(HITS, setting.described(nodes))
    }
}
