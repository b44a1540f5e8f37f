//! The comparisons as a table.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{Comparison, Figures, Outcome, Statistic, paired::Pair};

/// The reasons of inconclusive figures stand below the table.
#[must_use]
pub fn table(outcome: &Outcome) -> String {
    let mut text = String::new();
    _ = writeln!(
        text,
        "{:<28}{:>9}{:>8}{:>14}{:>14}{:>8}{:>17}{:>8}  verdict",
        "figure", "parallel", "", "here", "reference", "ratio", "95 % interval", "pairs"
    );
    for comparison in &outcome.comparisons {
        _ = writeln!(text, "{}", line(comparison));
    }
    for (reason, of) in reasons(&outcome.comparisons) {
        _ = writeln!(text, "{}: {reason}", of.join("; "));
    }
    text
}

fn reasons(comparisons: &[Comparison]) -> BTreeMap<&str, Vec<String>> {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for comparison in comparisons {
        let Comparison { what, parallel, statistic, reason, .. } = comparison;
        if let Some(reason) = reason {
            found
                .entry(reason)
                .or_default()
                .push(format!("{what} ({parallel}, {})", name(*statistic)));
        }
    }
    found
}

fn line(comparison: &Comparison) -> String {
    let Comparison { what, parallel, pairs, verdict, .. } = comparison;
    let (ours, reference) = comparison.figures.map_or_else(absent, figures);
    let (ratio, interval) = comparison.ratio.map_or_else(absent, |ratio| {
        (format!("{:.3}", ratio.median), format!("{:.3} to {:.3}", ratio.low, ratio.high))
    });
    let undisturbed = pairs.iter().filter(|pair| Pair::is_undisturbed(pair)).count();
    let pairs = format!("{undisturbed}/{}", pairs.len());
    let statistic = name(comparison.statistic);
    format!(
        "{what:<28}{parallel:>9}{statistic:>8}{ours:>14}{reference:>14}{ratio:>8}{interval:>17}{pairs:>8}  {verdict}"
    )
}

fn absent() -> (String, String) {
    ("-".to_owned(), "-".to_owned())
}

const fn name(statistic: Statistic) -> &'static str {
    match statistic {
        Statistic::Best => "best",
        Statistic::Median => "median",
        Statistic::Rank => "rank",
    }
}

fn figures(figures: Figures) -> (String, String) {
    match figures {
        Figures::BytesPerSecond { ours_bytes_per_s, reference_bytes_per_s } => {
            let rate = |it: f64| format!("{:.2} GB/s", it / 1e9);
            (rate(ours_bytes_per_s), rate(reference_bytes_per_s))
        }
        Figures::Nanoseconds { ours_ns, reference_ns } => (time(ours_ns), time(reference_ns)),
        Figures::PerSecond { ours_per_s, reference_per_s } => {
            (format!("{ours_per_s:.0} /s"), format!("{reference_per_s:.0} /s"))
        }
    }
}

fn time(ns: f64) -> String {
    if ns < 10_000.0 { format!("{ns:.1} ns") } else { format!("{:.1} us", ns / 1e3) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiers_accuracy::paired::{Figure, Ratio};

    #[test]
    fn a_row_shows_both_figures_the_interval_and_the_verdict() {
        let figure = |value| Figure { value, cpu_share: Some(1.0), page_share: Some(1.0) };
        let agreeing = Comparison {
            what: "triad",
            reference: "another",
            parallel: 2,
            statistic: Statistic::Best,
            figures: Some(Figures::BytesPerSecond {
                ours_bytes_per_s: 31.25e9,
                reference_bytes_per_s: 31.0e9,
            }),
            ratio: Some(Ratio { median: 1.008, low: 0.99, high: 1.02 }),
            tolerance: 0.05,
            verdict: "agrees",
            reason: None,
            pairs: vec![Pair { ours: figure(1.0), reference: figure(1.0) }; 9],
        };
        let missing = Comparison {
            what: "idle latency",
            figures: None,
            ratio: None,
            verdict: "inconclusive",
            reason: Some("no reference".to_owned()),
            pairs: Vec::new(),
            ..agreeing.clone()
        };
        let also = Comparison { what: "random latency", ..missing.clone() };
        let outcome = Outcome { cache_bytes: 1, comparisons: vec![agreeing, missing, also] };
        let text = table(&outcome);
        let lines: Vec<&str> = text.lines().collect();
        for part in
            ["triad", "31.25 GB/s", "31.00 GB/s", "1.008", "0.990 to 1.020", "9/9", "agrees"]
        {
            assert!(lines[1].contains(part), "{part} in {}", lines[1]);
        }
        assert!(lines[2].contains("inconclusive"), "{text}");
        let once = "idle latency (2, best); random latency (2, best): no reference";
        assert_eq!(lines[4..], [once]);
    }
}
