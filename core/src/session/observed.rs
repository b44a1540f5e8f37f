//! What a session observed of its links and of its trainers: the inputs of the next schedule of its node.

use alloc::{vec, vec::Vec};

use serde::{Deserialize, Serialize};

use super::{
    Busy, Form, LookAhead, ObservedTransforms, Session, Waits,
    phases::{Cycle, SPANS, Supply, WHOLE},
    staging_depth::Load,
};
use crate::{
    id::Epoch,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedLink {
    pub bytes: Bytes,
    pub operations: u64,
    /// The time for which at least one operation ran.
    pub busy: Nanoseconds,
    pub in_flight: Nanoseconds,
    /// The number of times that the link began to work.
    pub responses: u64,
    /// The sum of the times from then to the first end of an operation.
    pub response_time: Nanoseconds,
}

impl ObservedLink {
    fn of(busy: &Busy, bytes: Bytes) -> Self {
        let (operations, in_flight) = (busy.operations(), busy.in_flight());
        let (responses, response_time) = busy.responses();
        Self { bytes, operations, busy: busy.time(), in_flight, responses, response_time }
    }

    /// The rate while anything ran; `None` before the first bytes, and if reading takes no time.
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

    /// The mean time of an operation that waits for no other; `None` before the first.
    #[must_use]
    pub fn response(&self) -> Option<Nanoseconds> {
        self.response_time.0.checked_div(self.responses).map(Nanoseconds)
    }

    fn since(&self, earlier: &Self) -> Self {
        let time = |now: Nanoseconds, then: Nanoseconds| Nanoseconds(now.0.saturating_sub(then.0));
        Self {
            bytes: Bytes(self.bytes.0.saturating_sub(earlier.bytes.0)),
            operations: self.operations.saturating_sub(earlier.operations),
            busy: time(self.busy, earlier.busy),
            in_flight: time(self.in_flight, earlier.in_flight),
            responses: self.responses.saturating_sub(earlier.responses),
            response_time: time(self.response_time, earlier.response_time),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Links {
    cold: ObservedLink,
    tiers: Vec<ObservedLink>,
    /// Bytes that batches got from tiers.
    hit: Bytes,
    /// The times of transforms, by [`Form`].
    transforms: [Waits; 2],
}

impl Links {
    pub(super) fn unused(tiers: usize) -> Self {
        Self { tiers: vec![ObservedLink::default(); tiers], ..Self::default() }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            cold: self.cold.since(&earlier.cold),
            tiers: self.tiers.iter().zip(&earlier.tiers).map(|(now, it)| now.since(it)).collect(),
            hit: Bytes(self.hit.0.saturating_sub(earlier.hit.0)),
            transforms: Form::ALL.map(|form| {
                self.transforms[form as usize].since(&earlier.transforms[form as usize])
            }),
        }
    }
}

/// The observations of a session in its last epochs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// The latest epoch that is planned: another schedule holds for a later one.
    pub planned: Epoch,
    pub cold: ObservedLink,
    /// The tiers, fastest first, copies into them included.
    pub tiers: Vec<ObservedLink>,
    /// By [`Form`] of the samples that arrived; all zero in a job without a transform.
    pub transforms: [ObservedTransforms; 2],
    /// The reads of a step from the cold store; `None` before there were enough steps.
    pub load: Option<Load>,
    /// Busy and idle phases of the trainers; `None` without idle phases.
    pub cycle: Option<Cycle>,
    /// `None` while the rate of the cold store is not known, and unless the manager sets the room for
    /// look-ahead.
    pub supply: Option<Supply>,
}

impl Session {
    #[must_use]
    pub fn observed(&self) -> Observed {
        let now = self.links();
        let Links { cold, tiers, hit, transforms } = match self.earlier.front() {
            None => now,
            Some(then) => now.since(then),
        };
        let rate = cold.rate().filter(|_| self.settings.look_ahead == LookAhead::Auto);
        Observed {
            planned: self.planned(),
            load: self.load(cold.bytes, hit),
            cycle: self.cycle(),
            supply: rate.map(|rate| self.supply(rate)),
            transforms: transforms.each_ref().map(ObservedTransforms::of),
            tiers,
            cold,
        }
    }

    pub(super) fn begin_span(&mut self) {
        self.phases.begin_epoch();
        let links = self.links();
        self.earlier.push_back(links);
        if self.earlier.len() > SPANS {
            self.earlier.pop_front();
        }
    }

    fn links(&self) -> Links {
        let progress = &self.progress;
        let sum = |of: &dyn Fn(&super::EpochProgress) -> u64| {
            Bytes(progress.epochs.iter().map(of).fold(0, u64::saturating_add))
        };
        let tier = |(at, busy): (usize, &Busy)| {
            let moved = |epoch: &super::EpochProgress| epoch.from_tier[at].0 + epoch.written[at].0;
            ObservedLink::of(busy, sum(&moved))
        };
        Links {
            cold: ObservedLink::of(&progress.cold_busy, progress.cold),
            tiers: progress.tiers_busy.iter().enumerate().map(tier).collect(),
            hit: sum(&|epoch| epoch.from_tier.iter().map(|bytes| bytes.0).sum()),
            transforms: progress.transform_times.spread().clone(),
        }
    }

    /// The load of a step on the cold store, if of all bytes read `cold` were cold and `hit` were hits.
    fn load(&self, cold: Bytes, hit: Bytes) -> Option<Load> {
        let order = &self.settings.order;
        let samples = u64::from(order.batch_size) * u64::from(order.world.ranks_per_node);
        let read_len = Bytes(self.dataset.0 / u64::from(order.all_samples().max(1)));
        let step_time = self.phases.step_time()?;
        let reads = reads_at_most(samples, cold, hit);
        let samples = u32::try_from(samples).unwrap_or(u32::MAX);
        Some(Load { samples, reads, read_len, step_time })
    }

    fn planned(&self) -> Epoch {
        let last = self.progress.generations.last_key_value();
        last.map_or(self.settings.order.start.epoch, |(epoch, _)| *epoch)
    }

    #[must_use]
    pub fn follows_schedules(&self) -> bool {
        let is_deeper = self.settings.staged_batches_max > self.settings.staged_batches;
        is_deeper || self.settings.look_ahead == LookAhead::Auto
    }

    fn supply(&self, cold: BytesPerSecond) -> Supply {
        let order = &self.settings.order;
        let epoch = self.dataset.0 / u64::from(order.world.nodes);
        let batches = u64::from(self.depth.saturating_sub(1));
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

/// The reads of nearly every step of `samples` samples: the mean and three standard deviations, as if each
/// sample were cold by chance.
fn reads_at_most(samples: u64, cold: Bytes, hit: Bytes) -> u32 {
    let all = (u128::from(cold.0) + u128::from(hit.0)).max(1);
    let (samples, cold, hit) = (u128::from(samples), u128::from(cold.0), u128::from(hit.0));
    let mean = (samples * cold).div_ceil(all);
    let variance = mean * hit / all;
    let reads = (mean + 3 * variance.isqrt()).min(samples);
    u32::try_from(reads).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_reads_what_is_not_hit_and_hardly_more() {
        let reads = |cold, hit| reads_at_most(400, Bytes(cold), Bytes(hit));
        assert_eq!([reads(500, 0), reads(0, 500), reads(0, 0)], [400, 0, 0]);
        assert_eq!(reads(500, 500), 200 + 3 * 10);
        assert_eq!(reads(90, 10), 360 + 3 * 6);
        assert_eq!(reads(9_000_000_000, 1_000_000_000), 360 + 3 * 6, "of any number of bytes");
    }

    #[test]
    fn what_a_link_did_before_does_not_count() {
        let link = |bytes, busy, responses, response_time| ObservedLink {
            bytes: Bytes(bytes),
            operations: responses,
            busy: Nanoseconds(busy),
            in_flight: Nanoseconds(busy),
            responses,
            response_time: Nanoseconds(response_time),
        };
        let slow = link(1_000, 1_000_000_000, 10, 1_000_000_000);
        let now = link(5_000, 2_000_000_000, 20, 1_100_000_000);
        assert_eq!(slow.rate(), Some(BytesPerSecond(1_000)));
        let lately = now.since(&slow);
        assert_eq!(lately.rate(), Some(BytesPerSecond(4_000)));
        assert_eq!(lately.response(), Some(Nanoseconds(10_000_000)));
    }
}
