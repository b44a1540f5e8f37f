//! The times of turns, and the text of every figure about how they were taken.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde::Deserialize;
use tierfeed_core::units::Nanoseconds;

use super::{
    requests::Requests,
    setting::{
        BATCH_PUBLISHED, CHUNK, DISK, EPOCHS, NODES, PUBLISHED, Reader, Run, SAMPLE, SAMPLES,
        SCALE, THREADS, Workload, scaled, step_s, together,
    },
};
use crate::{figure::Value, training::Trained};

#[derive(Debug, Clone)]
pub(super) struct Turn {
    /// Seconds that training waited for data, by epoch.
    pub(super) loading_s: Vec<f64>,
    /// The share of samples that no cache held, by epoch; of tierfeed only.
    pub(super) missed: Vec<f64>,
    /// Seconds of both epochs.
    pub(super) total_s: f64,
    /// Only with tierfeed.
    pub(super) run_dir: Option<PathBuf>,
}

#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) turns: BTreeMap<Run, Vec<Turn>>,
    /// The stopwatch on disk and bucket, in bytes per second.
    pub(super) disk: Vec<f64>,
    pub(super) sequential: Vec<f64>,
    pub(super) parallel: Vec<f64>,
    pub(super) requests: BTreeMap<Run, Requests>,
    /// Added by the bucket to the round trip.
    pub(super) latency: Nanoseconds,
}

impl Measured {
    pub(super) fn value(&self, run: Run, figure: impl Fn(&Turn) -> f64) -> Option<Value> {
        Value::of(&self.turns.get(&run)?.iter().map(figure).collect::<Vec<_>>())
    }

    /// Seconds that a run waited for data in both epochs.
    pub(super) fn loading(&self, run: Run) -> Option<Value> {
        self.value(run, |turn| turn.loading_s.iter().sum())
    }

    /// The same in per cent of what one thread needs from the bucket.
    pub(super) fn loading_percent(&self, run: Run) -> Option<Value> {
        let bucket = self.loading(Run::baseline(Reader::Bucket))?.median;
        self.value(run, |turn| 100.0 * turn.loading_s.iter().sum::<f64>() / bucket)
    }

    pub(super) fn setting() -> String {
        let steps = Workload::ALL.map(|it| format!("{:.0} ms ({})", 1e3 * step_s(it), it.name()));
        format!(
            "One of {NODES} nodes reads {SAMPLES} of {} samples of {SAMPLE} B in each of {EPOCHS} epochs, in batches \
             of {}; steps of {}, as in the paper in proportion to loading one by one. Samples of CIFAR-10 have \
             {SAMPLE} B too, so that one run one by one stands for both. Caches, fetches and thresholds are told in \
             samples of the paper, {SCALE} of which are one here. The cache of tierfeed is on a local disk, as DELI's, \
             and has whole chunks of {CHUNK}, of {} such samples; what it stages ahead, four batches at most, is in \
             memory. Loading time is what training waits for.",
            NODES * SAMPLES,
            scaled(BATCH_PUBLISHED),
            steps.join(" and "),
            u64::from(SCALE) * (CHUNK.0 / SAMPLE),
        )
    }

    pub(super) fn emulated(&self) -> Vec<String> {
        let rate = |turns: &[f64]| Value::of(turns).map_or(f64::NAN, |it| it.median);
        let (disk, one, many) = (rate(&self.disk), rate(&self.sequential), rate(&self.parallel));
        vec![
            format!(
                "the bucket is an S3 server on loopback whose answers are {} late, and whose bodies share {}; a \
                 stopwatch read {:.1} kB/s by one thread ({}) and {:.1} kB/s by {THREADS} ({})",
                self.latency,
                together(),
                one / 1e3,
                checked(one, PUBLISHED.sequential),
                many / 1e3,
                checked(many, PUBLISHED.parallel),
            ),
            format!(
                "the disk is a loop device whose reads the kernel limits to {DISK}; a stopwatch read {:.2} MB/s of \
                 samples ({})",
                disk / 1e6,
                checked(disk, PUBLISHED.disk),
            ),
        ]
    }
}

/// The largest relative difference between an emulated rate and the published one.
const TOLERANCE: f64 = 0.05;

/// Compares a rate of the emulation with the published one.
fn checked(here: f64, published: f64) -> String {
    let off = here / published - 1.0;
    if off.abs() <= TOLERANCE {
        return "as published, within 5 %".to_owned();
    }
    format!("not as published, but {:+.0} %: other work on this machine, or its disk", 100.0 * off)
}

impl Turn {
    pub(super) fn of(trained: &Trained) -> anyhow::Result<Self> {
        let loading_s = trained.waits.iter().map(|waits| waits.iter().sum()).collect();
        let missed = trained.run_dir.as_ref().map(|it| missed(it)).transpose()?;
        let (missed, run_dir) = (missed.unwrap_or_default(), trained.run_dir.clone());
        Ok(Self { loading_s, missed, total_s: trained.total_s(), run_dir })
    }

    pub(super) fn loading_s(&self) -> f64 {
        self.loading_s.iter().sum()
    }
}

/// The share of the bytes of each epoch that were read cold.
fn missed(run_dir: &Path) -> anyhow::Result<Vec<f64>> {
    #[derive(Deserialize)]
    struct Report {
        epochs: Vec<Epoch>,
    }
    #[derive(Deserialize)]
    struct Epoch {
        hit_ratio: f64,
    }
    let path: PathBuf = run_dir.join("report.json");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let report: Report = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    Ok(report.epochs.iter().map(|epoch| 1.0 - epoch.hit_ratio).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_that_is_faster_than_published_is_not_the_published_one() {
        assert_eq!(checked(48.0, 50.0), "as published, within 5 %");
        assert!(checked(53.0, 50.0).starts_with("not as published, but +6 %"));
        assert!(checked(40.0, 50.0).starts_with("not as published, but -20 %"));
    }
}
