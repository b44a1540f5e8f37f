//! What all threads of the data plane share: tiers, arenas and counters.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tierfeed_core::{
    id::{ChunkId, OpId, Rank, TierId},
    session::Fault,
    tier::Locality,
    units::{Bytes, Nanoseconds},
};
use tierfeed_numa_memory::{HugePages, Pages, Region, Stores};

use crate::{
    plane::{
        counters::{Counters, Meters, TierTraffic, TierUsage, TrafficCounter, Usage, Ways},
        failure::{Cause, CopyError, Failure, Failures},
        settings::{Settings, StartError, Verify},
        work::Work,
    },
    recorder::Recorder,
    tier::{Body, SpaceError, Store, Tier, TierSettings, Way, allocate, faster_stores},
};
use tierfeed_dataset::pace::Pace;
use tierfeed_handoff::SharedTier;

/// Told of every operation that ended.
pub(crate) type Completed = Box<dyn Fn(OpId, Result<(), Fault>) + Send + Sync>;

/// What all threads share.
pub(crate) struct Operations {
    tiers: Vec<WatchedTier>,
    arenas: RwLock<BTreeMap<Rank, Arc<Store>>>,
    arenas_held: Arc<AtomicU64>,
    /// How the first arena is stored to, and the pages that it lies in.
    arena_way: OnceLock<(Stores, HugePages)>,
    staging: Locality,
    stopping: AtomicBool,
    faults: AtomicU64,
    abandoned: AtomicU64,
    failures: Failures,
    meters: Meters,
    recorder: OnceLock<Arc<Recorder>>,
    completed: Completed,
    pub(crate) verify: Verify,
    pub(crate) fetched: TrafficCounter,
    pub(crate) pace: Pace,
}

/// A tier with its counters.
#[derive(Debug)]
pub(crate) struct WatchedTier {
    pub(crate) id: TierId,
    pub(crate) tier: Tier,
    pub(crate) read: TrafficCounter,
    pub(crate) written: TrafficCounter,
}

impl Operations {
    /// Opens the tiers.
    ///
    /// # Errors
    ///
    /// [`StartError::Directory`].
    pub(crate) fn open(settings: &Settings, completed: Completed) -> Result<Self, StartError> {
        let tiers = settings.tiers.iter().zip((0..).map(TierId));
        let tiers = tiers.map(|(tier, id)| WatchedTier::open(id, tier, settings.chunk));
        Ok(Self {
            tiers: tiers.collect::<Result<_, _>>()?,
            arenas: RwLock::default(),
            arenas_held: Arc::default(),
            arena_way: OnceLock::new(),
            staging: settings.staging,
            stopping: AtomicBool::new(false),
            faults: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            failures: Failures::default(),
            meters: Meters::new(settings.tiers.len()),
            recorder: OnceLock::new(),
            completed,
            verify: settings.verify,
            fetched: TrafficCounter::default(),
            pace: Pace::start(),
        })
    }

    /// Lets operations that have not begun end at once, and those that wait stop waiting.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.pace.release();
    }

    /// Whether [`Self::stop`] was called.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Takes the memory of an arena.
    pub(crate) fn open_arena_blocking(&self, rank: Rank, len: Bytes) -> Result<(), SpaceError> {
        if self.arena_store(rank).is_ok() {
            return Err(SpaceError::Taken);
        }
        let name = format!("tierfeed-staging-{}", rank.0);
        let region = allocate(&name, self.staging, len, Pages::Reserved)?;
        let way = || (faster_stores(&region, &self.pace), region.huge_pages());
        let (stores, _) = *self.arena_way.get_or_init(way);
        let store =
            Arc::new(Store::new(None, Body::Memory(region), len, &self.arenas_held, stores));
        self.arenas.write().unwrap_or_else(PoisonError::into_inner).insert(rank, store);
        Ok(())
    }

    /// Forgets the arena of a rank.
    pub(crate) fn take_arena(&self, rank: Rank) -> Option<Arc<Store>> {
        self.arenas.write().unwrap_or_else(PoisonError::into_inner).remove(&rank)
    }

    /// Forgets a chunk.
    pub(crate) fn take_chunk(&self, tier: TierId, chunk: ChunkId) -> Option<Arc<Store>> {
        self.tier(tier).ok()?.tier.take_chunk(chunk)
    }

    /// The staging memory of a rank.
    pub(crate) fn arena(&self, rank: Rank) -> Option<Arc<Region>> {
        match self.arena_store(rank).ok()?.body() {
            Body::Memory(region) => Some(Arc::clone(region)),
            Body::Shelved(_) | Body::File(_) | Body::Disk(_) => None,
        }
    }

    /// The memory of the tiers that trainers map.
    pub(crate) fn shelves(&self) -> Vec<SharedTier> {
        self.tiers.iter().filter_map(|watched| watched.tier.shelved(watched.id)).collect()
    }

    pub(crate) fn arena_store(&self, rank: Rank) -> Result<Arc<Store>, CopyError> {
        let arenas = self.arenas.read().unwrap_or_else(PoisonError::into_inner);
        arenas.get(&rank).cloned().ok_or(CopyError::UnknownArena { rank })
    }

    pub(crate) fn tier(&self, tier: TierId) -> Result<&WatchedTier, CopyError> {
        let unknown = CopyError::UnknownTier { tier, tiers: self.tiers.len() };
        self.tiers.get(usize::from(tier.0)).ok_or(unknown)
    }

    /// Lets a recorder note every operation from now on. The first one stays.
    pub(crate) fn record_with(&self, recorder: Arc<Recorder>) {
        self.recorder.get_or_init(|| recorder);
    }

    /// Counts an operation that ended, and has it recorded.
    pub(crate) fn meter(&self, work: Option<Work>, begun: Nanoseconds, fault: Option<Fault>) {
        let lasted = Nanoseconds(self.pace.now().0.saturating_sub(begun.0));
        if let Some(Work::Move { from, to, len, .. }) = work {
            self.meters.count(from, to, len, lasted, fault);
        }
        if let Some((recorder, work)) = self.recorder.get().zip(work) {
            recorder.ended(lasted, work.ended(fault));
        }
    }

    /// Counts and keeps a failure, then tells the session.
    pub(crate) fn answer(&self, op: OpId, outcome: Result<(), Failure>) {
        let outcome = outcome.map_err(|failure| {
            let fault = failure.cause.fault();
            self.faults.fetch_add(1, Ordering::Relaxed);
            if matches!(failure.cause, Cause::Abandoned) {
                self.abandoned.fetch_add(1, Ordering::Relaxed);
            }
            self.failures.push(failure);
            fault
        });
        (self.completed)(op, outcome);
    }

    pub(crate) fn failures(&self) -> Vec<Arc<Failure>> {
        self.failures.read()
    }

    pub(crate) fn usage(&self) -> Usage {
        let usage_of = |watched: &WatchedTier| {
            let tier = &watched.tier;
            TierUsage { kind: tier.kind(), medium: tier.medium(), bytes: tier.held() }
        };
        Usage {
            arenas: Bytes(self.arenas_held.load(Ordering::Relaxed)),
            tiers: self.tiers.iter().map(usage_of).collect(),
        }
    }

    pub(crate) fn ways(&self) -> Ways {
        let of_memory =
            |(stores, pages): &(Stores, HugePages)| Way::Memory { stores: *stores, pages: *pages };
        Ways {
            staging: self.arena_way.get().map(of_memory),
            tiers: self.tiers.iter().map(|watched| watched.tier.way()).collect(),
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        let traffic_of = |watched: &WatchedTier| TierTraffic {
            kind: watched.tier.kind(),
            read: watched.read.read(),
            written: watched.written.read(),
            writes_failed: watched.tier.writes_failed(),
        };
        Counters {
            source: self.fetched.read(),
            tiers: self.tiers.iter().map(traffic_of).collect(),
            moves: self.meters.read(),
            faults: self.faults.load(Ordering::Relaxed),
            abandoned: self.abandoned.load(Ordering::Relaxed),
        }
    }
}

impl WatchedTier {
    fn open(id: TierId, settings: &TierSettings, chunk: Bytes) -> Result<Self, StartError> {
        let kind = settings.kind;
        let failed = |source| StartError::Directory { tier: id, kind, source };
        Ok(Self {
            id,
            tier: Tier::open(settings, chunk).map_err(failed)?,
            read: TrafficCounter::default(),
            written: TrafficCounter::default(),
        })
    }
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operations").field("tiers", &self.tiers).finish_non_exhaustive()
    }
}
