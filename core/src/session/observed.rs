//! What a session observed of its links and of its trainers: the inputs of the next schedule of its node.

use alloc::vec::Vec;

use super::{
    Busy, LookAhead, Session,
    phases::{Cycle, Supply, WHOLE},
};
use crate::{
    id::Epoch,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

/// A link as it was observed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObservedLink {
    /// Bytes that were moved over it.
    pub bytes: Bytes,
    /// The operations that moved them.
    pub operations: u64,
    /// For how long at least one ran.
    pub busy: Nanoseconds,
    /// The sum of the times of all operations.
    pub in_flight: Nanoseconds,
}

impl ObservedLink {
    fn of(busy: &Busy, bytes: Bytes) -> Self {
        let (operations, in_flight) = (busy.operations(), busy.in_flight());
        Self { bytes, operations, busy: busy.time(), in_flight }
    }

    /// What it gave while anything ran; `None` before its first bytes, and if it takes no time.
    #[must_use]
    pub fn rate(&self) -> Option<BytesPerSecond> {
        let bytes = u128::from(self.bytes.0) * 1_000_000_000;
        let rate = bytes.checked_div(u128::from(self.busy.0))?;
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        (rate > 0).then_some(BytesPerSecond(rate))
    }

    /// The mean time of an operation, from its start to its last byte; `None` before the first.
    #[must_use]
    pub fn latency(&self) -> Option<Nanoseconds> {
        self.in_flight.0.checked_div(self.operations).map(Nanoseconds)
    }
}

/// What a session observed since it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The latest epoch for which the room of the tiers is divided.
    pub planned: Epoch,
    /// The cold store.
    pub cold: ObservedLink,
    /// The tiers, fastest first, copies into them included.
    pub tiers: Vec<ObservedLink>,
    /// Busy and idle phases of the trainers; `None` without idle ones.
    pub cycle: Option<Cycle>,
    /// What there is to feed them with; `None` while the rate of the cold store is not known.
    pub supply: Option<Supply>,
}

impl Session {
    /// What was observed so far.
    #[must_use]
    pub fn observed(&self) -> Observed {
        let progress = &self.progress;
        let sum = |of: &dyn Fn(&super::EpochProgress) -> u64| {
            Bytes(progress.epochs.iter().map(of).fold(0, u64::saturating_add))
        };
        let tier = |(at, busy): (usize, &Busy)| {
            let moved = |epoch: &super::EpochProgress| epoch.from_tier[at].0 + epoch.written[at].0;
            ObservedLink::of(busy, sum(&moved))
        };
        let cold = ObservedLink::of(&progress.cold_busy, sum(&|epoch| epoch.cold.0));
        Observed {
            planned: self.planned_room(),
            tiers: progress.tiers_busy.iter().enumerate().map(tier).collect(),
            cycle: self.phases.cycle(self.settings.order.world.ranks_per_node),
            supply: cold.rate().map(|rate| self.supply(rate)),
            cold,
        }
    }

    /// The latest epoch for which the room of the tiers is divided.
    pub(super) fn planned_room(&self) -> Epoch {
        let last = self.progress.look_ahead_room.last_key_value();
        last.map_or(self.settings.order.start.epoch, |(epoch, _)| *epoch)
    }

    /// Whether the manager says how much room looking ahead gets.
    #[must_use]
    pub fn follows_schedules(&self) -> bool {
        self.settings.look_ahead == LookAhead::Auto
    }

    fn supply(&self, cold: BytesPerSecond) -> Supply {
        let order = &self.settings.order;
        let epoch = self.dataset.0 / u64::from(order.world.nodes);
        let batches = u64::from(self.settings.staged_batches.saturating_sub(1));
        let steps = u64::from(order.steps_per_epoch()).max(1);
        let tiers = self.planner.cache().capacities();
        let now = &self.progress.epochs[self.planner.main().0 as usize];
        let hit: u64 = now.from_tier.iter().map(|bytes| bytes.0).sum();
        let hits = u128::from(hit) * u128::from(WHOLE);
        let hits = hits.checked_div(u128::from(hit + now.cold.0)).unwrap_or(0);
        Supply {
            hits: u32::try_from(hits).unwrap_or(WHOLE),
            epoch: Bytes(epoch),
            capacity: Bytes(tiers.map(|capacity| capacity.0).sum()),
            staged: Bytes(epoch / steps * batches),
            cold,
        }
    }
}
