//! Predictions of a run by the simulator (`tierfeed plan --simulate`), beside the report of the run.

use std::{path::Path, process::Command};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tierfeed_core::units::{BytesPerSecond, Nanoseconds};
use tierfeed_harness::slow_disk::AHEAD;

use crate::{document, figure::Prediction};

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Report {
    steps: u64,
    head_start_s: f64,
    wall_s: f64,
    stall_s: f64,
    stall_for_s: StallFor,
    cold_read_bytes: u64,
    /// Read by the trainer, where the agent did not have a batch.
    self_read_bytes: u64,
    transform: Option<Transform>,
}

#[derive(Debug, Clone, Deserialize)]
struct StallFor {
    /// For the decoding that the training does itself.
    decoding: f64,
}

#[derive(Debug, Clone, Deserialize)]
struct Transform {
    samples: u64,
    /// The sum of the times for which workers had samples.
    held_s: f64,
}

#[derive(Debug, Deserialize)]
struct Plan {
    epochs: Vec<Total>,
    total: Total,
}

/// The prediction for a job, or for an epoch of it.
#[derive(Debug, Deserialize)]
pub(crate) struct Total {
    pub(crate) cold_read_bytes: u64,
    pub(crate) duration_s: f64,
    pub(crate) stall_s: f64,
}

#[derive(Debug)]
pub(crate) struct Simulation<'a> {
    pub(crate) job: &'a Path,
    /// The rate of the cold store for each node.
    pub(crate) cold: BytesPerSecond,
    /// The time by which the cold store may be ahead of that; it cannot be given for nodes that share their
    /// caches.
    pub(crate) cold_burst: Option<Nanoseconds>,
    pub(crate) step_s: f64,
    /// Seconds that a worker has a sample.
    pub(crate) transform_s: Option<f64>,
    /// The time for which the agent reads before the training begins.
    pub(crate) head_start_s: Option<f64>,
    /// The option that chooses the predicted nodes: the first node without an option.
    pub(crate) nodes: Option<&'static str>,
}

impl Report {
    /// The time for which the agent read before its first batch was asked for.
    pub(crate) fn head_start_s(&self) -> f64 {
        self.head_start_s
    }
}

impl Simulation<'_> {
    /// # Errors
    ///
    /// If the simulator refuses the job.
    pub(crate) fn epochs(&self, tierfeed: &Path) -> anyhow::Result<Vec<Total>> {
        Ok(self.plan(tierfeed)?.epochs)
    }

    fn plan(&self, tierfeed: &Path) -> anyhow::Result<Plan> {
        let mut plan = Command::new(tierfeed);
        plan.arg("plan").arg(self.job).args(["--simulate", "--json"]).args(self.nodes);
        plan.args(["--cold-bandwidth", &format!("{} B/s", self.cold.0)]);
        plan.args(["--step-time", &nanoseconds(self.step_s)]);
        if let Some(cold_burst) = self.cold_burst {
            plan.args(["--cold-burst", &cold_burst.to_string()]);
        }
        if let Some(head_start_s) = self.head_start_s {
            plan.args(["--head-start", &nanoseconds(head_start_s)]);
        }
        if let Some(transform_s) = self.transform_s {
            plan.args(["--transform-time", &nanoseconds(transform_s)]);
        }
        document::printed(&mut plan)
    }
}

/// The largest errors with which predictions of bytes and of time count as right, in per cent.
const BYTES_OFF_MAX: f64 = 1.0;
const TIME_OFF_MAX: f64 = 5.0;

/// The number of runs of tierfeed, and of predictions of them that came true.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Predicted {
    pub runs: usize,
    /// Within one per cent.
    pub cold_bytes_right: usize,
    /// Others, in which trainers read batches themselves, which their agent reads too: most often the first ones,
    /// while it starts.
    pub read_by_trainers: usize,
    /// Within five per cent.
    pub time_right: usize,
}

impl Predicted {
    pub(crate) fn of<'a>(predictions: impl Iterator<Item = &'a Prediction>) -> Self {
        predictions.fold(Self::default(), |counts, it| {
            #[expect(clippy::cast_precision_loss, reason = "per cents need no more than 53 bits")]
            let off = off(it.predicted_cold_bytes as f64, it.cold_bytes as f64);
            let is_near = off.abs() <= BYTES_OFF_MAX;
            let is_read_twice = !is_near && it.self_read_bytes > 0;
            let is_in_time = self::off(it.predicted_s, it.seconds).abs() <= TIME_OFF_MAX;
            Self {
                runs: counts.runs + 1,
                cold_bytes_right: counts.cold_bytes_right + usize::from(is_near),
                read_by_trainers: counts.read_by_trainers + usize::from(is_read_twice),
                time_right: counts.time_right + usize::from(is_in_time),
            }
        })
    }
}

/// The error of a prediction in per cent of the result; not finite if that cannot be said.
fn off(predicted: f64, came: f64) -> f64 {
    if predicted.total_cmp(&came).is_eq() { 0.0 } else { 100.0 * (predicted - came) / came }
}

/// Simulates the job of a run of one node. The simulator gets the rate of the cold store, the time that the
/// agent ran before the training, and the times of a step and of the transform of a sample in the run. So the
/// only time that it predicts is that in which the training waits. A step includes the decoding that the
/// training does itself; a limited disk is ahead of its limit by the mean.
///
/// # Errors
///
/// If the run left no report or job, or the simulator refuses the job.
pub(crate) fn predict(
    tierfeed: &Path,
    run: &str,
    run_dir: &Path,
    cold: BytesPerSecond,
) -> anyhow::Result<Prediction> {
    let report: Report = document::read(&run_dir.join("report.json"))?;
    let job = run_dir.join("job.yaml");
    let (step_s, transform_s) = (report.step_s(), report.transform_s());
    let simulation = Simulation {
        job: &job,
        cold,
        cold_burst: Some(AHEAD),
        step_s,
        transform_s,
        head_start_s: Some(report.head_start_s),
        nodes: None,
    };
    let Plan { total, .. } = simulation.plan(tierfeed).with_context(|| run.to_owned())?;
    Ok(Prediction {
        run: run.to_owned(),
        predicted_cold_bytes: total.cold_read_bytes,
        cold_bytes: report.cold_bytes(),
        self_read_bytes: report.self_read_bytes,
        predicted_s: total.duration_s,
        seconds: report.wall_s,
        predicted_stall_s: total.stall_s,
        stall_s: report.stall_s - report.stall_for_s.decoding,
    })
}

impl Report {
    /// Seconds of a step with its decoding, without waiting.
    #[expect(clippy::cast_precision_loss, reason = "a count of steps")]
    fn step_s(&self) -> f64 {
        (self.wall_s - self.stall_s + self.stall_for_s.decoding) / self.steps as f64
    }

    /// Bytes that the agent and its trainers read from the cold store.
    fn cold_bytes(&self) -> u64 {
        self.cold_read_bytes + self.self_read_bytes
    }

    /// Seconds for which a worker had a sample, including waits for a core: the simulator has one core for
    /// each worker.
    #[expect(clippy::cast_precision_loss, reason = "a count of samples")]
    pub(crate) fn transform_s(&self) -> Option<f64> {
        let Transform { samples, held_s } = self.transform.as_ref()?;
        (*samples > 0).then(|| held_s / *samples as f64)
    }
}

fn nanoseconds(seconds: f64) -> String {
    format!("{:.0} ns", seconds * 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_run_are_told_without_its_waits_for_data() {
        let report = r#"{ "steps": 100, "head_start_s": 0.5, "wall_s": 3.0, "stall_s": 1.5,
                          "stall_for_s": { "decoding": 0.5 }, "cold_read_bytes": 7, "self_read_bytes": 0,
                          "transform": { "samples": 400, "held_s": 2.0 } }"#;
        let report: Report = serde_json::from_str(report).unwrap();
        assert_eq!(nanoseconds(report.step_s()), "20000000 ns");
        assert_eq!(report.transform_s().map(nanoseconds), Some("5000000 ns".to_owned()));
    }

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
        let expected =
            Predicted { runs: 3, cold_bytes_right: 2, read_by_trainers: 0, time_right: 2 };
        assert_eq!(Predicted::of(all.iter()), expected);
        all[2].self_read_bytes = 11;
        assert_eq!(Predicted::of(all.iter()).read_by_trainers, 1);
        assert_eq!(Predicted::of([].iter()), Predicted::default());
    }
}
