//! The serde types of the keys below `tiers`.

use serde::Deserialize;

use super::{SpeedFile, Text, Whole};

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
    pub(crate) direct: Option<Text>,
    pub(crate) size: Option<Text>,
    pub(crate) reserve: Option<Text>,
    pub(crate) emulate: Option<SpeedFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ numa_nodes: [2], size: 16 GiB }`")]
pub(crate) struct CxlMemoryFile {
    pub(crate) numa_nodes: Option<Vec<Whole>>,
    pub(crate) direct: Option<Text>,
    pub(crate) size: Option<Text>,
    pub(crate) reserve: Option<Text>,
    pub(crate) emulate: Option<SpeedFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ path: /mnt/scratch, size: 16 GiB }`, or `{}`")]
pub(crate) struct ScratchFile {
    pub(crate) path: Option<Text>,
    pub(crate) numa_node: Option<Whole>,
    pub(crate) size: Option<Text>,
    pub(crate) reserve: Option<Text>,
    pub(crate) emulate: Option<SpeedFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ path: /nvme/tierfeed, size: 200 GiB }`")]
pub(crate) struct StorageFile {
    pub(crate) path: Text,
    pub(crate) size: Option<Text>,
    pub(crate) reserve: Option<Text>,
    pub(crate) writes_per_epoch: Option<Text>,
    pub(crate) emulate: Option<SpeedFile>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct TierKeys<'a> {
    pub(crate) size: Option<&'a Text>,
    pub(crate) reserve: Option<&'a Text>,
    pub(crate) emulate: Option<&'a SpeedFile>,
}

macro_rules! tier_keys {
    ($($file:ident)+) => {
        $(impl $file {
            pub(crate) fn keys(&self) -> TierKeys<'_> {
                let Self { size, reserve, emulate, .. } = self;
                TierKeys { size: size.as_ref(), reserve: reserve.as_ref(), emulate: emulate.as_ref() }
            }
        })+
    };
}

tier_keys! { MainMemoryFile CxlMemoryFile StorageFile ScratchFile }
