//! `tierfeed-bench deli`: the measurements of DELI's authors beside models of them, and their cost table
//! computed again.
//!
//! The published measurements are read from a folder. Three questions are answered, each with the
//! difference: what a cache of the samples that a node has read saves in its second epoch ([`fifo`], nothing
//! assumed); what prefetching saves ([`fetching`], with the times of [`pace`], fitted to the same
//! measurements); and which cells of Table II follow from the equations ([`table_two`], with prices that
//! the paper does not tell).
//!
//! # Source
//!
//! Krichevsky, St Louis, Guo: Quantifying and Improving Performance of Distributed Deep Learning with
//! Cloud Storage (IC2E 2021), and the measurements that they published with it.

pub mod fetching;
pub mod fifo;
mod fit;
mod measured;
pub mod pace;
mod partition;
pub mod setting;
mod table;
pub mod table_two;

use std::path::PathBuf;

use serde::Serialize;

pub use table::table;

use self::{measured::Means, pace::Pace, setting::Setting};

/// The number of nodes in DELI's experiments.
pub(crate) const NODES: u32 = 3;
/// How far a model may be from a measured miss rate.
pub const TOLERANCE: f64 = 0.005;

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The folder with the published measurements.
    pub data: PathBuf,
}

/// Measured and modelled, side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// A cache without prefetching, second epoch.
    pub caching: Vec<Row>,
    /// The times that the model of prefetching works with.
    pub paces: Vec<Pace>,
    /// The rows of prefetching.
    pub fetching: Vec<Row>,
    /// The cost table of the paper, computed again.
    pub table_two: table_two::Outcome,
}

impl Outcome {
    /// The rows of a cache without prefetching that are further off than [`TOLERANCE`].
    pub fn differing(&self) -> impl Iterator<Item = &Row> {
        self.caching.iter().filter(|row| !row.agrees())
    }
}

/// One configuration, averaged over nodes and trials.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The name of the training.
    pub workload: &'static str,
    /// The short name of the file of measurements.
    pub series: &'static str,
    /// The configuration of DELI.
    pub setting: Setting,
    /// The epoch, counted from 1.
    pub epoch: u32,
    /// The mean of the measured miss rates.
    pub measured: f64,
    /// The least measured miss rate.
    pub measured_min: f64,
    /// The largest measured miss rate.
    pub measured_max: f64,
    /// The miss rate of the model.
    pub modelled: f64,
    /// Whether the model was fitted to this row.
    pub fitted: bool,
}

impl Row {
    /// The difference of the model from the mean.
    #[must_use]
    pub fn off(&self) -> f64 {
        self.modelled - self.measured
    }

    /// Whether the difference is at most [`TOLERANCE`].
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.off().abs() <= TOLERANCE
    }

    /// Whether it lies between the least and the largest measurement.
    #[must_use]
    pub fn is_between(&self) -> bool {
        (self.measured_min..=self.measured_max).contains(&self.modelled)
    }
}

/// One of the two trainings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Workload {
    name: &'static str,
    /// Samples that a node reads in an epoch: what tells the trainings apart where a file has both.
    per_node: u32,
    files: Files,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Files {
    disk: &'static str,
    bucket: &'static str,
    cache: &'static str,
    fetch_size: &'static str,
    cache_size: &'static str,
    threshold: &'static str,
}

/// Both trainings in one file, with the name of one.
const FIFTY_FIFTY: &str = "MNIST_-_Fifty_Fifty-Full_Fetch.csv";

impl Workload {
    pub(crate) const ALL: [Self; 2] = [
        Self {
            name: "MNIST",
            per_node: 14_000,
            files: Files {
                disk: "MNIST_-_Baseline_From_Disk.csv",
                bucket: "MNIST_-_Baseline_From_GCP.csv",
                cache: "MNIST_-_Baseline_From_Cache.csv",
                fetch_size: "MNIST_-_Fetch_Size.csv",
                cache_size: "MNIST_-_Cache_Size.csv",
                threshold: "MNIST_-_Prefetch_Threshold.csv",
            },
        },
        Self {
            name: "CIFAR-10",
            per_node: 11_667,
            files: Files {
                disk: "ResNet_-__Baseline_From_Disk.csv",
                bucket: "ResNet_-_Baseline_From_GCP.csv",
                cache: "ResNet_Baseline_From_Cache.csv",
                fetch_size: "ResNet_-_Fetch_Size.csv",
                cache_size: "ResNet_-_Cache_Size.csv",
                threshold: "ResNet_-_Prefetch_Threshold.csv",
            },
        },
    ];

    /// Samples of the dataset: 70 % of 60,000 and of 50,000, which the sampler pads for the nodes.
    const fn samples(self) -> u32 {
        self.per_node * NODES / 100 * 100
    }
}

/// Reads the measurements, runs the models.
///
/// # Errors
///
/// If a file is missing, is not what was published, or lacks a configuration.
pub fn run(settings: &Settings) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome {
        caching: Vec::new(),
        paces: Vec::new(),
        fetching: Vec::new(),
        table_two: table_two::recompute(&settings.data)?,
    };
    for workload in Workload::ALL {
        let read = |file: &str| measured::read(&settings.data.join(file), workload.per_node);
        outcome.caching.extend(fifo::rows(workload, &read(workload.files.cache)?));
        let series = [
            ("fetch size", read(workload.files.fetch_size)?),
            ("cache size", read(workload.files.cache_size)?),
            ("threshold", read(workload.files.threshold)?),
            ("50/50", read(FIFTY_FIFTY)?),
        ];
        let bucket = read(workload.files.bucket)?;
        let [(_, fetch_size), _, (_, threshold), _] = &series;
        let pace = Pace::fit(workload, &bucket, fetch_size, threshold)?;
        for (name, measured) in &series {
            outcome.fetching.extend(fetching::rows(workload, &pace, name, &Means::of(measured)));
        }
        outcome.paces.push(pace);
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests;
