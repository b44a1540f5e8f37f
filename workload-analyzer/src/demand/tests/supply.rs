//! The limits of an epoch other than byte rates, and the effect of retention rules.

use super::*;

fn with_reads(reads_per_s: u64) -> TierFigure {
    TierFigure {
        reads_per_s: Some(reads_per_s),
        ..tier(tier::Kind::Storage, 500_000, 1_000_000_000)
    }
}

#[test]
fn small_samples_are_limited_by_their_number() {
    // 500 of 1,000 samples of an epoch come from the tier, 1,000 a second: 0.5 s for 0.2 s of computing.
    let verdict = verdict(&demand(), &supply(&[with_reads(1_000)], cold(0)));
    assert_eq!((verdict.tiers[0].requests, verdict.tiers[0].time), (500, Nanoseconds(500_000_000)));
    assert_eq!(verdict.bound_by, Bound::Tier(tier::Kind::Storage));
    assert_eq!(verdict.stall, Some(Nanoseconds(300_000_000)));
}

#[test]
fn preprocessing_beside_the_trainer_limits_and_between_its_steps_adds() {
    let verdict_of = |keys: &str| {
        let demand = of(&job(&format!("step_time: 10 ms\n{keys}")), &index()).unwrap();
        verdict(&demand, &supply(&[], cold(0)))
    };
    // 50 samples of 1 ms by 2 workers: 25 ms for 20 steps.
    let beside = verdict_of("loader: { workers: 2, preprocessing: 1 ms }\n");
    assert_eq!(beside.preprocessing, Some(Nanoseconds(500_000_000)));
    assert_eq!(
        (beside.bound_by, beside.stall),
        (Bound::Preprocessing, Some(Nanoseconds(300_000_000)))
    );
    let hidden = verdict_of("loader: { workers: 5, preprocessing: 1 ms }\n");
    assert_eq!((hidden.bound_by, hidden.stall), (Bound::Compute, Some(Nanoseconds(0))));
    let between = verdict_of("loader: { preprocessing: 100 us }\n");
    assert_eq!(between.preprocessing, Some(Nanoseconds(300_000_000)));
    assert_eq!(between.stall, Some(Nanoseconds(100_000_000)));
}

#[test]
fn a_cold_store_of_high_latency_needs_many_batches_in_flight() {
    let far = Speed { latency: Nanoseconds(90_000_000), bandwidth: BytesPerSecond(0) };
    // 90 ms to arrive and 10 ms to compute on, four at a time: one in 25 ms.
    let verdict = verdict(&demand(), &supply(&[], far));
    assert_eq!(verdict.pipeline, Nanoseconds(500_000_000));
    assert_eq!((verdict.bound_by, verdict.stall), (Bound::Latency, Some(Nanoseconds(300_000_000))));
    let deep = Demand { batches_ahead: 10, ..demand() };
    let verdict = super::verdict(&deep, &supply(&[], far));
    assert_eq!((verdict.bound_by, verdict.stall), (Bound::Compute, Some(Nanoseconds(0))));
}

#[test]
fn the_policy_decides_how_much_is_read_cold() {
    let tiers = [tier(tier::Kind::MainMemory, 500_000, 0)];
    let cold_bytes = |rule| {
        let supply = Supply { rule, ..supply(&tiers, cold(1_000_000)) };
        verdict(&demand(), &supply).cold
    };
    assert_eq!(cold_bytes(Rule::Gap), Bytes(500_000));
    assert_eq!(cold_bytes(Rule::None), Bytes(1_000_000));
    // 1 - (-c - ln(1-c)) and 1 - (c + (1-c) ln(1-c)) at a half.
    assert_eq!(cold_bytes(Rule::Fifo), Bytes(806_853));
    assert_eq!(cold_bytes(Rule::Lru), Bytes(846_574));
    let fifo = Supply { rule: Rule::Fifo, ..supply(&tiers, cold(1_000_000)) };
    let verdict = verdict(&demand(), &fifo);
    assert_eq!(verdict.minimal_cold, Bytes(500_000));
    assert_eq!(verdict.lower_bound, Nanoseconds(500_000_000));
    assert_eq!(verdict.policies[0].stall, Some(Nanoseconds(300_000_000)));
    assert_eq!(verdict.policies.len(), 5);
}

#[test]
fn the_stall_of_a_job_is_that_of_its_first_epoch_and_of_each_later_one() {
    let tiers = [tier(tier::Kind::MainMemory, 500_000, 0)];
    let verdict = verdict(&demand(), &supply(&tiers, cold(1_000_000)));
    assert_eq!(verdict.first_epoch_stall, Some(Nanoseconds(800_000_000)));
    assert_eq!(verdict.job_stall, Some(Nanoseconds(800_000_000 + 2 * 300_000_000)));
    assert!((verdict.stall_percent.unwrap() - 60.0).abs() < 1e-9);
}

#[test]
fn a_step_of_many_ranks_has_a_tail_that_is_less_than_all_their_tails() {
    let sizes =
        Sizes::of(100, || (0..100).map(|it| Bytes(if it % 2 == 0 { 1_000 } else { 3_000 })));
    let job = job("step_time: 1 s\nworld: { nodes: 1, ranks_per_node: 4 }\n");
    let demand = Demand::of(&job, &sizes).unwrap();
    // 25 samples a rank and 100 a node, of 2,000 B and a deviation of 1,000 B.
    assert_eq!(demand.rank_p99.unwrap().bytes, BytesPerSecond(50_000 + 11_630));
    assert_eq!(demand.node_p99.unwrap().bytes, BytesPerSecond(200_000 + 23_260));
}

#[test]
fn a_cold_store_of_unknown_rate_is_told_what_it_must_give() {
    let tiers = [tier(tier::Kind::MainMemory, 500_000, 0)];
    let unknown = verdict(&demand(), &supply(&tiers, cold(0)));
    // 0.5 MB, and 1 MB in the first epoch, while the trainers compute for 0.2 s.
    assert_eq!(unknown.cold_needed, Some(BytesPerSecond(2_500_000)));
    assert_eq!(unknown.first_epoch_cold_needed, Some(BytesPerSecond(5_000_000)));
    let text = summary(&demand(), &unknown, &[]);
    let condition =
        "can meet the demand if the cold store gives each node 2.50 MB/s (5 MB/s in the";
    assert!(text.contains(condition), "{text}");
    let enough = verdict(&demand(), &supply(&tiers, cold(5_000_000)));
    assert!(summary(&demand(), &enough, &[]).contains("can meet the demand; the trainer"));
}

#[test]
fn a_described_dataset_has_the_statistics_of_its_samples() {
    let described = crate::job::Described {
        objects: 77,
        samples_per_object: 31,
        sample_bytes: Bytes(10_000),
        sample_bytes_stdev: Bytes(6_000),
    };
    let sizes = described.sizes(5);
    assert_eq!(Sizes::described(&described, 5), Sizes::of(77, || sizes.iter()));
    // The largest number of samples takes no longer than a small one.
    let huge = crate::job::Described { objects: u32::MAX, samples_per_object: 1, ..described };
    let sizes = Sizes::described(&huge, 5);
    assert_eq!((sizes.samples(), sizes.mean_of(1)), (u32::MAX, Bytes(10_000)));
}

#[test]
fn no_batch_is_larger_than_its_largest_samples() {
    let sizes = Sizes::of(10, || (0..10).map(|it| Bytes(if it == 0 { 2_000 } else { 1_000 })));
    // A sample of 1,100 B with a deviation of 300 B; two of them.
    assert_eq!((sizes.p99_of(1), sizes.p99_of(2)), (Bytes(1_797), Bytes(3_186)));
    let even = Sizes::of(2, || [Bytes(0), Bytes(1_000)].into_iter());
    assert_eq!((even.p99_of(1), even.mean_of(1)), (Bytes(1_000), Bytes(500)));
}
