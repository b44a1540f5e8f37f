//! Checks the keys below `dataset`.

use std::path::PathBuf;

use tierfeed_core::{
    outage::PATIENCE,
    retention::policy::Saves,
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::Dataset;

use super::Check;
use crate::job::{
    ColdStore, Described, JobError, PageCache, Reason,
    described::{DATASET_BYTES_MAX, MEAN_BYTES_MAX},
    file::{DatasetFile, DescribedFile, Text, Whole},
    keys::{DatasetKeys, KeyError, parse_size},
};

impl Check<'_> {
    /// The dataset whose keys stand below `above`.
    pub(super) fn dataset(&self, above: &[&str], typed: &DatasetFile) -> Result<Dataset, JobError> {
        let keys = keys(typed);
        let located = |error| self.located(above, error);
        let source = keys.location(self.directory).map_err(located)?;
        let dataset = Dataset::new(source, keys.format(self.directory).map_err(located)?);
        Ok(dataset.picking(keys.picked(self.directory).map_err(located)?))
    }

    pub(super) fn cold_store(&self, typed: &DatasetFile) -> Result<ColdStore, JobError> {
        let speed = self.speed(&["dataset", "emulate"], typed.emulate.as_ref())?;
        let page_cache = self.page_cache(typed.page_cache.as_ref())?;
        Ok(ColdStore {
            speed,
            limited_by: self.limited_by(typed.limited_by.as_ref())?,
            // What memory caches is not as slow as the store that is emulated.
            page_cache: if speed.is_some() { PageCache::Off } else { page_cache },
            patience: self.patience(typed.patience.as_ref())?,
        })
    }

    /// Zero is a patience too: without any, an outage ends the training at once.
    fn patience(&self, typed: Option<&Text>) -> Result<Nanoseconds, JobError> {
        let Some(typed) = typed else { return Ok(PATIENCE) };
        typed.0.parse().map_err(|problem| {
            let reason = Reason::NotAQuantity { problem, example: "30 min" };
            self.invalid(&["dataset", "patience"], &typed.0, reason)
        })
    }

    pub(super) fn index(
        &self,
        above: &[&str],
        typed: &DatasetFile,
    ) -> Result<Option<PathBuf>, JobError> {
        let keys = [above, &["index"]].concat();
        typed.index.as_ref().map(|index| self.path(&keys, index)).transpose()
    }

    fn limited_by(&self, typed: Option<&Text>) -> Result<Saves, JobError> {
        let Some(typed) = typed else { return Ok(Saves::Bytes) };
        match typed.0.as_str() {
            "bytes" => Ok(Saves::Bytes),
            "requests" => Ok(Saves::Requests),
            _ => {
                let reason = Reason::NotOneOf { allowed: "bytes, requests" };
                Err(self.invalid(&["dataset", "limited_by"], &typed.0, reason))
            }
        }
    }

    fn page_cache(&self, typed: Option<&Text>) -> Result<PageCache, JobError> {
        let Some(typed) = typed else { return Ok(PageCache::Auto) };
        match typed.0.as_str() {
            "auto" => Ok(PageCache::Auto),
            "off" => Ok(PageCache::Off),
            _ => {
                let reason = Reason::NotOneOf { allowed: "auto, off" };
                Err(self.invalid(&["dataset", "page_cache"], &typed.0, reason))
            }
        }
    }

    pub(super) fn described(&self, typed: &DescribedFile) -> Result<Described, JobError> {
        let below = |key| ["dataset", "described", key];
        let samples_per_object = typed.samples_per_object.unwrap_or(Whole(1));
        let described = Described {
            objects: self.whole(&below("objects"), typed.objects, 1..=u32::MAX)?,
            samples_per_object: self.whole(
                &below("samples_per_object"),
                samples_per_object,
                1..=u32::MAX,
            )?,
            sample_bytes: self.positive_bytes(&below("sample_bytes"), &typed.sample_bytes)?,
            sample_bytes_stdev: match &typed.sample_bytes_stdev {
                None => Bytes(0),
                Some(typed) => self.deviation(&below("sample_bytes_stdev"), typed)?,
            },
        };
        let samples = u64::from(described.objects) * u64::from(described.samples_per_object);
        if samples > u64::from(u32::MAX) {
            let count = described.objects.to_string();
            let reason = Reason::TooManySamples { samples };
            return Err(self.invalid(&below("objects"), &count, reason));
        }
        let (mean, deviation) = (described.sample_bytes, described.sample_bytes_stdev);
        let bytes = u128::from(mean.0) * u128::from(samples);
        if mean > MEAN_BYTES_MAX || bytes > u128::from(DATASET_BYTES_MAX.0) {
            let reason = Reason::TooMuchData { samples };
            return Err(self.invalid(&below("sample_bytes"), &typed.sample_bytes.0, reason));
        }
        if u128::from(deviation.0) * 10 > u128::from(mean.0) * 9 {
            let reason = Reason::TooMuchSpread { mean };
            let key = below("sample_bytes_stdev");
            return Err(self.invalid(&key, &deviation.to_string(), reason));
        }
        Ok(described)
    }

    fn deviation(&self, keys: &[&str], typed: &Text) -> Result<Bytes, JobError> {
        parse_size(&typed.0).ok_or_else(|| self.invalid(keys, &typed.0, Reason::NotASize))
    }

    fn located(&self, above: &[&str], error: KeyError) -> JobError {
        match error {
            KeyError::Invalid { key, value, reason } => {
                self.invalid(&[above, &[key]].concat(), &value, reason)
            }
            KeyError::Conflict { key: Some(key), conflict } => {
                self.conflict(&[above, &[key]].concat(), conflict)
            }
            KeyError::Conflict { key: None, conflict } => self.conflict(above, conflict),
        }
    }
}

fn keys(typed: &DatasetFile) -> DatasetKeys {
    let text = |typed: &Option<Text>| typed.as_ref().map(|text| text.0.clone());
    let list = |typed: &Option<Vec<Text>>| {
        typed.as_ref().map(|list| list.iter().map(|text| text.0.clone()).collect())
    };
    DatasetKeys {
        source: typed.source.0.clone(),
        endpoint: text(&typed.endpoint),
        region: text(&typed.region),
        anonymous: typed.anonymous,
        format: typed.format.0.clone(),
        glob: text(&typed.glob),
        manifest: text(&typed.manifest),
        record_bytes: text(&typed.record_bytes),
        dtype: text(&typed.dtype),
        sequence_length: typed.sequence_length.map(|number| number.0),
        header_bytes: text(&typed.header_bytes),
        compression: text(&typed.compression),
        members: list(&typed.members),
        unit: text(&typed.unit),
        columns: list(&typed.columns),
        dataset: text(&typed.dataset),
    }
}
