//! Predictions of runs by the simulator, beside the results.

use tierfeed_core::units::Bytes;
use tierfeed_harness::slow_disk::AHEAD;

use super::Page;
use crate::figure::Prediction;

/// The largest errors with which predictions of bytes and of time count as right, in per cent.
const BYTES_OFF_MAX: f64 = 1.0;
const TIME_OFF_MAX: f64 = 5.0;

/// The number of predictions that came true, as a sentence; empty if there are none.
pub(super) fn sentence<'a>(predictions: impl Iterator<Item = &'a Prediction>) -> String {
    let (mut all, mut bytes, mut time, mut self_read) = (0, 0, 0, 0);
    for prediction in predictions {
        all += 1;
        let is_near = bytes_off(prediction).abs() <= BYTES_OFF_MAX;
        bytes += usize::from(is_near);
        self_read += usize::from(!is_near && prediction.self_read_bytes > 0);
        time += usize::from(time_off(prediction).abs() <= TIME_OFF_MAX);
    }
    if all == 0 {
        return String::new();
    }
    let runs = if all == 1 { "1 run".to_owned() } else { format!("{all} runs") };
    let mut said = format!(
        "The simulator was told how long steps and transforms took in {runs} of tierfeed, how long agents ran before, \
         and that a limited disk is {AHEAD} ahead of its limit, as was measured in the mean at 40 MB/s. It predicted \
         cold bytes within {BYTES_OFF_MAX} % in {bytes}, time within {TIME_OFF_MAX} % in {time}."
    );
    if self_read > 0 {
        let also = format!(
            " In {self_read} of the others trainers read batches themselves, which their agent reads too: most often \
             the first ones, while it starts."
        );
        said.push_str(&also);
    }
    said
}

pub(super) fn section(page: &mut Page, predictions: &[Prediction]) {
    let titles = [
        ("", "run"),
        ("number", "cold bytes, predicted"),
        ("number", "read"),
        ("number", "by trainers"),
        ("number", "difference"),
        ("number", "time, predicted"),
        ("number", "measured"),
        ("number", "difference"),
        ("number", "of it waiting, predicted"),
        ("number", "waited"),
    ];
    let row = |it: &Prediction| {
        vec![
            it.run.clone(),
            Bytes(it.predicted_cold_bytes).to_string(),
            Bytes(it.cold_bytes).to_string(),
            Bytes(it.self_read_bytes).to_string(),
            difference(bytes_off(it)),
            format!("{:.2} s", it.predicted_s),
            format!("{:.2} s", it.seconds),
            difference(time_off(it)),
            format!("{:.2} s", it.predicted_stall_s),
            format!("{:.2} s", it.stall_s),
        ]
    };
    page.table("cards", &titles, predictions.iter().map(row));
}

#[expect(clippy::cast_precision_loss, reason = "per cents need no more than 53 bits")]
fn bytes_off(it: &Prediction) -> f64 {
    off(it.predicted_cold_bytes as f64, it.cold_bytes as f64)
}

fn time_off(it: &Prediction) -> f64 {
    off(it.predicted_s, it.seconds)
}

/// The error of a prediction in per cent of the result; not finite if that cannot be said.
fn off(predicted: f64, came: f64) -> f64 {
    if predicted.total_cmp(&came).is_eq() { 0.0 } else { 100.0 * (predicted - came) / came }
}

fn difference(percent: f64) -> String {
    match percent {
        0.0 => "0.0 %".to_owned(),
        percent if percent.is_finite() => format!("{percent:+.1} %"),
        _ => "not defined".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_counts_as_true_within_one_per_cent_of_bytes_and_five_of_time() {
        let prediction = |predicted_cold_bytes, predicted_s| Prediction {
            run: String::new(),
            predicted_cold_bytes,
            cold_bytes: 1000,
            self_read_bytes: 0,
            predicted_s,
            seconds: 10.0,
            predicted_stall_s: 0.0,
            stall_s: 0.0,
        };
        let mut all = [prediction(1000, 10.4), prediction(990, 10.6), prediction(1011, 9.5)];
        let said = sentence(all.iter());
        assert!(said.ends_with("cold bytes within 1 % in 2, time within 5 % in 2."), "{said}");
        all[2].self_read_bytes = 11;
        assert!(sentence(all.iter()).contains("In 1 of the others trainers read"));
        assert_eq!(sentence([].iter()), "");
    }
}
