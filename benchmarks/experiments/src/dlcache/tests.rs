use std::{collections::BTreeSet, fmt::Write as _};

use proptest::{collection::vec, prelude::*};
use tierfeed_core::{
    order::mt19937::Mt19937,
    units::{Bytes, Nanoseconds},
};

use super::{
    chunks::ChunkId,
    policies::{Moment, Policy, Worth},
    workload::{Job, Pattern},
    *,
};

const HEADER: &str = "dataset,size_bytes,cost_s_times_8";
const SECOND: u64 = 1_000_000_000;

/// Chunks of sizes in bytes and costs in seconds.
fn chunks(all: &[(u64, u64)]) -> Chunks {
    let mut text = format!("{HEADER}\n");
    for (bytes, cost_s) in all {
        writeln!(text, "reused,{bytes},{}", cost_s * 8).unwrap();
    }
    Chunks::parse(&(text + "shared,1,0\ngrowing,1,0\nonce,1,0\n")).unwrap()
}

/// Three chunks of a byte that cost 1, 10 and 100 seconds: A, B and C.
fn a_b_c() -> Chunks {
    chunks(&[(1, 1), (1, 10), (1, 100)])
}

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

fn pattern(capacity: u64, jobs: &[&[usize]]) -> Pattern {
    let job = |job: &&[usize]| -> Job { job.iter().map(|it| ChunkId(*it)).collect() };
    Pattern { number: 0, capacity: Bytes(capacity), jobs: jobs.iter().map(job).collect() }
}

/// The cost under `kind` with room for `capacity` bytes, in seconds.
fn spent_s(kind: Kind, chunks: &Chunks, capacity: u64, jobs: &[&[usize]]) -> u64 {
    let pattern = pattern(capacity, jobs);
    let Nanoseconds(ns) =
        replay::preparation(chunks, &pattern, &mut *kind.policy(chunks, &pattern));
    assert_eq!(ns % SECOND, 0, "costs are whole seconds");
    ns / SECOND
}

fn row<'a>(outcome: &'a Outcome, policy: &str) -> &'a Row {
    outcome.rows.iter().find(|it| it.policy == policy).unwrap()
}

fn error(text: &str) -> String {
    format!("{:#}", Chunks::parse(text).unwrap_err())
}

#[test]
fn lru_drops_what_was_not_used_for_longest() {
    let jobs: [&[usize]; 5] = [&[A, B], &[A], &[C], &[A], &[B]];
    assert_eq!(spent_s(Kind::Lru, &a_b_c(), 2, &jobs), 1 + 10 + 100 + 10);
}

#[test]
fn lfu_counts_from_when_a_chunk_was_stored() {
    // B is used three times in all and once since it is back, A twice: C drives out B again.
    let jobs: [&[usize]; 7] = [&[B], &[B], &[A], &[A], &[A], &[C], &[B]];
    let then: [&[usize]; 2] = [&[C], &[A]];
    let jobs = [&jobs[..], &then].concat();
    assert_eq!(spent_s(Kind::Lfu, &a_b_c(), 2, &jobs), 10 + 1 + 100 + 10 + 100);
}

#[test]
fn lfu_drops_the_least_recent_of_equals() {
    let jobs: [&[usize]; 5] = [&[A, B], &[B, A], &[C], &[A], &[B]];
    assert_eq!(spent_s(Kind::Lfu, &a_b_c(), 2, &jobs), 1 + 10 + 100 + 10);
}

#[test]
fn greedy_drops_the_cheapest_whatever_its_size() {
    const LARGE: usize = 0;
    const CHEAP: usize = 1;
    const OTHER: usize = 2;
    let chunks = chunks(&[(4, 30), (1, 10), (1, 20)]);
    let jobs: [&[usize]; 4] = [&[LARGE, CHEAP], &[OTHER], &[LARGE], &[CHEAP]];
    assert_eq!(spent_s(Kind::Greedy, &chunks, 5, &jobs), 30 + 10 + 20 + 10);
}

#[test]
fn of_equal_history_lrfu_drops_what_was_stored_first_and_dlcache_the_cheaper() {
    let jobs: [&[usize]; 4] = [&[B, A], &[B, A], &[C], &[B]];
    assert_eq!(spent_s(Kind::Lrfu, &a_b_c(), 2, &jobs), 10 + 1 + 100 + 10);
    assert_eq!(spent_s(Kind::DlCache, &a_b_c(), 2, &jobs), 10 + 1 + 100);
}

#[test]
fn dlcache_keeps_a_cheap_chunk_that_is_used_more_often() {
    let jobs: [&[usize]; 4] = [&[A], &[A, B], &[C], &[A]];
    assert_eq!(spent_s(Kind::DlCache, &a_b_c(), 2, &jobs), 1 + 10 + 100);
}

#[test]
fn dlcache_counts_uses_from_before_an_eviction() {
    // A is back with three uses, B has two.
    let jobs: [&[usize]; 6] = [&[A], &[A], &[B, B, B], &[C, C, C], &[A], &[A]];
    let then: [&[usize]; 3] = [&[B], &[A], &[C]];
    let jobs = [&jobs[..], &then].concat();
    assert_eq!(spent_s(Kind::DlCache, &a_b_c(), 2, &jobs), 1 + 10 + 100 + 1 + 10 + 100);
}

#[test]
fn with_a_second_for_a_job_dlcache_prefers_the_recent() {
    // A: three uses, four to six jobs ago; B: two, two and three ago.
    let jobs: [&[usize]; 8] = [&[A], &[A], &[A], &[B], &[B], &[], &[C], &[A]];
    assert_eq!(spent_s(Kind::DlCache, &a_b_c(), 2, &jobs), 1 + 10 + 100);
    assert_eq!(spent_s(Kind::DlCacheSecond, &a_b_c(), 2, &jobs), 1 + 10 + 100 + 1);
}

#[test]
fn deployed_dlcache_weighs_cost_by_age() {
    // C was used once, two jobs ago: 100/2/16 is more than A's 1/1/4.
    let chunks = chunks(&[(1, 1), (1, 10), (1, 100)]);
    let jobs: [&[usize]; 5] = [&[C], &[A], &[B], &[C], &[A]];
    assert_eq!(spent_s(Kind::DlCacheDeployed, &chunks, 2, &jobs), 100 + 1 + 10 + 1);
    // A job later each, it is not: 10/1/4 against 100/4/256.
    let jobs: [&[usize]; 7] = [&[C], &[], &[], &[B], &[A], &[B], &[C]];
    assert_eq!(spent_s(Kind::DlCacheDeployed, &chunks, 2, &jobs), 100 + 10 + 1 + 100);
}

#[test]
fn what_the_running_job_has_still_to_use_stays() {
    let jobs: [&[usize]; 2] = [&[A, B], &[C, A, B]];
    assert_eq!(spent_s(Kind::DlCache, &a_b_c(), 2, &jobs), 1 + 10 + 100 + 1 + 10);
    assert_eq!(spent_s(Kind::DlCacheRegistered, &a_b_c(), 2, &jobs), 1 + 10 + 100);
    assert_eq!(spent_s(Kind::Tierfeed, &a_b_c(), 2, &jobs), 1 + 10 + 100);

    // A would go first, B can, and so C is stored.
    let jobs: [&[usize]; 3] = [&[A, B], &[C, A], &[C]];
    assert_eq!(spent_s(Kind::DlCacheRegistered, &a_b_c(), 2, &jobs), 1 + 10 + 100);
}

#[test]
fn ours_drops_what_was_used_once_before_anything_proven() {
    // C costs most, and A was used twice.
    let jobs: [&[usize]; 4] = [&[A], &[A, C], &[B], &[A]];
    assert_eq!(spent_s(Kind::Tierfeed, &a_b_c(), 2, &jobs), 1 + 100 + 10);
}

#[test]
fn ours_drops_the_older_of_two_that_were_used_once() {
    let jobs: [&[usize]; 4] = [&[C], &[A], &[B], &[A]];
    assert_eq!(spent_s(Kind::Tierfeed, &a_b_c(), 2, &jobs), 100 + 1 + 10);
}

#[test]
fn ours_drops_of_the_proven_what_saves_least_by_byte_and_use() {
    const SMALL: usize = 0;
    const LARGE: usize = 1;
    const OTHER: usize = 2;
    // 10 s for a byte are more than 100 s for 20; so are six uses of 2 s than two of 5 s.
    let chunks = chunks(&[(1, 10), (20, 100), (1, 2)]);
    let both: [&[usize]; 2] = [&[SMALL, LARGE], &[SMALL, LARGE]];
    let often: [&[usize]; 3] = [&[OTHER, OTHER, OTHER, OTHER, OTHER, OTHER], &[SMALL], &[LARGE]];
    assert_eq!(spent_s(Kind::Tierfeed, &chunks, 21, &[&both[..], &often].concat()), 110 + 2 + 100);
    // Two uses of 2 s are less than two of 5 s, and it is not stored.
    let seldom: [&[usize]; 3] = [&[OTHER, OTHER], &[SMALL], &[LARGE]];
    assert_eq!(spent_s(Kind::Tierfeed, &chunks, 21, &[&both[..], &seldom].concat()), 110 + 2);
}

#[test]
fn ours_does_not_store_what_is_worth_less_than_what_had_to_go() {
    let jobs: [&[usize]; 4] = [&[A, B], &[A, B], &[C], &[A, B]];
    assert_eq!(spent_s(Kind::Tierfeed, &a_b_c(), 2, &jobs), 1 + 10 + 100);
}

#[test]
fn with_all_jobs_known_what_is_never_used_again_goes_first() {
    let jobs: [&[usize]; 5] = [&[C, A], &[B], &[A], &[B], &[A]];
    assert_eq!(spent_s(Kind::Belady, &a_b_c(), 2, &jobs), 100 + 1 + 10);
    assert_eq!(spent_s(Kind::TierfeedKnown, &a_b_c(), 2, &jobs), 100 + 1 + 10);
}

#[test]
fn with_all_jobs_known_ours_keeps_what_saves_more_although_it_is_used_later() {
    let jobs: [&[usize]; 4] = [&[C], &[A], &[A], &[C]];
    assert_eq!(spent_s(Kind::Belady, &a_b_c(), 1, &jobs), 100 + 1 + 100);
    assert_eq!(spent_s(Kind::TierfeedKnown, &a_b_c(), 1, &jobs), 100 + 1 + 1);
}

#[test]
fn a_chunk_that_jobs_share_is_prepared_once_for_all_stored_or_not() {
    let jobs: [&[usize]; 3] = [&[A, B], &[C, C, C], &[A, B]];
    assert_eq!(spent_s(Kind::Belady, &a_b_c(), 2, &jobs), 1 + 10 + 100);
}

#[test]
fn a_chunk_larger_than_the_store_drives_nothing_out() {
    let chunks = chunks(&[(1, 1), (3, 10)]);
    for kind in Kind::ALL {
        assert_eq!(spent_s(kind, &chunks, 2, &[&[A], &[B], &[B], &[A]]), 21, "{}", kind.name());
    }
}

#[test]
fn orders_are_those_of_numpy() {
    // numpy 2.4: r = numpy.random.RandomState(12345); three times a = list(range(n)); r.shuffle(a)
    let mut random = Mt19937::new(12_345);
    let mut shuffled = |len| {
        let mut items: Vec<usize> = (0..len).collect();
        workload::shuffle(&mut random, &mut items);
        items
    };
    assert_eq!(shuffled(5), [0, 4, 3, 1, 2]);
    assert_eq!(shuffled(8), [7, 0, 3, 6, 2, 5, 1, 4]);
    let long = [4, 15, 19, 3, 12, 0, 5, 8, 20, 7, 6, 2, 1, 10, 13, 11, 18, 16, 9, 14, 17];
    assert_eq!(shuffled(21), long);
}

#[test]
fn there_are_as_many_patterns_as_said() {
    let chunks = Chunks::generated();
    for (which, count, sizes) in [(Patterns::Published, 14_400, 6), (Patterns::Quick, 576, 6)] {
        let capacities: Vec<u64> =
            workload::patterns(&chunks, which).map(|it| it.capacity.0).collect();
        assert_eq!((capacities.len(), workload::count(which)), (count, count));
        assert_eq!(capacities.iter().collect::<BTreeSet<_>>().len(), sizes);
        assert_eq!((capacities[0], capacities[count - 1]), (160 * GB, 260 * GB));
    }
    assert_eq!(workload::count(Patterns::Paper), 24_000);
}

#[test]
fn a_pattern_has_the_jobs_of_its_configuration() {
    let chunks = Chunks::generated();
    // The last of all: five jobs on the reused dataset, seven that share, windows of eight days.
    let last = workload::patterns(&chunks, Patterns::Quick).last().unwrap();
    let count = |job: &Job| last.jobs.iter().filter(|it| *it == job).count();
    assert_eq!((count(&chunks.reused), count(&chunks.once)), (5, 1));
    let shared: Job = chunks.shared.iter().flat_map(|it| [*it; 7]).collect();
    assert_eq!(count(&shared), 7);
    let windows: Vec<&Job> =
        last.jobs.iter().filter(|it| chunks.growing.contains(&it[0])).collect();
    let expected: Vec<&[ChunkId]> = chunks.growing.windows(8).collect();
    assert_eq!(windows, expected);
    assert_eq!(last.jobs.len(), 5 + 1 + 7 + 3);
}

#[test]
fn the_ten_days_of_the_table_are_put_in_order() {
    let rows = [7, 1, 9, 6, 2, 4, 8, 3, 0, 5].map(|it| ChunkId(30 + it));
    assert_eq!(Chunks::generated().growing, rows);
}

#[test]
fn costs_are_an_eighth_of_what_the_table_says() {
    let chunks = Chunks::parse(&format!("{HEADER}\na,5,799.991\nb,1,0\nc,1,0\nd,2,8\n")).unwrap();
    assert_eq!(chunks.cost(), Nanoseconds(99_998_875_000 + SECOND));
    assert_eq!((chunks.bytes(), chunks.len()), (Bytes(9), 4));
}

#[test]
fn a_wrong_table_is_refused_by_line_and_value() {
    let with = |line: &str| error(&format!("{HEADER}\na,1,1\n{line}\n"));
    assert!(error("size,cost\n").contains("line 1"));
    for (line, said) in [
        ("a,1", "a,1"),
        ("a,1,1,1", "a,1,1,1"),
        ("a,0,1", "\"0\" should be bytes"),
        ("a,-1,1", "\"-1\" should be bytes"),
        ("a,1000000000000001,1", "should be bytes"),
        ("a,1,x", "\"x\" should be seconds"),
        ("a,1,-1", "\"-1\" should be seconds"),
        ("a,1,nan", "\"nan\" should be seconds"),
        ("a,1,1000001", "should be seconds"),
    ] {
        let error = with(line);
        assert!(error.contains("line 3") && error.contains(said), "{line}: {error}");
    }
    assert!(with("b,1,1").contains("there should be 4"));
    assert!(with("b,1,1\nc,1,1\nd,1,1\ne,1,1").contains("there should be 4"));
    assert!(with(&"a,1,1\n".repeat(1_000)).contains("more than 1000 chunks"));
}

#[test]
fn ours_prepares_less_than_dlcache_and_less_still_if_it_knows_all_jobs() {
    let outcome = replayed(&Chunks::generated(), Patterns::Quick);
    let [theirs, registered, ours, belady, known] =
        ["dlcache", "dlcache-registered", "tierfeed", "belady", "tierfeed-known"]
            .map(|it| row(&outcome, it));
    assert!(ours.ratio < 0.95, "{outcome:?}");
    assert!(ours.mean_s < registered.mean_s && registered.mean_s < theirs.mean_s, "{outcome:?}");
    assert!(known.mean_s < belady.mean_s && belady.mean_s < ours.mean_s, "{outcome:?}");
    assert!(ours.no_worse > 0.98 && known.no_worse > 0.99, "{outcome:?}");
    assert!((theirs.ratio, theirs.no_worse) == (1.0, 1.0), "{outcome:?}");
    assert!(outcome.rows.iter().all(|it| it.mean_s > outcome.floor_s), "{outcome:?}");
}

#[test]
fn the_same_chunks_give_the_same_figures() {
    let chunks = Chunks::generated();
    let once = || replayed(&chunks, Patterns::Quick);
    assert_eq!(once(), once());
}

/// Drops anything, and looks at what is stored whenever it is asked.
#[derive(Debug)]
struct Spy<'a> {
    chunks: &'a Chunks,
    seen: Vec<ChunkId>,
    capacity: u64,
    random: Mt19937,
}

impl Policy for Spy<'_> {
    fn worth(&mut self, chunk: ChunkId, _now: Moment) -> Worth {
        self.seen.push(chunk);
        Worth(f64::from(self.random.word() % 4), 0.0)
    }

    fn admits(&mut self, chunk: ChunkId, victims: &[ChunkId], _now: Moment) -> bool {
        let stored = std::mem::take(&mut self.seen);
        let bytes = |all: &[ChunkId]| all.iter().map(|it| self.chunks.get(*it).size.0).sum::<u64>();
        assert!(!stored.contains(&chunk), "it was a miss");
        assert!(bytes(&stored) <= self.capacity);
        let later = bytes(&stored) + bytes(&[chunk]);
        assert!(later > self.capacity && later - bytes(victims) <= self.capacity);
        let without_last = &victims[..victims.len() - 1];
        assert!(later - bytes(without_last) > self.capacity, "no more goes than has to");
        self.random.word().is_multiple_of(2)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_more_is_stored_than_fits_and_no_more_dropped_than_has_to(
        sizes in vec((1_u64..6, 0_u64..9), 2..9),
        jobs in vec(vec(0_usize..9, 0..6), 0..12),
        capacity in 6_u64..20,
        seed in any::<u64>(),
    ) {
        let chunks = chunks(&sizes);
        let jobs: Vec<Vec<usize>> = jobs
            .into_iter()
            .map(|job| job.into_iter().map(|it| it % sizes.len()).collect())
            .collect();
        let jobs: Vec<&[usize]> = jobs.iter().map(Vec::as_slice).collect();
        let random = Mt19937::new(seed);
        let mut spy = Spy { chunks: &chunks, seen: Vec::new(), capacity, random };
        replay::preparation(&chunks, &pattern(capacity, &jobs), &mut spy);

        let used: BTreeSet<usize> = jobs.iter().copied().flatten().copied().collect();
        let once: u64 = used.iter().map(|it| sizes[*it].1).sum();
        let always: u64 = jobs.iter().copied().flatten().map(|it| sizes[*it].1).sum();
        for kind in Kind::ALL {
            let spent = spent_s(kind, &chunks, capacity, &jobs);
            prop_assert!((once..=always).contains(&spent), "{}: {spent} s", kind.name());
        }
    }
}
