//! Shows a report to people: the tiers, and what to be careful about. Everything else is in the JSON.
//!
//! Rates are GB/s (10^9 bytes), times have their unit, `±` is half the width of the 95 % interval, `±?` one
//! that is wider than the value. `-` stands for what was not measured. No line is longer than [`COLUMNS`]
//! columns.

mod figure;
#[cfg(test)]
mod tests;

use std::array;

use super::{Access, Basis, Comparison, Figures, ObjectStore, Report, Throughput, Tier};

/// The width that everything fits in, but for paths and names that are longer themselves.
pub const COLUMNS: usize = 100;

/// The caller decides; nothing here asks what a terminal can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Text alone, for files, pipes and users who want no colours.
    Plain,
    Coloured,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Paint {
    Heading,
    Label,
    Warning,
}

impl Style {
    fn paint(self, text: &str, paint: Paint) -> String {
        let code = match paint {
            Paint::Heading => "1",
            Paint::Label => "2",
            Paint::Warning => "33",
        };
        match self {
            Self::Coloured if !text.is_empty() => format!("\x1b[{code}m{text}\x1b[0m"),
            _ => text.to_owned(),
        }
    }
}

/// The text ends with a line end.
#[must_use]
pub fn table(report: &Report, style: Style) -> String {
    let stores: Vec<_> = report.object_stores.iter().map(object_store).collect();
    let differing = report.comparisons.iter().filter(|it| it.differs);
    let differing: Vec<_> = differing.map(difference).collect();
    let skipped = report.skipped.iter().map(|it| format!("{}: {}", it.what, it.why));
    let skipped: Vec<_> = skipped.collect();
    let sections = [
        Some(tiers(report, style)),
        section(style, "object stores", &stores),
        section(style, "remarks", &remarks(report)),
        section(style, "stated and measured differ by more than 25 %", &differing),
        section(style, "left out", &skipped),
    ];
    sections.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

type Row = [String; 9];

fn tiers(report: &Report, style: Style) -> String {
    let header =
        ["tier", "GiB", "free", "read GB/s", "write GB/s", "copy GB/s", "latency", "IOPS", "where"];
    let header: Row = header.map(str::to_owned);
    let rows: Vec<Row> = report.tiers.iter().map(row).collect();
    let widths = array::from_fn(|column| {
        let width = |row: &Row| row[column].chars().count();
        rows.iter().map(width).fold(width(&header), usize::max)
    });
    let title = format!("tiers of {}, fastest first", report.host);
    let mut lines = vec![
        style.paint(&title, Paint::Heading),
        style.paint(&in_columns(&header, &widths), Paint::Label),
    ];
    for (tier, row) in report.tiers.iter().zip(&rows) {
        lines.push(in_columns(row, &widths));
        lines.extend(flags(tier).iter().map(|line| style.paint(line, Paint::Warning)));
    }
    lines.join("\n") + "\n"
}

fn row(tier: &Tier) -> Row {
    let figures = &tier.estimates;
    [
        tier.name.clone(),
        figure::gibibytes(tier.capacity_bytes),
        figure::gibibytes(tier.free_bytes),
        figure::rate(figures.read_bytes_per_s),
        figure::rate(figures.write_bytes_per_s),
        figure::rate(figures.copy_bytes_per_s),
        figure::latency(figures.idle_latency_ns),
        figure::operations(figures.random_read_iops),
        place(tier),
    ]
}

fn place(tier: &Tier) -> String {
    let nodes: Vec<String> = tier.numa_nodes.iter().map(u32::to_string).collect();
    match (&tier.path, tier.memory) {
        (Some(path), _) => path.display().to_string(),
        (None, _) if nodes.is_empty() => figure::NONE.to_owned(),
        (None, None) => format!("NUMA {}", nodes.join(",")),
        (None, Some(class)) => format!("NUMA {}, {}", nodes.join(","), class.name()),
    }
}

/// Words lean to the left, figures to the right.
fn in_columns(row: &Row, widths: &[usize; 9]) -> String {
    let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
        if column == 0 || column == row.len() - 1 {
            format!("{cell:<width$}")
        } else {
            format!("{cell:>width$}")
        }
    });
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

/// What the figures of a tier are worth.
fn flags(tier: &Tier) -> Vec<String> {
    let has_figures = tier.estimates != Figures::default();
    let is_measured = has_figures && !tier.emulated;
    let flags = [
        (tier.emulated, "emulated"),
        (!has_figures, "not measured"),
        (is_measured && !tier.quality.converged, "not converged"),
        (tier.quality.contended, "contended"),
        (tier.access == Some(Access::Buffered), "through the page cache"),
        (tier.source == Basis::Config, "by configuration"),
        (tier.source == Basis::Rated, "placed by what the firmware states"),
        (tier.source == Basis::Kind, "placed by its kind alone"),
    ];
    let flags = flags.into_iter().filter(|(applies, _)| *applies).map(|(_, text)| text);
    let flags = flags.collect::<Vec<_>>().join(", ");
    std::iter::once(&flags).chain(&tier.remarks).flat_map(|text| wrapped(text)).collect()
}

fn object_store(store: &ObjectStore) -> String {
    let origin = if store.made_objects { "made and removed" } else { "found there" };
    let rate = |it: &Throughput| {
        format!("{} GB/s with {} in flight", figure::rate(Some(it.bytes_per_s)), it.requests)
    };
    let latency = figure::time(store.request_latency.p50_ns);
    let rates: Vec<String> = store.throughput.iter().map(rate).collect();
    format!("{} (objects {origin}): {}; a byte in {latency}", store.url, rates.join(", "))
}

fn remarks(report: &Report) -> Vec<String> {
    let pairs = report.pairs.iter().flat_map(|pair| {
        let place = format!("memory of NUMA node {} from node {}", pair.target, pair.initiator);
        pair.remarks.iter().map(move |remark| format!("{place}: {remark}"))
    });
    let storage = report.storage.iter().flat_map(|storage| {
        storage.remarks.iter().map(|remark| format!("{}: {remark}", storage.path.display()))
    });
    let stores = report
        .object_stores
        .iter()
        .flat_map(|store| store.remarks.iter().map(|remark| format!("{}: {remark}", store.url)));
    pairs.chain(storage).chain(stores).collect()
}

fn difference(comparison: &Comparison) -> String {
    let Comparison { node, figure, stated, measured, .. } = comparison;
    let rate = |value: f64| format!("{} GB/s", figure::digits(value / 1e9));
    let (what, stated, measured) = match figure.as_str() {
        "idle_latency_ns" => {
            ("latency", figure::time(Some(*stated)), figure::time(Some(*measured)))
        }
        "read_bytes_per_s" => ("reads", rate(*stated), rate(*measured)),
        _ => ("writes", rate(*stated), rate(*measured)),
    };
    format!("NUMA node {node}: the firmware states {stated} of {what}, measured {measured}")
}

fn section(style: Style, name: &str, texts: &[String]) -> Option<String> {
    let lines = texts.iter().flat_map(|text| wrapped(text)).map(|line| line + "\n");
    let heading = style.paint(name, Paint::Heading) + "\n";
    (!texts.is_empty()).then(|| heading + &lines.collect::<String>())
}

/// Indented lines of at most [`COLUMNS`]; a longer word stays whole.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= COLUMNS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("  {word}")),
        }
    }
    lines
}
