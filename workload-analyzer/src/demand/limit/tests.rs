use super::*;

/// The misses of the whole cluster, to three digits, as derived for the planner and checked there against
/// Belady's rule and a linear program.
#[test]
fn the_limit_is_the_table_of_minimal_cold_traffic() {
    let rows = [
        (0.05, [0.950, 0.850, 0.747]),
        (0.1, [0.900, 0.700, 0.628]),
        (0.2, [0.800, 0.533, 0.468]),
        (0.296, [0.704, 0.408, 0.360]),
        (0.5, [0.500, 0.227, 0.199]),
        (0.75, [0.250, 0.082, 0.072]),
    ];
    for (cached, misses) in rows {
        for (nodes, expected) in [1, 3, 8].into_iter().zip(misses) {
            let found = 1.0 - best(cached, nodes);
            assert!((found - expected).abs() < 6e-4, "{cached} on {nodes}: {found}");
        }
    }
}

/// A simulation of 60,000 reads on one node gives, as means over 50 epochs of which the first has no
/// hits, these shares to within 0.002.
#[test]
fn on_one_node_the_rules_hit_as_in_the_simulation() {
    let rows = [
        (0.05, 0.001, 0.001),
        (0.1, 0.005, 0.005),
        (0.2, 0.021, 0.023),
        (0.296, 0.048, 0.054),
        (0.5, 0.151, 0.190),
        (0.75, 0.396, 0.559),
    ];
    for (cached, expected_lru, expected_fifo) in rows {
        for (found, expected) in [(lru(cached, 1), expected_lru), (fifo(cached, 1), expected_fifo)]
        {
            let mean = found * 49.0 / 50.0;
            assert!((mean - expected).abs() < 2e-3, "{cached}: {mean} instead of {expected}");
        }
    }
}

/// On three nodes a sample is new to a node in epoch e with probability (2/3)^(e-1). The forms describe the
/// steady state and leave that out: over 50 epochs it is one read in 17.
#[test]
fn on_three_nodes_the_rules_hit_as_in_the_simulation() {
    let rows = [
        (0.05, 0.004, 0.004),
        (0.1, 0.015, 0.016),
        (0.2, 0.063, 0.068),
        (0.296, 0.144, 0.161),
        (0.5, 0.383, 0.397),
        (0.75, 0.672, 0.679),
    ];
    for (cached, expected_lru, expected_fifo) in rows {
        for (found, expected) in [(lru(cached, 3), expected_lru), (fifo(cached, 3), expected_fifo)]
        {
            assert!(found >= expected - 3e-3, "{cached}: {found} instead of {expected}");
            assert!(found * 16.0 / 17.0 <= expected + 1e-2, "{cached}: {found} for {expected}");
        }
    }
}

#[test]
fn a_full_cache_never_misses_and_an_empty_one_never_hits() {
    for nodes in [1, 2, 64, 65_536] {
        for rule in [best, fifo, lru] {
            assert!((rule(1.0, nodes) - 1.0).abs() < 1e-12);
            assert!(rule(0.0, nodes).abs() < 1e-12);
        }
    }
    assert!((pinned(2.0) - 1.0).abs() < 1e-12);
}

proptest::proptest! {
    #[test]
    fn a_larger_cache_never_hits_less(cached in 0.0..1.0, more in 0.0..1.0, nodes in 1_u32..200) {
        for rule in [best, fifo, lru] {
            proptest::prop_assert!(rule(cached, nodes) <= rule(cached + more, nodes) + 1e-9);
        }
    }

    #[test]
    fn no_rule_hits_more_than_the_limit(cached in 0.0..1.0, nodes in 1_u32..200) {
        let limit = best(cached, nodes) + 1e-9;
        for found in [pinned(cached), fifo(cached, nodes), lru(cached, nodes)] {
            proptest::prop_assert!((0.0..=limit).contains(&found), "{} of {}", found, limit);
        }
    }
}
