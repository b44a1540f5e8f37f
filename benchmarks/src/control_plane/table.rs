//! The comparisons as a table.

use std::fmt::Write as _;

use super::{Cost, NODES, Outcome};

/// # Panics
///
/// Never: writing to a string cannot fail.
#[must_use]
pub fn table(outcome: &Outcome) -> String {
    let mut text = String::new();
    let mut line = |it: String| writeln!(text, "{it}").expect("writing to a string cannot fail");
    line(format!("{} rounds; times in us: median, 99 %, CPU of both ends", outcome.rounds));
    line(format!(
        "{:<12}{:>10}{:>10}{:>10}   {:>10}{:>10}{:>10}   {:>8}{:>8}",
        "", "plain", "99 %", "CPU", "encrypted", "99 %", "CPU", "x time", "x CPU"
    ));
    let cost =
        |it: Cost| format!("{:>10.1}{:>10.1}{:>10.1}", it.latency_us, it.latency_p99_us, it.cpu_us);
    for row in &outcome.rows {
        let (plain, encrypted) = (cost(row.plain), cost(row.encrypted));
        line(format!(
            "{:<12}{plain}   {encrypted}   {:>8.2}{:>8.2}",
            row.what, row.latency_ratio, row.cpu_ratio
        ));
    }
    line(format!(
        "encrypted reports of {NODES} nodes twice a second: {:.3} cores, both ends counted",
        outcome.core_share
    ));
    text
}
