//! The figures as tables.

use std::fmt::Write as _;

use super::{Outcome, flatness, prefetch, retention};

/// Figures that miss their mark are marked with `!`.
#[must_use]
pub fn table(outcome: &Outcome) -> String {
    let mut text = String::new();
    _ = writeln!(
        text,
        "hits without prefetch, mean over all epochs; {} reads an epoch and node\n\
         {:<14}{:>6}{:>8}{:>8}{:>10}{:>10}{:>10}{:>12}{:>10}{:>10}",
        outcome.accesses,
        "policy",
        "nodes",
        "cache",
        "epochs",
        "hits",
        "table",
        "form",
        "difference",
        "steady",
        "limit"
    );
    outcome.retention.iter().for_each(|row| retention_line(&mut text, row));
    _ = writeln!(
        text,
        "\nready when needed with prefetch, one node, from the second epoch on\n\
         {:<24}{:>8}{:>11}{:>8}{:>8}{:>8}{:>8}{:>9}",
        "schedule", "cache", "bandwidth", "ready", "table", "bound", "cold", "minimum"
    );
    outcome.prefetch.iter().for_each(|row| prefetch_line(&mut text, row));
    _ = writeln!(
        text,
        "\ncold bytes by rank and step, 8 ranks, batches of 32, cache 0.296\n\
         {:<14}{:>6}  {:<14}{:>12}{:>12}{:>26}",
        "policy", "nodes", "sizes", "mean", "deviation", "of the largest sample"
    );
    outcome.flatness.iter().for_each(|row| flatness_line(&mut text, row));
    text
}

const fn mark(is_met: Option<bool>) -> &'static str {
    match is_met {
        Some(false) => " !",
        _ => "",
    }
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"))
}

fn retention_line(text: &mut String, row: &retention::Row) {
    let difference =
        row.difference().map_or_else(|| "-".to_owned(), |difference| format!("{difference:+.4}"));
    _ = writeln!(
        text,
        "{:<14}{:>6}{:>8}{:>8}{:>10.4}{:>10}{:>10}{difference:>12}{:>10}{:>10.4}{}",
        row.policy,
        row.nodes,
        row.cached,
        row.epochs,
        row.hits,
        ratio(row.table),
        ratio(row.form),
        ratio(row.steady_hits),
        row.steady_limit,
        mark(row.is_met)
    );
}

fn prefetch_line(text: &mut String, row: &prefetch::Row) {
    let table = row.table.map_or_else(|| "-".to_owned(), |table| format!("{table:.3}"));
    _ = writeln!(
        text,
        "{:<24}{:>8}{:>11}{:>8.3}{table:>8}{:>8.3}{:>8.3}{:>9.3}{}",
        row.schedule.name(),
        row.cached,
        row.bandwidth,
        row.ready,
        row.bound,
        row.cold,
        row.minimal_cold,
        mark(row.is_met)
    );
}

fn flatness_line(text: &mut String, row: &flatness::Row) {
    _ = writeln!(
        text,
        "{:<14}{:>6}  {:<14}{:>9.0} KB{:>9.0} KB{:>26.3}{}",
        row.policy,
        row.nodes,
        row.sizes.name(),
        row.mean_bytes / 1e3,
        row.deviation_bytes / 1e3,
        row.deviation(),
        mark(row.is_met)
    );
}
