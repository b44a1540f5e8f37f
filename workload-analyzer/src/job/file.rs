//! The serde types of a job file: every key that exists, and its value where it needs no other key.
//!
//! The other checks, and all defaults, are in [`super::check`]. The types that a job and its file share are in
//! [`super::trainer`].

mod dataset;
mod keyed;
mod on_error;
mod order;
mod policy;
mod prefetch;
mod quantity;
mod tiers;
mod transform;

use std::collections::BTreeMap;

use serde::Deserialize;
use tierfeed_core::{
    retention::{in_place::Verify, policy::Kind},
    units::{BytesPerSecond, Nanoseconds},
};
use tierfeed_dataset::keys;

use super::{
    BATCH_SIZE_MAX, Network, Reason, Threads,
    trainer::{Checkpoint, DecodedFile, Loader, Model, NativeCache, Pass, Pause, Validation},
};
use crate::yaml::scalar::{Checked, Count, Scalar};

pub(crate) use crate::yaml::scalar::Whole;
pub(crate) use dataset::{
    DatasetFile, DescribedFile, FirstFile, FurtherDatasetFile, FurtherShuffle,
};
pub(crate) use keyed::Keyed;
pub(crate) use order::OrderFile;
pub(crate) use policy::{DeepMemoryFile, DeliFile, LobsterFile};
pub(crate) use prefetch::PrefetchFile;
pub(crate) use quantity::{Latency, Room};
pub(crate) use tiers::{
    CHUNK_MIN, Chunk, CxlMemoryFile, JobScratchFile, MainMemoryFile, NumaNodeFile, ScratchFile,
    StorageFile, TiersFile,
};
pub(crate) use transform::{FurtherTransformFile, TransformFile};

const NODES_MAX: u32 = 65_536;
const RANKS_PER_NODE_MAX: u32 = 1_024;

/// The longest name of a job or dataset, which is that of a directory or file too.
const NAME_LEN_MAX: usize = 64;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping with the keys of a job")]
pub(crate) struct JobFile {
    pub(crate) name: Checked<Name>,
    pub(crate) dataset: DatasetFile,
    #[serde(default)]
    pub(crate) datasets: BTreeMap<String, FurtherDatasetFile>,
    pub(crate) order: OrderFile,
    pub(crate) batch_size: Count<1, BATCH_SIZE_MAX>,
    pub(crate) world: Option<WorldFile>,
    pub(crate) step_time: Option<Checked<Nanoseconds>>,
    pub(crate) policy: Option<Checked<Kind>>,
    pub(crate) deepmemory: Option<DeepMemoryFile>,
    pub(crate) lobster: Option<LobsterFile>,
    pub(crate) deli: Option<DeliFile>,
    pub(crate) nopfs: Option<policy::NoPfsFile>,
    pub(crate) chunk: Option<Checked<Chunk>>,
    pub(crate) prefetch: Option<PrefetchFile>,
    pub(crate) transform: Option<TransformFile>,
    pub(crate) threads: Option<Checked<Threads>>,
    pub(crate) on_error: Option<on_error::OnErrorFile>,
    pub(crate) verify: Option<Verify>,
    pub(crate) network: Option<Network>,
    pub(crate) tiers: Option<TiersFile>,
    pub(crate) job_scratch: Option<JobScratchFile>,
    pub(crate) loader: Option<Loader>,
    pub(crate) decoded: Option<DecodedFile>,
    pub(crate) validation: Option<Validation>,
    pub(crate) evaluation: Option<Pass>,
    pub(crate) model: Option<Model>,
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) pause: Option<Pause>,
    pub(crate) cache: Option<Checked<NativeCache>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ nodes: 1, ranks_per_node: 8 }`")]
pub(crate) struct WorldFile {
    pub(crate) nodes: Option<Count<1, NODES_MAX>>,
    pub(crate) ranks_per_node: Option<Count<1, RANKS_PER_NODE_MAX>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ latency: 350 ns, bandwidth: 20 GB/s }`")]
pub(crate) struct SpeedFile {
    pub(crate) latency: Option<Checked<Latency>>,
    pub(crate) bandwidth: Option<Checked<BytesPerSecond>>,
}

/// The name of a job. `1.0` would be read as `1`.
#[derive(Debug)]
pub(crate) struct Name(pub(crate) String);

impl Scalar for Name {
    type Reason = Reason;

    const EXPECTED: &str =
        "a name; one that looks like a number stands in quotes, for example `\"1.0\"`";
    const IS_WORD: bool = true;

    fn parse(typed: &str) -> Result<Self, Reason> {
        if is_name(typed) { Ok(Self(typed.to_owned())) } else { Err(Reason::NotAName) }
    }
}

pub(crate) fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=NAME_LEN_MAX).contains(&text.len()) && !text.starts_with('.') && text.chars().all(allowed)
}

/// The value of `known` that is `typed`; `allowed` lists the names.
fn one_of<T: Copy>(
    typed: &str,
    known: &[T],
    name: impl Fn(T) -> &'static str,
    allowed: &'static str,
) -> Result<T, keys::Reason> {
    let found = known.iter().copied().find(|it| name(*it) == typed);
    found.ok_or_else(|| keys::Reason::NotOneOf(allowed.to_owned()))
}
