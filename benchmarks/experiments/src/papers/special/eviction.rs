//! Figure 7: the time of preparing datasets on a node that cannot store them all, by eviction policy.

use super::Drawn;
use crate::{
    claim::no_slower,
    dlcache::{self, Chunks, Outcome, Patterns},
    figure::{Along, Chart, Series, Value},
    stage::Extent,
};

/// Policies by their names in the replay, and for people: first those that the paper compares with its own.
const POLICIES: [(&str, &str); 7] = [
    ("lru", "LRU"),
    ("lfu", "LFU"),
    ("lrfu", "LRFU"),
    ("random", "random"),
    ("greedy", "greedy"),
    ("dlcache", "CLRFU"),
    ("tierfeed", "tierfeed"),
];

pub(in crate::papers) fn replayed(extent: Extent) -> Drawn {
    let patterns = match extent {
        Extent::Full => Patterns::Paper,
        Extent::Quick => Patterns::Quick,
    };
    let outcome = dlcache::replayed(&Chunks::generated(), patterns);
    let means = POLICIES.map(|(policy, _)| mean(&outcome, policy));
    let [baselines @ .., theirs, ours] = means;
    let best = baselines.into_iter().flatten().min_by(|a, b| a.median.total_cmp(&b.median));
    let claims = [
        no_slower("CLRFU against the best of its baselines", theirs, best),
        no_slower(
            "tierfeed's policy, which knows what the running job reads, against CLRFU",
            ours,
            theirs,
        ),
    ];
    let along = Along::groups(POLICIES.map(|(_, name)| name));
    let series = vec![Series::simulated("replayed", means.to_vec())];
    Drawn {
        charts: vec![Chart::new("", "mean time to prepare, s", along, series)],
        claims: claims.into_iter().flatten().collect(),
        told: vec![
            ("patterns", outcome.patterns.to_string()),
            ("chunks", outcome.chunks.to_string()),
            ("floor_s", format!("{:.0}", outcome.floor_s)),
        ],
    }
}

fn mean(outcome: &Outcome, policy: &str) -> Option<Value> {
    let row = outcome.rows.iter().find(|row| row.policy == policy)?;
    Some(Value::exactly(row.mean_s))
}
