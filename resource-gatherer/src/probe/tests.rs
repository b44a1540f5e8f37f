//! The whole probe, on this machine with tiny sizes and on trees of other machines.

#![expect(clippy::cast_precision_loss, reason = "rates")]

use tierfeed_core::{
    tier::Speed,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

use super::{estimate::Estimate, *};
use crate::{
    classify::Assignment,
    figures::whole,
    report::{self, Traffic},
    tests_support::FakeSysroot,
};

const TINY: Limits = Limits {
    total: Nanoseconds(60_000_000_000),
    cell: Nanoseconds(5_000_000),
    memory: Nanoseconds(60_000_000_000),
    sample: Nanoseconds(200_000),
    buffer_min: Bytes::mib(8),
    buffer_max: Bytes::mib(8),
    random_buffer: Bytes::mib(4),
    chunk: Bytes::mib(4),
    file: Bytes::mib(8),
    pairs: Pairs::BestInitiator,
};

fn settings() -> ProbeSettings {
    ProbeSettings {
        sysroot: PathBuf::from("/"),
        scratch: None,
        storage: None,
        budget: Budget::Custom(TINY),
        buckets: Vec::new(),
        further: Vec::new(),
        emulated: Vec::new(),
        assignments: Vec::new(),
        previous: None,
    }
}

fn cxl(latency_ns: u64, gb_per_s: u64) -> EmulatedTier {
    EmulatedTier {
        kind: Kind::CxlMemory,
        speed: Speed {
            latency: Nanoseconds(latency_ns),
            bandwidth: BytesPerSecond(gb_per_s * 1_000_000_000),
        },
        capacity: Bytes::mib(4096),
    }
}

/// The greatest ratio of a figure of the probe and that of a plain loop, either way: enough for threads,
/// caches and neighbours, and far less than the effect of a wrong unit.
const FACTOR: f64 = 6.0;

fn is_near(figure: f64, naive: f64) -> bool {
    (naive / FACTOR..=naive * FACTOR).contains(&figure)
}

/// The best of some turns, in seconds.
#[expect(clippy::disallowed_methods, reason = "an independent look has a clock of its own")]
fn best_of(mut turn: impl FnMut()) -> f64 {
    let turns = (0..20).map(|_| {
        let start = std::time::Instant::now();
        turn();
        start.elapsed().as_secs_f64()
    });
    turns.fold(f64::INFINITY, f64::min)
}

/// Bytes that a plain copy moves in a second.
fn naive_copy() -> f64 {
    let (from, mut to) = (vec![1_u8; 8 << 20], vec![0_u8; 8 << 20]);
    let best = best_of(|| std::hint::black_box(&mut to).copy_from_slice(&from));
    8.0 * 1_048_576.0 / best
}

/// Nanoseconds of a load that waits for the one before, in a loop through so many bytes.
fn naive_chase(bytes: usize) -> f64 {
    let places = bytes / 64;
    // An odd stride visits every line before one comes again, and no prefetcher follows it.
    let next: Vec<[u32; 16]> =
        (0..places).map(|at| [u32::try_from((at + 77_773) % places).unwrap(); 16]).collect();
    let best = best_of(|| {
        let mut at = 0;
        for _ in 0..places {
            at = next[at as usize][0];
        }
        std::hint::black_box(at);
    });
    best * 1e9 / places as f64
}

fn names(report: &Report) -> Vec<&str> {
    report.tiers.iter().map(|tier| tier.name.as_str()).collect()
}

#[test]
fn this_machine_yields_figures_like_those_of_a_plain_loop_and_leaves_no_file() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let settings = ProbeSettings {
        scratch: Some(directories[0].path().to_owned()),
        storage: Some(directories[1].path().to_owned()),
        ..settings()
    };
    let mut steps = Vec::new();
    let report = probe(&settings, &mut |progress| steps.push(progress)).unwrap();
    let main = report.tiers.iter().find(|tier| tier.kind == Kind::MainMemory).unwrap();
    // The probe's small buffer may lie in the last cache of one machine and in the memory of another.
    let (copied, near, far) = (naive_copy(), naive_chase(8 << 20), naive_chase(64 << 20));
    let latency = main.idle_latency_ns.unwrap();
    let is_in_range = is_near(latency, latency.clamp(near.min(far), far.max(near)));
    assert!(is_in_range, "{near} ns in 8 MiB, {far} ns in 64 MiB: {main:?}");
    for rate in [
        main.read_bytes_per_s,
        main.write_bytes_per_s,
        main.copy_bytes_per_s,
        main.triad_bytes_per_s,
    ] {
        assert!(is_near(rate.unwrap() as f64, copied), "{copied} B/s: {main:?}");
    }
    for kind in [Kind::Scratch, Kind::Storage] {
        let tier = report.tiers.iter().find(|tier| tier.kind == kind).unwrap();
        // What a floppy disk is slower than, and what no memory of today reaches.
        let sane = 1_000_000..=1_000_000_000_000;
        for rate in [tier.read_bytes_per_s, tier.write_bytes_per_s, tier.copy_bytes_per_s] {
            assert!(sane.contains(&rate.unwrap()), "{tier:?}");
        }
        assert!((100.0..1e9).contains(&tier.idle_latency_ns.unwrap()), "{tier:?}");
        let random = tier.random_read_iops.unwrap() * 4096;
        assert!(random > 100_000 && random < 20 * tier.read_bytes_per_s.unwrap(), "{tier:?}");
        assert!(tier.access.is_some());
    }
    for directory in &directories {
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
    }
    report::tests_support::assert_valid(&report);
    assert_eq!(steps.last().unwrap().step, Step::Classification);
    assert!(steps.iter().all(|it| it.total == steps.len() - 1));
    assert!(steps.iter().enumerate().all(|(index, it)| it.done == index));
}

fn estimates(report: &Report) -> Vec<Estimate> {
    let pairs = report.pairs.iter().flat_map(|pair| {
        let latencies = [pair.idle_latency_ns, pair.random_latency_ns].into_iter().flatten();
        let rates = pair.bandwidth.iter().map(|it| it.bytes_per_s);
        let points = pair.loaded_latency.iter().flat_map(|curve| &curve.points);
        latencies.chain(rates).chain(points.map(|point| point.latency_ns)).collect::<Vec<_>>()
    });
    pairs.chain(report.transfers.iter().map(|it| it.bytes_per_s)).collect()
}

#[test]
fn every_figure_of_memory_has_samples_and_lies_in_its_interval() {
    let report = probe(&settings(), &mut |_| ()).unwrap();
    let found = estimates(&report);
    assert!(found.len() > 15, "{found:?}");
    for estimate in found {
        let Estimate { low, median, high, best, samples, .. } = estimate;
        assert!(0.0 < low && low <= median && median <= high && high.is_finite(), "{estimate:?}");
        assert!(best.is_finite() && best > 0.0 && (1..=100).contains(&samples), "{estimate:?}");
        assert!(!(estimate.drifted && estimate.converged));
    }
}

#[test]
fn a_pair_has_every_traffic_by_every_number_of_threads_and_a_sorted_curve() {
    let report = probe(&settings(), &mut |_| ()).unwrap();
    let pair = &report.pairs[0];
    let cores = memory::cores::of_node(&report.inventory.nodes[0], Sysroot::live()).unwrap().len();
    for traffic in
        [Traffic::Read, Traffic::Write, Traffic::Copy, Traffic::Scale, Traffic::Add, Traffic::Triad]
    {
        let same = pair.bandwidth.iter().filter(|it| it.traffic == traffic);
        let threads: Vec<u32> = same.clone().map(|it| it.threads).collect();
        assert!(threads.contains(&1) && threads.contains(&u32::try_from(cores).unwrap()));
    }
    assert!(pair.is_best && pair.buffer_bytes == 8 << 20 && pair.cache_bytes > 0);
    let best = report.tiers[0].read_bytes_per_s.unwrap();
    assert_eq!(best, whole(pair.best(Traffic::Read).unwrap().bytes_per_s));
    let copied = report.tiers[0].copy_bytes_per_s.unwrap();
    let moved = whole(pair.best(Traffic::Copy).unwrap().bytes_per_s);
    assert!((2 * copied).abs_diff(moved) <= 2, "STREAM counts both sides of a copy");
    let Some(curve) = pair.loaded_latency.first() else {
        assert!(cores == 1 && report.skipped[0].why.starts_with("one core"));
        return;
    };
    assert!(curve.points.is_sorted_by_key(|point| point.bytes_per_s));
    assert!(curve.points.len() >= 8 && curve.points[0].generators == 0);
}

#[test]
fn chunks_are_copied_within_the_only_tier_of_memory_and_one_way_is_best() {
    let report = probe(&settings(), &mut |_| ()).unwrap();
    assert!(report.transfers.iter().all(|it| it.from == "main-memory" && it.to == "main-memory"));
    assert!(report.transfers.iter().all(|it| it.chunk_bytes == 4 << 20));
    assert_eq!(report.transfers.iter().filter(|it| it.is_best).count(), 1);
    assert!(report.skipped.iter().all(|it| !it.what.starts_with("copies")));
}

#[test]
fn a_probe_ends_when_it_is_told_to() {
    for calls_max in [0, 1, 5] {
        let mut calls = 0;
        let mut stop = || {
            calls += 1;
            calls > calls_max
        };
        let outcome = probe_until(&settings(), &mut stop, &mut |_| ());
        assert!(matches!(outcome, Err(ProbeError::Interrupted)), "after {calls_max}");
    }
}

#[test]
fn without_time_there_are_no_figures_and_everything_is_named() {
    let limits = Limits { total: Nanoseconds(0), ..TINY };
    let settings = ProbeSettings { budget: Budget::Custom(limits), ..settings() };
    let report = probe(&settings, &mut |_| ()).unwrap();
    assert_eq!((report.tiers[0].read_bytes_per_s, report.pairs.len()), (None, 0));
    assert!(report.tiers[0].remarks[0].ends_with("out of time"));
    assert_eq!(report.skipped[0].what, "copies from main-memory to main-memory");
}

#[test]
fn a_quick_probe_says_what_it_leaves_out() {
    let machine = FakeSysroot::cxl_node();
    let inventory = Inventory::read(Sysroot(machine.path())).unwrap();
    let skipped_by = |budget| skipped_by(budget, &inventory, &Constraints::default());
    let skipped = skipped_by(Budget::Quick);
    assert_eq!(skipped.iter().filter(|it| it.what.starts_with("memory of")).count(), 3);
    assert!(skipped.iter().all(|it| it.why.starts_with("quick: ")));
    assert!(skipped_by(Budget::Full).is_empty());
}

#[test]
fn a_report_survives_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/report.json");
    let settings = ProbeSettings { emulated: vec![cxl(350, 20)], ..settings() };
    let written = probe(&settings, &mut |_| ()).unwrap();
    report::write(&written, &path).unwrap();
    assert_eq!(report::read(&path).unwrap(), written);
    assert_eq!(path.parent().unwrap().read_dir().unwrap().count(), 1);
}

#[test]
fn a_report_that_cannot_be_written_leaves_the_old_one() {
    let directory = tempfile::tempdir().unwrap();
    let machine = FakeSysroot::cxl_node();
    let settings = ProbeSettings { sysroot: machine.path().to_owned(), ..settings() };
    let report = probe(&settings, &mut |_| ()).unwrap();
    let not_a_directory = directory.path().join("file");
    std::fs::write(&not_a_directory, "old").unwrap();
    let error = report::write(&report, &not_a_directory.join("report.json")).unwrap_err();
    assert!(matches!(error, report::StoreError::Unwritable { .. }));
    assert_eq!(std::fs::read_to_string(&not_a_directory).unwrap(), "old");
}

#[test]
fn a_directory_that_is_not_there_is_wrong_input() {
    let settings = ProbeSettings { storage: Some(PathBuf::from("/no/such")), ..settings() };
    let error = probe(&settings, &mut |_| ()).unwrap_err();
    assert!(matches!(&error, ProbeError::NoDirectory { .. }));
    assert!(error.to_string().contains("/no/such"), "{error}");
    let settings = ProbeSettings { storage: Some(PathBuf::from("/proc/version")), ..settings };
    assert!(matches!(probe(&settings, &mut |_| ()), Err(ProbeError::NoDirectory { .. })));
}

#[test]
fn a_directory_that_takes_no_file_is_reported_without_figures() {
    let settings = ProbeSettings { scratch: Some(PathBuf::from("/proc")), ..settings() };
    let report = probe(&settings, &mut |_| ()).unwrap();
    let scratch = report.tiers.iter().find(|tier| tier.kind == Kind::Scratch).unwrap();
    assert_eq!((scratch.read_bytes_per_s, scratch.capacity_bytes), (None, None));
    assert!(!scratch.quality.converged);
    assert!(scratch.remarks[0].starts_with("not measured: "), "{:?}", scratch.remarks);
}

#[test]
fn an_emulated_tier_is_reported_as_stated_and_placed_behind_what_plays_it() {
    let settings = ProbeSettings { emulated: vec![cxl(1, 900)], ..settings() };
    let report = probe(&settings, &mut |_| ()).unwrap();
    assert_eq!(names(&report), ["main-memory", "cxl-memory"]);
    let cxl = &report.tiers[1];
    assert!(cxl.emulated && !cxl.quality.converged);
    assert_eq!(cxl.read_bytes_per_s, Some(900_000_000_000));
    assert_eq!(cxl.idle_latency_ns, Some(1.0));
    assert_eq!((cxl.capacity_bytes, cxl.free_bytes), (Some(4 << 30), None));
    assert_eq!((cxl.triad_bytes_per_s, cxl.loaded_latency_ns), (None, None));
}

#[test]
fn another_machines_memory_is_placed_by_its_ratings_and_has_no_figures() {
    let machine = FakeSysroot::cxl_node();
    let settings = ProbeSettings { sysroot: machine.path().to_owned(), ..settings() };
    let report = probe(&settings, &mut |_| ()).unwrap();
    assert_eq!(names(&report), ["main-memory", "cxl-memory"]);
    let [main, cxl] = &report.tiers[..] else { panic!("two tiers") };
    assert_eq!((main.numa_nodes.as_slice(), cxl.numa_nodes.as_slice()), (&[0, 1][..], &[2][..]));
    assert_eq!((main.read_bytes_per_s, cxl.idle_latency_ns), (None, None));
    assert_eq!(main.capacity_bytes.unwrap(), 2 * cxl.capacity_bytes.unwrap());
    assert!(cxl.remarks[0].contains("another machine"));
    assert_eq!(report.numa.nodes, [0, 1, 2]);
    assert_eq!(report.numa.latency_ns, vec![vec![None; 3]; 3]);
    report::tests_support::assert_valid(&report);
}

#[test]
fn memory_of_a_gpu_is_neither_measured_nor_a_tier() {
    let machine = FakeSysroot::machine("gh200");
    let settings = ProbeSettings { sysroot: machine.path().to_owned(), ..settings() };
    let report = probe(&settings, &mut |_| ()).unwrap();
    let tiers = |report: &Report| -> Vec<(Kind, Vec<u32>)> {
        report.tiers.iter().map(|tier| (tier.kind, tier.numa_nodes.clone())).collect()
    };
    assert_eq!(tiers(&report), [(Kind::MainMemory, vec![0])]);
    assert!(report.inventory.nodes[1].is_gpu());
    let skipped = &report.skipped[0];
    assert_eq!(skipped.what, "NUMA node 1 as a tier");
    assert!(skipped.why.contains("memory of a GPU"), "{skipped:?}");
    report::tests_support::assert_valid(&report);
}

#[test]
fn memory_of_an_unknown_kind_is_a_tier_by_name() {
    let machine = FakeSysroot::cxl_node();
    for figure in ["read_latency", "write_latency", "read_bandwidth", "write_bandwidth"] {
        for class in ["access0", "access1"] {
            machine.remove(&format!("sys/devices/system/node/node2/{class}/initiators/{figure}"));
        }
    }
    let settings = ProbeSettings { sysroot: machine.path().to_owned(), ..settings() };
    let report = probe(&settings, &mut |_| ()).unwrap();
    assert_eq!(names(&report), ["main-memory"]);
    assert!(report.skipped[0].why.contains("name it in a job"), "{:?}", report.skipped);
    let assignment = Assignment { kind: Kind::CxlMemory, numa_nodes: vec![2], path: None };
    let report =
        probe(&ProbeSettings { assignments: vec![assignment], ..settings }, &mut |_| ()).unwrap();
    assert_eq!(names(&report), ["main-memory", "cxl-memory"]);
}

#[test]
fn figures_that_are_missing_are_null_in_json() {
    let machine = FakeSysroot::cxl_node();
    let settings = ProbeSettings { sysroot: machine.path().to_owned(), ..settings() };
    let json = serde_json::to_value(probe(&settings, &mut |_| ()).unwrap()).unwrap();
    let tier = &json["tiers"][1];
    for key in [
        "read_bytes_per_s",
        "write_bytes_per_s",
        "copy_bytes_per_s",
        "triad_bytes_per_s",
        "idle_latency_ns",
        "loaded_latency_ns",
        "random_read_iops",
        "path",
    ] {
        assert!(tier.as_object().unwrap()[key].is_null(), "{key}");
    }
    assert_eq!(tier["kind"], "cxl-memory");
    assert_eq!(tier["quality"]["converged"], false);
}

#[test]
fn the_table_names_every_tier_and_what_is_emulated() {
    let settings = ProbeSettings { emulated: vec![cxl(350, 20)], ..settings() };
    let report = probe(&settings, &mut |_| ()).unwrap();
    let table = report::table(&report, report::Style::Plain);
    let mut lines = table.lines().skip_while(|line| !line.starts_with("cxl-memory"));
    let cxl = lines.next().unwrap();
    assert!(cxl.contains("20.0") && cxl.contains("350 ns"), "{table}");
    assert_eq!(lines.next(), Some("  emulated"), "{table}");
}

#[test]
fn full_takes_every_pair_and_quick_the_best() {
    let machine = FakeSysroot::cxl_node();
    let inventory = Inventory::read(Sysroot(machine.path())).unwrap();
    let ids = |pairs: Vec<Pair<'_>>| -> Vec<(u32, u32, bool)> {
        pairs.iter().map(|it| (it.initiator.id, it.target.id, it.is_best)).collect()
    };
    assert_eq!(
        ids(memory::pairs(&inventory, Pairs::BestInitiator)),
        [(0, 0, true), (1, 1, true), (1, 2, true)]
    );
    assert_eq!(ids(memory::pairs(&inventory, Pairs::All)).len(), 6);
}
