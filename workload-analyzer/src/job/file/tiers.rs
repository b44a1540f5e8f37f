//! The serde types of the keys below `tiers`.

use serde::Deserialize;
use tierfeed_core::{budget::Percent, retention::in_place::InPlaceMode, units::Bytes};
use tierfeed_dataset::keys;

use super::{SpeedFile, one_of, quantity::Room};
use crate::{
    job::{Reason, node_path::NodePath},
    yaml::scalar::{Checked, Count, Scalar},
};

pub(crate) const CHUNK_MIN: Bytes = Bytes(64 << 10);
const CHUNK_MAX: Bytes = Bytes(1 << 40);
const CHUNK_STEP: u64 = 4 << 10;

/// The most NUMA nodes of a kernel (`MAX_NUMNODES`).
const NUMA_NODES_MAX: u32 = 1_024;

pub(crate) type NumaNodeFile = Count<0, { NUMA_NODES_MAX - 1 }>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[serde(expecting = "a mapping of main-memory, cxl-memory, scratch and storage")]
pub(crate) struct TiersFile {
    pub(crate) main_memory: Option<MainMemoryFile>,
    pub(crate) cxl_memory: Option<CxlMemoryFile>,
    pub(crate) scratch: Option<ScratchFile>,
    pub(crate) storage: Option<StorageFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ size: 16 GiB }`")]
pub(crate) struct MainMemoryFile {
    pub(crate) direct: Option<Checked<InPlaceMode>>,
    pub(crate) size: Option<Checked<Room>>,
    pub(crate) reserve: Option<Checked<Percent>>,
    pub(crate) emulate: Option<SpeedFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ numa_nodes: [2], size: 16 GiB }`")]
pub(crate) struct CxlMemoryFile {
    pub(crate) numa_nodes: Option<Vec<NumaNodeFile>>,
    pub(crate) direct: Option<Checked<InPlaceMode>>,
    pub(crate) size: Option<Checked<Room>>,
    pub(crate) reserve: Option<Checked<Percent>>,
    pub(crate) emulate: Option<SpeedFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ path: /mnt/scratch, size: 16 GiB }`, or `{}`")]
pub(crate) struct ScratchFile {
    pub(crate) path: Option<Checked<NodePath>>,
    pub(crate) numa_node: Option<NumaNodeFile>,
    pub(crate) size: Option<Checked<Room>>,
    pub(crate) reserve: Option<Checked<Percent>>,
    pub(crate) emulate: Option<SpeedFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ path: /nvme/tierfeed, size: 200 GiB }`")]
pub(crate) struct StorageFile {
    pub(crate) path: Checked<NodePath>,
    pub(crate) size: Option<Checked<Room>>,
    pub(crate) reserve: Option<Checked<Percent>>,
    pub(crate) writes_per_epoch: Option<Checked<Room>>,
    pub(crate) emulate: Option<SpeedFile>,
}

impl Scalar for InPlaceMode {
    type Reason = keys::Reason;

    fn parse(typed: &str) -> Result<Self, keys::Reason> {
        one_of(typed, &Self::ALL, Self::name, Self::NAMES)
    }
}

/// The unit in which tiers grow and shrink.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunk(pub(crate) Bytes);

impl Scalar for Chunk {
    type Reason = Reason;

    fn parse(typed: &str) -> Result<Self, Reason> {
        let chunk: Bytes = typed
            .parse()
            .map_err(|problem| Reason::NotAQuantity { problem, example: "512 MiB" })?;
        let is_chunk =
            chunk.0.is_multiple_of(CHUNK_STEP) && (CHUNK_MIN..=CHUNK_MAX).contains(&chunk);
        if is_chunk { Ok(Self(chunk)) } else { Err(Reason::NotAChunk) }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ size: 4 GiB, keep: true }`")]
pub(crate) struct JobScratchFile {
    pub(crate) size: Checked<Room>,
    pub(crate) keep: Option<bool>,
}
