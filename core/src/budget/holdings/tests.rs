use proptest::prelude::*;

use super::*;

const DRAM: Pool = Pool(0);
const CXL: Pool = Pool(3);
const SECOND: u64 = 1_000_000_000;

fn tier(pool: Pool, share: Option<u8>, chunks: u32) -> TierLimit {
    let share = share.and_then(Percent::new);
    TierLimit { kind: Kind::MainMemory, pool, share, beside: Bytes(0), chunks, chunks_max: chunks }
}

fn staging() -> StagingLimit {
    StagingLimit { pool: DRAM, batches: 6, batches_min: 2, batch: Bytes::mib(2) }
}

fn free(mib: u64) -> Free {
    Free { bytes: Bytes::mib(mib), kept: Bytes::mib(100) }
}

/// Main memory with six chunks and a RAM disk with four, all in use, and staging of 12 MiB.
fn full() -> Holdings {
    Holdings::new(Bytes::mib(1), staging(), &[tier(DRAM, None, 6), tier(DRAM, None, 4)])
}

/// The reading when each tier holds all that it is allowed.
fn reading(of: &Holdings, second: u64, free_mib: u64) -> Reading {
    let held = |tier: &Tier| TierReading {
        held: Bytes(u64::from(tier.cache()) << 20),
        chunks_max: tier.cache(),
    };
    Reading {
        now: Nanoseconds(second * SECOND),
        waited: Some(Nanoseconds(0)),
        free: BTreeMap::from([(DRAM, free(free_mib)), (CXL, free(1000))]),
        tiers: of.tiers.iter().map(held).collect(),
        staging: Bytes(u64::from(of.batches) << 21),
    }
}

fn cache(at: u8, from: u32, to: u32, reason: Reason) -> Change {
    Change { step: Step::Cache { tier: TierId(at), from, to }, reason }
}

fn batches(from: u32, to: u32, reason: Reason) -> Change {
    Change { step: Step::Staging { from, to }, reason }
}

#[test]
fn the_slowest_cache_goes_first_and_staging_last() {
    let mut holdings = full();
    let short = |mib| Reason::Short(Bytes::mib(mib));
    let now = reading(&holdings, 1, 97);
    assert_eq!(holdings.read(&now), [cache(1, 4, 1, short(3))]);
    let now = reading(&holdings, 2, 95);
    let both = [cache(0, 6, 2, short(5)), cache(1, 1, 0, short(5))];
    assert_eq!(holdings.read(&now), both);
    let now = reading(&holdings, 3, 70);
    assert_eq!(holdings.read(&now), [cache(0, 2, 0, short(30))], "staging waits for the caches");
    let now = reading(&holdings, 4, 97);
    assert_eq!(holdings.read(&now), [batches(6, 4, short(3))]);
    let now = reading(&holdings, 5, 0);
    assert_eq!(holdings.read(&now), [batches(4, 2, short(100))]);
    let now = reading(&holdings, 6, 0);
    assert_eq!(holdings.read(&now), [], "invariant 2");
}

#[test]
fn what_is_on_its_way_is_not_taken_twice() {
    let mut holdings = full();
    let before = reading(&holdings, 1, 97);
    assert_eq!(holdings.read(&before).len(), 1);
    let still_there = Reading { now: Nanoseconds(2 * SECOND), ..before.clone() };
    assert_eq!(holdings.read(&still_there), []);
    let more = Reading { free: BTreeMap::from([(DRAM, free(96))]), ..still_there };
    assert_eq!(holdings.read(&more), [cache(1, 1, 0, Reason::Short(Bytes::mib(4)))]);
}

#[test]
fn who_waits_gets_memory_unless_there_is_plenty() {
    let mut holdings = full();
    let waited = |second: u64, free_mib| Reading {
        waited: Some(Nanoseconds(second * SECOND / 5)),
        ..reading(&full(), second, free_mib)
    };
    assert_eq!(holdings.read(&waited(1, 200)), [], "nothing to compare with");
    let twenty = Reason::Waiting(Percent(20));
    assert_eq!(holdings.read(&waited(2, 200)), [cache(1, 4, 3, twenty)]);
    assert_eq!(holdings.waiting(), Some(Percent(20)));
    let mut other = full();
    assert_eq!(other.read(&waited(1, 400)), []);
    assert_eq!(other.read(&waited(2, 400)), [], "they wait for something else");
}

#[test]
fn staging_grows_back_first_and_only_after_calm() {
    let mut holdings = full();
    for (second, free_mib) in [(1, 60), (2, 60), (3, 60)] {
        let now = reading(&holdings, second, free_mib);
        holdings.read(&now);
    }
    assert_eq!((holdings.batches(), holdings.budget_chunks(TierId(0))), (2, 0));
    let mut changes = Vec::new();
    for second in 4..30 {
        let now = reading(&holdings, second, if second == 6 { 110 } else { 500 });
        changes.extend(holdings.read(&now).into_iter().map(|change| (second, change)));
    }
    let calm = Reason::Calm;
    let expected = [
        (11, batches(2, 3, calm)),
        (12, batches(3, 4, calm)),
        (13, batches(4, 5, calm)),
        (14, batches(5, 6, calm)),
        (15, cache(0, 0, 2, calm)),
        (16, cache(0, 2, 3, calm)),
        (17, cache(0, 3, 4, calm)),
        (18, cache(0, 4, 5, calm)),
        (19, cache(0, 5, 6, calm)),
        (20, cache(1, 0, 1, calm)),
        (21, cache(1, 1, 2, calm)),
        (22, cache(1, 2, 3, calm)),
        (23, cache(1, 3, 4, calm)),
    ];
    assert_eq!(changes, expected);
}

#[test]
fn two_shares_of_one_memory_stay_as_they_were_granted() {
    let shares = [tier(DRAM, Some(45), 450), tier(DRAM, Some(45), 450)];
    let mut holdings = Holdings::new(Bytes::mib(1), staging(), &shares);
    // All of 1000 MiB but what is free now.
    let full = reading(&holdings, 1, 100);
    let changes = holdings.read(&full);
    assert_eq!(changes, [], "{changes:?}");
}

#[test]
fn a_share_follows_what_the_job_itself_takes() {
    let mut limit = tier(DRAM, Some(20), 40);
    limit.chunks_max = 1000;
    let mut holdings = Holdings::new(Bytes::mib(1), staging(), &[limit]);
    let now = reading(&holdings, 1, 110);
    assert_eq!(holdings.read(&now), [cache(0, 40, 30, Reason::Share)], "of 150 MiB");
    let now = reading(&holdings, 7, 970);
    assert_eq!(holdings.read(&now), [cache(0, 30, 73, Reason::Calm)], "a quarter of the way");
}

#[test]
fn a_chunk_that_was_refused_is_asked_for_again_after_a_while() {
    let mut holdings = full();
    let mut now = reading(&holdings, 1, 500);
    now.tiers[0].chunks_max = 2;
    assert_eq!(holdings.read(&now), [cache(0, 6, 2, Reason::Refused)]);
    for second in 2..6 {
        let now = reading(&holdings, second, 500);
        assert_eq!(holdings.read(&now), []);
    }
    let now = reading(&holdings, 6, 500);
    assert_eq!(holdings.read(&now), [cache(0, 2, 3, Reason::Calm)]);
}

#[test]
fn what_is_lent_the_cache_does_not_have() {
    let mut holdings = full();
    assert_eq!(holdings.lend(TierId(1), 3), Some(cache(1, 4, 1, Reason::Lent)));
    assert_eq!(holdings.lend(TierId(1), 3), None, "nothing is told twice");
    assert_eq!(holdings.lend(TierId(1), 0), Some(cache(1, 1, 4, Reason::Lent)));
    assert_eq!(holdings.lend(TierId(9), 1), None);
}

#[test]
fn the_first_cxl_tier_lends() {
    assert_eq!(full().lender(), None);
    let tiers = [Kind::MainMemory, Kind::CxlMemory, Kind::CxlMemory]
        .map(|kind| TierLimit { kind, ..tier(CXL, None, 8) });
    let mut holdings = Holdings::new(Bytes::mib(1), staging(), &tiers);
    let lender = holdings.lender().unwrap();
    assert_eq!(lender, TierId(1));
    holdings.lend(lender, 3);
    assert_eq!(holdings.rooms().nth(1), Some((Kind::CxlMemory, Bytes::mib(8))), "lent ones count");
}

#[test]
fn what_a_cache_might_hold_at_least_and_at_most_is_noted() {
    let mut holdings = Holdings::new(Bytes::mib(1), staging(), &[tier(DRAM, None, 10)]);
    let mib = |holdings: &Holdings| {
        let CacheRange { least, most } = holdings.ranges().next().unwrap();
        (least.0 >> 20, most.0 >> 20)
    };
    assert_eq!(mib(&holdings), (10, 10));
    let now = reading(&holdings, 1, 97);
    holdings.read(&now);
    let room = holdings.rooms().next();
    assert_eq!(room, Some((Kind::MainMemory, Bytes::mib(7))), "3 MiB short of what stays free");
    for second in 7..20 {
        let now = reading(&holdings, second, 5_000);
        holdings.read(&now);
    }
    assert_eq!(holdings.budget_chunks(TierId(0)), 10, "it was given back");
    assert_eq!(mib(&holdings), (7, 10));
}

#[test]
fn a_cache_may_have_to_make_room_soon_where_others_can_take_all_that_is_left() {
    let may = |held, free, kind| {
        let limit = TierLimit { kind, ..tier(DRAM, None, 8) };
        let holdings = Holdings::new(Bytes::mib(1), staging(), &[limit]);
        let free = Free { bytes: free, kept: Bytes::mib(100) };
        let tiers = vec![TierReading { held, chunks_max: 8 }];
        let free = BTreeMap::from([(DRAM, free)]);
        holdings.may_run_short(&Reading { free, tiers, ..reading(&holdings, 1, 0) })
    };
    let plenty = Bytes(Bytes::mib(100).0 + SURGE.0);
    assert!(may(Bytes::mib(8), Bytes(plenty.0 - 1), Kind::MainMemory));
    assert!(!may(Bytes::mib(8), plenty, Kind::MainMemory));
    assert!(!may(Bytes(0), Bytes::mib(1), Kind::MainMemory), "nothing to give back");
    assert!(!may(Bytes::mib(8), Bytes::mib(1), Kind::Storage), "a disk");
}

#[derive(Debug, Clone)]
struct Turn {
    passed_ms: u64,
    waiting: u8,
    /// Free bytes by pool, in MiB.
    free: [u64; 2],
    /// Whether the tiers hold what the last change allowed.
    is_prompt: bool,
    refused: bool,
}

prop_compose! {
    fn any_turn()(
        passed_ms in 1_u64..3_000,
        waiting in prop_oneof![3 => Just(0_u8), 1 => 0_u8..40],
        free in prop::array::uniform2(prop_oneof![2 => 300_u64..500, 1 => 0_u64..300]),
        is_prompt: bool,
        refused in prop::bool::weighted(0.1),
    ) -> Turn {
        Turn { passed_ms, waiting, free, is_prompt, refused }
    }
}

proptest! {
    #[test]
    fn the_order_and_the_limits_hold_for_all_readings(
        turns in prop::collection::vec(any_turn(), 1..60),
        share in prop::option::of(1_u8..90),
    ) {
        let limits = [tier(DRAM, share, 6), tier(CXL, None, 5), tier(DRAM, None, 4)];
        let mut holdings = Holdings::new(Bytes::mib(1), staging(), &limits);
        let mut now = reading(&holdings, 0, 300);
        let mut waited = 0;
        let mut troubled_at = 0;
        for turn in turns {
            now.now.0 += turn.passed_ms * 1_000_000;
            waited += turn.passed_ms * 10_000 * u64::from(turn.waiting);
            now.waited = Some(Nanoseconds(waited));
            now.free = BTreeMap::from([(DRAM, free(turn.free[0])), (CXL, free(turn.free[1]))]);
            for (at, tier) in now.tiers.iter_mut().enumerate() {
                let allowed = holdings.tiers[at].cache();
                tier.chunks_max = if turn.refused { allowed / 2 } else { allowed };
                if turn.is_prompt {
                    tier.held = Bytes(u64::from(tier.chunks_max) << 20);
                }
            }
            if turn.is_prompt {
                now.staging = Bytes(u64::from(holdings.batches) << 21);
            }
            let pools = now.free.values();
            let mut allowed = now.tiers.iter().zip(&holdings.tiers);
            let is_refused = allowed.any(|(now, tier)| now.chunks_max < tier.cache());
            if is_refused || pools.clone().any(|free| free.bytes < Bytes::mib(125)) {
                troubled_at = now.now.0;
            }
            let chunks_before: Vec<u32> = holdings.tiers.iter().map(Tier::cache).collect();
            let batches_before = holdings.batches;
            let changes = holdings.read(&now);
            let chunks: Vec<u32> = holdings.tiers.iter().map(Tier::cache).collect();
            for (limit, chunks) in limits.iter().zip(&chunks) {
                prop_assert!(*chunks <= limit.chunks_max, "invariant 1");
            }
            prop_assert!((2..=6).contains(&holdings.batches), "invariants 1 and 2");
            if holdings.batches < batches_before {
                prop_assert_eq!((chunks[0], chunks[2]), (0, 0), "invariant 2");
                prop_assert_eq!(now.tiers[0].held.0 + now.tiers[2].held.0, 0, "invariant 2");
            }
            let grew = holdings.batches > batches_before
                || chunks.iter().zip(&chunks_before).any(|(now, before)| now > before);
            if grew {
                prop_assert!(now.now.0 - troubled_at >= CALM_FOR.0, "invariant 3");
                for (pool, free) in &now.free {
                    let left = free.bytes.0.saturating_sub(holdings.yet_to_come(*pool, &now));
                    prop_assert!(left >= free.kept.0 || !grew_in(*pool, &changes), "invariant 4");
                }
            }
            let told = changes.len();
            let differs = chunks.iter().zip(&chunks_before).filter(|(now, before)| now != before);
            prop_assert_eq!(told, differs.count() + usize::from(holdings.batches != batches_before));
        }
    }
}

fn grew_in(pool: Pool, changes: &[Change]) -> bool {
    changes.iter().any(|change| match change.step {
        Step::Cache { tier, from, to } => {
            to > from && [DRAM, CXL, DRAM][usize::from(tier.0)] == pool
        }
        Step::Staging { from, to } => to > from && pool == DRAM,
    })
}
