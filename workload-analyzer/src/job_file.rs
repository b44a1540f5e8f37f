//! The serde types of a job file: every key that exists, with only its type checked.
//!
//! [`crate::job`] turns this into a [`crate::Job`]. Quantities stay text here, so that an error can show
//! the value as it is typed.

mod dataset;
mod order;
mod policy;
mod tiers;
mod trainer;
mod transform;
mod value;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use serde::Deserialize;

pub(crate) use dataset::{DatasetFile, DescribedFile, FurtherDatasetFile, FurtherOrderFile};
pub(crate) use order::OrderFile;
pub(crate) use policy::{DeepMemoryFile, DeliFile, LobsterFile, NoPfsFile};
pub(crate) use tiers::{
    CxlMemoryFile, MainMemoryFile, ScratchFile, StorageFile, TierKeys, TiersFile,
};
pub(crate) use trainer::{
    CheckpointFile, DecodedFile, ElementFile, EvaluationFile, LoaderFile, ModelFile, PauseFile,
    ValidationFile,
};
pub(crate) use transform::{FurtherTransformFile, TransformFile};
pub(crate) use value::{Name, OnErrorFile, Release, Text, Whole};

/// The text of a file; `None` if it is longer than `bytes_max`.
///
/// The read itself is bounded, not the file length: a pipe or a device has none.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Option<String>> {
    let mut text = String::new();
    File::open(path)?.take(bytes_max + 1).read_to_string(&mut text)?;
    Ok((text.len() as u64 <= bytes_max).then_some(text))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping with the keys of a job")]
pub(crate) struct JobFile {
    pub(crate) name: Name,
    pub(crate) dataset: DatasetFile,
    #[serde(default)]
    pub(crate) datasets: BTreeMap<String, FurtherDatasetFile>,
    pub(crate) order: OrderFile,
    pub(crate) batch_size: Whole,
    pub(crate) world: Option<WorldFile>,
    pub(crate) step_time: Option<Text>,
    pub(crate) policy: Option<Text>,
    pub(crate) deepmemory: Option<DeepMemoryFile>,
    pub(crate) lobster: Option<LobsterFile>,
    pub(crate) deli: Option<DeliFile>,
    pub(crate) nopfs: Option<NoPfsFile>,
    pub(crate) chunk: Option<Text>,
    pub(crate) prefetch: Option<PrefetchFile>,
    pub(crate) transform: Option<TransformFile>,
    pub(crate) threads: Option<Text>,
    pub(crate) on_error: Option<OnErrorFile>,
    pub(crate) verify: Option<Text>,
    pub(crate) network: Option<Text>,
    pub(crate) tiers: Option<TiersFile>,
    pub(crate) job_scratch: Option<JobScratchFile>,
    pub(crate) loader: Option<LoaderFile>,
    pub(crate) decoded: Option<DecodedFile>,
    pub(crate) validation: Option<ValidationFile>,
    pub(crate) evaluation: Option<EvaluationFile>,
    pub(crate) model: Option<ModelFile>,
    pub(crate) checkpoint: Option<CheckpointFile>,
    pub(crate) pause: Option<PauseFile>,
    pub(crate) cache: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ nodes: 1, ranks_per_node: 8 }`")]
pub(crate) struct WorldFile {
    pub(crate) nodes: Option<Whole>,
    pub(crate) ranks_per_node: Option<Whole>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ batches: 4 }`")]
pub(crate) struct PrefetchFile {
    pub(crate) batches: Option<Whole>,
    pub(crate) look_ahead: Option<Text>,
    pub(crate) assignment: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ size: 4 GiB, keep: true }`")]
pub(crate) struct JobScratchFile {
    pub(crate) size: Text,
    pub(crate) keep: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ latency: 350 ns, bandwidth: 20 GB/s }`")]
pub(crate) struct SpeedFile {
    pub(crate) latency: Option<Text>,
    pub(crate) bandwidth: Option<Text>,
}
