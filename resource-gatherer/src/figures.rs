//! Figures of measurements, as plain data: what was found at each place, and what it is worth.

pub mod estimate;
mod memory;
mod object_store;
mod relation;
mod storage;

use serde::{Deserialize, Serialize};

use self::estimate::Estimate;
pub(crate) use self::estimate::{tenths, whole};
pub use self::{
    memory::{Bandwidth, LoadedLatency, LoadedPoint, Pair, Traffic},
    object_store::{ObjectStore, Throughput},
    relation::{Comparison, Skipped, Transfer, View},
    storage::{Access, Engine, Percentiles, RandomAccess, Storage},
};

/// All figures of one place; [`crate::report::Tier`] explains each.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_bytes_per_s: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_bytes_per_s: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_bytes_per_s: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub triad_bytes_per_s: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_latency_ns: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loaded_latency_ns: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random_read_iops: Option<Estimate>,
}

impl Figures {
    #[must_use]
    pub fn quality(&self) -> Quality {
        let measured = || self.all().into_iter().flatten().filter(|figure| figure.samples > 0);
        Quality {
            converged: measured().count() > 0 && measured().all(|figure| figure.converged),
            contended: measured().any(|figure| figure.contended),
        }
    }

    #[must_use]
    pub fn rounded(self) -> Self {
        Self {
            read_bytes_per_s: self.read_bytes_per_s.map(Estimate::rounded),
            write_bytes_per_s: self.write_bytes_per_s.map(Estimate::rounded),
            copy_bytes_per_s: self.copy_bytes_per_s.map(Estimate::rounded),
            triad_bytes_per_s: self.triad_bytes_per_s.map(Estimate::rounded),
            idle_latency_ns: self.idle_latency_ns.map(Estimate::rounded),
            loaded_latency_ns: self.loaded_latency_ns.map(Estimate::rounded),
            random_read_iops: self.random_read_iops.map(Estimate::rounded),
        }
    }

    fn all(&self) -> [Option<Estimate>; 7] {
        [
            self.read_bytes_per_s,
            self.write_bytes_per_s,
            self.copy_bytes_per_s,
            self.triad_bytes_per_s,
            self.idle_latency_ns,
            self.loaded_latency_ns,
            self.random_read_iops,
        ]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quality {
    /// Whether something was measured and every interval got as narrow as asked.
    pub converged: bool,
    /// Whether other programs took the CPU during at least one measurement.
    pub contended: bool,
}
