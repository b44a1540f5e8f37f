use tierfeed_core::{
    id::{Epoch, Rank, SampleId, Step},
    order::{Position, Shuffle, World},
    session::{EpochProgress, Run},
};

use super::*;

struct Nothing;

impl Published for Nothing {
    fn samples(&self, _: Rank, _: Epoch) -> Option<Vec<SampleId>> {
        None
    }
}

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
    }
}

fn epoch(cold: u64, main: u64, cxl: u64, stall_ms: u64) -> EpochProgress {
    EpochProgress {
        batches: 4,
        samples: 8,
        demand: Bytes(1000),
        cold: Bytes(cold),
        from_tier: vec![Bytes(main), Bytes(cxl)],
        hits: vec![main / 100, cxl / 100],
        ready: Bytes(250),
        stall: Nanoseconds(stall_ms * 1_000_000),
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
        policy: tierfeed_core::policy::Kind::None,
        staged_batches: 2,
        arena: Bytes::mib(1),
        on_error: tierfeed_core::session::OnError::Fail,
        windows: tierfeed_core::session::Windows::default(),
        aim: tierfeed_core::policy::Aim::default(),
    };
    let mut progress = tierfeed_core::session::Session::new(settings).progress().clone();
    progress.epochs = vec![epoch(1000, 0, 0, 40), epoch(400, 400, 200, 20)];
    let run = |epoch| Run { epoch: Epoch(epoch), first: Step(0), count: 2 };
    progress.handed =
        BTreeMap::from([(Rank(0), vec![run(0), run(1)]), (Rank(1), vec![run(0), run(1)])]);
    progress.faults = vec![(SampleId(3), Fault::Truncated)];
    progress.fault_count = 2;
    progress
}

fn tier(kind: Kind, cache: u64, emulated: bool) -> TierEntry {
    TierEntry { name: kind.name(), budget_bytes: cache, cache_bytes: cache, emulated }
}

fn facts<'a>(progress: &'a Progress, tiers: &'a [Kind]) -> Facts<'a> {
    Facts {
        job: "job",
        node: 0,
        generation: 0,
        policy: "gap",
        order: order(),
        progress,
        session_tiers: tiers,
        tiers: vec![tier(Kind::MainMemory, 400, false), tier(Kind::CxlMemory, 200, true)],
        cold: BytesPerSecond(1_000),
        cold_store_emulated: true,
        step_time: None,
        wall: Nanoseconds(500_000_000),
        memory: Footprint::default(),
        scratch: None,
    }
}

const TIERS: [Kind; 2] = [Kind::MainMemory, Kind::CxlMemory];

fn report(facts: Facts<'_>) -> Report {
    Report::of(facts, &Nothing, |sample| format!("class/{}.jpg", sample.0))
}

#[test]
fn sums_and_shares_follow_from_the_epochs() {
    let progress = progress();
    let report = report(facts(&progress, &TIERS));
    assert_eq!((report.steps, report.samples, report.bytes), (8, 16, 2000));
    assert_eq!(report.cold_read_bytes, 1400);
    assert_eq!(report.tier_hits, BTreeMap::from([("main-memory", 4), ("cxl-memory", 2)]));
    assert_eq!(report.tier_read_bytes["cxl-memory"], 200);
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
    near(report.stall_s, 0.03);
    near(report.epochs[1].hit_ratio, 0.6);
    near(report.epochs[1].ready_ratio, 0.25);
    assert_eq!(report.epochs[0].minimal_cold_bytes, 1000);
    assert_eq!(report.epochs[1].minimal_cold_bytes, 400);
}

#[test]
fn the_lower_bound_is_the_longer_of_computing_and_reading() {
    let progress = progress();
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
    near(report(facts(&progress, &TIERS)).lower_bound_s, 1.4);
    let fast = Facts { cold: BytesPerSecond(0), ..facts(&progress, &TIERS) };
    near(report(fast).lower_bound_s, 0.47);
    let step_time = Some(Nanoseconds(1_000_000_000));
    near(report(Facts { step_time, ..facts(&progress, &TIERS) }).lower_bound_s, 4.0);
}

#[test]
fn faults_name_the_object() {
    let progress = progress();
    let report = report(facts(&progress, &TIERS));
    let object = "class/3.jpg".to_owned();
    assert_eq!(report.faults, [FaultEntry { sample: 3, object, fault: "truncated" }]);
    assert_eq!(report.fault_count, 2);
}

#[test]
fn several_tiers_of_one_kind_are_one_line() {
    let progress = progress();
    let kinds = [Kind::CxlMemory, Kind::CxlMemory];
    let tiers = vec![tier(Kind::CxlMemory, 1, false), tier(Kind::CxlMemory, 1, false)];
    let report = report(Facts { tiers, ..facts(&progress, &kinds) });
    assert_eq!(report.tier_hits, BTreeMap::from([("cxl-memory", 6)]));
}

#[test]
fn a_report_has_the_promised_keys_and_replaces_an_older_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    fs::write(&path, "old").unwrap();
    let progress = progress();
    report(facts(&progress, &TIERS)).write(&path).unwrap();
    let read: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let keys = [
        "job",
        "steps",
        "samples",
        "bytes",
        "wall_s",
        "stall_s",
        "tier_hits",
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
