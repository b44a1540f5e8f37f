use super::*;

/// 5,004 samples: 19 steps an epoch.
fn small() -> Outcome {
    let kinds = [Kind::Gap, Kind::Fifo, Kind::None];
    run_of(&kinds, Settings { scale: 256, epochs: 2 }, &mut |_| {})
}

fn ready(outcome: &Outcome, policy: &str, bandwidth: f64) -> f64 {
    let is = |row: &&Row| row.policy == policy && (row.bandwidth - bandwidth).abs() < 1e-9;
    outcome.rows.iter().find(is).unwrap().ready_bytes
}

/// What must hold for the figures, at a size that takes a second.
#[test]
fn samples_are_there_as_often_as_retention_and_bandwidth_allow() {
    let outcome = small();
    for row in &outcome.rows {
        let hits = row.ready_bytes;
        assert!(hits <= row.bound + 0.02, "more than possible: {row:?}");
        // What is kept without regard to the place in the epoch loses nothing to bunched misses.
        if row.policy == "gap" {
            assert!(hits >= row.bound - 0.03, "less than possible: {row:?}");
        }
        if row.policy == "none" {
            let expected = row.bandwidth.min(1.0);
            assert!((hits - expected).abs() < 0.02, "not what the cold store brings: {row:?}");
        }
    }
    let (none, fifo) = (ready(&outcome, "none", 0.25), ready(&outcome, "fifo", 0.25));
    assert!(none + 0.01 < fifo && fifo + 0.1 < ready(&outcome, "gap", 0.25), "{none}, {fifo}");
    let text = table(&outcome);
    let line = |start: &str| text.lines().any(|line| line.starts_with(start));
    assert!(line("fifo") && line("bound") && line("Lobster "), "{text}");
}

#[test]
fn bunched_misses_come_late() {
    let sizes = SIZES.sizes(6000);
    let dataset = sizes.iter().map(|len| len.0).sum();
    // Two batches: with eight, staging would hold a third of so short an epoch.
    let base = Session { staged_batches: 2, ..session(&sizes, 3, part_of(dataset, CACHED)) };
    let ready = |kind| measure(Case { kind, bandwidth: 0.5 }, &base, dataset).ready_bytes;
    let (belady, gap) = (ready(Kind::Belady), ready(Kind::Gap));
    assert!(belady + 0.1 < gap, "{belady} against {gap}");
}

#[test]
fn the_picture_has_a_curve_for_every_policy_within_its_frame() {
    let row = |policy, bandwidth: f64, ready| Row {
        policy,
        bandwidth,
        ready,
        ready_bytes: ready,
        hits: 0.0,
        bound: (CACHED + bandwidth).min(1.0),
    };
    let rows = [("gap", 0.79), ("none", 0.5)]
        .into_iter()
        .flat_map(|(policy, ready)| [row(policy, 0.5, ready), row(policy, 1.0, 1.0)]);
    let outcome = Outcome {
        scale: 8,
        epochs: 3,
        samples: 1000,
        dataset_bytes: 1000,
        capacity_bytes: 296,
        rows: rows.collect(),
    };
    let svg = plot(&outcome);
    assert_eq!(svg.matches("<polyline").count(), 2);
    // 0.5 and 1.0 of the width from 70 to 720; 0.79 and 1.0 of the height from 500 to 80.
    assert!(svg.contains("395,168.2 720,80"), "{svg}");
    assert!(svg.contains(">gap<") && svg.contains("NoPFS, published"), "{svg}");
    assert_eq!(svg, plot(&outcome));
}
