//! `DeepMemoryDL`: a node whose memory is short, with CXL memory beside, as trainings with the loaders of today, and
//! with tierfeed.
//!
//! The node is a control group: its memory holds a part of the dataset beside what the processes need. CXL memory is,
//! for the loaders of today, more memory of the group, as fast as main memory; as storage, a RAM disk. Both flatter
//! them. For tierfeed it is a tier whose latency and bandwidth are emulated.

mod caching;
mod environment;
mod memory;
mod preprocess;
mod ram_disk;
mod sizes;
mod tiers;
mod total_time;
mod workers;

use tierfeed_core::units::BytesPerSecond;

use super::repetition::{Ground, OnStage};

const DISK: BytesPerSecond = BytesPerSecond(40_000_000);

/// The figures, by name; those of one entry come from the same runs.
pub(super) const FIGURES: OnStage = OnStage {
    // Ratios need no more photographs, and each figure has turns of many sides.
    ground: Ground { disk: DISK, copies: 1, photographs: 600, photographs_quick: 320 },
    figures: &[
        (&[tiers::NAME], tiers::figures),
        (&[memory::NAME], |stage| Ok(vec![memory::figure(stage)?])),
        (&[caching::NAME], |stage| Ok(vec![caching::figure(stage)?])),
        (&total_time::NAMES, total_time::figures),
        (&[preprocess::NAME], |stage| Ok(vec![preprocess::figure(stage)?])),
        (&[sizes::CXL], |stage| Ok(vec![sizes::cxl(stage)?])),
        (&[sizes::BATCHES], |stage| Ok(vec![sizes::batches(stage)?])),
        (&[workers::NAME], |stage| Ok(vec![workers::figure(stage)?])),
    ],
};
