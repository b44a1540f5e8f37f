//! Shows a report to people: one line per tier, sizes in GiB, rates in GB/s, times in ns.

use std::fmt::Write;

use super::{Access, Report, Tier};
use crate::probe::estimate::to_f64;

const COLUMNS: [&str; 9] = [
    "tier",
    "where",
    "GiB",
    "free GiB",
    "read GB/s",
    "write GB/s",
    "copy GB/s",
    "latency ns",
    "IOPS",
];

/// The tiers of `report`, fastest first; `-` stands for what was not measured.
#[must_use]
pub fn table(report: &Report) -> String {
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(report.tiers.iter().map(row));
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    let mut text = format!("tiers of {}, fastest first\n", report.host);
    for (index, row) in rows.iter().enumerate() {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let padding = " ".repeat(width - cell.chars().count());
            let is_text = column < 2;
            let (before, after) = if is_text { ("", &*padding) } else { (&*padding, "") };
            text.push_str(if column == 0 { "" } else { "  " });
            text.push_str(before);
            text.push_str(cell);
            text.push_str(after);
        }
        if let Some(tier) = index.checked_sub(1).and_then(|index| report.tiers.get(index)) {
            text.push_str(&remarks(tier));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

fn row(tier: &Tier) -> [String; COLUMNS.len()] {
    let rate = |rate: Option<u64>| number(rate.map(|rate| to_f64(rate) / 1e9), 2);
    [
        tier.name.clone(),
        place(tier),
        number(tier.capacity_bytes.map(gibibytes), 1),
        number(tier.free_bytes.map(gibibytes), 1),
        rate(tier.read_bytes_per_s),
        rate(tier.write_bytes_per_s),
        rate(tier.copy_bytes_per_s),
        number(tier.idle_latency_ns, 0),
        number(tier.random_read_iops.map(to_f64), 0),
    ]
}

fn place(tier: &Tier) -> String {
    match &tier.path {
        Some(path) => path.display().to_string(),
        None if tier.numa_nodes.is_empty() => "-".to_owned(),
        None => {
            let nodes: Vec<String> = tier.numa_nodes.iter().map(u32::to_string).collect();
            format!("NUMA {}", nodes.join(","))
        }
    }
}

fn remarks(tier: &Tier) -> String {
    let is_measured = tier.estimates != super::Figures::default() && !tier.emulated;
    let remarks = [
        (tier.emulated, "emulated"),
        (!is_measured && !tier.emulated, "not measured"),
        (is_measured && !tier.quality.converged, "not converged"),
        (tier.quality.contended, "contended"),
        (tier.access == Some(Access::Buffered), "through the page cache"),
    ];
    let mut text = String::new();
    for (_, remark) in remarks.iter().filter(|(applies, _)| *applies) {
        let separator = if text.is_empty() { "  " } else { ", " };
        write!(text, "{separator}{remark}").expect("a String takes everything");
    }
    text
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

fn gibibytes(bytes: u64) -> f64 {
    to_f64(bytes) / to_f64(1 << 30)
}
