//! Figures between places: latency from node to node, chunks from tier to tier.

use super::{
    Report, Style, figure,
    grid::{Grid, Lean},
    heading,
};
use crate::{classify::CHUNK, figures::estimate::to_f64, report::Transfer};

/// Columns of a matrix that fit beside each other.
const BESIDE: usize = 4;

pub(super) fn latency(report: &Report, style: Style) -> Option<String> {
    let nodes = &report.numa.nodes;
    if nodes.len() < 2 || report.numa.latency_ns.iter().flatten().flatten().next().is_none() {
        return None;
    }
    let mut columns = vec![("from \\ to".to_owned(), Lean::Left)];
    columns.extend(nodes.iter().map(|node| (format!("NUMA {node}"), Lean::Right)));
    let mut grid = Grid::with_columns(columns);
    for (node, row) in nodes.iter().zip(&report.numa.latency_ns) {
        if row.iter().any(Option::is_some) {
            let cells = row.iter().map(|latency| figure::time(*latency));
            grid.row(std::iter::once(format!("NUMA {node}")).chain(cells));
        }
    }
    Some(
        heading(style, "idle latency, from the CPUs of a node to the memory of a node")
            + &grid.show(style),
    )
}

pub(super) fn transfers(report: &Report, style: Style) -> Option<String> {
    if report.transfers.is_empty() {
        return None;
    }
    let mut names: Vec<&str> = report.tiers.iter().map(|tier| tier.name.as_str()).collect();
    let is_part =
        |name: &&str| report.transfers.iter().any(|it| it.from == **name || it.to == **name);
    names.retain(is_part);
    let text =
        format!("copies between tiers: ms for {CHUNK}, GB/s, with the best number of threads");
    let mut shown = heading(style, &text);
    let is_target = |name: &&str| report.transfers.iter().any(|it| it.to == **name);
    let targets: Vec<&str> = names.iter().copied().filter(is_target).collect();
    for targets in targets.chunks(BESIDE) {
        let mut columns = vec![("from \\ to".to_owned(), Lean::Left)];
        columns.extend(targets.iter().map(|name| ((*name).to_owned(), Lean::Right)));
        let mut grid = Grid::with_columns(columns);
        for from in &names {
            let cells = targets.iter().map(|to| cell(best(&report.transfers, from, to)));
            grid.row(std::iter::once((*from).to_owned()).chain(cells));
        }
        shown += &grid.show(style);
    }
    Some(shown)
}

fn best<'a>(transfers: &'a [Transfer], from: &str, to: &str) -> Option<&'a Transfer> {
    let between = transfers.iter().filter(|it| it.from == from && it.to == to);
    between.max_by(|a, b| a.bytes_per_s.median.total_cmp(&b.bytes_per_s.median))
}

fn cell(transfer: Option<&Transfer>) -> String {
    let Some(transfer) = transfer else { return figure::NONE.to_owned() };
    let rate = transfer.bytes_per_s;
    let milliseconds = to_f64(CHUNK.0) * 1e3 / rate.median;
    format!(
        "{} ms {}, {}t",
        figure::digits(milliseconds),
        figure::rate(Some(rate)),
        transfer.threads
    )
}
