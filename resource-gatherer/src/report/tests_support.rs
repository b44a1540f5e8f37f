//! Reports made by hand, for tests.

use tierfeed_core::tier::Kind;

use super::{
    Access, Bandwidth, Basis, Comparison, Engine, FORMAT, Figures, LoadedLatency, LoadedPoint,
    Matrix, ObjectStore, Pair, Percentiles, RandomAccess, Report, Skipped, Storage, Throughput,
    Tier, Traffic, Transfer, View,
};
use crate::{
    classify::MemoryClass,
    figures::estimate::Estimate,
    inventory::{Inventory, mount::Medium},
    sysroot::Sysroot,
    tests_support::FakeSysroot,
};

pub(crate) fn validator() -> jsonschema::Validator {
    let schema = serde_json::from_str(super::SCHEMA).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
}

/// Fails unless the schema allows the JSON of `report`.
pub(crate) fn assert_valid(report: &Report) {
    let document = serde_json::to_value(report).unwrap();
    let validator = validator();
    let errors = validator.iter_errors(&document);
    let errors: Vec<String> =
        errors.map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

pub(crate) fn minimal(inventory: &Inventory) -> Report {
    Report {
        format: FORMAT,
        host: inventory.host.clone(),
        tiers: Vec::new(),
        numa: Matrix::default(),
        pairs: Vec::new(),
        storage: Vec::new(),
        object_stores: Vec::new(),
        transfers: Vec::new(),
        views: Vec::new(),
        comparisons: Vec::new(),
        skipped: Vec::new(),
        inventory: inventory.clone(),
    }
}

/// A report with something in every place: two sockets, CXL, a RAM disk, a disk, an emulated tier.
pub(crate) fn full() -> Report {
    let inventory = Inventory::read(Sysroot(FakeSysroot::cxl_node().path())).unwrap();
    let pairs = [(0, 0, 107.5, 99.8), (0, 1, 200.7, 76.6), (0, 2, 279.4, 17.6)];
    let from_second = [(1, 0, 200.7, 76.6), (1, 1, 107.5, 99.8), (1, 2, 363.8, 17.0)];
    Report {
        tiers: tiers(),
        numa: Matrix {
            nodes: vec![0, 1, 2],
            latency_ns: vec![
                vec![Some(107.5), Some(200.7), Some(279.4)],
                vec![Some(200.7), Some(107.5), Some(363.8)],
                vec![None; 3],
            ],
            read_bytes_per_s: vec![
                vec![Some(99_800_000_000), None, None],
                vec![None; 3],
                vec![None; 3],
            ],
        },
        pairs: pairs.into_iter().chain(from_second).map(pair).collect(),
        storage: vec![storage("/dev/shm", Medium::Memory), storage("/nvme", Medium::SolidState)],
        object_stores: vec![object_store()],
        transfers: transfers(),
        views: vec![
            View { initiator: 0, tiers: vec![vec![0], vec![1], vec![2]] },
            View { initiator: 1, tiers: vec![vec![1], vec![0], vec![2]] },
        ],
        comparisons: vec![
            comparison("idle_latency_ns", 170.0, 279.4),
            comparison("read_bytes_per_s", 17e9, 17.6e9),
        ],
        skipped: vec![Skipped {
            what: "random writes".to_owned(),
            why: "not asked for; they wear the device".to_owned(),
        }],
        ..minimal(&inventory)
    }
}

pub(crate) fn estimate(value: f64) -> Estimate {
    let (low, high) = (value * 0.985, value * 1.015);
    Estimate { low, high, samples: 20, converged: true, ..Estimate::stated(value) }
}

fn tiers() -> Vec<Tier> {
    let memory = |latency, gb_per_s: f64| Figures {
        read_bytes_per_s: Some(estimate(gb_per_s * 1e9)),
        write_bytes_per_s: Some(estimate(gb_per_s * 0.6e9)),
        copy_bytes_per_s: Some(estimate(gb_per_s * 0.5e9)),
        triad_bytes_per_s: Some(estimate(gb_per_s * 0.8e9)),
        idle_latency_ns: Some(estimate(latency)),
        loaded_latency_ns: Some(estimate(latency * 2.0)),
        random_read_iops: None,
    };
    let disk = |latency, gb_per_s: f64, iops| Figures {
        copy_bytes_per_s: None,
        triad_bytes_per_s: None,
        loaded_latency_ns: None,
        random_read_iops: Some(estimate(iops)),
        ..memory(latency, gb_per_s)
    };
    let stated = |value| Some(Estimate::stated(value));
    let emulated = Figures {
        read_bytes_per_s: stated(20e9),
        idle_latency_ns: stated(350.0),
        ..Figures::default()
    };
    let mut contended = disk(81_250.0, 3.1, 742_000.0);
    contended.read_bytes_per_s =
        Some(Estimate { contended: true, converged: false, ..estimate(3.1e9) });
    vec![
        Tier {
            numa_node: Some(1),
            numa_nodes: vec![0, 1],
            memory: Some(MemoryClass::Dram),
            ..tier("main-memory", Kind::MainMemory, &memory(107.5, 99.8))
        },
        Tier {
            numa_node: Some(2),
            numa_nodes: vec![2],
            memory: Some(MemoryClass::Cxl),
            source: Basis::Config,
            ..tier("cxl-memory", Kind::CxlMemory, &memory(279.4, 17.6))
        },
        Tier {
            emulated: true,
            source: Basis::Stated,
            free_bytes: None,
            ..tier("cxl-memory-2", Kind::CxlMemory, &emulated)
        },
        Tier {
            path: Some("/dev/shm".into()),
            access: Some(Access::Buffered),
            ..tier("scratch", Kind::Scratch, &disk(1_240.0, 7.4, 812_000.0))
        },
        Tier {
            path: Some("/nvme".into()),
            access: Some(Access::Direct),
            remarks: vec!["the device shares its bus with another".to_owned()],
            ..tier("storage", Kind::Storage, &contended)
        },
    ]
}

fn tier(name: &str, kind: Kind, figures: &Figures) -> Tier {
    Tier {
        name: name.to_owned(),
        capacity_bytes: Some(96 << 30),
        free_bytes: Some(90 << 30),
        ..Tier::with(kind, figures, Basis::Measured)
    }
}

fn pair((initiator, target, latency_ns, gb_per_s): (u32, u32, f64, f64)) -> Pair {
    let sweep = |traffic, share: f64| {
        [1_u32, 2, 4, 8, 12].map(|threads| {
            let rate = (f64::from(threads) * 14e9).min(gb_per_s * share * 1e9);
            Bandwidth { traffic, threads, bytes_per_s: estimate(rate) }
        })
    };
    let kinds = [
        (Traffic::Read, 1.0),
        (Traffic::Write, 0.6),
        (Traffic::WriteNonTemporal, 0.7),
        (Traffic::Copy, 0.5),
        (Traffic::Triad, 0.8),
    ];
    Pair {
        initiator,
        target,
        is_best: initiator == target || (initiator, target) == (0, 2),
        buffer_bytes: 512 << 20,
        cache_bytes: 64 << 20,
        cache_bound: false,
        huge_page_share: Some(1.0),
        idle_latency_ns: Some(estimate(latency_ns)),
        random_latency_ns: Some(estimate(latency_ns * 1.4)),
        bandwidth: kinds.into_iter().flat_map(|(traffic, share)| sweep(traffic, share)).collect(),
        loaded_latency: vec![curve(Traffic::Read, latency_ns, gb_per_s)],
        remarks: Vec::new(),
    }
}

/// A queue: latency grows as the traffic nears the bandwidth.
fn curve(traffic: Traffic, latency_ns: f64, gb_per_s: f64) -> LoadedLatency {
    let at = |share: f64| latency_ns * (1.0 + 0.15 * share / (1.02 - share));
    let shares = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99];
    let points = shares.map(|share| LoadedPoint {
        generators: 4,
        delay_rounds: 100,
        bytes_per_s: share * gb_per_s * 1e9,
        latency_ns: estimate(at(share)),
    });
    LoadedLatency {
        traffic,
        points: points.to_vec(),
        at_50_percent_ns: Some(at(0.5)),
        knee_bytes_per_s: Some(0.887 * gb_per_s * 1e9),
    }
}

fn storage(path: &str, medium: Medium) -> Storage {
    let rate = |gb_per_s: f64| Some(estimate(gb_per_s * 1e9));
    let random = |depth: u32, iops: f64| RandomAccess {
        depth,
        iops: estimate(iops),
        latency: Percentiles {
            samples: 90_000,
            p50_ns: Some(81_250.0),
            p90_ns: Some(95_000.0),
            p99_ns: Some(231_000.0),
            p999_ns: None,
            max_ns: Some(4_812_000.0),
        },
        is_steady: depth == 1,
    };
    Storage {
        path: path.into(),
        medium,
        engine: Engine::IoUring,
        access: Access::Direct,
        file_bytes: 1 << 30,
        random_reads: vec![random(1, 12_100.0), random(32, 742_000.0)],
        sequential_read_bytes_per_s: rate(6.8),
        sequential_write_bytes_per_s: rate(3.9),
        chunk_read_bytes_per_s: rate(6.5),
        chunk_bytes: 512 << 20,
        remarks: Vec::new(),
    }
}

fn object_store() -> ObjectStore {
    let of = |requests| Throughput {
        requests,
        range_bytes: 8 << 20,
        bytes_per_s: estimate(f64::from(requests) * 0.09e9),
    };
    ObjectStore {
        url: "s3://bucket/prefix".to_owned(),
        object_bytes: 8 << 20,
        made_objects: true,
        request_latency: Percentiles {
            samples: 200,
            p50_ns: Some(18_400_000.0),
            p90_ns: Some(31_000_000.0),
            ..Percentiles::default()
        },
        throughput: vec![of(1), of(8), of(32)],
        transferred_bytes: 3 << 30,
        remarks: Vec::new(),
    }
}

fn transfers() -> Vec<Transfer> {
    let rates = [
        ("main-memory", "main-memory", 21.0),
        ("main-memory", "cxl-memory", 13.4),
        ("cxl-memory", "main-memory", 16.1),
        ("scratch", "main-memory", 7.3),
        ("storage", "main-memory", 3.1),
    ];
    let transfer = |(from, to, gb_per_s): (&str, &str, f64), threads: u32| Transfer {
        from: from.to_owned(),
        to: to.to_owned(),
        is_best: threads == 2,
        threads,
        non_temporal: true,
        chunk_bytes: 512 << 20,
        bytes_per_s: estimate(gb_per_s * 1e9 * if threads == 1 { 0.8 } else { 1.0 }),
    };
    rates.into_iter().flat_map(|rate| [1, 2].map(|threads| transfer(rate, threads))).collect()
}

fn comparison(figure: &str, stated: f64, measured: f64) -> Comparison {
    let ratio = stated.max(measured) / stated.min(measured);
    Comparison { node: 2, figure: figure.to_owned(), stated, measured, differs: ratio > 1.25 }
}
