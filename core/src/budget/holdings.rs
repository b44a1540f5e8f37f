//! Decides, at each reading, how much memory a job gives back to its node and how much it takes again.
//!
//! A pool is short when less is free in it than its reserve, or when tasks wait for memory (PSI) while it has
//! little to spare. Then cached chunks are dropped, those of the slowest tier first, until the missing bytes
//! are covered; bytes that are already being given back count. When the pool has no chunk left, fewer
//! batches are staged. A tier loses the part of its allowance that it does not use at once. When all pools
//! have been calm for a while, staging grows back first, a batch at a time, then the caches, fastest first.
//! Between short and calm nothing changes (hysteresis), so sizes do not oscillate. A tier that asked for a
//! share also follows the free bytes, as [`adapt`] says: memory that the job itself takes shrinks it long
//! before a pool is short.
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
//! 4. Growth leaves the reserve of the pool free.

use alloc::{collections::BTreeMap, vec, vec::Vec};

use super::{Free, Percent, Pool, adapt};
use crate::{
    id::TierId,
    tier::Kind,
    units::{Bytes, Nanoseconds},
};

/// How long all pools must have been calm before anything grows.
const CALM_FOR: Nanoseconds = Nanoseconds(5_000_000_000);

const GROW_EVERY: Nanoseconds = Nanoseconds(1_000_000_000);

/// A pool is short if tasks wait for memory for more than this share of the time.
const WAITING_MAX: Percent = Percent(10);

/// A pool is calm only if tasks wait for memory for at most this share of the time.
const WAITING_CALM: Percent = Percent(2);

/// From this multiple of the reserve on, a pool is not why tasks wait for memory: they wait because of a
/// limit of their own cgroup.
const PLENTY: u64 = 4;

/// The most that other processes take of a pool between two readings.
const SURGE: Bytes = Bytes::mib(4096);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierLimit {
    pub kind: Kind,
    pub pool: Pool,
    /// The share that it asked for; `None` for a fixed size.
    pub share: Option<Percent>,
    /// Bytes of staging that the same share covers.
    pub beside: Bytes,
    /// Chunks of its cache at the start.
    pub chunks: u32,
    /// The most chunks that its cache may have: its size, or as many as the plan can use.
    pub chunks_max: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagingLimit {
    pub pool: Pool,
    /// Batches for each rank, as planned.
    pub batches: u32,
    pub batches_min: u32,
    /// The size of one batch of all ranks together.
    pub batch: Bytes,
}

#[derive(Debug, Clone)]
pub struct Reading {
    /// On a monotonic clock.
    pub now: Nanoseconds,
    /// Time in which some task waited for memory, since the start of the system; `None` if the kernel does
    /// not count it.
    pub waited: Option<Nanoseconds>,
    /// Free bytes by pool. A pool that could not be read is left out, and its tiers keep their size.
    pub free: BTreeMap<Pool, Free>,
    /// Held bytes, in the order of the limits.
    pub tiers: Vec<TierReading>,
    pub staging: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierReading {
    /// Size of all chunks of its cache.
    pub held: Bytes,
    /// Chunks that its cache may have now: fewer than allowed after an allocation was refused.
    pub chunks_max: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The pool was short of its reserve by this many bytes.
    Short(Bytes),
    /// Tasks waited for memory for this share of the time.
    Waiting(Percent),
    /// The share of what is free became smaller.
    Share,
    /// The allocation of a chunk was refused.
    Refused,
    Calm,
    /// Other workloads borrowed chunks of the tier or returned them.
    Lent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    pub step: Step,
    pub reason: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The limit of the cache of a tier, in chunks.
    Cache { tier: TierId, from: u32, to: u32 },
    /// The limit of staging, in batches for each rank.
    Staging { from: u32, to: u32 },
}

/// The least and the most that the cache of a tier might hold so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheRange {
    pub least: Bytes,
    pub most: Bytes,
}

#[derive(Debug, Clone)]
pub struct Holdings {
    chunk: Bytes,
    staging: StagingLimit,
    tiers: Vec<Tier>,
    batches: u32,
    /// The time of the last reading that was not calm.
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
    /// The least and the most chunks that its cache might have so far.
    least: u32,
    most: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Short(Bytes, Reason),
    Tight,
    Calm,
}

pub(super) fn is_waiting_for_memory(free: Free, waiting: Option<Percent>) -> bool {
    waiting_in(free, waiting) > WAITING_MAX
}

fn waiting_in(free: Free, waiting: Option<Percent>) -> Percent {
    let has_plenty = free.bytes.0 >= free.kept.0.saturating_mul(PLENTY);
    waiting.filter(|_| !has_plenty).unwrap_or(Percent(0))
}

impl Holdings {
    #[must_use]
    pub fn new(chunk: Bytes, staging: StagingLimit, tiers: &[TierLimit]) -> Self {
        let tier = |limit: &TierLimit| {
            let chunks = limit.chunks;
            Tier { limit: *limit, budget: chunks, lent: 0, least: chunks, most: chunks }
        };
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

    /// Chunks that a tier may have now, including lent ones.
    #[must_use]
    pub fn budget_chunks(&self, tier: TierId) -> u32 {
        self.tiers.get(usize::from(tier.0)).map_or(0, |tier| tier.budget)
    }

    /// The bytes that the cache of each tier may hold now, lent ones included.
    pub fn rooms(&self) -> impl Iterator<Item = (Kind, Bytes)> {
        self.tiers.iter().map(|tier| (tier.limit.kind, bytes_of(tier.budget, self.chunk)))
    }

    pub fn ranges(&self) -> impl Iterator<Item = CacheRange> {
        self.tiers.iter().map(|tier| CacheRange {
            least: bytes_of(tier.least, self.chunk),
            most: bytes_of(tier.most, self.chunk),
        })
    }

    /// The first CXL tier, from which memory is lent.
    #[must_use]
    pub fn lender(&self) -> Option<TierId> {
        let at = self.tiers.iter().position(|tier| tier.limit.kind == Kind::CxlMemory)?;
        u8::try_from(at).ok().map(TierId)
    }

    /// Batches that each rank may have staged now.
    #[must_use]
    pub fn batches(&self) -> u32 {
        self.batches
    }

    /// Whether others may take all that is left of the memory of a cache before the next reading.
    #[must_use]
    pub fn may_run_short(&self, reading: &Reading) -> bool {
        let held = self.tiers.iter().zip(&reading.tiers);
        let mut caches =
            held.filter(|(tier, now)| now.held.0 > 0 && tier.limit.kind != Kind::Storage);
        caches.any(|(tier, _)| {
            let free = reading.free.get(&tier.limit.pool);
            free.is_some_and(|free| free.bytes.0 < free.kept.0.saturating_add(SURGE.0))
        })
    }

    /// The share of the time for which tasks waited for memory between the last two readings; `None` if
    /// it is not known.
    #[must_use]
    pub fn waiting(&self) -> Option<Percent> {
        self.waiting
    }

    /// Sets the number of chunks that a tier lends in total.
    pub fn lend(&mut self, tier: TierId, chunks: u32) -> Option<Change> {
        let limited = self.tiers.get_mut(usize::from(tier.0))?;
        let from = limited.cache();
        limited.lent = chunks;
        limited.note_range();
        let to = limited.cache();
        let step = Step::Cache { tier, from, to };
        (from != to).then_some(Change { step, reason: Reason::Lent })
    }

    /// Adapts the limits to a reading; returns the changes.
    pub fn read(&mut self, reading: &Reading) -> Vec<Change> {
        self.waiting = self.waiting_since_last(reading);
        let before: Vec<u32> = self.tiers.iter().map(Tier::cache).collect();
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
        self.tiers.iter_mut().for_each(Tier::note_range);
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
        let waiting = waiting_in(free, self.waiting);
        if waiting > WAITING_MAX {
            return Level::Short(self.chunk, Reason::Waiting(waiting));
        }
        let is_calm = free.bytes >= calm_from(free) && waiting <= WAITING_CALM;
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

    /// Takes chunks from the caches of a pool. Returns the bytes that are still missing.
    fn cut_caches(
        &mut self,
        pool: Pool,
        missing: Bytes,
        reason: Reason,
        reading: &Reading,
        reasons: &mut [Option<Reason>],
    ) -> Bytes {
        let chunk = self.chunk;
        let returning = self.staging_returning(pool, reading);
        let of_pool = |tier: &Tier| tier.limit.pool == pool;
        let mut caches: Vec<_> = self.tiers.iter_mut().zip(&reading.tiers).zip(reasons).collect();
        caches.retain(|((tier, _), _)| of_pool(tier));
        let mut missing = missing.0.saturating_sub(returning);
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

    /// Bytes that staging still holds above its limit and is about to give back.
    fn staging_returning(&self, pool: Pool, reading: &Reading) -> u64 {
        let is_here = self.staging.pool == pool && self.batches < self.staging.batches;
        let allowed = u64::from(self.batches).saturating_mul(self.staging.batch.0);
        if is_here { reading.staging.0.saturating_sub(allowed) } else { 0 }
    }

    /// Reduces staging if the pool has no chunk left to give. Returns whether it did.
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

    fn follow_share(
        &mut self,
        pool: Pool,
        free: Free,
        reading: &Reading,
        reasons: &mut [Option<Reason>],
    ) {
        let (chunk, of_shares) = (self.chunk, self.held_by_shares(pool, reading));
        for ((tier, now), reason) in self.tiers.iter_mut().zip(&reading.tiers).zip(reasons) {
            let budget = tier.share_of(*now, of_shares, free, chunk);
            let Some(budget) = budget.filter(|_| tier.limit.pool == pool) else {
                continue;
            };
            if budget < tier.budget {
                tier.budget = budget;
                reason.get_or_insert(Reason::Share);
            }
        }
    }

    fn held_by_shares(&self, pool: Pool, reading: &Reading) -> Bytes {
        let tiers = self.tiers.iter().zip(&reading.tiers);
        let of_shares =
            tiers.filter(|(tier, _)| tier.limit.pool == pool && tier.limit.share.is_some());
        Bytes(of_shares.map(|(tier, now)| tier.held(*now, self.chunk).0).sum())
    }

    /// Bytes that are allowed in a pool but not held yet.
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

    /// Grows staging by one batch, or else the first cache that is below its limit.
    fn grow(&mut self, reading: &Reading, reasons: &mut [Option<Reason>]) {
        let spare: BTreeMap<Pool, u64> = reading
            .free
            .iter()
            .map(|(pool, free)| {
                let taken = calm_from(*free).0.saturating_add(self.yet_to_come(*pool, reading));
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
        let pools = reading.free.keys();
        let of_shares: BTreeMap<Pool, Bytes> =
            pools.map(|pool| (*pool, self.held_by_shares(*pool, reading))).collect();
        for ((tier, now), reason) in self.tiers.iter_mut().zip(&reading.tiers).zip(reasons) {
            let pool = tier.limit.pool;
            let (Some(free), Some(of_shares)) = (reading.free.get(&pool), of_shares.get(&pool))
            else {
                continue;
            };
            let chunks = tier.share_of(*now, *of_shares, *free, chunk);
            let wanted = chunks.unwrap_or(tier.limit.chunks_max);
            let missing = wanted.min(tier.limit.chunks_max).saturating_sub(tier.budget);
            // A quarter of the difference at a time: reaches any size soon and shows early if it is too much.
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
    /// Chunks of the cache, without lent ones.
    fn cache(&self) -> u32 {
        self.budget.saturating_sub(self.lent)
    }

    fn note_range(&mut self) {
        (self.least, self.most) = (self.least.min(self.cache()), self.most.max(self.cache()));
    }

    /// Bytes of its share that are taken: its chunks, lent ones, and staging.
    fn held(&self, now: TierReading, chunk: Bytes) -> Bytes {
        let lent = u64::from(self.lent) * chunk.0;
        Bytes(now.held.0 + self.limit.beside.0 + lent)
    }

    /// The chunks of its share now; `None` for a fixed size. `of_shares` is what all tiers with a share of
    /// the same pool hold together.
    fn share_of(
        &self,
        now: TierReading,
        of_shares: Bytes,
        free: Free,
        chunk: Bytes,
    ) -> Option<u32> {
        let share = self.limit.share?;
        let held = self.held(now, chunk);
        let others = Bytes(of_shares.0.saturating_sub(held.0));
        let budget = adapt(share, held, others, free, chunk);
        if budget == held {
            // Within the noise: the budget stays.
            return Some(self.budget);
        }
        Some(chunks_in(Bytes(budget.0.saturating_sub(self.limit.beside.0)), chunk))
    }
}

fn calm_from(free: Free) -> Bytes {
    Bytes(free.kept.0.saturating_add(free.kept.0 / 4))
}

fn bytes_of(chunks: u32, chunk: Bytes) -> Bytes {
    Bytes(u64::from(chunks).saturating_mul(chunk.0))
}

/// The most chunks that a cache may have: one with a share grows to the bytes that are `useful`.
#[must_use]
pub fn chunks_max(cache: Bytes, share: Option<Percent>, useful: Bytes, chunk: Bytes) -> u32 {
    let chunks = chunks_in(cache, chunk);
    // One chunk more than the bytes need, for samples that do not fit at the end of a chunk.
    let of_use = chunks_in(useful, chunk).saturating_add(2);
    if share.is_some() { chunks.max(of_use) } else { chunks }
}

/// The whole chunks in `bytes`.
#[must_use]
pub fn chunks_in(bytes: Bytes, chunk: Bytes) -> u32 {
    u32::try_from(bytes.0 / chunk.0.max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
