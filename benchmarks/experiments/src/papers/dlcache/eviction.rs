//! Figure 7: the time of preparing datasets on a node that cannot store them all, by eviction policy.

use crate::{
    claim::no_slower,
    dlcache::{self, Chunks, Outcome, Patterns},
    figure::{Along, Chart, Figure, Paper, Series, Value},
    stage::Extent,
};

pub(super) const NAME: &str = "dlcache-7";

/// Policies by their names in the replay, and for people: first those that the paper compares with its own.
const BASELINES: [(&str, &str); 5] =
    [("lru", "LRU"), ("lfu", "LFU"), ("lrfu", "LRFU"), ("random", "random"), ("greedy", "greedy")];
const THEIRS: (&str, &str) = ("dlcache", "CLRFU");
const OURS: (&str, &str) = ("tierfeed", "tierfeed");

pub(super) fn figure(extent: Extent) -> Figure {
    let patterns = match extent {
        Extent::Full => Patterns::Paper,
        Extent::Quick => Patterns::Quick,
    };
    let outcome = dlcache::replayed(&Chunks::generated(), patterns);
    let of = |policy| mean(&outcome, policy);
    let best = BASELINES.into_iter().filter_map(of).min_by(|a, b| a.median.total_cmp(&b.median));
    let headlines = [
        no_slower("CLRFU against the best of its baselines", of(THEIRS), best),
        no_slower(
            "tierfeed's policy, which knows what the running job reads, against CLRFU",
            of(OURS),
            of(THEIRS),
        ),
    ];
    Figure {
        setting: format!(
            "A replay of {} patterns of jobs over {} chunks of datasets, whose sizes and costs are generated in the \
             shape of the paper's: nothing is moved. Mean time of a pattern, all chunks prepared once: {:.0} s.",
            outcome.patterns, outcome.chunks, outcome.floor_s
        ),
        headlines: headlines.into_iter().flatten().collect(),
        charts: vec![chart(&outcome)],
        emulated: vec!["all: a replay by the policies, on a clock that counts jobs".to_owned()],
        ..Figure::named(
            Paper::DlCache,
            NAME,
            "Figure 7",
            "Time to prepare datasets, by eviction policy (replay)",
        )
    }
}

fn mean(outcome: &Outcome, (policy, _): (&str, &str)) -> Option<Value> {
    let row = outcome.rows.iter().find(|row| row.policy == policy)?;
    Some(Value::exactly(row.mean_s))
}

fn chart(outcome: &Outcome) -> Chart {
    let policies = BASELINES.into_iter().chain([THEIRS, OURS]);
    let values = policies.clone().map(|policy| mean(outcome, policy)).collect();
    Chart::new(
        "",
        "mean time to prepare, s",
        Along::Groups(policies.map(|(_, name)| name.to_owned()).collect()),
        vec![Series::simulated("replayed", values)],
    )
}
