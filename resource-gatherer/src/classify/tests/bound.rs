//! Constraints of the classification: earlier decisions and the settings of the user.

use super::{
    machine::Machine,
    machines::{host_tiers, seen},
    *,
};
use crate::figures::View;

fn pair_of(ratio: f64, before: [Option<usize>; 2]) -> [Profile; 2] {
    let at = |latency| node(Kind::MainMemory, latency, 100.0);
    let [first, second] = before;
    [Profile { before: first, ..at(100.0) }, Profile { before: second, ..at(100.0 * ratio) }]
}

#[test]
fn between_1_25_and_1_35_nodes_stay_as_they_were() {
    let count = |ratio, before| classify(&pair_of(ratio, before)).len();
    let (together, apart) = ([Some(0), Some(0)], [Some(0), Some(1)]);
    for ratio in [1.26, 1.30, 1.34] {
        assert_eq!((count(ratio, together), count(ratio, apart)), (1, 2), "{ratio}");
    }
    assert_eq!((count(1.36, together), count(1.36, apart)), (2, 2));
    assert_eq!((count(1.24, together), count(1.24, apart)), (1, 1));
    assert_eq!((count(1.29, [None, Some(0)]), count(1.31, [Some(0), None])), (1, 2));
}

#[test]
fn a_figure_that_swings_around_the_limit_changes_no_tier_after_the_first_probe() {
    let swings = [1.29, 1.31, 1.28, 1.33, 1.27, 1.30];
    for first in [1.28, 1.33] {
        let mut before = [None, None];
        let mut seen = Vec::new();
        for ratio in [first].into_iter().chain(swings) {
            let tiers = classify(&pair_of(ratio, before));
            let number = |index: usize| tiers.iter().position(|tier| tier.contains(&index));
            before = [number(0), number(1)];
            seen.push(tiers.len());
        }
        seen.dedup();
        assert_eq!(seen, [if first < RATIO_MAX { 1 } else { 2 }]);
    }
}

#[test]
fn the_same_holds_for_bandwidth() {
    let [fast, slow] = pair_of(1.0, [Some(0), Some(0)]);
    let slow = Profile { read_bytes_per_s: Some(Estimate::stated(100e9 / 1.33)), ..slow };
    assert_eq!(classify(&[fast, slow]).len(), 1);
    assert_eq!(classify(&[fast, Profile { before: Some(1), ..slow }]).len(), 2);
}

#[test]
fn wide_intervals_neither_split_a_tier_nor_undo_a_split() {
    let with = |before| {
        let [fast, slow] = pair_of(1.5, before);
        let latency = slow.latency_ns.map(|it| Estimate { low: 99.0, ..it });
        classify(&[fast, Profile { latency_ns: latency, ..slow }]).len()
    };
    assert_eq!((with([None, None]), with([Some(0), Some(0)])), (1, 1));
    assert_eq!(with([Some(0), Some(1)]), 2);
}

#[test]
fn nodes_that_the_settings_put_together_are_one_tier_without_others() {
    let machine = Machine::epyc();
    let assignments = [Assignment { kind: Kind::CxlMemory, numa_nodes: vec![3, 4], path: None }];
    let constraints = Constraints { assignments: &assignments, previous: None };
    let pairs = machine.pairs();
    assert_eq!(host_tiers(&machine, &pairs, &constraints), [vec![0, 1, 2], vec![3, 4]]);
    assert_eq!(seen(&machine, &pairs, &constraints)[0], [vec![0, 1], vec![2], vec![3, 4]]);
}

#[test]
fn an_earlier_report_binds_the_host_and_each_view_and_only_that_host() {
    let machine = Machine::azure();
    let mut earlier = crate::report::tests_support::minimal(&machine.inventory).classification();
    let mut pairs = machine.pairs();
    // Node 1 was a tier of its own for initiator 0, and is now at a ratio of 1.28.
    for (index, ratio) in [(1, 1.28), (3, 1.28)] {
        pairs[index].idle_latency_ns = Some(machine::estimate(130.2 * ratio));
        pairs[index].bandwidth[0].bytes_per_s = machine::estimate(79.8e9);
    }
    earlier.views = vec![View { initiator: 0, tiers: vec![vec![0], vec![1], vec![2]] }];
    let constraints = Constraints { assignments: &[], previous: Some(&earlier) };
    let views = seen(&machine, &pairs, &constraints);
    assert_eq!(views[0], [[0], [1], [2]]);
    assert_eq!(views[1], [vec![0, 1], vec![2]], "nothing was said of initiator 1");
    earlier.host = "another".to_owned();
    let constraints = Constraints { assignments: &[], previous: Some(&earlier) };
    assert_eq!(seen(&machine, &pairs, &constraints)[0], [vec![0, 1], vec![2]]);
}
