use super::*;
use crate::limits::reference::{self, CACHED, EPOCHS};

type Form = fn(Run) -> f64;

const FORMS: [(&str, Form); 5] =
    [("belady", best), ("pinned", pinned), ("nopfs", most_frequent), ("lru", lru), ("fifo", fifo)];

fn runs() -> impl Iterator<Item = Run> {
    let lengths = |cached| EPOCHS.map(|epochs| (cached, epochs));
    CACHED
        .into_iter()
        .flat_map(lengths)
        .flat_map(|(cached, epochs)| [1, 3, 8].map(|nodes| Run { nodes, cached, epochs }))
}

#[test]
fn the_forms_say_what_the_other_simulation_found() {
    let mut compared = 0;
    for run in runs() {
        for (policy, form) in FORMS {
            let Some(found) = reference::mean(policy, run.nodes, run.cached, run.epochs) else {
                continue;
            };
            let form = form(run);
            assert!((form - found).abs() < 3e-3, "{policy}, {run:?}: {form} instead of {found}");
            compared += 1;
        }
    }
    assert_eq!(compared, 5 * 2 * 18 + 3 * 6);
}

#[test]
fn the_eager_rule_says_what_the_other_simulation_found() {
    for run in runs().filter(|run| run.nodes == 3) {
        let found = reference::mean("lobster", 3, run.cached, run.epochs).unwrap();
        let form = next_epoch_only(run);
        assert!((form - found).abs() < 2e-3, "{run:?}: {form} instead of {found}");
    }
}

#[test]
fn the_limit_of_long_runs_is_the_steady_one() {
    let rows = [
        (0.05, [0.05, 0.150, 0.253]),
        (0.1, [0.1, 0.300, 0.372]),
        (0.2, [0.2, 0.467, 0.532]),
        (0.296, [0.296, 0.592, 0.640]),
        (0.5, [0.5, 0.773, 0.801]),
        (0.75, [0.75, 0.918, 0.928]),
    ];
    for (cached, expected) in rows {
        for (nodes, expected) in [1, 3, 8].into_iter().zip(expected) {
            let hits = steady(nodes, cached).hits;
            assert!((hits - expected).abs() < 6e-4, "{cached} on {nodes}: {hits}");
            let long = best(Run { nodes, cached, epochs: 1500 });
            assert!(long <= hits + 1e-9 && hits - long < 0.01, "{cached} on {nodes}: {long}");
        }
    }
    assert_eq!([steady(3, 0.2).gap, steady(3, 0.296).gap], [2, 3]);
    assert!((steady(8, 1.0).hits - 1.0).abs() < 1e-6);
}

/// All rules obey the boundaries, so none is above the best; this holds between the rows of the tables
/// too.
#[test]
fn no_rule_exceeds_the_best() {
    for nodes in [1, 2, 5, 16] {
        for epochs in [1, 2, 3, 7, 20] {
            for cached in [0.01, 0.13, 0.4, 0.9] {
                let run = Run { nodes, cached, epochs };
                let best = best(run);
                for (policy, form) in
                    FORMS.into_iter().chain([("lobster", next_epoch_only as Form)])
                {
                    let hits = form(run);
                    assert!(hits <= best + 1e-3, "{policy} exceeds {best} with {hits} in {run:?}");
                }
            }
        }
    }
}
