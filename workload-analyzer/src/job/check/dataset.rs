//! Checks where the samples are and how they are stored.

use std::path::PathBuf;

use super::Check;
use crate::{
    job::{Dataset, Format, JobError, Misfit, Reason},
    job_file::{DatasetFile, Text},
};

/// Schemes that jobs may name one day.
const OBJECT_STORES: [&str; 3] = ["s3://", "gs://", "az://"];

impl Check<'_> {
    pub(super) fn dataset(&self, typed: &DatasetFile) -> Result<Dataset, JobError> {
        let index = match &typed.index {
            None => None,
            Some(index) => Some(self.path(&["dataset", "index"], index)?),
        };
        Ok(Dataset {
            source: self.source(&typed.source)?,
            format: self.format(typed)?,
            speed: self.speed(&["dataset", "emulate"], typed.emulate.as_ref())?,
            index,
        })
    }

    /// A URL is taken as it stands: `%20` names a file with a percent sign.
    fn source(&self, typed: &Text) -> Result<PathBuf, JobError> {
        let keys = ["dataset", "source"];
        if let Some(path) = typed.0.strip_prefix("file://") {
            let is_absolute = path.starts_with('/');
            return if is_absolute {
                Ok(PathBuf::from(path))
            } else {
                Err(self.invalid(&keys, &typed.0, Reason::NotAFileUrl))
            };
        }
        let store = OBJECT_STORES.into_iter().find(|scheme| typed.0.starts_with(scheme));
        if let Some(scheme) = store {
            return Err(self.invalid(&keys, &typed.0, Reason::NotSupportedYet { scheme }));
        }
        if typed.0.contains("://") {
            return Err(self.invalid(&keys, &typed.0, Reason::UnknownScheme));
        }
        self.path(&keys, typed)
    }

    fn format(&self, typed: &DatasetFile) -> Result<Format, JobError> {
        let record_keys = ["dataset", "record_bytes"];
        match (typed.format.0.as_str(), &typed.record_bytes) {
            ("image-folder", None) => Ok(Format::ImageFolder),
            ("image-folder", Some(_)) => Err(self.misfit(&record_keys, Misfit::RecordBytesUnused)),
            ("raw", Some(bytes)) => {
                Ok(Format::Raw { record_bytes: self.record_bytes(&record_keys, bytes)? })
            }
            ("raw", None) => Err(self.misfit(&["dataset"], Misfit::NoRecordBytes)),
            (other, _) => {
                let reason = Reason::NotOneOf { allowed: "image-folder, raw" };
                Err(self.invalid(&["dataset", "format"], other, reason))
            }
        }
    }
}
