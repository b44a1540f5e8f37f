//! The results of the planner's own state machines for a paper's setting, on a virtual clock: no training
//! runs.

use crate::{
    figure::{Along, Chart, Figure, Paper, Series, Source, Value},
    limits,
    stage::{Extent, Settings},
};

const LIMITS: &str = "newer-limits";

/// Reads of a node in an epoch: enough for curves, too few for marks.
const ACCESSES: u32 = 4_000;
const EPOCHS: u32 = 50;

pub(super) fn names() -> [&'static str; 1] {
    [LIMITS]
}

/// Replays the wanted figures; none in a quick run.
pub(super) fn run(
    settings: &Settings,
    is_wanted: impl Fn(&str) -> bool,
    step: &mut dyn FnMut(&str),
) -> Vec<Figure> {
    let mut figures = Vec::new();
    if settings.extent == Extent::Quick {
        return figures;
    }
    if is_wanted(LIMITS) {
        step("what policies keep, replayed");
        figures.push(kept_samples());
    }
    figures
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

fn replayed(name: &str, paper: Paper) -> Figure {
    Figure {
        emulated: vec![
            "all: a replay by the planner's state machines, on a virtual clock".to_owned(),
        ],
        ..Figure::named(paper, name, "", "")
    }
}
