//! Decides, reading by reading, what a job gives back to its node and what it takes again.
//!
//! A pool is short when less is free in it than must stay free, or when tasks wait for memory while it
//! has little to spare. Then cached chunks go, those of the slowest tier first, as many as are missing;
//! what was given back and is still on its way counts. When no chunk of the pool is left, fewer batches
//! are staged. What a tier was allowed and does not use it loses at once. When all pools have been calm
//! for a while, staging grows back first, a batch at a time, then the caches, fastest first. Between
//! short and calm nothing changes, so that nothing flaps. A tier that asked for a share also follows what
//! is free, as [`adapt`] says: what the job itself takes makes it smaller long before anything is short.
//!
//! Pure: readings and their time are arguments.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. A tier never has more chunks than [`TierLimit::chunks_max`], staging never more batches than
//!    [`StagingLimit::batches`].
//! 2. Staging is cut only when its pool has no cached chunk left, and never below
//!    [`StagingLimit::batches_min`].
//! 3. Nothing grows before [`CALM_FOR`] has passed since the last reading that was not calm.
//! 4. What grows leaves free what must stay free.

use std::collections::BTreeMap;

use tierfeed_core::{
    id::TierId,
    units::{Bytes, Nanoseconds},
};

use super::{Free, Percent, Pool, adapt};

/// How long all pools must have been calm before anything grows.
pub const CALM_FOR: Nanoseconds = Nanoseconds(5_000_000_000);

/// How far apart two steps of growth are.
pub const GROW_EVERY: Nanoseconds = Nanoseconds(1_000_000_000);

/// Tasks that wait for memory for more than this share of the time need some of ours.
const WAITING_MAX: Percent = Percent(10);

/// Below this share of the time nobody needs more.
const WAITING_CALM: Percent = Percent(2);

/// Where this many times what must stay free is free, those who wait do so for a limit of their own.
const PLENTY: u64 = 4;

/// A tier as it is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierLimit {
    /// What it draws on.
    pub pool: Pool,
    /// The share that it asked for; `None` if it asked for a size.
    pub share: Option<Percent>,
    /// What it has besides its cache, by the same share: staging.
    pub beside: Bytes,
    /// Chunks that its cache has at first.
    pub chunks: u32,
    /// Chunks that its cache may ever have: its size, or what the plan can use.
    pub chunks_max: u32,
}

/// Staging as it is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagingLimit {
    /// What it draws on.
    pub pool: Pool,
    /// Batches for each rank, as planned.
    pub batches: u32,
    /// As few as are left under pressure.
    pub batches_min: u32,
    /// What one batch of all ranks together takes.
    pub batch: Bytes,
}

/// What is held and what is left at one time.
#[derive(Debug, Clone)]
pub struct Reading {
    /// On a clock that does not go back.
    pub now: Nanoseconds,
    /// Time in which some task waited for memory, since the start of the system; `None` where nobody
    /// counts.
    pub waited: Option<Nanoseconds>,
    /// What is left, by pool; a pool that could not be read is left out, and its tiers stay.
    pub free: BTreeMap<Pool, Free>,
    /// What each tier holds.
    pub tiers: Vec<TierReading>,
    /// What staging holds.
    pub staging: Bytes,
}

/// What one tier holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierReading {
    /// Bytes of its cache.
    pub held: Bytes,
    /// Chunks that its cache may have now: fewer than were allowed if one was refused.
    pub chunks_max: u32,
}

/// Why something changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// So much was missing of what must stay free.
    Short(Bytes),
    /// Tasks waited for memory for this share of the time.
    Waiting(Percent),
    /// The share of what is free became smaller.
    Share,
    /// A chunk was refused.
    Refused,
    /// All was calm for a while.
    Calm,
    /// Workloads borrow from the tier, or gave back.
    Lent,
}

/// One change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// What.
    pub step: Step,
    /// Why.
    pub reason: Reason,
}

/// What is allowed from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// To a cache.
    Cache {
        /// Of which tier.
        tier: TierId,
        /// Chunks before.
        from: u32,
        /// Chunks now.
        to: u32,
    },
    /// To staging, for each rank.
    Staging {
        /// Batches before.
        from: u32,
        /// Batches now.
        to: u32,
    },
}

/// What a job may hold, and how that changes.
#[derive(Debug, Clone)]
pub struct Holdings {
    chunk: Bytes,
    staging: StagingLimit,
    tiers: Vec<Tier>,
    batches: u32,
    /// The last reading that was not calm.
    troubled_at: Nanoseconds,
    grown_at: Nanoseconds,
    last: Option<(Nanoseconds, Nanoseconds)>,
    waiting: Option<Percent>,
}

#[derive(Debug, Clone, Copy)]
struct Tier {
    limit: TierLimit,
    /// Chunks of cache and loans together.
    budget: u32,
    lent: u32,
}

/// How much a pool has to spare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Short(Bytes, Reason),
    Tight,
    Calm,
}

impl Holdings {
    /// Begins with what each tier has at first and staging as planned.
    #[must_use]
    pub fn new(chunk: Bytes, staging: StagingLimit, tiers: &[TierLimit]) -> Self {
        let tier = |limit: &TierLimit| Tier { limit: *limit, budget: limit.chunks, lent: 0 };
        Self {
            chunk: Bytes(chunk.0.max(1)),
            staging,
            tiers: tiers.iter().map(tier).collect(),
            batches: staging.batches,
            troubled_at: Nanoseconds(0),
            grown_at: Nanoseconds(0),
            last: None,
            waiting: None,
        }
    }

    /// Chunks that a tier may have now, lent ones included.
    #[must_use]
    pub fn budget_chunks(&self, tier: TierId) -> u32 {
        self.tiers.get(usize::from(tier.0)).map_or(0, |tier| tier.budget)
    }

    /// Batches that each rank may have staged.
    #[must_use]
    pub fn batches(&self) -> u32 {
        self.batches
    }

    /// The share of the time for which tasks waited for memory between the last two readings.
    #[must_use]
    pub fn waiting(&self) -> Option<Percent> {
        self.waiting
    }

    /// Lends `chunks` of a tier in all.
    pub fn lend(&mut self, tier: TierId, chunks: u32) -> Option<Change> {
        let limited = self.tiers.get_mut(usize::from(tier.0))?;
        let from = limited.cache();
        limited.lent = chunks;
        let to = limited.cache();
        let step = Step::Cache { tier, from, to };
        (from != to).then_some(Change { step, reason: Reason::Lent })
    }

    /// Takes note of a reading, and says what changes.
    pub fn read(&mut self, reading: &Reading) -> Vec<Change> {
        self.waiting = self.waiting_since_last(reading);
        let before: Vec<u32> = self.tiers.iter().map(|tier| tier.cache()).collect();
        let batches = self.batches;
        let mut reasons: Vec<Option<Reason>> = vec![None; self.tiers.len()];
        self.accept_refusals(reading, &mut reasons);
        let mut staging_reason = Reason::Calm;
        let mut is_calm = true;
        for (pool, free) in &reading.free {
            match self.level(*free) {
                Level::Short(missing, reason) => {
                    is_calm = false;
                    let left = self.cut_caches(*pool, missing, reason, reading, &mut reasons);
                    if self.cut_staging(*pool, left, reading) {
                        staging_reason = reason;
                    }
                }
                Level::Tight => is_calm = false,
                Level::Calm => {}
            }
            self.follow_share(*pool, *free, reading, &mut reasons);
        }
        if !is_calm || reasons.contains(&Some(Reason::Refused)) {
            self.troubled_at = reading.now;
        }
        let calm_for = reading.now.0.saturating_sub(self.troubled_at.0);
        let since_growth = reading.now.0.saturating_sub(self.grown_at.0);
        if calm_for >= CALM_FOR.0 && since_growth >= GROW_EVERY.0 {
            self.grow(reading, &mut reasons);
        }
        let cache = |((at, before), reason): ((u8, u32), Option<Reason>)| {
            let (tier, to) = (TierId(at), self.tiers[usize::from(at)].cache());
            let step = Step::Cache { tier, from: before, to };
            (before != to).then_some(Change { step, reason: reason.unwrap_or(Reason::Share) })
        };
        let caches = (0_u8..).zip(before).zip(reasons).filter_map(cache);
        let step = Step::Staging { from: batches, to: self.batches };
        let staging = Change { step, reason: staging_reason };
        caches.chain((batches != self.batches).then_some(staging)).collect()
    }

    fn waiting_since_last(&mut self, reading: &Reading) -> Option<Percent> {
        let waited = reading.waited?;
        let (then, before) = self.last.replace((reading.now, waited))?;
        let passed = reading.now.0.checked_sub(then.0).filter(|passed| *passed > 0)?;
        let share = u128::from(waited.0.saturating_sub(before.0)) * 100 / u128::from(passed);
        Some(Percent(u8::try_from(share.min(100)).unwrap_or(100)))
    }

    fn level(&self, free: Free) -> Level {
        let missing = free.kept.0.saturating_sub(free.bytes.0);
        if missing > 0 {
            return Level::Short(Bytes(missing), Reason::Short(Bytes(missing)));
        }
        let has_plenty = free.bytes.0 >= free.kept.0.saturating_mul(PLENTY);
        let waiting = self.waiting.filter(|_| !has_plenty).unwrap_or(Percent(0));
        if waiting > WAITING_MAX {
            return Level::Short(self.chunk, Reason::Waiting(waiting));
        }
        let is_calm = free.bytes >= roomy(free) && waiting <= WAITING_CALM;
        if is_calm { Level::Calm } else { Level::Tight }
    }

    fn accept_refusals(&mut self, reading: &Reading, reasons: &mut [Option<Reason>]) {
        for ((tier, now), reason) in self.tiers.iter_mut().zip(&reading.tiers).zip(reasons) {
            if now.chunks_max < tier.cache() {
                tier.budget = now.chunks_max + tier.lent;
                *reason = Some(Reason::Refused);
            }
        }
    }

    /// Takes chunks from the caches of a pool. Returns what is still missing.
    fn cut_caches(
        &mut self,
        pool: Pool,
        missing: Bytes,
        reason: Reason,
        reading: &Reading,
        reasons: &mut [Option<Reason>],
    ) -> Bytes {
        let chunk = self.chunk;
        let on_its_way = self.staging_on_its_way(pool, reading);
        let of_pool = |tier: &Tier| tier.limit.pool == pool;
        let mut caches: Vec<_> = self.tiers.iter_mut().zip(&reading.tiers).zip(reasons).collect();
        caches.retain(|((tier, _), _)| of_pool(tier));
        let mut missing = missing.0.saturating_sub(on_its_way);
        for ((tier, now), why) in &mut caches {
            let used = chunks_in(Bytes(now.held.0.div_ceil(chunk.0) * chunk.0), chunk);
            if used < tier.cache() {
                tier.budget = used + tier.lent;
                **why = Some(reason);
            }
            let allowed = u64::from(tier.cache()) * chunk.0;
            missing = missing.saturating_sub(now.held.0.saturating_sub(allowed));
        }
        for ((tier, _), why) in caches.iter_mut().rev() {
            let wanted = u32::try_from(missing.div_ceil(chunk.0)).unwrap_or(u32::MAX);
            let taken = tier.cache().min(wanted);
            if taken > 0 {
                tier.budget -= taken;
                missing = missing.saturating_sub(u64::from(taken) * chunk.0);
                **why = Some(reason);
            }
        }
        Bytes(missing)
    }

    /// What staging holds and is about to give back.
    fn staging_on_its_way(&self, pool: Pool, reading: &Reading) -> u64 {
        let is_here = self.staging.pool == pool && self.batches < self.staging.batches;
        let allowed = u64::from(self.batches).saturating_mul(self.staging.batch.0);
        if is_here { reading.staging.0.saturating_sub(allowed) } else { 0 }
    }

    /// Stages less where no chunk is left that could be given. Returns whether it does.
    fn cut_staging(&mut self, pool: Pool, missing: Bytes, reading: &Reading) -> bool {
        let StagingLimit { pool: own, batches_min, batch, .. } = self.staging;
        let holds_chunks = |(tier, now): (&Tier, &TierReading)| {
            tier.limit.pool == pool && (tier.cache() > 0 || now.held.0 > 0)
        };
        let has_chunks = self.tiers.iter().zip(&reading.tiers).any(holds_chunks);
        if pool != own || missing.0 == 0 || has_chunks || self.batches <= batches_min {
            return false;
        }
        let wanted = missing.0.div_ceil(batch.0.max(1));
        let cut = u32::try_from(wanted).unwrap_or(u32::MAX);
        self.batches = self.batches.saturating_sub(cut).max(batches_min);
        true
    }

    /// Makes the tiers of a pool that asked for a share as small as that has become.
    fn follow_share(
        &mut self,
        pool: Pool,
        free: Free,
        reading: &Reading,
        reasons: &mut [Option<Reason>],
    ) {
        let chunk = self.chunk;
        for ((tier, now), reason) in self.tiers.iter_mut().zip(&reading.tiers).zip(reasons) {
            let Some(budget) = tier.share_of(*now, free, chunk).filter(|_| tier.limit.pool == pool)
            else {
                continue;
            };
            if budget < tier.budget {
                tier.budget = budget;
                reason.get_or_insert(Reason::Share);
            }
        }
    }

    /// What was allowed in a pool and is not held yet.
    fn yet_to_come(&self, pool: Pool, reading: &Reading) -> u64 {
        let of_tier = |(tier, now): (&Tier, &TierReading)| {
            let allowed = u64::from(tier.cache()).saturating_mul(self.chunk.0);
            let is_here = tier.limit.pool == pool;
            if is_here { allowed.saturating_sub(now.held.0) } else { 0 }
        };
        let of_tiers: u64 = self.tiers.iter().zip(&reading.tiers).map(of_tier).sum();
        let allowed = u64::from(self.batches).saturating_mul(self.staging.batch.0);
        let of_staging =
            if self.staging.pool == pool { allowed.saturating_sub(reading.staging.0) } else { 0 };
        of_tiers.saturating_add(of_staging)
    }

    /// Gives staging a batch back, or else the caches some chunks.
    fn grow(&mut self, reading: &Reading, reasons: &mut [Option<Reason>]) {
        let spare: BTreeMap<Pool, u64> = reading
            .free
            .iter()
            .map(|(pool, free)| {
                let taken = roomy(*free).0.saturating_add(self.yet_to_come(*pool, reading));
                (*pool, free.bytes.0.saturating_sub(taken))
            })
            .collect();
        if self.batches < self.staging.batches {
            if spare.get(&self.staging.pool).is_some_and(|spare| *spare >= self.staging.batch.0) {
                self.batches += 1;
                self.grown_at = reading.now;
            }
            return;
        }
        let chunk = self.chunk;
        for ((tier, now), reason) in self.tiers.iter_mut().zip(&reading.tiers).zip(reasons) {
            let Some(free) = reading.free.get(&tier.limit.pool) else { continue };
            let wanted = tier.share_of(*now, *free, chunk).unwrap_or(tier.limit.chunks_max);
            let missing = wanted.min(tier.limit.chunks_max).saturating_sub(tier.budget);
            // A quarter at a time reaches any size soon, and shows early if it was too much.
            let spare = spare.get(&tier.limit.pool).copied().unwrap_or(0);
            let room = chunks_in(Bytes(spare), chunk);
            let step = missing.div_ceil(4).min(room);
            if step > 0 {
                tier.budget += step;
                *reason = Some(Reason::Calm);
                self.grown_at = reading.now;
                return;
            }
        }
    }
}

impl Tier {
    /// Chunks of the cache alone.
    fn cache(&self) -> u32 {
        self.budget.saturating_sub(self.lent)
    }

    /// The chunks that its share comes to now, or `None` of a tier that asked for a size.
    fn share_of(&self, now: TierReading, free: Free, chunk: Bytes) -> Option<u32> {
        let share = self.limit.share?;
        let lent = u64::from(self.lent) * chunk.0;
        let held = Bytes(now.held.0 + self.limit.beside.0 + lent);
        let budget = adapt(share, held, free, chunk);
        if budget == held {
            // Noise: what it has been allowed stays.
            return Some(self.budget);
        }
        Some(chunks_in(Bytes(budget.0.saturating_sub(self.limit.beside.0)), chunk))
    }
}

/// What must be free for a pool to be calm.
fn roomy(free: Free) -> Bytes {
    Bytes(free.kept.0.saturating_add(free.kept.0 / 4))
}

fn chunks_in(bytes: Bytes, chunk: Bytes) -> u32 {
    u32::try_from(bytes.0 / chunk.0.max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
