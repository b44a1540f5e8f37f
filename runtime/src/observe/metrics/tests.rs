use std::collections::BTreeSet;

use tierfeed_core::{
    id::{NodeId, TierId},
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    session::{
        Busy, EpochProgress, Evictions, Fault, LookAhead, OnError, Progress, Session, Settings,
        StallBreakdown, Windows,
    },
    tier::Kind,
    units::Bytes,
};
use tierfeed_dataset::read::page_cache::PageCacheFigures;
use tierfeed_prefetcher::{
    fetcher::ObjectFigures,
    plane::{Durations, Moves},
    recorder::Endpoint,
    transforms::Counts,
};

use super::*;
use crate::observe::{node_figures::NodeFigures, total::total};

fn progress() -> Progress {
    let order = Spec {
        samples: 8,
        shuffle: Shuffle::Sequential,
        seed: 0,
        epochs: 2,
        drop_last: false,
        batch_size: 2,
        world: World { nodes: 1, ranks_per_node: 2 },
        start: Position::START,
        further: FurtherDatasets::NONE,
    };
    let settings = Settings {
        order,
        node: NodeId(0),
        sizes: vec![Bytes(125); 8].into(),
        tiers: vec![],
        chunk: Bytes::mib(1),
        policy: tierfeed_core::retention::policy::Kind::None,
        staged_batches: 2,
        staged_batches_max: 0,
        arena: Bytes::mib(1),
        on_error: OnError::Fail,
        windows: Windows::default(),
        aim: tierfeed_core::retention::policy::Aim::default(),
        in_place_tiers: Vec::new(),
        transform: None,
        first_room: Bytes(0),
        look_ahead: LookAhead::Off,
    };
    let mut progress = Session::new(settings).progress().clone();
    let epoch = |cold, first, second| EpochProgress {
        batches: 4,
        samples: 8,
        demand: Bytes(1000),
        cold: Bytes(cold),
        from_tier: vec![Bytes(first), Bytes(second)],
        hits: vec![3, 2],
        misses: 1,
        late: 2,
        stall: Nanoseconds(1_500_000_000),
        causes: StallBreakdown { cold: Nanoseconds(1_500_000_000), ..StallBreakdown::none(2) },
        ..EpochProgress::default()
    };
    progress.epochs = vec![epoch(700, 200, 100), epoch(400, 400, 200)];
    progress
}

fn text() -> String {
    text_of(None)
}

/// The metrics of an agent that reads a bucket, which has all there are.
pub(super) fn text_of_bucket() -> String {
    let (requests, retries, hedges, hedges_won) = (1, 1, 1, 1);
    let (split, discarded) = (1, Bytes(1));
    text_of(Some(ObjectFigures { requests, retries, hedges, hedges_won, split, discarded }))
}

fn text_of(requests: Option<ObjectFigures>) -> String {
    let tier = |tier| Endpoint::Tier(TierId(tier));
    let moves = |from, to| Moves {
        from,
        to,
        operations: 3,
        bytes: Bytes(300),
        failed: vec![(Fault::Io, 2)],
        lasted: Durations {
            buckets: (0..20).map(|at| u64::from(at == 4) * 3).collect(),
            sum: Nanoseconds(600_000),
        },
    };
    let pairs = [
        (Endpoint::Cold, Endpoint::Staging),
        (tier(0), Endpoint::Staging),
        (tier(1), Endpoint::Staging),
    ];
    let pairs = pairs.into_iter().chain([(Endpoint::Staging, tier(0)), (tier(0), tier(1))]);
    let mut pauses = Waits::default();
    [40_000, 3_000_000].iter().for_each(|lasted| pauses.record(Nanoseconds(*lasted)));
    let figures = NodeFigures {
        total: total(&progress()),
        evictions: vec![Evictions { policy: 3, resized: 4 }; 2],
        waits: [(0, Waits::default())].into(),
        cold_busy: Busy::default(),
        tiers_busy: vec![Busy::default(); 2],
        moves: pairs.map(|(from, to)| moves(from, to)).collect(),
        held: vec![(Kind::CxlMemory, Bytes(8)), (Kind::CxlMemory, Bytes(9))],
        staging_held: Bytes(77),
        kinds: vec![Kind::CxlMemory, Kind::CxlMemory],
        levels: vec![(Bytes(10), Bytes(5)), (Bytes(20), Bytes(6))],
        leases: [(0, 2), (1, 0)].into(),
        ready: [(0, 3), (1, 1)].into(),
        batches_max: 6,
        copyouts: 5,
        requests,
        transforms: Some(Counts { working: 2, ..Counts::default() }),
        page_cache: Some(PageCacheFigures {
            limit: Bytes(500),
            left: Bytes(300),
            served_samples: 2,
            served: Bytes(250),
        }),
        cold_window: 12,
        pauses,
        ran_max: Nanoseconds(30_000),
        job_memory: Bytes(70),
        own_memory: Bytes(8),
        own_cpu: Nanoseconds(1_500_000_000),
        memory_budget: Bytes(90),
        job: "resnet".to_owned(),
        policy: "gap".to_owned(),
        wasted: Bytes(9),
        source: "file".to_owned(),
        backend: "threads".to_owned(),
        ..NodeFigures::default()
    };
    let text = serde_json::to_string(&figures).unwrap();
    let read: NodeFigures = serde_json::from_str(&text).unwrap();
    assert_eq!(read, NodeFigures { page_cache: None, ..figures.clone() }, "as the live view reads");
    of_agent(&figures).text()
}

/// The names of all metrics in a text, as Prometheus sees them.
pub(super) fn names(text: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        Some(format!("{name}{suffix}"))
    };
    text.lines().filter_map(name).collect()
}

/// The names of metrics in the table below a heading of docs/metrics.md.
pub(super) fn documented(heading: &str) -> BTreeSet<String> {
    let page = include_str!("../../../../docs/metrics.md");
    let section = page.split("\n## ").find(|it| it.lines().next() == Some(heading)).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `tierfeed_"));
    let names = rows.filter_map(|row| row.split('|').nth(1)).flat_map(|cell| cell.split(','));
    names.map(|name| name.trim().trim_matches('`').to_owned()).collect()
}

#[test]
fn the_documentation_names_the_metrics_of_an_agent() {
    assert_eq!(documented("Metrics of an agent"), names(&text_of_bucket()));
}

fn has(line: &str) {
    let text = text();
    assert!(text.lines().any(|other| other == line), "no line {line:?} in\n{text}");
}

#[test]
fn figures_are_sums_over_epochs_and_tiers_of_one_kind_are_one() {
    has("tierfeed_batches_total 8");
    has("tierfeed_misses_total 2");
    has("tierfeed_page_cache_read_bytes_total 250");
    has("tierfeed_page_cache_left_bytes 300");
    has("tierfeed_page_cache_limit_bytes 500");
    has("tierfeed_read_bytes_total{tier=\"cold\",source=\"file\"} 1100");
    has("tierfeed_read_bytes_total{tier=\"cxl-memory\",source=\"cache\"} 900");
    has("tierfeed_hits_total{tier=\"cxl-memory\"} 10");
    has("tierfeed_tier_capacity_bytes{tier=\"cxl-memory\"} 30");
    has("tierfeed_tier_held_bytes{tier=\"cxl-memory\"} 17");
    has("tierfeed_evictions_total{tier=\"cxl-memory\",reason=\"policy\"} 6");
    has("tierfeed_evictions_total{tier=\"cxl-memory\",reason=\"resized\"} 8");
    has("tierfeed_stall_seconds_total{cause=\"cold-store\"} 3.0");
    has("tierfeed_prefetch_wasted_bytes_total 9");
    has("tierfeed_promotions_total{from=\"cxl-memory\",to=\"staging\"} 6");
    has("tierfeed_demoted_bytes_total{from=\"staging\",to=\"cxl-memory\"} 300");
    has("tierfeed_read_errors_total{tier=\"cold\",kind=\"io\"} 2");
    has("tierfeed_read_errors_total{tier=\"cxl-memory\",kind=\"io\"} 4");
    has("tierfeed_leases_active{rank=\"0\"} 2");
    has("tierfeed_io_backend_info{backend=\"threads\"} 1");
}

#[test]
fn what_is_staged_held_and_copied_is_told() {
    has("tierfeed_batches_ready{rank=\"0\"} 3");
    has("tierfeed_batches_ready{rank=\"1\"} 1");
    has("tierfeed_staging_batches_max 6");
    has("tierfeed_lease_copyouts_total 5");
    has("tierfeed_memory_held_bytes{of=\"job\"} 70");
    has("tierfeed_memory_held_bytes{of=\"agent\"} 8");
    has("tierfeed_memory_budget_bytes 90");
    has("tierfeed_cold_window 12");
    has("tierfeed_loop_pause_max_seconds 0.003");
    has("tierfeed_loop_ran_max_seconds 0.00003");
    has("tierfeed_agent_cpu_seconds_total 1.5");
    has("tierfeed_loop_pause_seconds_bucket{le=\"0.0025\"} 1");
    has("tierfeed_loop_pause_seconds_bucket{le=\"0.005\"} 2");
    has("tierfeed_job_info{job=\"resnet\",policy=\"gap\"} 1");
}

#[test]
fn requests_are_told_of_where_a_bucket_is_read_by_them() {
    assert!(!text().contains("tierfeed_object_"));
    let (requests, retries, hedges, hedges_won) = (40, 3, 5, 2);
    let (split, discarded) = (1, Bytes(77));
    let figures = ObjectFigures { requests, retries, hedges, hedges_won, split, discarded };
    let text = text_of(Some(figures));
    for line in [
        "tierfeed_object_requests_total 40",
        "tierfeed_object_retries_total 3",
        "tierfeed_object_hedges_total 5",
        "tierfeed_object_hedges_won_total 2",
        "tierfeed_object_split_total 1",
        "tierfeed_object_discarded_bytes_total 77",
    ] {
        assert!(text.lines().any(|other| other == line), "no line {line:?} in\n{text}");
    }
}

#[test]
fn histograms_are_cumulative_and_end_with_all() {
    has("tierfeed_read_duration_seconds_bucket{le=\"0.0001\",tier=\"cold\"} 0");
    has("tierfeed_read_duration_seconds_bucket{le=\"0.00025\",tier=\"cold\"} 3");
    has("tierfeed_read_duration_seconds_bucket{le=\"+Inf\",tier=\"cold\"} 3");
    has("tierfeed_read_duration_seconds_sum{tier=\"cold\"} 0.0006");
    has("tierfeed_read_duration_seconds_count{tier=\"cxl-memory\"} 6");
}

#[test]
fn no_series_stands_twice_and_the_text_ends_as_it_must() {
    let text = text();
    let mut seen = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').unwrap();
        assert!(seen.insert(series.to_owned()), "{series} stands twice");
        assert!(series.starts_with("tierfeed_"), "{series}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn a_target_file_names_the_address_and_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prometheus.json");
    Target::new("job", 3, "127.0.0.1:9464".parse().unwrap()).write(&path).unwrap();
    let read: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(read[0]["targets"][0], "127.0.0.1:9464");
    assert_eq!(read[0]["labels"]["tierfeed_node"], "3");
    let everywhere = Target::new("job", 3, "0.0.0.0:80".parse().unwrap());
    assert!(!format!("{everywhere:?}").contains("0.0.0.0"), "{everywhere:?}");
}
