//! The comparisons as a table.

use std::fmt::Write as _;

use tierfeed_core::units::Bytes;

use super::{Outcome, PROMISE, Row};

#[must_use]
pub fn table(outcome: &Outcome) -> String {
    let mut text = format!(
        "chunks of {}, {} turns of each side; medians of rates, and of the ratios of each turn\n\
         between memory at least {PROMISE} of memcpy is promised\n\n\
         {:<20} {:>9} {:>7} {:>7}  {:>12}  {:>12}  {:>6}  {:>14}  verdict\n",
        Bytes(outcome.chunk_bytes),
        outcome.rounds,
        "route",
        "sample",
        "threads",
        "checked",
        "plain",
        "tierfeed",
        "ratio",
        "quartiles",
    );
    for row in &outcome.rows {
        line(&mut text, row);
    }
    text
}

fn line(text: &mut String, row: &Row) {
    let gigabytes = |rate: f64| format!("{:.2} GB/s", rate / 1e9);
    writeln!(
        text,
        "{:<20} {:>9} {:>7} {:>7}  {:>12}  {:>12}  {:>6.3}  {:>6.3} - {:.3}  {}",
        row.route,
        Bytes(row.sample_bytes).to_string(),
        row.threads,
        if row.checked { "yes" } else { "no" },
        gigabytes(row.plain_bytes_per_s),
        gigabytes(row.tierfeed_bytes_per_s),
        row.ratio,
        row.ratio_low,
        row.ratio_high,
        row.verdict,
    )
    .expect("writing to a string cannot fail");
}
