//! Predictions side by side, as a text table.

use tierfeed_core::{
    tier::Kind,
    units::{Bytes, float},
};
use tierfeed_runtime::predict::{Epoch, Figures, Prediction};

/// Each policy by epoch and in total: its reads, then its times, if any speed is known. `notes` come first.
pub(super) fn comparison(predictions: &[Prediction], notes: &[String]) -> String {
    let mut lines = notes.to_vec();
    if !notes.is_empty() {
        lines.push(String::new());
    }
    lines.extend(bytes(predictions));
    if predictions.iter().any(|it| it.total.duration_s > 0.0) {
        lines.push(String::new());
        lines.extend(times(predictions));
    }
    lines.join("\n")
}

fn bytes(predictions: &[Prediction]) -> Vec<String> {
    let kinds: Vec<_> = predictions.first().into_iter().flat_map(tiers).collect();
    let heads = columns(&kinds, str::to_owned);
    let head = format!(
        "{:<12}{:>6}{:>12}{heads}{:>12}{:>12}{:>8}{:>8}{:>8}",
        "policy", "epoch", "cold", "least cold", "cold/least", "hits", "best", "burst"
    );
    let line = |(policy, epoch, figures, burst): Row<'_>| {
        let tiers = columns(&kinds, |kind| size(figures.tier_read_bytes[kind]));
        format!(
            "{policy:<12}{epoch:>6}{:>12}{tiers}{:>12}{:>12}{:>7.1}%{:>7.1}%{:>8}",
            size(figures.cold_read_bytes),
            size(figures.minimal_cold_bytes),
            ratio(figures.cold_to_minimal),
            figures.hit_ratio * 100.0,
            figures.best_hit_ratio * 100.0,
            ratio(burst),
        )
    };
    [head].into_iter().chain(rows(predictions).map(line)).collect()
}

fn times(predictions: &[Prediction]) -> Vec<String> {
    let head = format!(
        "{:<12}{:>6}{:>8}{:>12}{:>12}{:>12}{:>12}",
        "policy", "epoch", "ready", "stall s", "takes s", "bound s", "time/bound"
    );
    let line = |(policy, epoch, figures, _): Row<'_>| {
        format!(
            "{policy:<12}{epoch:>6}{:>7.1}%{:>12.3}{:>12.3}{:>12.3}{:>12}",
            figures.ready_ratio * 100.0,
            figures.stall_s,
            figures.duration_s,
            figures.lower_bound_s,
            ratio(figures.duration_to_lower_bound),
        )
    };
    [head].into_iter().chain(rows(predictions).map(line)).collect()
}

/// Policy, epoch, figures and burst of every line.
type Row<'a> = (&'static str, String, &'a Figures, Option<f64>);

fn rows(predictions: &[Prediction]) -> impl Iterator<Item = Row<'_>> {
    predictions.iter().flat_map(|it| {
        let policy = it.policy;
        let epochs = it.epochs.iter();
        let epochs = epochs.map(move |at| (policy, at.epoch.to_string(), &at.figures, burst(at)));
        epochs.chain([(it.policy, "all".to_owned(), &it.total, None)])
    })
}

fn columns(kinds: &[&'static str], cell: impl Fn(&'static str) -> String) -> String {
    kinds.iter().fold(String::new(), |row, kind| row + &format!("{:>14}", cell(kind)))
}

/// The most cold bytes of a step, divided by the mean.
fn burst(epoch: &Epoch) -> Option<f64> {
    let spread = epoch.evenness.step_cold?;
    (spread.mean_bytes > 0.0).then(|| float(spread.max_bytes) / spread.mean_bytes)
}

/// The tiers of a prediction, fastest first.
fn tiers(prediction: &Prediction) -> impl Iterator<Item = &'static str> + '_ {
    let kinds = Kind::ALL.into_iter().map(Kind::name);
    kinds.filter(|kind| prediction.total.tier_read_bytes.contains_key(kind))
}

fn size(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

fn ratio(times: Option<f64>) -> String {
    times.map_or_else(|| "-".to_owned(), |times| format!("{times:.3}"))
}
