//! The parts of the staging memory of a rank on this node, as the schedule divides it.

use tierfeed_core::{
    fleet::{
        Origin,
        schedule::{Role, Schedule},
    },
    tier::{Kind, Locality},
    units::Bytes,
};
use tierfeed_prefetcher::tier::Backing;

use super::TierLayout;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagingPart {
    /// The tier whose budget it takes.
    pub kind: Kind,
    pub origin: Origin,
    pub locality: Locality,
    /// For each rank.
    pub len: Bytes,
}

/// The parts in the order of addresses: main memory first, then what the schedule takes of `tiers`, which are
/// those that it uses.
pub(super) fn parts(schedule: &Schedule, tiers: &[TierLayout]) -> Vec<StagingPart> {
    let used = schedule.tiers.iter().filter(|it| it.staging.0 > 0);
    let beyond: Vec<_> =
        used.filter_map(|it| Some((it, tiers.get(position(schedule, it.offered)?)?))).collect();
    let in_main =
        beyond.iter().fold(schedule.arena.0, |left, (it, _)| left.saturating_sub(it.staging.0));
    let main = tiers.iter().find(|tier| tier.settings.kind == Kind::MainMemory);
    let main = StagingPart {
        kind: Kind::MainMemory,
        origin: main.map_or(Origin::Real, |tier| tier.origin),
        locality: Locality::Anywhere,
        len: Bytes(in_main),
    };
    let beyond = beyond.into_iter().map(|(scheduled, tier)| StagingPart {
        kind: tier.settings.kind,
        origin: tier.origin,
        locality: match tier.settings.backing {
            Backing::Memory(locality) | Backing::SharedMemory(locality, _) => locality,
            Backing::Spread(_) | Backing::Directory(_) | Backing::RamDisk(..) => Locality::Anywhere,
        },
        len: scheduled.staging,
    });
    [main].into_iter().chain(beyond).filter(|part| part.len.0 > 0).collect()
}

/// The position of a tier among those that are used.
fn position(schedule: &Schedule, offered: u32) -> Option<usize> {
    let mut used = schedule.tiers.iter().filter(|it| it.role != Role::LeftOut);
    used.position(|it| it.offered == offered)
}
