//! What the planner's own state machines say of a paper's setting, on a virtual clock: no training runs.

use crate::{
    claim::times_as_much,
    figure::{Along, Chart, Figure, Paper, Series, Source, Value},
    limits, lobster,
    stage::{Extent, Settings},
};

const LOBSTER: &str = "lobster-replay";
const LIMITS: &str = "newer-limits";

/// By how much the dataset and the cache are smaller than Lobster's.
const SCALE: u32 = 64;

/// Reads of a node in an epoch: enough for curves, too few for marks.
const ACCESSES: u32 = 4_000;
const EPOCHS: u32 = 50;

/// What Lobster is compared with: the policy here, its name for people, and ready samples of Lobster over its.
///
/// # Source
///
/// Lobster, section 5: 63.2 % against 48.9 and 24.5 %.
const PUBLISHED: [(&str, &str, f64); 2] = [
    ("nopfs", "NoPFS's", 0.632 / 0.489),
    ("page-cache", "a page cache, as of DataLoader", 0.632 / 0.245),
];

/// The names of the figures that [`run`] draws.
pub(super) fn names() -> [&'static str; 2] {
    [LOBSTER, LIMITS]
}

/// Replays what is wanted; nothing in a quick run.
pub(super) fn run(
    settings: &Settings,
    is_wanted: impl Fn(&str) -> bool,
    step: &mut dyn FnMut(&str),
) -> Vec<Figure> {
    let mut figures = Vec::new();
    if settings.extent == Extent::Quick {
        return figures;
    }
    if is_wanted(LOBSTER) {
        step("samples that are there, replayed");
        figures.push(ready_samples());
    }
    if is_wanted(LIMITS) {
        step("what policies keep, replayed");
        figures.push(kept_samples());
    }
    figures
}

fn ready_samples() -> Figure {
    let outcome = lobster::run(&lobster::Settings { scale: SCALE, epochs: 4 }, &mut |_| ());
    let rows = |policy: &'static str| outcome.rows.iter().filter(move |row| row.policy == policy);
    let policies = ["gap", "lobster", "nopfs", "page-cache"].map(|policy| {
        let values = rows(policy).map(|row| Some(Value::exactly(row.ready)));
        series(policy, Source::Simulated, values.collect())
    });
    let published = lobster::PUBLISHED.map(|(system, hits)| {
        let values = rows("gap").map(|_| Some(Value::exactly(hits)));
        series(system, Source::Published, values.collect())
    });
    let gain = |(policy, name, published): (&'static str, &str, f64)| {
        let pairs = rows("gap").zip(rows(policy));
        let most = pairs.max_by(|a, b| (a.0.ready / a.1.ready).total_cmp(&(b.0.ready / b.1.ready)));
        let ready = |row: &lobster::Row| Value::exactly(row.ready);
        let (ours, theirs) = most.map(|(ours, theirs)| (ready(ours), ready(theirs))).unzip();
        let what =
            format!("ready samples over those of {name}, at the rate where tierfeed gains most");
        let claim = times_as_much(&what, published, ours, theirs)?;
        Some(claim.because(
            "no policy has more than the cache and the rate of the cold store give together, which tierfeed's has",
        ))
    };
    Figure {
        number: "Hit ratios, replayed".to_owned(),
        title: "Samples that are there when they are needed (replay by the planner)".to_owned(),
        setting: format!(
            "{} samples with the sizes of ImageNet, 8 ranks, a cache of 40 of 135 GB, both divided by {SCALE}; epochs \
             2 to {}. The paper does not say how fast its cold store is.",
            outcome.samples, outcome.epochs
        ),
        headlines: PUBLISHED.into_iter().filter_map(gain).collect(),
        charts: vec![Chart {
            title: String::new(),
            x: "rate of the cold store over what the job needs".to_owned(),
            y: "share of samples".to_owned(),
            along: Along::Positions(rows("gap").map(|row| row.bandwidth).collect()),
            series: policies.into_iter().chain(published).collect(),
        }],
        ..replayed(LOBSTER, Paper::Lobster)
    }
}

fn kept_samples() -> Figure {
    let outcome = limits::run(&limits::Settings { accesses: ACCESSES }, &mut |_| ());
    let of_one = outcome.retention.iter().filter(|row| row.nodes == 1 && row.epochs == EPOCHS);
    let rows = |policy: &'static str| of_one.clone().filter(move |row| row.policy == policy);
    let kept = ["gap", "belady", "lru", "fifo"].map(|policy| {
        let values = rows(policy).map(|row| Some(Value::exactly(row.hits)));
        series(policy, Source::Simulated, values.collect())
    });
    let limit = rows("gap").map(|row| Some(Value::exactly(row.steady_limit)));
    let limit = series("limit in the long run", Source::Simulated, limit.collect());
    Figure {
        number: "Limits".to_owned(),
        title: "What policies keep, beside the most that is possible (replay by the planner)"
            .to_owned(),
        setting: format!(
            "One node that reads {ACCESSES} samples in each of {EPOCHS} epochs, in the order of PyTorch's sampler; no \
             prefetching. The limit is computed by other means than the policies."
        ),
        charts: vec![Chart {
            title: String::new(),
            x: "cache, as a share of the dataset".to_owned(),
            y: "share of reads that hit".to_owned(),
            along: Along::Positions(rows("gap").map(|row| row.cached).collect()),
            series: kept.into_iter().chain([limit]).collect(),
        }],
        ..replayed(LIMITS, Paper::Newer)
    }
}

fn series(name: &str, source: Source, values: Vec<Option<Value>>) -> Series {
    Series { name: name.to_owned(), source, values }
}

/// A figure of a replay without what it shows.
fn replayed(name: &str, paper: Paper) -> Figure {
    Figure {
        emulated: vec![
            "all: a replay by the planner's state machines, on a virtual clock".to_owned(),
        ],
        ..Figure::named(paper, name, "", "")
    }
}
