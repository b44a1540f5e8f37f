//! Advice has the stated effect, and a smaller change does not.

use super::*;

fn found(advice: &[Advice], change: Change) -> Advice {
    let found = advice.iter().find(|it| it.change == change);
    found.unwrap_or_else(|| panic!("{change:?} in {advice:?}")).clone()
}

fn slow(tiers: &[TierFigure]) -> Supply {
    supply(tiers, cold(1_000_000))
}

#[test]
fn a_job_without_stall_gets_no_advice() {
    assert_eq!(advice(&demand(), &supply(&[], cold(0))), []);
    let unknown = of(&job(""), &index()).unwrap();
    assert_eq!(advice(&unknown, &slow(&[])), []);
}

/// 1 MB in 20 steps of 10 ms: with 0.8 MB cached, the rest is read at 1 MB/s in the same time.
#[test]
fn the_cache_is_as_large_as_it_must_be_and_not_a_chunk_larger() {
    let tiers = [
        tier(tier::Kind::MainMemory, 100_000, 0),
        tier(tier::Kind::CxlMemory, 100_000, 1_000_000_000),
    ];
    let found = found(&advice(&demand(), &slow(&tiers)), Change::CacheSize(tier::Kind::CxlMemory));
    assert_eq!((found.from.as_str(), found.to.as_str()), ("97.65 KiB", "683.59 KiB"));
    // The first epoch is read cold with any cache: 1 s for 0.2 s.
    assert_eq!(found.after, Nanoseconds(800_000_000));
    assert_eq!(found.before, Nanoseconds(800_000_000 + 2 * 600_000_000));
    let stall = |cxl| {
        let tiers = [tiers[0], tier(tier::Kind::CxlMemory, cxl, 1_000_000_000)];
        verdict(&demand(), &slow(&tiers)).stall.unwrap()
    };
    assert_eq!(stall(700_000), Nanoseconds(0));
    assert!(stall(699_000) > Nanoseconds(0));
}

/// A tier at 2 MB/s, twice the rate of the cold store. Both take equally long for 2/3 and 1/3 of the data,
/// and that is longer than computing.
#[test]
fn a_slow_tier_is_advised_to_where_it_and_the_cold_store_take_the_same_time() {
    let tiers = [tier(tier::Kind::Storage, 100_000, 2_000_000)];
    let found = found(&advice(&demand(), &slow(&tiers)), Change::CacheSize(tier::Kind::Storage));
    let expected = verdict(&demand(), &slow(&[tier(tier::Kind::Storage, 667_000, 2_000_000)]));
    assert_eq!(found.to, Bytes(667_000).to_string());
    assert_eq!(Some(found.after), expected.job_stall);
}

#[test]
fn the_cold_store_is_as_fast_as_it_must_be() {
    let tiers = [tier(tier::Kind::MainMemory, 500_000, 0)];
    let found = found(&advice(&demand(), &slow(&tiers)), Change::ColdRate);
    assert_eq!((found.from.as_str(), found.to.as_str()), ("1 MB/s", "2.50 MB/s"));
    let fast = supply(&tiers, cold(2_500_000));
    assert_eq!(verdict(&demand(), &fast).stall, Some(Nanoseconds(0)));
    assert_ne!(verdict(&demand(), &supply(&tiers, cold(2_499_000))).stall, Some(Nanoseconds(0)));
}

#[test]
fn another_policy_is_advised_where_it_helps() {
    let tiers = [tier(tier::Kind::MainMemory, 500_000, 0)];
    let fifo = Supply { rule: Rule::Fifo, ..slow(&tiers) };
    let policy = found(&advice(&demand(), &fifo), Change::Policy);
    assert_eq!((policy.from.as_str(), policy.to.as_str()), ("fifo", "gap"));
    assert_eq!(Some(policy.after), verdict(&demand(), &slow(&tiers)).job_stall);
    assert!(advice(&demand(), &slow(&tiers)).iter().all(|it| it.change != Change::Policy));
}

#[test]
fn as_many_batches_are_advised_as_hide_the_latency() {
    let far = Speed { latency: Nanoseconds(90_000_000), bandwidth: BytesPerSecond(0) };
    let found = found(&advice(&demand(), &supply(&[], far)), Change::PrefetchBatches);
    assert_eq!((found.from.as_str(), found.to.as_str()), ("4", "10"));
    assert_eq!(found.after, Nanoseconds(0));
    assert!(found.reason.contains("90 ms to arrive and 10 ms"), "{}", found.reason);
    let shallow = Demand { batches_ahead: 9, ..demand() };
    assert_ne!(verdict(&shallow, &supply(&[], far)).stall, Some(Nanoseconds(0)));
}

#[test]
fn as_many_workers_are_advised_as_keep_up() {
    for (workers, expected) in [(0, "5"), (2, "5")] {
        let keys =
            format!("step_time: 10 ms\nloader: {{ workers: {workers}, preprocessing: 1 ms }}\n");
        let demand = of(&job(&keys), &index()).unwrap();
        let found = found(&advice(&demand, &supply(&[], cold(0))), Change::LoaderWorkers);
        assert_eq!((found.to.as_str(), found.after), (expected, Nanoseconds(0)), "{workers}");
    }
}

#[test]
fn a_tier_that_is_too_slow_is_told_how_fast_it_must_be() {
    let tiers = [tier(tier::Kind::Storage, 1_000_000, 2_000_000)];
    let advice = advice(&demand(), &supply(&tiers, cold(0)));
    let found = found(&advice, Change::TierSpeed(tier::Kind::Storage));
    assert_eq!((found.from.as_str(), found.to.as_str()), ("2 MB/s", "5 MB/s"));
    assert_eq!(found.after, Nanoseconds(0));
}

#[test]
fn a_single_epoch_is_not_helped_by_any_cache() {
    let once = of(&Job { epochs: 1, ..job("step_time: 10 ms\n") }, &index()).unwrap();
    let tiers = [tier(tier::Kind::MainMemory, 100_000, 0)];
    let advice = advice(&once, &slow(&tiers));
    let changes: Vec<_> = advice.iter().map(|it| it.change).collect();
    assert_eq!(changes, [Change::ColdRate]);
    assert_eq!(advice[0].to, "5 MB/s");
}

#[test]
fn what_helps_most_stands_first() {
    let tiers = [tier(tier::Kind::MainMemory, 500_000, 0)];
    let fifo = Supply { rule: Rule::Fifo, ..slow(&tiers) };
    let advice = advice(&demand(), &fifo);
    assert!(advice.len() >= 3, "{advice:?}");
    assert!(advice.is_sorted_by_key(|it| it.after), "{advice:?}");
    let json = serde_json::to_value(&advice[0]).unwrap();
    let keys: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["change", "from", "reason", "stall_s_after", "stall_s_before", "to"]);
}

proptest::proptest! {
    /// For all figures, advice reduces the stall and never adds to it.
    #[test]
    fn advice_never_makes_it_worse(
        memory in 0_u64..1_200_000,
        storage in 0_u64..1_200_000,
        storage_rate in 1_u64..20_000_000,
        cold_rate in 1_u64..20_000_000,
        latency in 0_u64..200_000_000,
        rule in 0_usize..5,
        nodes in 1_u32..4,
    ) {
        let tiers = [
            tier(tier::Kind::MainMemory, memory, 0),
            tier(tier::Kind::Storage, storage, storage_rate),
        ];
        let speed = Speed {
            latency: Nanoseconds(latency),
            bandwidth: BytesPerSecond(cold_rate),
        };
        let supply = Supply { rule: Rule::ALL[rule], ..supply(&tiers, speed) };
        let sizes = Sizes::of(1_000, || std::iter::repeat_n(Bytes(1_000), 1_000));
        let job = job(&format!("step_time: 10 ms\nworld: {{ nodes: {nodes} }}\n"));
        let demand = Demand::of(&job, &sizes).unwrap();
        for it in advice(&demand, &supply) {
            proptest::prop_assert!(it.after < it.before, "{:?}", it);
        }
    }
}
