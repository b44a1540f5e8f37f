//! What stands beside the memory: directories and buckets.

use super::{
    COLUMNS, Report, Style, figure,
    grid::{Grid, Lean, wrapped},
    heading,
};
use crate::report::{Access, Engine, ObjectStore, Percentiles, RandomAccess, Storage};

pub(super) fn storage(report: &Report, style: Style) -> Option<String> {
    if report.storage.is_empty() {
        return None;
    }
    let mut grid = Grid::new([
        ("4 KiB at random", Lean::Left),
        ("depth", Lean::Right),
        ("IOPS", Lean::Right),
        ("p50", Lean::Right),
        ("p90", Lean::Right),
        ("p99", Lean::Right),
        ("p99.9", Lean::Right),
        ("slowest", Lean::Right),
    ]);
    for storage in &report.storage {
        grid.text(place(storage));
        for line in wrapped(&in_order(storage), 2, COLUMNS) {
            grid.text(line);
        }
        for (what, all) in [("reads", &storage.random_reads), ("writes", &storage.random_writes)] {
            for access in all {
                grid.row(random(what, access));
            }
        }
        for line in storage.remarks.iter().flat_map(|remark| wrapped(remark, 2, COLUMNS)) {
            grid.warning(line);
        }
    }
    Some(heading(style, "directories") + &grid.show(style))
}

pub(super) fn object_stores(report: &Report, style: Style) -> Option<String> {
    if report.object_stores.is_empty() {
        return None;
    }
    let mut grid = Grid::new([
        ("requests in flight", Lean::Right),
        ("GB/s", Lean::Right),
        ("one byte p50", Lean::Right),
        ("p99", Lean::Right),
    ]);
    for store in &report.object_stores {
        grid.text(bucket(store));
        for (index, throughput) in store.throughput.iter().enumerate() {
            let latency = if index == 0 { store.request_latency } else { Percentiles::default() };
            grid.row([
                throughput.requests.to_string(),
                figure::rate(Some(throughput.bytes_per_s)),
                figure::time(latency.p50_ns),
                figure::time(latency.p99_ns),
            ]);
        }
        for line in store.remarks.iter().flat_map(|remark| wrapped(remark, 2, COLUMNS)) {
            grid.warning(line);
        }
    }
    Some(heading(style, "object stores") + &grid.show(style))
}

fn place(storage: &Storage) -> String {
    let engine = match storage.engine {
        Engine::IoUring => "io_uring",
        Engine::Threads => "threads",
    };
    let access = match storage.access {
        Access::Direct => "direct",
        Access::Buffered => "through the page cache",
    };
    format!("{} ({engine}, {access})", storage.path.display())
}

fn in_order(storage: &Storage) -> String {
    let figures = [
        ("read", storage.sequential_read_bytes_per_s),
        ("write", storage.sequential_write_bytes_per_s),
        ("rewrite", storage.rewrite_bytes_per_s),
        ("chunk into memory", storage.chunk_read_bytes_per_s),
    ];
    let figures = figures.into_iter().filter(|(_, rate)| rate.is_some());
    let texts: Vec<String> =
        figures.map(|(name, rate)| format!("{name} {} GB/s", figure::rate(rate))).collect();
    texts.join(", ")
}

fn random(what: &str, access: &RandomAccess) -> [String; 8] {
    let latency = access.latency;
    let steady = if access.is_steady { "" } else { ", not steady" };
    [
        format!("  {what}{steady}"),
        access.depth.to_string(),
        figure::operations(Some(access.iops)),
        figure::time(latency.p50_ns),
        figure::time(latency.p90_ns),
        figure::time(latency.p99_ns),
        figure::time(latency.p999_ns),
        figure::time(latency.max_ns),
    ]
}

fn bucket(store: &ObjectStore) -> String {
    let origin = if store.made_objects { "made and removed" } else { "found there" };
    format!("{} (objects {origin})", store.url)
}
