//! The comparisons as a table.

use std::fmt::Write as _;

use tierfeed_core::units::{Bytes, Nanoseconds};

use super::{Outcome, PROMISE, Row};

#[must_use]
pub fn table(outcome: &Outcome) -> String {
    let mut text = format!(
        "{} a turn, {} turns of each side; medians of rates, and of the ratios of each turn\n\
         without delay and encryption at least {PROMISE} of a plain copy is promised; an added delay is that \
         of a relay, whose CPU time does not count\n\n\
         {:>9} {:>10} {:>10}  {:>10}  {:>10}  {:>12}  {:>12}  {:>6}  {:>14}  verdict\n",
        Bytes(outcome.turn_bytes),
        outcome.rounds,
        "sample",
        "delay",
        "network",
        "plain",
        "tierfeed",
        "plain CPU",
        "tierfeed CPU",
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
    let cpu = |cost: f64| format!("{cost:.2} s/GB");
    writeln!(
        text,
        "{:>9} {:>10} {:>10}  {:>10}  {:>10}  {:>12}  {:>12}  {:>6.3}  {:>6.3} - {:.3}  {}",
        Bytes(row.sample_bytes).to_string(),
        Nanoseconds(row.delay_ns).to_string(),
        if row.encrypted { "encrypted" } else { "private" },
        gigabytes(row.plain_bytes_per_s),
        gigabytes(row.tierfeed_bytes_per_s),
        cpu(row.plain_cpu_s_per_gb),
        cpu(row.tierfeed_cpu_s_per_gb),
        row.ratio,
        row.ratio_low,
        row.ratio_high,
        row.verdict,
    )
    .expect("writing to a string cannot fail");
}
