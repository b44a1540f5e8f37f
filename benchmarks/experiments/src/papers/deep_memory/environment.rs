//! What a node has beside its disk: the six environments.

use serde_json::{Value as Json, json};
use tierfeed_core::units::{Bytes, BytesPerSecond};

use super::DISK;
use crate::stage::{SPARE, STAGING, Stage, cxl_memory, job};

/// Main memory and CXL memory for data, in per cent of the dataset.
const MAIN: u64 = 25;
const CXL: u64 = 50;
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Environment {
    Unconstrained,
    Constrained,
    CxlAsMemory,
    CxlAsStorage,
    CxlAsBoth,
    Tierfeed,
    /// tierfeed without fast storage.
    TierfeedInMemory,
    /// tierfeed without CXL memory.
    TierfeedOnStorage,
}

impl Environment {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unconstrained => "unconstrained",
            Self::Constrained => "constrained memory",
            Self::CxlAsMemory => "CXL memory as memory",
            Self::CxlAsStorage => "CXL memory as storage",
            Self::CxlAsBoth => "CXL as memory and storage",
            Self::Tierfeed => "tierfeed",
            Self::TierfeedInMemory => "tierfeed without fast storage",
            Self::TierfeedOnStorage => "tierfeed without CXL memory",
        }
    }

    pub(super) fn is_on_ram_disk(self) -> bool {
        matches!(self, Self::CxlAsStorage | Self::CxlAsBoth)
    }

    /// Memory for page cache or tiers.
    pub(super) fn room(self, stage: &Stage<'_>) -> Option<Bytes> {
        let (main, cxl) = (stage.percent(MAIN), stage.percent(CXL));
        match self {
            Self::Unconstrained => None,
            Self::Constrained | Self::CxlAsStorage => Some(for_page_cache(main)),
            Self::CxlAsMemory | Self::CxlAsBoth => Some(for_page_cache(Bytes(main.0 + cxl.0))),
            Self::TierfeedInMemory => Some(Bytes(main.0 + cxl.0 + STAGING.0)),
            Self::TierfeedOnStorage => Some(Bytes(main.0 + STAGING.0 + scratch(stage).0)),
            Self::Tierfeed => Some(Bytes(main.0 + cxl.0 + STAGING.0 + scratch(stage).0)),
        }
    }

    pub(super) fn job(self, stage: &Stage<'_>) -> Json {
        let mut more = vec![("page_cache", "off".into())];
        if self != Self::TierfeedOnStorage {
            more.push(("tiers", cxl_memory(stage.percent(CXL))));
        }
        if self != Self::TierfeedInMemory {
            more.push(("tiers", cxl_storage(scratch(stage), STORAGE)));
        }
        job(Bytes(stage.percent(MAIN).0 + STAGING.0), &more)
    }
}

/// Memory for this much page cache, a part of which fits into the spare memory that any group may use.
pub(super) fn for_page_cache(bytes: Bytes) -> Bytes {
    Bytes(bytes.0.saturating_sub(SPARE.0))
}

/// Fast storage for all of the dataset, with the additional room that a tier needs.
fn scratch(stage: &Stage<'_>) -> Bytes {
    stage.percent(110)
}

const STORAGE: BytesPerSecond = BytesPerSecond(5_000_000_000);

pub(super) fn cxl_storage(size: Bytes, rate: BytesPerSecond) -> Json {
    let emulate = json!({ "latency": "1 us", "bandwidth": format!("{} B/s", rate.0) });
    json!({ "scratch": { "size": format!("{} B", size.0), "emulate": emulate } })
}

pub(super) fn emulated(stage: &Stage<'_>) -> Vec<String> {
    vec![
        stage.emulated.clone(),
        "memory is the limit of a control group; CXL memory as memory is more of it, and as storage a RAM disk: both \
         are as fast as main memory, and faster than the paper's"
            .to_owned(),
        "of tierfeed, the tier of CXL memory waits 350 ns an access and passes 20 GB/s, and that of fast storage 1 us \
         and 5 GB/s"
            .to_owned(),
        "each loader decodes by its own library: the others whole images (tf.data a region of them, by an accurate and \
         slower transform), tierfeed regions by native workers; where steps are short a part of what it gains is that, \
         and not its tiers: what tiers alone give is in figures 3, 10 and 11, whose samples are not decoded"
            .to_owned(),
    ]
}

pub(super) fn setting(stage: &Stage<'_>) -> String {
    format!(
        "{} photographs ({}) on a disk of {DISK}; memory for {MAIN} % of them, CXL memory for {CXL} %, fast storage \
         for all",
        stage.settings.photographs, stage.dataset
    )
}
