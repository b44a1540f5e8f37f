//! The serde types of the keys below `dataset`.

use serde::Deserialize;

use super::{FurtherTransformFile, SpeedFile, Text, Whole};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping with `source` and `format`")]
pub(crate) struct DatasetFile {
    pub(crate) source: Text,
    pub(crate) endpoint: Option<Text>,
    pub(crate) region: Option<Text>,
    pub(crate) anonymous: Option<bool>,
    pub(crate) format: Text,
    pub(crate) glob: Option<Text>,
    pub(crate) manifest: Option<Text>,
    pub(crate) record_bytes: Option<Text>,
    pub(crate) dtype: Option<Text>,
    pub(crate) sequence_length: Option<Whole>,
    pub(crate) header_bytes: Option<Text>,
    pub(crate) compression: Option<Text>,
    pub(crate) members: Option<Vec<Text>>,
    pub(crate) unit: Option<Text>,
    pub(crate) columns: Option<Vec<Text>>,
    pub(crate) dataset: Option<Text>,
    pub(crate) emulate: Option<SpeedFile>,
    pub(crate) limited_by: Option<Text>,
    pub(crate) page_cache: Option<Text>,
    pub(crate) patience: Option<Text>,
    pub(crate) index: Option<Text>,
    pub(crate) described: Option<DescribedFile>,
}

/// A dataset beside the first: where it lies, and how it is read. `flatten` would lose the check for unknown
/// keys, so the keys that both have are repeated here.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping with `source` and `format`")]
pub(crate) struct FurtherDatasetFile {
    source: Text,
    endpoint: Option<Text>,
    region: Option<Text>,
    anonymous: Option<bool>,
    format: Text,
    glob: Option<Text>,
    manifest: Option<Text>,
    record_bytes: Option<Text>,
    dtype: Option<Text>,
    sequence_length: Option<Whole>,
    header_bytes: Option<Text>,
    compression: Option<Text>,
    members: Option<Vec<Text>>,
    unit: Option<Text>,
    columns: Option<Vec<Text>>,
    dataset: Option<Text>,
    emulate: Option<SpeedFile>,
    index: Option<Text>,
    batch_size: Option<Whole>,
    shuffle: Option<Text>,
    every: Option<Whole>,
    transform: Option<FurtherTransformFile>,
}

#[derive(Debug)]
pub(crate) struct FurtherOrderFile {
    pub(crate) batch_size: Option<Whole>,
    pub(crate) shuffle: Option<Text>,
    pub(crate) every: Option<Whole>,
    pub(crate) transform: Option<FurtherTransformFile>,
}

impl FurtherDatasetFile {
    /// The keys that the first dataset has too, and those of the order.
    pub(crate) fn into_parts(self) -> (DatasetFile, FurtherOrderFile) {
        let Self { batch_size, shuffle, every, transform, .. } = self;
        let dataset = DatasetFile {
            source: self.source,
            endpoint: self.endpoint,
            region: self.region,
            anonymous: self.anonymous,
            format: self.format,
            glob: self.glob,
            manifest: self.manifest,
            record_bytes: self.record_bytes,
            dtype: self.dtype,
            sequence_length: self.sequence_length,
            header_bytes: self.header_bytes,
            compression: self.compression,
            members: self.members,
            unit: self.unit,
            columns: self.columns,
            dataset: self.dataset,
            emulate: self.emulate,
            index: self.index,
            limited_by: None,
            page_cache: None,
            patience: None,
            described: None,
        };
        (dataset, FurtherOrderFile { batch_size, shuffle, every, transform })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ objects: 1024, samples_per_object: 1251, \
                     sample_bytes: 114660 }`")]
pub(crate) struct DescribedFile {
    pub(crate) objects: Whole,
    pub(crate) samples_per_object: Option<Whole>,
    pub(crate) sample_bytes: Text,
    pub(crate) sample_bytes_stdev: Option<Text>,
}
