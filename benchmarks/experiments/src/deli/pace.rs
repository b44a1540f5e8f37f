//! The times of a node for a sample and for a fetch.

use serde::Serialize;

use super::setting::Setting;

/// The times of one training.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pace {
    /// The name of the training.
    pub workload: &'static str,
    /// A sample from the bucket while fetches are in flight: the mean over everything with a threshold and
    /// room for a fetch in the cache.
    pub miss_s: f64,
    /// A sample from the cache: what loading takes beyond the bucket.
    pub hit_s: f64,
    /// Computing on a sample: what an epoch from the bucket takes beyond loading.
    pub compute_s: f64,
    /// The start of a fetch, which lists the bucket: the slope of what loading takes beyond hits over the
    /// number of fetches in an epoch.
    pub fetch_start_s: f64,
    /// A sample of a fetch: where that line begins, for each sample of an epoch.
    pub fetch_sample_s: f64,
    /// How many fetches go at full speed together.
    pub parallel: f64,
}

impl Pace {
    /// The time of a fetch of so many samples while no other is in flight.
    #[must_use]
    pub fn fetch_s(&self, samples: usize) -> f64 {
        let samples = f64::from(u32::try_from(samples).unwrap_or(u32::MAX));
        // A line that is fitted to noise may start below 0.
        (self.fetch_start_s + self.fetch_sample_s * samples).max(0.0)
    }

    /// Whether [`Pace::parallel`] was fitted to this configuration of the fetch sizes.
    pub(super) fn is_fitted_to(setting: Setting, epoch: u32) -> bool {
        setting.fetch < setting.batch && epoch == 1
    }
}
