//! Algorithm 1 of DeepMemoryDL (ICPP 2022, doi:10.1145/3545008.3545054), with the rules of its section 3.3.
//!
//! # Source
//!
//! The text beside what is done here and in [`crate::session`]:
//!
//! - *Line 1, "for each worker in cluster"*: each agent has a session of its own, and they all follow one order.
//! - *Line 2, "determine location for n batches"*: the session places the batches of its ranks in turn, then
//!   looks ahead along their order; `n` is as many as there is room for.
//! - *Lines 3 to 8, "if tier t avail. buffer space >= space for n batches then prefetch n batches to tier t,
//!   else (n - k) batches to tier t and k batches to tier t - 1"*: [`Cache::fetch_ahead`] takes sample by sample,
//!   in the order of use, to the fastest tier with space, the rest to the tiers below; [`Cache::advance`] takes
//!   up what is needed first as space is freed ("the prefetching priority starts from the fastest storage tier
//!   and moves through the slower tiers"). Space is what no sample takes, what the session keeps free
//!   ([`Cache::reserve`]), and what is [`idle`](super::idle): a used sample whose next use is farther away than
//!   it would stay. Lines 9 to 15 evict that before its use, so it gives way at once.
//! - *Line 9, "if buffer space in tier t >= util. threshold at tier t"*: asked in every step for every tier. The
//!   threshold is open in the paper; here it is the fill level at which the `n` batches of a step do not fit any
//!   more, but at least [`Buffers::threshold`].
//! - *Lines 10 to 14, "if batch b is needed in upcoming i iterations then cache batch b to tier t - 1, else evict
//!   batch b"*: the sample that came first ("data is evicted in FIFO order") goes one tier down if it is needed in
//!   time, else out. `i` is open; here it is the steps that the buffers can hold, which is how the paper bounds
//!   the batches scheduled onto a tier (`B x S_b <= S_t`); a job gives another as [`Buffers::iterations`].
//!   Batches are mixed anew in each epoch, so this asks for each sample, as section 3.3.4 does ("samples within a
//!   batch that are marked for prefetching will be cached to a lower memory tier"). If the tier below has no
//!   space although it was visited before, it evicts its own oldest, by the same lines.
//! - *What is prefetched and must go* ("cached to a lower tier if the data is required by subsequent training
//!   iterations"): a waiting sample whose room a used one takes goes down, the last needed first, and is given up
//!   only if no tier has space.
//! - *"DeepMemoryDL starts with a reservation of 20 % of the available space"*: a tier without a size has a
//!   reserve, 20 % unless the job says otherwise. *"The Core Module adjusts the allocation"*: budgets follow what
//!   is free while a job runs, and the room for prefetching what the phases of the training are worth.
//! - *"In the cases where the dataset is much larger than the main memory, then the eviction coordination is
//!   halted and only prefetching buffers consume the entire memory and storage tiers"*: then hardly a used sample
//!   is needed before it would leave; nearly all of them are idle, and what is prefetched takes their room.
//! - *"DL jobs can access the CXL-based memory directly"*: in-place reading, where it is known how long a sample
//!   stays; under this policy it is not, so samples are copied.
//!
//! [`Cache::fetch_ahead`]: crate::retention::cache::Cache::fetch_ahead
//! [`Cache::advance`]: crate::retention::cache::Cache::advance
//! [`Cache::reserve`]: crate::retention::cache::Cache::reserve

use super::{Buffers, Policy, Read, Setting, first_with_room, idle::Idle, queue::Queues};
use crate::{
    id::{Epoch, SampleId, TierId},
    retention::{
        future_accesses::{FutureAccesses, NextUse, NextUses, Use},
        residency::{Level, Residency},
    },
    units::Bytes,
};

/// Keeps samples that are needed before the buffers have turned over once.
#[derive(Debug)]
pub(super) struct DeepMemory {
    queues: Queues,
    bytes_per_step: Bytes,
    tuning: Buffers,
    idle: Idle,
    entered: Entered,
    last: Option<Use>,
}

/// The bytes that entered the buffers. They say how long a sample stays: until as much has entered as the
/// buffers hold.
#[derive(Debug)]
struct Entered {
    epoch: Epoch,
    before: Flow,
    now: Flow,
}

#[derive(Debug, Default, Clone, Copy)]
struct Flow {
    bytes: u64,
    steps: u64,
}

impl Entered {
    fn new(epoch: Epoch) -> Self {
        Self { epoch, before: Flow::default(), now: Flow::default() }
    }

    fn step(&mut self, epoch: Epoch) {
        if epoch != self.epoch {
            self.epoch = epoch;
            self.before = core::mem::take(&mut self.now);
        }
        self.now.steps += 1;
    }

    /// The steps in which `bytes` enter.
    fn steps_for(&self, bytes: u64) -> u64 {
        let steps = u128::from(self.before.steps + self.now.steps);
        let entered = u128::from(self.before.bytes + self.now.bytes).max(1);
        u64::try_from(u128::from(bytes) * steps / entered).unwrap_or(u64::MAX)
    }
}

impl DeepMemory {
    pub(super) fn new(setting: &Setting) -> Self {
        let (samples, tiers) = (setting.sizes.len(), setting.capacities.len());
        Self {
            queues: Queues::new(samples, tiers),
            bytes_per_step: setting.bytes_per_step(),
            tuning: setting.aim.tuning.deepmemory,
            idle: Idle::new(samples, tiers),
            entered: Entered::new(setting.order.start.epoch),
            last: None,
        }
    }

    /// The look-ahead `i` of the paper, in steps.
    fn iterations(&self, residency: &Residency) -> u32 {
        let fitting = capacity(residency) / self.bytes_per_step.0.max(1);
        let fitting = || u32::try_from(fitting).unwrap_or(u32::MAX);
        self.tuning.iterations.unwrap_or_else(fitting)
    }

    /// The steps for which a sample can stay: until the buffers have turned over, or until it leaves the
    /// last but one and is not needed within [`Self::iterations`], if that is later.
    fn stay(&self, residency: &Residency) -> u64 {
        let whole = self.entered.steps_for(capacity(residency));
        let Some((last, above)) = residency.levels().split_last() else { return whole };
        let wanted = u64::from(self.iterations(residency));
        let demoted = capacity(residency) - last.capacity.0;
        let demoted = self.entered.steps_for(demoted).saturating_add(wanted);
        if above.is_empty() { whole } else { whole.max(demoted) }
    }

    fn judge(&mut self, read: Read, future: &FutureAccesses, residency: &Residency) {
        let Some(tier) = residency.tier_of(read.sample) else { return };
        if u64::from(steps_until(read.sample, read.at, future)) > self.stay(residency) {
            self.idle.enter(read.sample, tier);
        } else {
            self.idle.leave(read.sample);
        }
    }

    /// Lines 9 to 15, the slowest tier first: its evictions make room for demotions from the tier
    /// above.
    fn evict(&mut self, now: Use, future: &FutureAccesses, residency: &mut Residency) {
        let iterations = self.iterations(residency);
        let Self { queues, bytes_per_step, tuning, idle, .. } = self;
        let mut is_needed = |sample| {
            let is_needed = steps_until(sample, now, future) <= iterations;
            if is_needed {
                idle.leave(sample);
            }
            is_needed
        };
        for tier in residency.tiers().rev() {
            let is_over = |residency: &Residency| {
                tuning.is_over(residency.levels()[usize::from(tier.0)], *bytes_per_step)
            };
            while is_over(residency) && queues.give_up_oldest(tier, residency, &mut is_needed) {}
        }
    }
}

impl Buffers {
    /// Whether a buffer is filled to the threshold and the batches of a step do not fit any more.
    fn is_over(self, level: Level, step: Bytes) -> bool {
        let filled = u128::from(level.capacity.0) * u128::from(self.threshold);
        let is_filled = u128::from(level.used.0) * 100 >= filled;
        is_filled && level.used.0 > 0 && level.free() < step
    }
}

impl Policy for DeepMemory {
    fn next_uses(&self) -> NextUses {
        NextUses::Asked
    }

    fn read(&mut self, read: Read, future: &FutureAccesses, residency: &mut Residency) {
        let last = self.last.replace(read.at);
        if last.is_none_or(|last| !is_one_step(last, read.at, future)) {
            self.entered.step(read.at.epoch);
            self.evict(read.at, future, residency);
        }
        if residency.tier_of(read.sample).is_none()
            && let Some(tier) = first_with_room(read.sample, residency)
            && residency.put(read.sample, tier).is_ok()
        {
            self.queues.enter(read.sample, tier);
            self.entered.now.bytes += residency.len_of(read.sample).0;
        }
        self.judge(read, future, residency);
    }

    fn is_idle(&self, sample: SampleId) -> bool {
        self.idle.contains(sample)
    }

    fn give_way(&mut self, tier: TierId, residency: &mut Residency) -> bool {
        let Some(idle) = self.idle.take(tier, residency) else { return false };
        self.queues.leave(idle, tier);
        residency.take_out(idle);
        true
    }

    fn displaced(&mut self, sample: SampleId, from: TierId, to: Option<TierId>) {
        self.queues.displaced(sample, from, to);
    }
}

fn capacity(residency: &Residency) -> u64 {
    let capacities = residency.levels().iter().map(|level| level.capacity.0);
    capacities.fold(0, u64::saturating_add)
}

/// Whether both belong to one iteration of the node.
fn is_one_step(one: Use, other: Use, future: &FutureAccesses) -> bool {
    let start = Use { place: 0, ..one };
    one.epoch == other.epoch
        && future.steps_between(start, one) == future.steps_between(start, other)
}

/// Steps until the next use. An unknown next use counts as an epoch away: that is its mean distance
/// if the trainer publishes the order of each epoch before it.
fn steps_until(sample: SampleId, now: Use, future: &FutureAccesses) -> u32 {
    match future.next_use(sample, now) {
        NextUse::At(next) => future.steps_between(now, next),
        NextUse::Later => future.spec().steps_per_epoch(),
        NextUse::Never => u32::MAX,
    }
}
