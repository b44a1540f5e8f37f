//! The figures as a table.

use std::fmt::Write as _;

use tierfeed_core::units::Bytes;

use super::{BANDWIDTHS, CACHED, Outcome, PUBLISHED, RANKS, by_policy};

/// One line for each policy, one column for each bandwidth; the published figures below.
#[must_use]
pub fn table(outcome: &Outcome) -> String {
    let mut text = String::new();
    _ = writeln!(
        text,
        "{} samples, cache {} of {}; one node, {RANKS} ranks, epochs 2 to {}\n\
         samples there when needed, by the bandwidth of the cold store over what the job needs",
        outcome.samples,
        Bytes(outcome.capacity_bytes),
        Bytes(outcome.dataset_bytes),
        outcome.epochs
    );
    line(&mut text, "policy", BANDWIDTHS.into_iter());
    _ = writeln!(text, "{:>10}", "hits");
    for rows in by_policy(outcome) {
        line(
            &mut text,
            rows.first().map_or("", |row| row.policy),
            rows.iter().map(|row| row.ready),
        );
        _ = writeln!(text, "{:>10.3}", rows.last().map_or(0.0, |row| row.hits));
    }
    let bounds = BANDWIDTHS.into_iter().map(|bandwidth| (CACHED + bandwidth).min(1.0));
    line(&mut text, "bound, in bytes", bounds);
    text.push_str("\n\npublished, bandwidth not stated\n");
    for (system, hits) in PUBLISHED {
        _ = writeln!(text, "{system:<20}{hits:>8.3}");
    }
    text
}

/// A line without its newline.
fn line(text: &mut String, name: &str, figures: impl Iterator<Item = f64>) {
    _ = write!(text, "{name:<20}");
    for figure in figures {
        _ = write!(text, "{figure:>8.3}");
    }
}
