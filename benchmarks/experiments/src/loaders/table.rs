//! The comparison for people.

use std::fmt::Write as _;

use tierfeed_core::units::Bytes;

use super::Outcome;

/// The fastest loader first.
#[must_use]
pub fn table(outcome: &Outcome) -> String {
    let mut text = String::new();
    let versions = outcome.versions.iter().map(|(loader, version)| format!("{loader} {version}"));
    _ = writeln!(text, "{}", versions.collect::<Vec<_>>().join(", "));
    let dataset = Bytes(outcome.dataset_bytes);
    _ = writeln!(text, "{} photographs, {dataset}", outcome.photographs);
    for (loader, seconds) in &outcome.conversions_s {
        _ = writeln!(text, "{loader}: its own format was written in {seconds:.1} s");
    }
    for (loader, reason) in &outcome.absent {
        _ = writeln!(text, "{loader}: not compared: {reason}");
    }
    if !outcome.bucket.is_empty() {
        _ = writeln!(text, "{}", outcome.bucket);
    }
    for comparison in &outcome.comparisons {
        _ = writeln!(
            text,
            "\n{}\n{:<24}{:>10}{:>8}{:>12}{:>14}{:>9}{:>13}{:>12}{:>8}",
            comparison.condition.name(),
            "",
            "images/s",
            "apart",
            "a CPU s",
            "CPU ms/batch",
            "stalled",
            "first batch",
            "memory",
            "read"
        );
        let mut rows: Vec<_> = comparison.rows.iter().collect();
        rows.sort_by(|a, b| b.images_per_s.median.total_cmp(&a.images_per_s.median));
        for row in rows {
            _ = writeln!(
                text,
                "{:<24}{:>10.0}{:>6.0} %{:>12.0}{:>14.2}{:>7.0} %{:>11.2} s{:>12}{:>6.2} x",
                row.loader,
                row.images_per_s.median,
                row.spread() * 100.0,
                row.images_per_cpu_s,
                row.cpu_s_per_batch * 1e3,
                row.stalled * 100.0,
                row.first_batch_s,
                Bytes(row.memory_bytes).to_string(),
                row.read
            );
        }
    }
    text
}
