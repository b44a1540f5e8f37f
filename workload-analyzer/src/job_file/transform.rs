//! The keys of a transform. Those of its steps are in `tierfeed-transform`, as Python has the same.

use serde::Deserialize;
use tierfeed_transform::pipeline_file::{LimitsFile, StepFile};

use super::Text;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ steps: [{ resize: 256 }, { center_crop: 224 }] }`")]
pub(crate) struct FurtherTransformFile {
    pub(crate) steps: Vec<StepFile>,
    pub(crate) limits: Option<LimitsFile>,
    pub(crate) field: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ steps: [{ random_resized_crop: 224 }] }`")]
pub(crate) struct TransformFile {
    pub(crate) steps: Vec<StepFile>,
    pub(crate) cache: Option<Text>,
    pub(crate) limits: Option<LimitsFile>,
    pub(crate) field: Option<Text>,
}
