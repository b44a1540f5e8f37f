//! The serde types of the keys below `dataset`.

use serde::Deserialize;

use super::{SpeedFile, Text, Whole};

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
    pub(crate) index: Option<Text>,
    pub(crate) described: Option<DescribedFile>,
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
