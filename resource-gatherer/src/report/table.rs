//! Shows a report to people: the tiers first, then what is behind them, then what to be careful about.
//!
//! Rates are GB/s (10^9 bytes), times have their unit, `±` is half the width of the 95 % interval, `±?` one
//! that is wider than the value. `-` stands for what was not measured. No line of figures is longer than [`COLUMNS`] columns.

mod figure;
mod grid;
mod matrix;
mod memory;
mod notes;
mod places;
#[cfg(test)]
mod tests;
mod tiers;

use super::{Report, Style, style::Paint};

/// The width that everything fits in, but for paths and names that are longer themselves.
pub const COLUMNS: usize = 100;

/// The text ends with a line end.
#[must_use]
pub fn table(report: &Report, style: Style) -> String {
    let sections = [
        Some(tiers::tiers(report, style)),
        memory::bandwidth(report, style),
        memory::loaded_latency(report, style),
        matrix::latency(report, style),
        matrix::transfers(report, style),
        tiers::views(report, style),
        places::storage(report, style),
        places::object_stores(report, style),
        notes::warnings(report, style),
        notes::skipped(report, style),
        notes::conditions(report, style),
    ];
    let sections: Vec<String> = sections.into_iter().flatten().collect();
    sections.join("\n")
}

fn heading(style: Style, text: &str) -> String {
    style.paint(text, Paint::Heading) + "\n"
}
