//! The serde types of the keys of the trainer.

use serde::Deserialize;

use super::{Text, Whole};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ workers: 8, preprocessing: 6 ms }`")]
pub(crate) struct LoaderFile {
    pub(crate) workers: Option<Whole>,
    pub(crate) preprocessing: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ width: 224, height: 224, channels: 3 }`")]
pub(crate) struct DecodedFile {
    pub(crate) width: Option<Whole>,
    pub(crate) height: Option<Whole>,
    pub(crate) channels: Option<Whole>,
    pub(crate) bytes_per_element: Option<Whole>,
    pub(crate) elements: Option<Vec<ElementFile>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ width: 128, height: 128, depth: 128 }`")]
pub(crate) struct ElementFile {
    pub(crate) width: Option<Whole>,
    pub(crate) height: Option<Whole>,
    pub(crate) depth: Option<Whole>,
    pub(crate) bytes_per_element: Option<Whole>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ samples: 50000, every: 1 epoch }`")]
pub(crate) struct ValidationFile {
    pub(crate) samples: Whole,
    pub(crate) sample_bytes: Option<Text>,
    pub(crate) batch_size: Option<Whole>,
    pub(crate) step_time: Option<Text>,
    pub(crate) every: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ samples: 50000 }`")]
pub(crate) struct EvaluationFile {
    pub(crate) samples: Whole,
    pub(crate) sample_bytes: Option<Text>,
    pub(crate) batch_size: Option<Whole>,
    pub(crate) step_time: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ parameters: 25557032, optimizer: sgd-momentum }`")]
pub(crate) struct ModelFile {
    pub(crate) parameters: Text,
    pub(crate) bytes_per_parameter: Option<Whole>,
    pub(crate) optimizer: Text,
    pub(crate) device: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ every: 1 epoch, bytes: 300 MB }`")]
pub(crate) struct CheckpointFile {
    pub(crate) every: Text,
    pub(crate) bytes: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ every: 500 steps, time: 20 s }`")]
pub(crate) struct PauseFile {
    pub(crate) every: Text,
    pub(crate) time: Text,
}
