//! How many chunks each cache tier may hold now: its budget, adapted to what is free, less what is
//! lent to workloads.

use tierfeed_core::{id::TierId, tier::Kind, units::Bytes};
use tierfeed_prefetcher::budget::{Free, adapt};

use crate::places::{Layout, Place};

/// The limits of all tiers.
#[derive(Debug)]
pub(super) struct Limits {
    chunk: Bytes,
    tiers: Vec<Limit>,
}

#[derive(Debug)]
struct Limit {
    place: Place,
    /// Staging memory, which counts as held but not as cache.
    staging: Bytes,
    budget_chunks: u32,
    lent: u32,
    told: u32,
}

/// Whether tasks on this host wait for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pressure {
    /// Not so that it matters.
    Low,
    /// Enough to give memory back, whatever looks free.
    High,
}

/// A tier that may hold another number of chunks from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resize {
    pub(super) tier: TierId,
    pub(super) chunks_max: u32,
}

impl Limits {
    pub(super) fn of(layout: &Layout) -> Self {
        let limit = |place: &Place| {
            let chunks = chunks_in(place.cache, layout.chunk);
            Limit {
                place: place.clone(),
                staging: Bytes(place.budget.0 - place.cache.0),
                budget_chunks: chunks,
                lent: 0,
                told: chunks,
            }
        };
        Self { chunk: layout.chunk, tiers: layout.places.iter().map(limit).collect() }
    }

    /// The first CXL tier, from which memory is lent.
    pub(super) fn lender(&self) -> Option<(TierId, &Place)> {
        let at = self.tiers.iter().position(|it| it.place.settings.kind == Kind::CxlMemory)?;
        Some((TierId(u8::try_from(at).ok()?), &self.tiers[at].place))
    }

    /// Chunks that a tier may have now, lent ones included.
    pub(super) fn budget_chunks(&self, tier: TierId) -> u32 {
        self.tiers.get(usize::from(tier.0)).map_or(0, |limit| limit.budget_chunks)
    }

    /// Lends `chunks` of a tier in all.
    pub(super) fn lend(&mut self, tier: TierId, chunks: u32) -> Option<Resize> {
        self.tiers.get_mut(usize::from(tier.0))?.lent = chunks;
        self.resized(tier)
    }

    /// Fits the tiers that asked for a share to what is free. `held` are the bytes of each tier's
    /// cache, `free` says what is left in a tier's pool. Under pressure each gives a chunk back.
    pub(super) fn adapt(
        &mut self,
        held: &[Bytes],
        pressure: Pressure,
        free: impl Fn(&Place) -> Option<Free>,
    ) -> Vec<Resize> {
        let mut resized = Vec::new();
        for (at, held) in (0..).zip(held) {
            let Some(limit) = self.tiers.get_mut(usize::from(at)) else { break };
            if let (Some(share), Some(free)) = (limit.place.share, free(&limit.place)) {
                let cached = chunks_in(*held, self.chunk) + limit.lent;
                let lent = u64::from(limit.lent) * self.chunk.0;
                let held = Bytes(held.0 + limit.staging.0 + lent);
                let budget = adapt(share, held, free, self.chunk);
                let cache = Bytes(budget.0.saturating_sub(limit.staging.0));
                limit.budget_chunks = match pressure {
                    Pressure::Low => chunks_in(cache, self.chunk),
                    Pressure::High => chunks_in(cache, self.chunk).min(cached.saturating_sub(1)),
                };
            }
            resized.extend(self.resized(TierId(at)));
        }
        resized
    }

    fn resized(&mut self, tier: TierId) -> Option<Resize> {
        let limit = &mut self.tiers[usize::from(tier.0)];
        let chunks_max = limit.budget_chunks.saturating_sub(limit.lent);
        if chunks_max == limit.told {
            return None;
        }
        limit.told = chunks_max;
        Some(Resize { tier, chunks_max })
    }
}

pub(super) fn chunks_in(bytes: Bytes, chunk: Bytes) -> u32 {
    u32::try_from(bytes.0 / chunk.0.max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use tierfeed_core::{fleet::Origin, tier::Locality};
    use tierfeed_prefetcher::{
        budget::{Percent, Pool},
        tier::{Backing, TierSettings},
    };

    use super::*;

    const CHUNK: Bytes = Bytes::mib(1);

    fn place(kind: Kind, budget: u64, cache: u64, share: Option<u8>) -> Place {
        Place {
            settings: TierSettings {
                kind,
                backing: Backing::Memory(Locality::Anywhere),
                emulated: None,
                copy_threads: NonZeroUsize::MIN,
                cpus: Vec::new(),
            },
            budget: Bytes::mib(budget),
            cache: Bytes::mib(cache),
            pool: Pool(0),
            share: share.and_then(Percent::new),
            origin: Origin::Real,
        }
    }

    fn limits(places: Vec<Place>) -> Limits {
        Limits::of(&Layout { arena: Bytes(0), places, chunk: CHUNK })
    }

    fn resize(tier: u8, chunks_max: u32) -> Resize {
        Resize { tier: TierId(tier), chunks_max }
    }

    #[test]
    fn what_is_lent_the_cache_does_not_have() {
        let mut limits =
            limits(vec![place(Kind::MainMemory, 10, 4, None), place(Kind::CxlMemory, 8, 8, None)]);
        let (tier, _) = limits.lender().unwrap();
        assert_eq!(tier, TierId(1));
        assert_eq!(limits.lend(tier, 3), Some(resize(1, 5)));
        assert_eq!(limits.lend(tier, 3), None, "nothing is told twice");
        assert_eq!(limits.lend(tier, 0), Some(resize(1, 8)));
    }

    #[test]
    fn sizes_stay_and_shares_follow_what_is_free() {
        let mut limits = limits(vec![
            place(Kind::MainMemory, 20, 10, Some(20)),
            place(Kind::CxlMemory, 20, 20, None),
        ]);
        let held = [Bytes::mib(10), Bytes::mib(20)];
        let free = |mib, kept| {
            move |_: &Place| Some(Free { bytes: Bytes::mib(mib), kept: Bytes::mib(kept) })
        };
        assert_eq!(
            limits.adapt(&held, Pressure::Low, free(80, 5)),
            [],
            "20 of 100 MiB are held, as wanted"
        );
        assert_eq!(limits.adapt(&held, Pressure::Low, free(180, 5)), [resize(0, 30)]);
        assert_eq!(
            limits.adapt(&held, Pressure::Low, free(0, 5)),
            [resize(0, 0)],
            "staging alone is too much"
        );
        assert_eq!(
            limits.adapt(&held, Pressure::Low, |_| None),
            [],
            "what cannot be measured stays"
        );
    }

    #[test]
    fn under_pressure_a_share_gives_a_chunk_back_at_a_time() {
        let mut limits = limits(vec![place(Kind::MainMemory, 20, 10, Some(20))]);
        let plenty = |_: &Place| Some(Free { bytes: Bytes::mib(500), kept: Bytes::mib(5) });
        let held = [Bytes::mib(10)];
        assert_eq!(limits.adapt(&held, Pressure::High, plenty), [resize(0, 9)]);
        let held = [Bytes::mib(9)];
        assert_eq!(limits.adapt(&held, Pressure::High, plenty), [resize(0, 8)]);
    }

    #[test]
    fn a_node_without_cxl_memory_lends_none() {
        assert!(limits(vec![place(Kind::MainMemory, 10, 4, None)]).lender().is_none());
    }
}
