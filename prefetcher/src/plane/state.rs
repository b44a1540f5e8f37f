//! The state that all threads of the data plane share: tiers, arenas and counters.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use tierfeed_core::{
    id::{ChunkId, NumaNode, Rank, SampleId, TierId},
    session::{Event, Fault},
    tier::Locality,
    units::{Bytes, Nanoseconds},
};
use tierfeed_numa_memory::{HugePages, Pages, Placement, Region, RegionPart, Request, Stores};

use crate::{
    plane::{
        DataPlane,
        counters::{
            Counters, DurationCounter, MoveCounters, TierTraffic, TierUsage, TrafficCounter, Usage,
            WriteModes,
        },
        failure::{Cause, CopyError, Failure, Failures},
        population::Population,
        settings::{Settings, StartError, Verify},
        summary::Summary,
    },
    recorder::Recorder,
    tier::{Allocation, SpaceError, Store, Tier, TierSettings, WriteMode, faster_stores},
};
use tierfeed_dataset::{pace::Pace, read::Source};
use tierfeed_handoff::SharedTier;

pub(crate) type OnEnd = Box<dyn Fn(Event) + Send + Sync>;

pub(crate) struct PlaneState {
    tiers: Vec<CountedTier>,
    arenas: RwLock<BTreeMap<Rank, Arc<Store>>>,
    arenas_held: Arc<AtomicU64>,
    /// How the first arena is written, the pages that it lies in, and where each of its parts lay at first.
    arena_write_mode: OnceLock<(Stores, HugePages, Vec<Placement>)>,
    /// Where the arena of each rank, or its first part, shall lie.
    staging: RwLock<BTreeMap<Rank, Locality>>,
    staging_behind: Vec<RegionPart>,
    /// Where the arenas with a preference lay when last read, also closed ones.
    placements: Mutex<BTreeMap<Rank, Placement>>,
    stopping: AtomicBool,
    faults: AtomicU64,
    abandoned: AtomicU64,
    failures: Failures,
    move_counters: MoveCounters,
    transform_durations: DurationCounter,
    recorder: OnceLock<Arc<Recorder>>,
    /// The source whose pages are dropped when a tier keeps a sample.
    cached_source: OnceLock<Arc<dyn Source>>,
    on_end: OnEnd,
    pub(crate) verify: Verify,
    pub(crate) fetched: TrafficCounter,
    pub(crate) pace: Pace,
    pub(crate) population: Population,
}

#[derive(Debug)]
pub(crate) struct CountedTier {
    pub(crate) id: TierId,
    pub(crate) tier: Tier,
    pub(crate) read: TrafficCounter,
    pub(crate) written: TrafficCounter,
}

impl PlaneState {
    /// Opens the directories of the tiers.
    ///
    /// # Errors
    ///
    /// [`StartError::Directory`] if a directory cannot hold chunks.
    pub(crate) fn open(settings: &Settings, on_end: OnEnd) -> Result<Self, StartError> {
        let tiers = settings.tiers.iter().zip((0..).map(TierId));
        let tiers = tiers.map(|(tier, id)| CountedTier::open(id, tier, settings.chunk));
        Ok(Self {
            tiers: tiers.collect::<Result<_, _>>()?,
            arenas: RwLock::default(),
            arenas_held: Arc::default(),
            arena_write_mode: OnceLock::new(),
            staging: RwLock::new(settings.staging.clone()),
            staging_behind: settings.staging_behind.clone(),
            placements: Mutex::default(),
            stopping: AtomicBool::new(false),
            faults: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            failures: Failures::default(),
            move_counters: MoveCounters::new(settings.tiers.len()),
            transform_durations: DurationCounter::default(),
            recorder: OnceLock::new(),
            cached_source: OnceLock::new(),
            on_end,
            verify: settings.verify,
            fetched: TrafficCounter::default(),
            pace: Pace::start(),
            population: Population::default(),
        })
    }

    /// Ends operations that have not begun, and the emulated waits of those that run.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.population.stop();
        self.pace.release();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn open_arena_blocking(&self, rank: Rank, len: Bytes) -> Result<(), SpaceError> {
        if self.arena_store(rank).is_ok() {
            return Err(SpaceError::Taken);
        }
        let name = format!("tierfeed-staging-{}", rank.0);
        let locality = self.locality_of(rank);
        let request = Request { len, locality, name: &name, pages: Pages::Reserved };
        let region = Region::allocate_in_parts(&request, &self.staging_behind);
        let region = Arc::new(region.map_err(SpaceError::Memory)?);
        let write_mode =
            || (faster_stores(&region, len, &self.pace), region.huge_pages(), region.placements());
        let stores = self.arena_write_mode.get_or_init(write_mode).0;
        let store =
            Arc::new(Store::new(None, Allocation::Memory(region), len, &self.arenas_held, stores));
        self.arenas.write().insert(rank, store);
        Ok(())
    }

    fn locality_of(&self, rank: Rank) -> Locality {
        let staging = self.staging.read();
        staging.get(&rank).copied().unwrap_or(Locality::Anywhere)
    }

    pub(crate) fn stage_near(&self, rank: Rank, node: NumaNode) {
        let mut staging = self.staging.write();
        staging.insert(rank, Locality::Near(node));
    }

    /// A rank without an arena gets it there when it is opened.
    pub(crate) fn move_arena(&self, rank: Rank) {
        if let (Some(region), Some(node)) = (self.arena(rank), self.locality_of(rank).node()) {
            // What does not move shows in the placement.
            drop(region.move_near(node));
        }
    }

    fn note_placement(&self, rank: Rank) {
        let Some(region) = self.arena(rank).filter(|_| self.locality_of(rank).node().is_some())
        else {
            return;
        };
        if let Ok(placement) = region.placement_now() {
            let mut placements = self.placements.lock();
            placements.insert(rank, placement);
        }
    }

    pub(crate) fn take_arena(&self, rank: Rank) -> Option<Arc<Store>> {
        self.note_placement(rank);
        self.arenas.write().remove(&rank)
    }

    pub(crate) fn take_chunk(&self, tier: TierId, chunk: ChunkId) -> Option<Arc<Store>> {
        self.tier(tier).ok()?.tier.take_chunk(chunk)
    }

    pub(crate) fn arena(&self, rank: Rank) -> Option<Arc<Region>> {
        match self.arena_store(rank).ok()?.allocation() {
            Allocation::Memory(region) => Some(Arc::clone(region)),
            Allocation::SharedMemory(_) | Allocation::File(_) | Allocation::Disk(_) => None,
        }
    }

    pub(crate) fn arena_store(&self, rank: Rank) -> Result<Arc<Store>, CopyError> {
        let arenas = self.arenas.read();
        arenas.get(&rank).cloned().ok_or(CopyError::UnknownArena { rank })
    }

    pub(crate) fn tier(&self, tier: TierId) -> Result<&CountedTier, CopyError> {
        let unknown = CopyError::UnknownTier { tier, tiers: self.tiers.len() };
        self.tiers.get(usize::from(tier.0)).ok_or(unknown)
    }

    /// Drops what reads of a sample left in the page cache, because a tier keeps it.
    pub(crate) fn drop_pages(&self, sample: SampleId) {
        if let Some(source) = self.cached_source.get() {
            source.drop_pages(sample);
        }
    }

    pub(crate) fn count(&self, summary: Option<Summary>, begun: Nanoseconds, fault: Option<Fault>) {
        let lasted = Nanoseconds(self.pace.now().0.saturating_sub(begun.0));
        match summary {
            // All parts of a list failed.
            Some(Summary::Move { samples: 0, .. }) => return,
            Some(Summary::Move { from, to, samples, len, .. }) => {
                self.move_counters.count((from, to), samples, len, lasted, fault);
            }
            Some(Summary::Transform { .. }) => self.transform_durations.count(lasted, fault),
            Some(Summary::Arena(_) | Summary::Chunk(_)) | None => (),
        }
        if let Some((recorder, summary)) = self.recorder.get().zip(summary) {
            recorder.record_ended(lasted, summary.event(fault));
        }
    }

    pub(crate) fn answer(&self, event: Event) {
        (self.on_end)(event);
    }

    pub(crate) fn note(&self, failure: Failure) -> Fault {
        let fault = failure.cause.fault();
        self.faults.fetch_add(1, Ordering::Relaxed);
        if matches!(failure.cause, Cause::Abandoned) {
            self.abandoned.fetch_add(1, Ordering::Relaxed);
        }
        self.failures.push(failure);
        fault
    }

    pub(crate) fn reason(&self, sample: SampleId) -> Option<String> {
        self.failures.reason(sample)
    }
}

/// What the plane holds, and what it did.
impl DataPlane {
    /// Where the arena of each rank with a preference lies, or lay when it was closed.
    #[must_use]
    pub fn staging_placements(&self) -> BTreeMap<Rank, Placement> {
        let arenas = self.state.arenas.read().clone();
        arenas.into_keys().for_each(|rank| self.state.note_placement(rank));
        self.state.placements.lock().clone()
    }

    /// As far as there are addresses for them.
    #[must_use]
    pub fn shared_tiers(&self) -> Vec<SharedTier> {
        self.state.tiers.iter().filter_map(|counted| counted.tier.shared(counted.id)).collect()
    }

    #[must_use]
    pub fn usage(&self) -> Usage {
        let usage_of = |counted: &CountedTier| {
            let tier = &counted.tier;
            TierUsage { kind: tier.kind(), medium: tier.medium(), bytes: tier.held() }
        };
        Usage {
            arenas: Bytes(self.state.arenas_held.load(Ordering::Relaxed)),
            tiers: self.state.tiers.iter().map(usage_of).collect(),
        }
    }

    /// The kernel walks all pages of the process for the answer, which takes milliseconds or more.
    #[must_use]
    pub fn write_modes(&self) -> WriteModes {
        let of_memory = |(stores, pages, _): &(Stores, HugePages, Vec<Placement>)| {
            WriteMode::Memory { stores: *stores, pages: *pages }
        };
        let staging = self.state.arena_write_mode.get();
        WriteModes {
            staging: staging.map(of_memory),
            staging_placements: staging
                .map_or_else(Vec::new, |(.., placements)| placements.clone()),
            tiers: self.state.tiers.iter().map(|counted| counted.tier.write_mode()).collect(),
        }
    }

    #[must_use]
    pub fn counters(&self) -> Counters {
        let traffic_of = |counted: &CountedTier| TierTraffic {
            kind: counted.tier.kind(),
            read: counted.read.read(),
            written: counted.written.read(),
            writes_failed: counted.tier.writes_failed(),
        };
        Counters {
            source: self.state.fetched.read(),
            tiers: self.state.tiers.iter().map(traffic_of).collect(),
            moves: self.state.move_counters.read(),
            transform_durations: self.state.transform_durations.read(),
            faults: self.state.faults.load(Ordering::Relaxed),
            abandoned: self.state.abandoned.load(Ordering::Relaxed),
        }
    }

    /// Drops what reads of `source` left in the page cache of samples that a tier keeps. Only the first
    /// source that is given is used.
    pub fn drop_pages_with(&self, source: Arc<dyn Source>) {
        self.state.cached_source.get_or_init(|| source);
    }

    /// Only the first recorder that is given is used.
    pub fn record_with(&self, recorder: Arc<Recorder>) {
        self.state.recorder.get_or_init(|| recorder);
    }

    /// At most [`super::FAILURES_KEPT`], oldest first.
    #[must_use]
    pub fn faults(&self) -> Vec<Arc<Failure>> {
        self.state.failures.read()
    }
}

impl CountedTier {
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

impl fmt::Debug for PlaneState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlaneState").field("tiers", &self.tiers).finish_non_exhaustive()
    }
}
