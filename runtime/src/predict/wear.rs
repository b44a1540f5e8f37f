//! The cost of evening out cold reads in writes to tiers that wear out, which `gap` writes only once.

use serde::Serialize;
use tierfeed_core::{
    retention::{
        policy::{Aim, Kind},
        replay::Replay,
    },
    session,
};

/// Bytes that an epoch writes to tiers that wear out, once they are full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Wear {
    /// The bytes that the plan writes.
    pub written_bytes_per_epoch: u64,
    /// The limit of the job file, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_bytes_per_epoch: Option<u64>,
    /// The bytes if the cached samples were chosen anew for every epoch, so that all batches miss equally.
    pub balanced_written_bytes_per_epoch: u64,
}

/// The epoch that is examined: the first one fills the tiers.
const FULL: u32 = 1;

impl Wear {
    /// The wear on the node of `settings`; `None` if no tier wears out, with another policy than `gap`, or if
    /// the run is too short to choose anew.
    #[must_use]
    pub fn of(settings: &session::Settings) -> Option<Self> {
        let first = settings.order.start.epoch.0;
        let is_short = first + FULL + 1 >= settings.order.epochs;
        if settings.policy != Kind::Gap || is_short || !settings.aim.wears.contains(&true) {
            return None;
        }
        let free = Aim { wears: Vec::new(), writes_per_epoch: Vec::new(), ..settings.aim.clone() };
        let allowed: Vec<u64> =
            settings.aim.writes_per_epoch.iter().flatten().map(|budget| budget.0).collect();
        Some(Self {
            written_bytes_per_epoch: written(settings, &settings.aim)?,
            allowed_bytes_per_epoch: (!allowed.is_empty()).then(|| allowed.iter().sum()),
            balanced_written_bytes_per_epoch: written(settings, &free)?,
        })
    }
}

fn written(settings: &session::Settings, aim: &Aim) -> Option<u64> {
    let mut setting = settings.policy_setting();
    setting.aim = aim.clone();
    let mut replay = Replay::new(settings.policy, &setting);
    for _ in 0..FULL {
        replay.epoch()?;
    }
    let written = replay.epoch()?.written;
    let worn = written.iter().zip(&settings.aim.wears).filter(|(_, wears)| **wears);
    Some(worn.map(|(bytes, _)| bytes.0).sum())
}
