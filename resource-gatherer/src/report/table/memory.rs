//! Each pair of nodes: bandwidth by kind of traffic, and latency under load.

use super::{
    super::style::Paint,
    Report, Style, figure,
    grid::{Grid, Lean, wrapped},
    heading,
};
use crate::report::{LoadedLatency, Pair, Traffic};

pub(super) fn bandwidth(report: &Report, style: Style) -> Option<String> {
    if report.pairs.is_empty() {
        return None;
    }
    let mut columns = vec![("NUMA".to_owned(), Lean::Left)];
    let names = ["latency", "4 KiB", "read", "by", "write", "NT write", "copy r+w", "triad"];
    columns.extend(names.map(|name| (name.to_owned(), Lean::Right)));
    let mut grid = Grid::with_columns(columns);
    for pair in &report.pairs {
        grid.row(row(pair));
        let remarks = pair.remarks.iter().cloned().chain(remark(pair));
        for line in remarks.flat_map(|remark| wrapped(&remark, 2, super::COLUMNS)) {
            grid.warning(line);
        }
    }
    let text = "memory, from the CPUs of a node to a node, by the best number of threads";
    let explained = "  GB/s as STREAM counts: a copy is read and written, twice the copy GB/s of a tier\n  \
         4 KiB: a load anywhere, on small pages; NT: past the caches";
    let explained = style.paint(explained, Paint::Label) + "\n";
    Some(heading(style, text) + &explained + &grid.show(style))
}

pub(super) fn loaded_latency(report: &Report, style: Style) -> Option<String> {
    let curves =
        || report.pairs.iter().flat_map(|it| it.loaded_latency.iter().map(move |c| (it, c)));
    curves().next()?;
    let mut columns = vec![("NUMA".to_owned(), Lean::Left), ("traffic".to_owned(), Lean::Left)];
    let names = ["idle", "at 50 %", "at 80 %", "at 90 %", "highest GB/s", "knee GB/s"];
    columns.extend(names.map(|name| (name.to_owned(), Lean::Right)));
    let mut grid = Grid::with_columns(columns);
    for (pair, curve) in curves() {
        grid.row(curve_row(pair, curve));
    }
    let text = "latency under load, at shares of the highest traffic; knee: twice the idle latency";
    Some(heading(style, text) + &grid.show(style))
}

fn row(pair: &Pair) -> [String; 9] {
    let rate = |traffic| figure::rate(pair.best(traffic).map(|it| it.bytes_per_s));
    let read = pair.best(Traffic::Read);
    [
        way(pair),
        figure::latency(pair.idle_latency_ns),
        figure::latency(pair.random_latency_ns),
        figure::rate(read.map(|it| it.bytes_per_s)),
        read.map_or_else(|| figure::NONE.to_owned(), |it| it.threads.to_string()),
        rate(Traffic::Write),
        rate(Traffic::WriteNonTemporal),
        rate(Traffic::Copy),
        rate(Traffic::Triad),
    ]
}

fn curve_row(pair: &Pair, curve: &LoadedLatency) -> [String; 8] {
    let highest = curve.points.iter().map(|point| point.bytes_per_s).fold(0.0, f64::max);
    let gb_per_s = |rate: Option<f64>| {
        rate.map_or_else(|| figure::NONE.to_owned(), |rate| figure::digits(rate / 1e9))
    };
    [
        way(pair),
        curve.traffic.name().to_owned(),
        figure::time(curve.points.first().map(|point| point.latency_ns.median)),
        figure::time(curve.at_50_percent_ns),
        figure::time(curve.at_80_percent_ns),
        figure::time(curve.at_90_percent_ns),
        gb_per_s(Some(highest)),
        gb_per_s(curve.knee_bytes_per_s),
    ]
}

fn remark(pair: &Pair) -> Option<String> {
    let figures = || {
        let rates = pair.bandwidth.iter().map(|it| it.bytes_per_s);
        rates.chain(pair.idle_latency_ns).chain(pair.random_latency_ns)
    };
    let flags = [
        (pair.cache_bound, "from the caches: sorts nothing"),
        (figures().any(|it| !it.converged), "not all converged"),
        (figures().any(|it| it.contended), "contended"),
    ];
    let flags: Vec<&str> =
        flags.into_iter().filter(|(applies, _)| *applies).map(|(_, text)| text).collect();
    Some(flags.join(", ")).filter(|flags| !flags.is_empty())
}

fn way(pair: &Pair) -> String {
    format!("{} -> {}", pair.initiator, pair.target)
}
