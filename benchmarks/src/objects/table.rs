//! The figures as a table.

use std::fmt::Write as _;

use tierfeed_core::units::Bytes;

use super::{Comparison, Outcome};

#[must_use]
pub fn table(outcome: &Outcome) -> String {
    let mut text = String::new();
    for kind in &outcome.kinds {
        write_kind(&mut text, kind);
    }
    for absent in &outcome.absent {
        _ = writeln!(text, "not compared: {absent}");
    }
    text
}

fn write_kind(text: &mut String, kind: &Comparison) {
    let Comparison { object_bytes, objects, requests, ratio, verdict, .. } = kind;
    let size = Bytes(*object_bytes);
    _ = writeln!(text, "{objects} objects of {size}, {requests} requests in flight");
    _ = writeln!(
        text,
        "{:<28}{:>12}{:>20}{:>14}",
        "client", "median MB/s", "min to max", "CPU s per GB"
    );
    for side in &kind.sides {
        let [rate, low, high] =
            [side.bytes_per_s, side.bytes_per_s_min, side.bytes_per_s_max].map(|rate| rate / 1e6);
        let range = format!("{low:.0} to {high:.0}");
        let cpu = side.cpu_s_per_gb;
        _ = writeln!(text, "{:<28}{rate:>12.0}{range:>20}{cpu:>14.2}", side.name);
    }
    let [least, most] = kind.ratio_range;
    _ = writeln!(
        text,
        "tierfeed over {}: {ratio:.2} (rounds {least:.2} to {most:.2}), {verdict}\n",
        kind.best_other
    );
}
