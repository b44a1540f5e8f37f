//! How many chunks each cache tier may hold now, and how many batches may be staged: what the job asks,
//! adapted to what is free, less what is lent to workloads.

use tierfeed_core::{
    fleet,
    id::TierId,
    session::{STAGED_MIN, Settings},
    tier::Kind,
    units::Bytes,
};
use tierfeed_prefetcher::budget::{Change, Holdings, Percent, Reading, StagingLimit, TierLimit};

use crate::places::{self, Layout, Place};

/// The limits of all tiers and of staging.
#[derive(Debug)]
pub(super) struct Limits {
    places: Vec<Place>,
    holdings: Holdings,
}

impl Limits {
    /// As `layout` begins, for a session with these settings.
    pub(super) fn of(layout: &Layout, settings: &Settings) -> Self {
        let dataset = settings.sizes.iter().fold(0, |sum: u64, len| sum.saturating_add(len.0));
        let limit = |(at, place): (usize, &Place)| {
            let chunks = chunks_in(place.cache, layout.chunk);
            let useful =
                settings.aim.useful.get(at).map_or(dataset, |useful| useful.0.min(dataset));
            // One more than the bytes need, for what does not fit where a chunk ends.
            let of_use = chunks_in(Bytes(useful), layout.chunk).saturating_add(2);
            TierLimit {
                pool: place.pool,
                share: place.share,
                beside: Bytes(place.budget.0 - place.cache.0),
                chunks,
                chunks_max: if place.share.is_some() { chunks.max(of_use) } else { chunks },
            }
        };
        let tiers: Vec<TierLimit> = layout.places.iter().enumerate().map(limit).collect();
        let ranks = u64::from(settings.order.world.ranks_per_node);
        let batches = settings.staged_batches.max(STAGED_MIN);
        let staging = StagingLimit {
            pool: places::MEMORY,
            batches,
            batches_min: STAGED_MIN,
            batch: Bytes(layout.arena.0.saturating_mul(ranks) / u64::from(batches)),
        };
        let holdings = Holdings::new(layout.chunk, staging, &tiers);
        Self { places: layout.places.clone(), holdings }
    }

    /// The first CXL tier, from which memory is lent.
    pub(super) fn lender(&self) -> Option<(TierId, &Place)> {
        let at = self.places.iter().position(|it| it.settings.kind == Kind::CxlMemory)?;
        Some((TierId(u8::try_from(at).ok()?), &self.places[at]))
    }

    /// What can be lent, as the ledger counts it: of several CXL tiers the first.
    pub(super) fn lends(&self) -> Vec<fleet::Tier> {
        self.lender().map(|(_, place)| place.offer()).into_iter().collect()
    }

    /// Chunks that a tier may have now, lent ones included.
    pub(super) fn budget_chunks(&self, tier: TierId) -> u32 {
        self.holdings.budget_chunks(tier)
    }

    /// Batches that each rank may have staged now.
    pub(super) fn batches(&self) -> u32 {
        self.holdings.batches()
    }

    /// For how much of the time tasks of this host waited for memory of late.
    pub(super) fn waiting(&self) -> Option<Percent> {
        self.holdings.waiting()
    }

    /// Lends `chunks` of a tier in all.
    pub(super) fn lend(&mut self, tier: TierId, chunks: u32) -> Option<Change> {
        self.holdings.lend(tier, chunks)
    }

    /// Fits everything to what is free.
    pub(super) fn read(&mut self, reading: &Reading) -> Vec<Change> {
        self.holdings.read(reading)
    }
}

pub(super) fn chunks_in(bytes: Bytes, chunk: Bytes) -> u32 {
    u32::try_from(bytes.0 / chunk.0.max(1)).unwrap_or(u32::MAX)
}
