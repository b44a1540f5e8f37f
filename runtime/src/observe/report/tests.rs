use std::{collections::BTreeSet, fs};

use tierfeed_core::{
    id::{Epoch, Rank, Step},
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    session::{Busy, EpochProgress, LookAhead, Progress, Run, StallBreakdown, TransformCount},
    tier::Kind,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_dataset::read::page_cache::PageCacheFigures;
use tierfeed_prefetcher::transforms::Counts;

use super::*;

fn order() -> Spec {
    Spec {
        samples: 8,
        shuffle: Shuffle::Sequential,
        seed: 0,
        epochs: 2,
        drop_last: false,
        batch_size: 2,
        world: World { nodes: 1, ranks_per_node: 2 },
        start: Position::START,
        further: FurtherDatasets::NONE,
    }
}

fn epoch(cold: u64, main: u64, cxl: u64, stall_ms: u64) -> EpochProgress {
    EpochProgress {
        batches: 4,
        samples: 8,
        skipped: 0,
        self_read_batches: 0,
        self_read_samples: 0,
        self_read: Bytes(0),
        demand: Bytes(1000),
        cold: Bytes(cold),
        ahead: Bytes(0),
        received: Bytes(0),
        received_samples: 0,
        unreceived: 0,
        from_tier: vec![Bytes(main), Bytes(cxl)],
        hits: vec![main / 100, cxl / 100],
        written: vec![Bytes(main), Bytes(2 * cxl)],
        misses: cold / 100,
        in_place: Bytes(cxl / 2),
        in_place_samples: cxl / 200,
        transforms: [TransformCount::default(); 2],
        ready: Bytes(250),
        late: 3,
        stall: Nanoseconds(stall_ms * 1_000_000),
        causes: StallBreakdown {
            cold: Nanoseconds(stall_ms * 1_000_000),
            tiers: vec![Nanoseconds(0); 2],
            ..StallBreakdown::default()
        },
        refused: BTreeMap::new(),
    }
}

/// A session that never ran gives the empty progress to fill in.
fn progress() -> Progress {
    let settings = tierfeed_core::session::Settings {
        order: order(),
        node: tierfeed_core::id::NodeId(0),
        sizes: vec![Bytes(125); 8].into(),
        tiers: vec![],
        chunk: Bytes::mib(1),
        policy: tierfeed_core::retention::policy::Kind::None,
        staged_batches: 2,
        staged_batches_max: 0,
        arena: Bytes::mib(1),
        on_error: tierfeed_core::session::OnError::Fail,
        windows: tierfeed_core::session::Windows::default(),
        aim: tierfeed_core::retention::policy::Aim::default(),
        in_place_tiers: Vec::new(),
        transform: None,
        first_room: Bytes(0),
        look_ahead: LookAhead::Off,
    };
    let mut progress = tierfeed_core::session::Session::new(settings).progress().clone();
    progress.epochs = vec![epoch(1000, 0, 0, 40), epoch(400, 400, 200, 20)];
    let run = |epoch| Run { epoch: Epoch(epoch), first: Step(0), count: 2 };
    progress.handed =
        BTreeMap::from([(Rank(0), vec![run(0), run(1)]), (Rank(1), vec![run(0), run(1)])]);
    progress.fault_count = 2;
    progress
}

fn tier(kind: Kind, cache: u64, emulated: bool) -> TierEntry {
    let (name, budget_bytes, cache_bytes) = (kind.name(), cache, cache);
    let entry = TierEntry { name, budget_bytes, cache_bytes, emulated, ..TierEntry::default() };
    TierEntry { cache_least_bytes: cache, cache_most_bytes: cache, ..entry }
}

const TWO: ReaderStats =
    ReaderStats { were_there: true, readers_max: 2, has_workers: false, starved: None };

fn facts() -> Report {
    Report {
        job: "job".to_owned(),
        ranks: RanksEntry { expected: 2, ..RanksEntry::default() },
        policy: "gap",
        order_digest: Some("f00".to_owned()),
        tiers: vec![tier(Kind::MainMemory, 400, false), tier(Kind::CxlMemory, 200, true)],
        cold_store_emulated: true,
        cold_engine: "threads".to_owned(),
        cold_reads_at_a_time: 8,
        faults: vec![fault("class/3.jpg")],
        ..Report::default()
    }
}

fn fault(object: &str) -> FaultEntry {
    let reason = Some("its object is shorter".to_owned());
    FaultEntry { sample: 3, object: object.to_owned(), fault: "truncated", reason }
}

fn run<'a>(progress: &'a Progress, kinds: &'a [Kind]) -> RunFigures<'a> {
    RunFigures {
        facts: facts(),
        progress,
        kinds,
        ranks: 2,
        further: Vec::new(),
        reader_stats: TWO,
        staged_batches: 4,
        look_ahead: LookAhead::Auto,
        cycle: None,
        chunk: Bytes(100),
        cold: BytesPerSecond(1_000),
        step_time: None,
        wall: Nanoseconds(500_000_000),
        cold_before: Bytes(0),
        transformed_before: Nanoseconds(0),
        processors: 8,
    }
}

const TIERS: [Kind; 2] = [Kind::MainMemory, Kind::CxlMemory];

/// The report of a run of 20 s with other facts.
fn report_with(progress: &Progress, facts: Report) -> Report {
    Report::of(RunFigures { wall: Nanoseconds(20 * S), facts, ..run(progress, &TIERS) })
}

#[test]
fn sums_and_shares_follow_from_the_epochs() {
    let progress = progress();
    let report = Report::of(run(&progress, &TIERS));
    assert!(
        !report.choices().iter().any(|line| line.contains("copied for")),
        "no trainer kept any"
    );
    assert_eq!((report.steps, report.samples, report.bytes), (8, 16, 2000));
    assert_eq!(report.cold_read_bytes, 1400);
    assert_eq!(report.tier_hits, BTreeMap::from([("main-memory", 4), ("cxl-memory", 2)]));
    assert_eq!(report.tier_read_bytes["cxl-memory"], 200);
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
    near(report.stall_s, 0.03);
    near(report.epochs[1].hit_ratio, 0.6);
    near(report.epochs[1].ready_ratio, 0.25);
    // With a cache as large as the demand, the bound is not above the bytes that were read.
    let mut little = progress.clone();
    little.epochs[1].cold = Bytes(100);
    let little = Report::of(run(&little, &TIERS));
    assert_eq!(little.epochs[1].minimal_cold_bytes, 100);
    assert_eq!(report.epochs[0].minimal_cold_bytes, 1000);
    assert_eq!(report.epochs[1].minimal_cold_bytes, 400);
}

#[test]
fn the_lower_bound_is_the_longest_of_computing_reading_and_transforming() {
    let mut progress = progress();
    progress.epochs[1].transforms[0].time = Nanoseconds(9 * S);
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
    let long = || RunFigures { wall: Nanoseconds(5 * S), ..run(&progress, &TIERS) };
    let bound = |run| Report::of(run).lower_bound_s;
    near(bound(long()), 4.97);
    let step_time = Some(Nanoseconds(100_000_000));
    near(bound(RunFigures { step_time, ..long() }), 1.4);
    let with_threads = |threads| Report {
        transform: Some(TransformEntry { threads, ..TransformEntry::default() }),
        ..facts()
    };
    near(bound(RunFigures { step_time, facts: with_threads(4), ..long() }), 2.25);
    near(bound(RunFigures { step_time, facts: with_threads(9), ..long() }), 1.4);
    // What was read or transformed while no trainer was there took none of its time.
    let transformed_before = Nanoseconds(S);
    let early = RunFigures { step_time, facts: with_threads(4), transformed_before, ..long() };
    near(bound(early), 2.0);
    near(bound(RunFigures { step_time, cold_before: Bytes(900), ..long() }), 0.5);
    near(bound(RunFigures { step_time, cold: BytesPerSecond(0), ..long() }), 0.4);
    // Neither a declared step nor a declared store makes the run longer than it was.
    near(bound(RunFigures { step_time: Some(Nanoseconds(7 * S)), ..long() }), 4.97);
    near(bound(RunFigures { cold: BytesPerSecond(10), ..long() }), 5.0);
    let mut decoding = progress.clone();
    decoding.epochs[1].causes.decoding = Nanoseconds(S);
    let run = RunFigures { wall: Nanoseconds(5 * S), step_time, ..run(&decoding, &TIERS) };
    near(bound(RunFigures { cold: BytesPerSecond(0), ..run }), 0.9);
}

#[test]
fn several_tiers_of_one_kind_are_one_line() {
    let progress = progress();
    let kinds = [Kind::CxlMemory, Kind::CxlMemory];
    let tiers = vec![tier(Kind::CxlMemory, 1, false), tier(Kind::CxlMemory, 1, false)];
    let report =
        Report::of(RunFigures { facts: Report { tiers, ..facts() }, ..run(&progress, &kinds) });
    assert_eq!(report.tier_hits, BTreeMap::from([("cxl-memory", 6)]));
}

#[test]
fn a_report_has_the_promised_keys_and_replaces_an_older_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    fs::write(&path, "old").unwrap();
    let progress = progress();
    Report::of(run(&progress, &TIERS)).write(&path).unwrap();
    let read: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let keys = [
        "job",
        "steps",
        "samples",
        "bytes",
        "head_start_s",
        "wall_s",
        "stall_s",
        "tier_hits",
        "direct_samples",
        "direct_bytes",
        "cold_read_bytes",
        "lower_bound_s",
        "batch_wait_s",
        "order_digest",
        "faults",
    ];
    for key in keys {
        assert!(!read[key].is_null(), "{key}");
    }
    for key in ["p50", "p99", "max"] {
        assert!(read["batch_wait_s"][key].is_number(), "{key}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

const S: u64 = 1_000_000_000;

fn busy(until: u64) -> Busy {
    let mut busy = Busy::default();
    busy.begun(Nanoseconds(0));
    busy.ended(Nanoseconds(until));
    busy
}

/// Two epochs of a GB of cold bytes each in 20 s, of which each of two ranks waited 10 s for `causes`.
fn waited(causes: &StallBreakdown, cold_busy: u64) -> Progress {
    let epoch = EpochProgress {
        batches: 100,
        samples: 100,
        demand: Bytes(2_000_000_000),
        cold: Bytes(1_000_000_000),
        from_tier: vec![Bytes(900_000_000), Bytes(100_000_000)],
        stall: causes.total(),
        causes: causes.clone(),
        ..epoch(0, 0, 0, 0)
    };
    let mut progress = progress();
    progress.epochs = vec![epoch.clone(), epoch];
    (0..200).for_each(|_| progress.waits.record(Nanoseconds(causes.total().0 / 100)));
    progress.cold_busy = busy(cold_busy);
    progress.tiers_busy = vec![busy(S), busy(10 * S)];
    progress
}

fn cold(time: u64) -> StallBreakdown {
    StallBreakdown {
        cold: Nanoseconds(time),
        tiers: vec![Nanoseconds(0); 2],
        ..StallBreakdown::default()
    }
}

fn judged(progress: &Progress, policy: &'static str) -> Report {
    let facts = Report { policy, ..facts() };
    let run = RunFigures { wall: Nanoseconds(20 * S), facts, ..run(progress, &TIERS) };
    Report::of(RunFigures { chunk: Bytes(1_000_000), ..run })
}

fn changes(report: &Report) -> Vec<&'static str> {
    report.advice.iter().map(|advice| advice.change).collect()
}

#[test]
fn a_cold_store_that_is_always_busy_wants_to_be_faster_or_asked_for_less() {
    let report = judged(&waited(&cold(10 * S), 20 * S), "gap");
    assert_eq!(
        report.verdict,
        "200 of 200 batches served by the agent; trainers waited 10 s of 20 s (50.0 %): 100 % for the \
         cold store"
    );
    assert_eq!(changes(&report), ["cold-bandwidth", "cache"]);
    // 2 GB in 20 s is 100 MB/s; a GB while the trainers compute for 5 s takes 200, and a tenth more.
    assert_eq!(report.advice[0].to_bytes_per_s, Some(220_000_000));
    // 100 MB/s give 454 MB in 5 s, with a tenth to spare; the rest of the GB has to come from a cache.
    assert_eq!(report.advice[1].more_bytes, Some(546_000_000));
    let text = &report.advice[0].text;
    assert!(text.contains("gave 100 MB/s") && text.contains("takes 200 MB/s"), "{text}");
}

#[test]
fn a_policy_that_reads_more_than_it_must_is_named_before_more_cache() {
    let progress = waited(&cold(10 * S), 20 * S);
    let with_cache = |policy| {
        let tiers = vec![tier(Kind::MainMemory, 1_500_000_000, false)];
        changes(&report_with(&progress, Report { policy, tiers, ..facts() }))
    };
    assert_eq!(with_cache("fifo"), ["cold-bandwidth", "policy", "cache"]);
    assert_eq!(with_cache("gap"), ["cold-bandwidth", "cache"]);
}

#[test]
fn a_cache_that_lost_room_to_other_memory_is_named_with_what_it_lacked() {
    let progress = waited(&cold(10 * S), 20 * S);
    let whole = tier(Kind::MainMemory, 1_500_000_000, false);
    let with = |cache_least_bytes| {
        let tiers = vec![TierEntry { cache_least_bytes, ..whole.clone() }];
        report_with(&progress, Report { tiers, ..facts() })
    };
    let shrunk = with(1_200_000_000);
    assert_eq!(changes(&shrunk), ["cold-bandwidth", "cache", "memory"]);
    let advice = &shrunk.advice[2];
    assert_eq!(advice.more_bytes, Some(300_000_000));
    assert!(advice.text.starts_with("main-memory had room for"), "{advice:?}");
    assert_eq!(changes(&with(1_500_000_000)), ["cold-bandwidth", "cache"]);
}

#[test]
fn a_cold_store_that_stands_idle_wants_to_be_asked_earlier() {
    let report = judged(&waited(&cold(10 * S), 8 * S), "gap");
    assert_eq!(changes(&report), ["batches-ahead"]);
    assert!(report.advice[0].to_count > Some(4), "{:?}", report.advice[0]);
    let mut first = waited(&cold(10 * S), 8 * S);
    first.first_stall = Nanoseconds(15 * S);
    assert_eq!(changes(&judged(&first, "gap")), ["start-earlier"]);
}

#[test]
fn each_cause_has_its_advice_and_no_wait_has_none() {
    let of = |causes: &StallBreakdown| changes(&judged(&waited(causes, 8 * S), "gap"));
    let part = Nanoseconds(10 * S);
    assert_eq!(of(&StallBreakdown { room: part, ..StallBreakdown::none(2) }), ["staging-room"]);
    assert_eq!(of(&StallBreakdown { keep: part, ..StallBreakdown::none(2) }), ["faster-tier"]);
    assert_eq!(of(&StallBreakdown { start: part, ..StallBreakdown::none(2) }), ["start-earlier"]);
    assert_eq!(of(&StallBreakdown { hand_off: part, ..StallBreakdown::none(2) }), ["processors"]);
    assert_eq!(of(&cold(S / 1000)), [""; 0]);
}

#[test]
fn a_busy_loop_of_the_agent_is_named_and_no_device_is_asked_for() {
    let agent = Nanoseconds(10 * S);
    let progress = waited(&StallBreakdown { agent, ..StallBreakdown::none(2) }, 8 * S);
    let with = |busy_share, ran_share| {
        let loop_pauses = PauseEntry { events: 9, busy_share, ran_share, ..PauseEntry::default() };
        let agent_cpu = AgentCpuEntry::of(Nanoseconds(12_800), &epoch(0, 0, 0, 0));
        report_with(&progress, Report { agent_cpu, loop_pauses, ..facts() })
    };
    let busy = with(0.98, 0.95);
    assert_eq!(changes(&busy), ["larger-samples"]);
    let text = &busy.advice[0].text;
    assert!(text.contains("busy for 98 % of the training (95 % of a core; "), "{text}");
    assert!(text.contains("takes 1600 ns of CPU time a sample"), "{text}");
    let cpu = "<td>CPU time of the agent</td><td>0.00 s, 1600 ns a sample, 3.2 us a batch</td>";
    assert!(busy.page().contains(cpu), "{}", busy.page());
    assert!(busy.verdict.contains("100 % for the agent's own loop"), "{}", busy.verdict);
    assert!(busy.stall_for_s["agent"] > 0.0 && busy.choices().iter().any(|it| it.contains("98 %")));
    let starved = with(0.98, 0.2);
    assert_eq!(changes(&starved), ["processors"]);
    assert!(starved.advice[0].text.contains("leave the agent a core"), "{:?}", starved.advice);
}

#[test]
fn a_training_that_other_work_slows_down_wants_processors_though_it_hardly_waited() {
    let progress = waited(&cold(S / 1000), 8 * S);
    let with = |starved| {
        let reader_stats = ReaderStats { starved: Some(Nanoseconds(starved)), ..TWO };
        Report::of(RunFigures { wall: Nanoseconds(20 * S), reader_stats, ..run(&progress, &TIERS) })
    };
    let slow = with(9 * S);
    assert_eq!(changes(&slow), ["processors"]);
    assert!(slow.advice[0].text.contains("9 s of 20 s"), "{:?}", slow.advice);
    assert_eq!(slow.no_processor_s, Some(9.0));
    assert_eq!(changes(&with(S / 2)), [""; 0]);
    assert_eq!(with(90 * S).no_processor_s, Some(20.0), "never more than the run took");
}

#[test]
fn a_tier_that_gave_more_than_training_takes_need_not_be_faster() {
    let tiers = vec![Nanoseconds(0), Nanoseconds(10 * S)];
    let mut progress = waited(&StallBreakdown { tiers, ..StallBreakdown::default() }, 8 * S);
    let mut of = |from_cxl, busy_until| {
        progress.epochs.iter_mut().for_each(|epoch| epoch.from_tier[1] = Bytes(from_cxl));
        progress.tiers_busy[1] = busy(busy_until);
        judged(&progress, "gap").advice
    };
    // 400 MB in 19 s are 21 MB/s; an epoch takes 200 MB while the trainers compute for 5 s.
    let slow = &of(200_000_000, 19 * S)[0];
    assert_eq!((slow.change, slow.to_bytes_per_s), ("faster-tier", Some(44_000_000)));
    // 400 MB in 0.26 s are 1.53 GB/s.
    let late = &of(200_000_000, S / 4)[0];
    assert_eq!(late.change, "batches-ahead", "{}", late.text);
    assert_eq!(of(0, S / 4), [], "nothing was read there");
}

#[test]
fn sizes_are_advised_only_to_tiers_that_adapt() {
    let part = Nanoseconds(10 * S);
    let progress = waited(&StallBreakdown { chunk: part, ..StallBreakdown::none(2) }, 8 * S);
    assert_eq!(changes(&judged(&progress, "gap")), [""; 0]);
    let mut tiers = vec![tier(Kind::MainMemory, 400, false), tier(Kind::CxlMemory, 200, true)];
    tiers[1].adapts = true;
    let advice = report_with(&progress, Report { tiers, ..facts() }).advice;
    assert!(advice[0].text.contains("give cxl-memory a `size`"), "{advice:?}");
}

#[test]
fn a_cold_store_that_gave_more_than_was_needed_is_not_to_be_faster() {
    // It was busy to the end and gave 100 MB/s; one epoch of two waited, for 65 MB/s.
    let mut progress = waited(&cold(10 * S), 20 * S);
    progress.epochs[0].cold = Bytes(1_700_000_000);
    progress.epochs[1].cold = Bytes(300_000_000);
    progress.epochs[0].causes = StallBreakdown::none(2);
    assert_eq!(changes(&judged(&progress, "gap")), [""; 0]);
    // The epoch that waited read nothing cold.
    progress.epochs[1].cold = Bytes(0);
    assert_eq!(changes(&judged(&progress, "gap")), [""; 0]);
}

#[test]
fn no_more_cache_is_advised_than_is_read_and_no_more_batches_than_there_are() {
    let progress = waited(&cold(10 * S), 20 * S);
    let (wall, chunk) = (Nanoseconds(20 * S), Bytes(1 << 34));
    let coarse = Report::of(RunFigures { chunk, wall, ..run(&progress, &TIERS) });
    assert_eq!(changes(&coarse), ["cold-bandwidth", "cache"]);
    let mut short = waited(&cold(10 * S), 8 * S);
    short.epochs.iter_mut().for_each(|epoch| epoch.batches = 4);
    assert_eq!(changes(&judged(&short, "gap")), [""; 0], "4 batches of a rank, 4 are staged");
}

#[test]
fn decoding_on_the_training_s_own_thread_wants_threads_and_all_threads_less_decoding() {
    let causes = StallBreakdown { decoding: Nanoseconds(30 * S), ..StallBreakdown::none(2) };
    let mut progress = waited(&causes, 8 * S);
    // Each of two ranks decodes for 30 s of 40 s: three times as long as it computes.
    let mut of = |threads| {
        progress.decode_threads.insert(Rank(0), threads);
        Report::of(RunFigures { wall: Nanoseconds(40 * S), ..run(&progress, &TIERS) })
    };
    let alone = of(0);
    assert_eq!(
        alone.verdict,
        "200 of 200 batches served by the agent; trainers waited 30 s of 40 s (75.0 %): 100 % decoding"
    );
    assert_eq!(changes(&alone), ["decode-threads"]);
    assert_eq!(alone.advice[0].to_count, Some(4));
    let text = &alone.advice[0].text;
    assert!(["=4`", "=\"auto\"`"].iter().all(|it| text.contains(it)), "{text}");
    // Two threads decode for the whole time what training takes in a quarter of it.
    assert_eq!(of(2).advice[0].to_count, Some(4), "half of the processors, for one of two ranks");
    assert_eq!(changes(&of(4)), ["cheaper-decoding"]);
}

#[test]
fn a_cause_of_less_than_half_a_percent_of_the_time_gets_no_advice_beside_a_longer_one() {
    let causes = StallBreakdown {
        decoding: Nanoseconds(S / 10),
        peers: Nanoseconds(4 * S / 10),
        ..StallBreakdown::none(2)
    };
    let progress = waited(&causes, 8 * S);
    let of = |wall| Report::of(RunFigures { wall: Nanoseconds(wall), ..run(&progress, &TIERS) });
    assert_eq!(changes(&of(5 * S)), ["decode-threads"], "2 % of the time");
    assert_eq!(changes(&of(40 * S)), [""; 0], "0.25 % of the time");
}

#[test]
fn a_training_that_gets_tensors_is_not_told_to_decode_by_more_threads() {
    let causes = StallBreakdown { decoding: Nanoseconds(30 * S), ..StallBreakdown::none(2) };
    let progress = waited(&causes, 8 * S);
    let facts = Report { transform: Some(transform()), ..facts() };
    let run = RunFigures { wall: Nanoseconds(40 * S), facts, ..run(&progress, &TIERS) };
    assert_eq!(changes(&Report::of(run)), [""; 0]);
}

#[test]
fn the_page_cache_gives_no_more_than_was_read_cold() {
    let figures = PageCacheFigures { served: Bytes(u64::MAX), ..PageCacheFigures::default() };
    assert_eq!(PageCacheEntry::of("auto", Some(figures), Bytes(1400)).read_bytes, 1400);
}

#[test]
fn who_reads_what_the_order_does_not_have_is_told_so_however_quick_it_was() {
    let causes = StallBreakdown { self_read: Nanoseconds(S / 100), ..StallBreakdown::none(2) };
    let mut progress = waited(&causes, 8 * S);
    for epoch in &mut progress.epochs {
        (epoch.self_read_batches, epoch.batches) = (epoch.batches, 0);
    }
    let report = judged(&progress, "gap");
    assert!(report.verdict.starts_with("0 of 200 batches served by the agent, 200 read by"));
    assert!(!report.verdict.contains("hardly"), "{}", report.verdict);
    assert_eq!(changes(&report), ["order"]);
    assert_eq!((report.used_batches, report.steps, report.self_read_batches), (200, 0, 200));
    progress.refusals.no_room = 3;
    assert_eq!(changes(&judged(&progress, "gap")), ["staging-room"]);
}

#[test]
fn the_parts_of_the_stall_add_up_to_it() {
    let causes = StallBreakdown { hand_off: Nanoseconds(3 * S), ..cold(10 * S) };
    let report = judged(&waited(&causes, 8 * S), "gap");
    let sum: f64 = report.stall_for_s.values().sum();
    assert!((sum - report.stall_s).abs() < 1e-9, "{sum} {}", report.stall_s);
    assert!((report.stall_for_s["cold-store"] - 10.0).abs() < 1e-9);
    assert!((report.busy_s["cxl-memory"] - 10.0).abs() < 1e-9);
}

#[test]
fn what_was_chosen_is_told_line_by_line() {
    let progress = progress();
    let (requests, retries, hedges, hedges_won) = (40, 3, 5, 2);
    let (split, discarded) = (1, Bytes(77));
    let figures = ObjectFigures { requests, retries, hedges, hedges_won, split, discarded };
    let mut facts = Report { object_requests: Some(figures), lease_copyouts: 6, ..facts() };
    facts.tiers[0].stored = Some("page-cache");
    facts.tiers[0].copy_threads = 1;
    let report = Report::of(RunFigures { facts, ..run(&progress, &TIERS) });
    assert_eq!(
        report.choices(),
        [
            "cold store: threads; read depth settled at 8",
            "requests: 40, 3 repeated, 5 hedged, 2 of these in time",
            "main-memory: the page cache, 1 copy thread",
            "read in place: 1 samples, 100 B",
            "6 batches were copied for trainers that keep too many",
        ]
    );
    let document = serde_json::to_value(&report).unwrap();
    assert_eq!(document["object_requests"]["discarded_bytes"], 77);
    assert_eq!(document["lease_copyouts"], 6);
    assert_eq!(document["tiers"][0]["stored"], "page-cache");
}

/// A transform of which a sample was damaged and another too large.
fn transform() -> TransformEntry {
    let rejected = [1, 1, 0, 0, 0, 0];
    let counts = Counts { rejected, started: 2, ..Counts::default() };
    let failed = TransformCount { failed: 2, ..TransformCount::default() };
    let transforms = [failed, TransformCount::default()];
    let total = EpochProgress { transforms, ..EpochProgress::default() };
    TransformEntry {
        threads: 2,
        cached: "stored",
        cached_because: "no tier keeps samples".to_owned(),
        quick_modes: vec!["dct: fast"],
        ..TransformEntry::of(&counts, &total, Nanoseconds(S))
    }
}

#[test]
fn the_page_of_docs_explains_every_key_of_a_report() {
    let progress = progress();
    let report = report_with(&progress, Report { transform: Some(transform()), ..facts() });
    let page = include_str!("../../../../docs/report.md");
    let words: BTreeSet<&str> =
        page.split(|it: char| !it.is_ascii_alphanumeric() && it != '_').collect();
    let mut values = vec![serde_json::to_value(&report).unwrap()];
    while let Some(value) = values.pop() {
        for (key, value) in value.as_object().into_iter().flatten() {
            // Others are names of tiers, causes and reasons.
            let is_key = key.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
            assert!(!is_key || words.contains(&**key), "docs/report.md says nothing of {key}");
            values.push(value.clone());
        }
        values.extend(value.as_array().into_iter().flatten().cloned());
    }
}

#[test]
fn a_transform_has_its_table_in_the_page_and_its_reasons_in_the_text() {
    let report = report_with(&progress(), Report { transform: Some(transform()), ..facts() });
    let line = report.transform.as_ref().unwrap().line();
    assert!(line.contains("2 samples became no row (1 damaged, 1 too-large)"), "{line}");
    let text = page(&report);
    let document = roxmltree::Document::parse(&text).unwrap();
    let cells: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
    for shown in ["Transform", "stored: no tier keeps samples", "dct: fast", "damaged", "too-large"]
    {
        assert!(cells.contains(&shown), "{shown}: {cells:?}");
    }
    assert!(text.contains("sample 3 of class/3.jpg: truncated, its object is shorter"), "{text}");
}

/// The page as XML, which it is below its first line.
fn page(report: &Report) -> String {
    let page = report.page();
    let (first, rest) = page.split_once('\n').unwrap();
    assert_eq!(first, "<!DOCTYPE html>");
    rest.to_owned()
}

#[test]
fn the_page_shows_the_verdict_the_causes_and_every_tier_and_loads_nothing() {
    let progress = progress();
    let report = Report::of(run(&progress, &TIERS));
    let text = page(&report);
    let document =
        roxmltree::Document::parse(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    let texts: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
    for shown in
        [report.verdict.as_str(), "cold-store 100.0 %", "main-memory", "cxl-memory (emulated)"]
    {
        assert!(texts.contains(&shown), "no {shown:?} in {texts:#?}");
    }
    let pictures = document
        .descendants()
        .filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "svg")));
    assert_eq!(pictures.count(), 3);
    assert!(!document.descendants().any(|node| {
        ["script", "link", "img", "iframe"].contains(&node.tag_name().name())
            || node.attributes().any(|it| ["src", "href"].contains(&it.name()))
    }));
}

#[test]
fn the_page_lists_some_faults_and_changes_and_no_heading_without_any() {
    let faults = vec![fault("class/3.jpg"); 1000];
    let mut many = report_with(&progress(), Report { faults, ..facts() });
    let fault = |text: &str| text.matches("sample 3 of class/3.jpg").count();
    assert_eq!(fault(&page(&many)), 50);
    many.fault_count = 0;
    assert!(!page(&many).contains("<h2>Faults</h2>"));
}

#[test]
fn the_longest_waits_are_named_first_and_those_that_nobody_sees_are_not() {
    let mut progress = progress();
    let causes = StallBreakdown {
        cold: Nanoseconds(S),
        keep: Nanoseconds(3 * S),
        room: Nanoseconds(1000),
        ..StallBreakdown::none(2)
    };
    progress.epochs = vec![EpochProgress { causes, ..epoch(0, 0, 0, 4000) }];
    let text = page(&Report::of(run(&progress, &TIERS)));
    let at = |name: &str| text.find(&format!(">{name} "));
    assert!(at("keep").unwrap() < at("cold-store").unwrap(), "{text}");
    assert_eq!(at("staging-room"), None);
}

#[test]
fn one_epoch_tells_nothing_of_a_larger_cache_and_a_last_one_that_was_cut_off_nothing_at_all() {
    let mut one = waited(&cold(10 * S), 20 * S);
    one.epochs.truncate(1);
    assert_eq!(changes(&judged(&one, "gap")), ["cold-bandwidth"]);
    let mut cut = waited(&cold(10 * S), 20 * S);
    let short = EpochProgress { batches: 10, cold: Bytes(1), ..cut.epochs[1].clone() };
    cut.epochs.push(EpochProgress { causes: cold(0), stall: Nanoseconds(0), ..short });
    let to = judged(&cut, "gap").advice[0].to_bytes_per_s.unwrap();
    assert!(to > 200_000_000, "{to}: of the last whole epoch");
}

#[test]
fn names_from_outside_stay_text_on_the_page() {
    let progress = progress();
    let name = "</title><script>alert(1)</script>&\u{1}";
    let (job, faults) = (name.to_owned(), vec![fault("<img src=x>")]);
    let report = report_with(&progress, Report { job, faults, ..facts() });
    let text = page(&report);
    let document =
        roxmltree::Document::parse(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    let has = |name: &str| document.descendants().any(|node| node.tag_name().name() == name);
    assert!(!has("script") && !has("img"), "{text}");
    assert!(text.contains("&lt;img src=x&gt;"), "the object of a fault is named");
}

#[test]
fn a_run_of_many_epochs_makes_a_page_of_bounded_bars_and_an_empty_one_a_page() {
    let mut progress = progress();
    progress.epochs = vec![epoch(1000, 0, 0, 40); 1000];
    let many = page(&Report::of(run(&progress, &TIERS)));
    assert!(many.contains("Waited in each 13 epochs, s"), "{}", &many[..2000]);
    let bars = many.matches("<rect ").count();
    assert!((1000 / 13..100).contains(&bars), "{bars}");
    progress.epochs.clear();
    let none = page(&Report::of(run(&progress, &TIERS)));
    roxmltree::Document::parse(&none).unwrap();
}
