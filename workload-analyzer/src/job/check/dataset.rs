//! Checks what stands below `dataset`.

use super::Check;
use crate::{
    job::{
        Dataset, JobError,
        keys::{DatasetKeys, KeyError},
    },
    job_file::{DatasetFile, Text},
};

impl Check<'_> {
    pub(super) fn dataset(&self, typed: &DatasetFile) -> Result<Dataset, JobError> {
        let keys = keys(typed);
        let index = match &typed.index {
            None => None,
            Some(index) => Some(self.path(&["dataset", "index"], index)?),
        };
        Ok(Dataset {
            source: keys.location(self.directory).map_err(|error| self.placed(error))?,
            format: keys.format(self.directory).map_err(|error| self.placed(error))?,
            speed: self.speed(&["dataset", "emulate"], typed.emulate.as_ref())?,
            index,
        })
    }

    fn placed(&self, error: KeyError) -> JobError {
        match error {
            KeyError::Invalid { key, value, reason } => {
                self.invalid(&["dataset", key], &value, reason)
            }
            KeyError::Misfit { key: Some(key), misfit } => self.misfit(&["dataset", key], misfit),
            KeyError::Misfit { key: None, misfit } => self.misfit(&["dataset"], misfit),
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
