//! The keys of a transform. Those of its steps are in `tierfeed-transform`, as Python has the same.

use std::num::NonZeroU32;

use serde::Deserialize;
use tierfeed_transform::pipeline_file::{LimitsFile, StepFile};

use crate::{
    job::{CachedForm, Threads},
    yaml::scalar::{Scalar, Text},
};

const THREADS_MAX: u32 = 1_024;

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
    pub(crate) cache: Option<CachedForm>,
    pub(crate) limits: Option<LimitsFile>,
    pub(crate) field: Option<Text>,
}

impl Scalar for Threads {
    type Reason = String;

    fn parse(typed: &str) -> Result<Self, String> {
        if typed == "auto" {
            return Ok(Self::Auto);
        }
        let count = typed.parse().ok().filter(|count: &NonZeroU32| count.get() <= THREADS_MAX);
        let expected =
            || format!("expected `auto`, or a number of threads from 1 to {THREADS_MAX}");
        count.map(Self::Count).ok_or_else(expected)
    }
}
