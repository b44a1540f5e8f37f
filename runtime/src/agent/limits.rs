//! How many chunks each cache tier may hold now, and how many batches may be staged: the job's budgets,
//! adapted to free memory, minus what is lent to workloads.

use tierfeed_core::{
    budget::{Change, Holdings, Percent, Reading, StagingLimit, Step, TierLimit},
    id::TierId,
    session::{STAGED_MIN, Settings},
    tier::Kind,
    units::Bytes,
};

use crate::layout::{self, Layout, TierLayout};

#[derive(Debug)]
pub(super) struct Limits {
    tiers: Vec<TierLayout>,
    holdings: Holdings,
    chunk: Bytes,
    /// By tier, so far.
    ranges: Vec<CacheRange>,
}

/// The least and the most that the cache of a tier might hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CacheRange {
    pub(super) least: Bytes,
    pub(super) most: Bytes,
}

impl Limits {
    pub(super) fn of(layout: &Layout, settings: &Settings) -> Self {
        let dataset = settings.sizes.iter().fold(0, |sum: u64, len| sum.saturating_add(len.0));
        let limit = |(at, tier): (usize, &TierLayout)| {
            let chunks = chunks_in(tier.cache, layout.chunk);
            let useful =
                settings.aim.useful.get(at).map_or(dataset, |useful| useful.0.min(dataset));
            // One chunk more than the bytes need, for samples that do not fit at the end of a chunk.
            let of_use = chunks_in(Bytes(useful), layout.chunk).saturating_add(2);
            TierLimit {
                pool: tier.pool,
                share: tier.share,
                beside: Bytes(tier.budget.0 - tier.cache.0),
                chunks,
                chunks_max: if tier.share.is_some() { chunks.max(of_use) } else { chunks },
            }
        };
        let tiers: Vec<TierLimit> = layout.tiers.iter().enumerate().map(limit).collect();
        let ranks = u64::from(settings.order.world.ranks_per_node);
        let batches = settings.staged_max().max(STAGED_MIN);
        let staging = StagingLimit {
            pool: layout::MEMORY,
            batches,
            batches_min: STAGED_MIN,
            batch: Bytes(layout.staged.arena.0.saturating_mul(ranks) / u64::from(batches)),
        };
        let holdings = Holdings::new(layout.chunk, staging, &tiers);
        let range = |tier: &TierLayout| CacheRange { least: tier.cache, most: tier.cache };
        let ranges = layout.tiers.iter().map(range).collect();
        Self { tiers: layout.tiers.clone(), holdings, chunk: layout.chunk, ranges }
    }

    pub(super) fn ranges(&self) -> &[CacheRange] {
        &self.ranges
    }

    /// The bytes that the cache of each tier may hold now, in the order of the tiers.
    pub(super) fn rooms(&self) -> Vec<(Kind, Bytes)> {
        let room = |(at, tier): (u8, &TierLayout)| {
            let chunks = u64::from(self.budget_chunks(TierId(at)));
            (tier.settings.kind, Bytes(chunks.saturating_mul(self.chunk.0)))
        };
        (0..=u8::MAX).zip(&self.tiers).map(room).collect()
    }

    /// The first CXL tier, from which memory is lent.
    pub(super) fn lender(&self) -> Option<(TierId, &TierLayout)> {
        let at = self.tiers.iter().position(|it| it.settings.kind == Kind::CxlMemory)?;
        Some((TierId(u8::try_from(at).ok()?), &self.tiers[at]))
    }

    /// The tier whose memory can be lent, as the ledger counts it: the first CXL tier.
    pub(super) fn lends(&self) -> Option<(Kind, Bytes)> {
        // What staging takes of the tier is not lent.
        self.lender().map(|(_, tier)| (tier.settings.kind, tier.cache))
    }

    /// Chunks that a tier may have now, lent ones included.
    pub(super) fn budget_chunks(&self, tier: TierId) -> u32 {
        self.holdings.budget_chunks(tier)
    }

    /// Batches that each rank may have staged now.
    pub(super) fn batches(&self) -> u32 {
        self.holdings.batches()
    }

    /// The recent share of time in which tasks of this host waited for memory (PSI).
    pub(super) fn waiting(&self) -> Option<Percent> {
        self.holdings.waiting()
    }

    pub(super) fn lend(&mut self, tier: TierId, chunks: u32) -> Option<Change> {
        let change = self.holdings.lend(tier, chunks);
        self.note(change.as_slice());
        change
    }

    pub(super) fn read(&mut self, reading: &Reading) -> Vec<Change> {
        let changes = self.holdings.read(reading);
        self.note(&changes);
        changes
    }

    fn note(&mut self, changes: &[Change]) {
        for change in changes {
            let Step::Cache { tier, to, .. } = change.step else { continue };
            let room = Bytes(u64::from(to).saturating_mul(self.chunk.0));
            if let Some(range) = self.ranges.get_mut(usize::from(tier.0)) {
                range.least = range.least.min(room);
                range.most = range.most.max(room);
            }
        }
    }
}

pub(super) fn chunks_in(bytes: Bytes, chunk: Bytes) -> u32 {
    u32::try_from(bytes.0 / chunk.0.max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU32, NonZeroUsize};

    use tierfeed_core::{
        budget::{Free, Pool, TierReading},
        fleet::{
            Origin,
            schedule::{Figures, LinkWindows},
        },
        id::NodeId,
        order::{FurtherDatasets, Position, Shuffle, Spec, World},
        retention::policy,
        session::{LookAhead, OnError, Windows},
        tier::Locality,
        units::Nanoseconds,
    };
    use tierfeed_prefetcher::tier::{Backing, TierSettings};

    use super::*;
    use crate::layout::{Staged, Standing};

    const CHUNK: Bytes = Bytes::mib(1);

    fn place(kind: Kind, chunks: u64, share: Option<u8>) -> TierLayout {
        TierLayout {
            settings: TierSettings {
                kind,
                backing: Backing::Memory(Locality::Anywhere),
                emulated: None,
                copy_threads: NonZeroUsize::MIN,
                cpus: Vec::new(),
            },
            budget: Bytes::mib(chunks),
            cache: Bytes::mib(chunks),
            pool: layout::MEMORY,
            share: share.and_then(Percent::new),
            origin: Origin::Real,
            direct: None,
            writers: None,
            standing: Standing::default(),
        }
    }

    /// Two ranks, for each of which four batches of 1 MiB are staged; a dataset of 20 MiB.
    fn limits(tiers: Vec<TierLayout>, useful: &[u64]) -> Limits {
        let layout = Layout {
            staged: Staged {
                arena: Bytes::mib(4),
                depth: 4,
                depth_max: 4,
                windows: LinkWindows { cold: 1, cold_max: 1, cold_threads: 1, tier: 1 },
                first_room: Bytes(0),
                transforming: None,
            },
            staging: Vec::new(),
            tiers,
            left_out: Vec::new(),
            chunk: CHUNK,
            cold: Figures::none(),
        };
        let window = NonZeroU32::MIN;
        let order = Spec {
            samples: 20,
            shuffle: Shuffle::Sequential,
            seed: 0,
            epochs: 1,
            drop_last: false,
            batch_size: 1,
            world: World { nodes: 1, ranks_per_node: 2 },
            start: Position::START,
            further: FurtherDatasets::NONE,
        };
        let useful = useful.iter().map(|mib| Bytes::mib(*mib)).collect();
        let settings = Settings {
            order,
            node: NodeId(0),
            sizes: [Bytes::mib(1); 20].into(),
            tiers: Vec::new(),
            chunk: CHUNK,
            policy: policy::Kind::Gap,
            staged_batches: 4,
            staged_batches_max: 0,
            arena: layout.staged.arena,
            on_error: OnError::Fail,
            windows: Windows { cold: window, tier: window, ..Windows::default() },
            aim: policy::Aim { useful, ..policy::Aim::default() },
            in_place_tiers: Vec::new(),
            transform: None,
            first_room: Bytes(0),
            look_ahead: LookAhead::Off,
        };
        Limits::of(&layout, &settings)
    }

    /// A reading in which the tiers hold `held` MiB each and `free` MiB are free.
    fn reading(second: u64, held: &[u64], free: u64) -> Reading {
        let tier = |held: &u64| {
            let chunks_max = u32::try_from(*held).unwrap();
            TierReading { held: Bytes::mib(*held), chunks_max }
        };
        let free = Free { bytes: Bytes::mib(free), kept: Bytes::mib(100) };
        Reading {
            now: Nanoseconds(second * 1_000_000_000),
            waited: None,
            free: [(layout::MEMORY, free), (Pool(99), free)].into(),
            tiers: held.iter().map(tier).collect(),
            staging: Bytes::mib(8),
        }
    }

    #[test]
    fn the_first_cxl_tier_lends_what_it_has() {
        let kinds = [(Kind::MainMemory, 4), (Kind::CxlMemory, 8), (Kind::CxlMemory, 5)];
        let mut limits = limits(kinds.map(|(kind, chunks)| place(kind, chunks, None)).into(), &[]);
        let (tier, _) = limits.lender().unwrap();
        assert_eq!(tier, TierId(1));
        assert_eq!(limits.lends(), Some((Kind::CxlMemory, Bytes::mib(8))));
        let change = limits.lend(tier, 3).unwrap();
        assert_eq!(change.step, Step::Cache { tier, from: 8, to: 5 });
        assert_eq!(limits.budget_chunks(tier), 8);
    }

    #[test]
    fn a_node_without_cxl_memory_lends_none() {
        let limits = limits(vec![place(Kind::MainMemory, 10, None)], &[]);
        assert!(limits.lender().is_none() && limits.lends().is_none());
    }

    #[test]
    fn no_tier_grows_beyond_what_the_plan_can_use() {
        for (useful, most) in [(&[][..], 22), (&[9][..], 11)] {
            let mut limits = limits(vec![place(Kind::MainMemory, 4, Some(20))], useful);
            let mut chunks = 4;
            for second in 6..40 {
                limits.read(&reading(second, &[chunks], 5_000));
                chunks = u64::from(limits.budget_chunks(TierId(0)));
            }
            assert_eq!(chunks, most);
        }
    }

    #[test]
    fn what_a_cache_might_hold_at_least_and_at_most_is_noted() {
        let mut limits = limits(vec![place(Kind::MainMemory, 10, None)], &[]);
        let mib = |range: &CacheRange| (range.least.0 >> 20, range.most.0 >> 20);
        assert_eq!(limits.ranges().iter().map(mib).collect::<Vec<_>>(), [(10, 10)]);
        limits.read(&reading(1, &[10], 97));
        let (kind, room) = limits.rooms()[0];
        assert_eq!(
            (kind, room),
            (Kind::MainMemory, Bytes::mib(7)),
            "3 MiB short of what stays free"
        );
        let mut held = 7;
        for second in 7..20 {
            limits.read(&reading(second, &[held], 5_000));
            held = u64::from(limits.budget_chunks(TierId(0)));
        }
        assert_eq!(limits.rooms()[0].1, Bytes::mib(10), "it was given back");
        assert_eq!(limits.ranges().iter().map(mib).collect::<Vec<_>>(), [(7, 10)]);
    }

    #[test]
    fn staging_goes_down_to_two_batches_of_all_ranks() {
        let mut limits = limits(vec![place(Kind::MainMemory, 0, None)], &[]);
        limits.read(&reading(1, &[0], 99));
        assert_eq!(limits.batches(), 3, "a batch of each rank is 2 MiB");
        limits.read(&reading(2, &[0], 0));
        assert_eq!(limits.batches(), 2);
    }
}
