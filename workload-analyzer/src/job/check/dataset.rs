//! Checks the keys below `dataset`.

use tierfeed_core::{outage::PATIENCE, retention::policy::Saves, units::Bytes};
use tierfeed_dataset::{
    Dataset,
    keys::{DatasetKeys, KeyError},
};

use super::Check;
use crate::job::{
    ColdStore, Described, JobError, PageCache, Reason,
    described::{DATASET_BYTES_MAX, MEAN_BYTES_MAX},
    file::{DescribedFile, FirstFile},
};

impl Check<'_> {
    /// The dataset whose keys stand below `above`.
    pub(super) fn dataset(&self, above: &[&str], keys: &DatasetKeys) -> Result<Dataset, JobError> {
        keys.dataset(self.directory).map_err(|error| match error {
            KeyError::Invalid { key, value, reason } => {
                self.invalid(&[above, &[key]].concat(), &value, reason)
            }
            KeyError::Conflict { key, conflict } => {
                self.conflict(&[above, key.as_slice()].concat(), conflict)
            }
        })
    }

    pub(super) fn cold_store(&self, typed: &FirstFile) -> Result<ColdStore, JobError> {
        let speed = self.speed(&["dataset", "emulate"], typed.emulate.as_ref())?;
        let page_cache = typed.page_cache.unwrap_or_default();
        Ok(ColdStore {
            speed,
            limited_by: typed.limited_by.map_or(Saves::Bytes, |it| it.0),
            // What memory caches is not as slow as the store that is emulated.
            page_cache: if speed.is_some() { PageCache::Off } else { page_cache },
            patience: typed.patience.map_or(PATIENCE, |it| it.0.0),
        })
    }

    pub(super) fn described(&self, typed: &DescribedFile) -> Result<Described, JobError> {
        let described = Described {
            objects: typed.objects.0,
            samples_per_object: typed.samples_per_object.map_or(1, |it| it.0),
            sample_bytes: typed.sample_bytes.0,
            sample_bytes_stdev: typed.sample_bytes_stdev.map_or(Bytes(0), |it| it.0.0),
        };
        let invalid = |key, value: String, reason| {
            Err(self.invalid(&["dataset", "described", key], &value, reason))
        };
        let samples = u64::from(described.objects) * u64::from(described.samples_per_object);
        if samples > u64::from(u32::MAX) {
            let reason = Reason::TooManySamples { samples };
            return invalid("objects", described.objects.to_string(), reason);
        }
        let (mean, deviation) = (described.sample_bytes, described.sample_bytes_stdev);
        let bytes = u128::from(mean.0) * u128::from(samples);
        if mean > MEAN_BYTES_MAX || bytes > u128::from(DATASET_BYTES_MAX.0) {
            return invalid("sample_bytes", mean.to_string(), Reason::TooMuchData { samples });
        }
        if u128::from(deviation.0) * 10 > u128::from(mean.0) * 9 {
            let reason = Reason::TooMuchSpread { mean };
            return invalid("sample_bytes_stdev", deviation.to_string(), reason);
        }
        Ok(described)
    }
}
