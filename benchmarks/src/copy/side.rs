//! Our side: a data plane with two tiers in memory, one on a RAM disk and one on a disk.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use anyhow::{Context as _, ensure};
use tierfeed_core::{
    id::{ChunkId, OpId, Rank, SampleId, TierId},
    session::{Event, Fault, Held, Operation, Origin, Pieces, Place, Promotion, Retention, Slot},
    space::{PIECES_MAX, Piece},
    tier::{Kind, Locality},
    units::Bytes,
};
use tierfeed_harness::clock::now;
use tierfeed_prefetcher::{
    fetcher::{Fetch, Fetcher},
    plane::{self, DataPlane, Verify},
    tier::{Backing, TierSettings},
};

use super::{Folders, Settings};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    MemoryToMemory,
    /// The assembly of a batch; a demotion from staging is the reverse.
    MemoryToStaging,
    MemoryToScratch,
    ScratchToStaging,
    MemoryToStorage,
    StorageToStaging,
}

const RANK: Rank = Rank(0);
const UPPER: TierId = TierId(0);
const LOWER: TierId = TierId(1);
const SCRATCH: TierId = TierId(2);
const STORAGE: TierId = TierId(3);
const CHUNK: ChunkId = ChunkId(0);

impl Route {
    pub(super) const ALL: [Self; 6] = [
        Self::MemoryToMemory,
        Self::MemoryToStaging,
        Self::MemoryToScratch,
        Self::ScratchToStaging,
        Self::MemoryToStorage,
        Self::StorageToStaging,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::MemoryToMemory => "memory to memory",
            Self::MemoryToStaging => "memory to staging",
            Self::MemoryToScratch => "memory to RAM disk",
            Self::ScratchToStaging => "RAM disk to staging",
            Self::MemoryToStorage => "memory to disk",
            Self::StorageToStaging => "disk to staging",
        }
    }

    pub(super) const fn is_in_memory(self) -> bool {
        matches!(self, Self::MemoryToMemory | Self::MemoryToStaging)
    }

    const fn ends(self) -> (TierId, Option<TierId>) {
        match self {
            Self::MemoryToMemory => (UPPER, Some(LOWER)),
            Self::MemoryToStaging => (UPPER, None),
            Self::MemoryToScratch => (UPPER, Some(SCRATCH)),
            Self::ScratchToStaging => (SCRATCH, None),
            Self::MemoryToStorage => (UPPER, Some(STORAGE)),
            Self::StorageToStaging => (STORAGE, None),
        }
    }
}

/// A data plane with one chunk in every tier, and an arena of the same length.
pub(super) struct Plane {
    moves: DataPlane,
    completions: Arc<Completions>,
    chunk: Bytes,
    ops: AtomicU64,
}

/// Counts completions, and wakes the thread that waits for the last.
#[derive(Debug, Default)]
struct Completions {
    left: Mutex<u64>,
    failed: Mutex<Option<Fault>>,
    bell: Condvar,
}

/// A fetcher that fills every sample at once.
#[derive(Debug)]
struct Pattern;

impl Fetcher for Pattern {
    fn backend(&self) -> &'static str {
        "pattern"
    }

    fn start(&self, fetch: Fetch) {
        let value = u8::try_from(fetch.sample.0 % 251).expect("it is below 251");
        let bytes = vec![value; usize::try_from(fetch.to.len().0).unwrap_or(0)];
        if fetch.to.write(Bytes(0), &bytes).is_ok() {
            fetch.end(Ok(()));
        }
    }
}

/// The commands of one turn, without their operation numbers.
pub(super) struct Turns<'a> {
    plane: &'a Plane,
    route: Route,
    sample: Bytes,
}

impl Plane {
    pub(super) fn start(
        settings: &Settings,
        folders: Folders<'_>,
        threads: NonZeroUsize,
        verify: Verify,
    ) -> anyhow::Result<Self> {
        let tier = |kind, backing| TierSettings {
            kind,
            backing,
            emulated: None,
            copy_threads: threads,
            cpus: Vec::new(),
        };
        let anywhere = Backing::Memory(Locality::Anywhere);
        let samples = usize::try_from(settings.chunk.0 / (64 << 10) + 1)?;
        let plane = plane::Settings {
            tiers: vec![
                tier(Kind::MainMemory, anywhere.clone()),
                tier(Kind::CxlMemory, anywhere),
                tier(Kind::Scratch, Backing::Directory(folders.scratch.to_owned())),
                tier(Kind::Storage, Backing::Directory(folders.folder.to_owned())),
            ],
            chunk: settings.chunk,
            staging: std::collections::BTreeMap::new(),
            staging_behind: Vec::new(),
            operations_max: NonZeroUsize::new(samples).context("some samples")?,
            verify,
        };
        let completions = Arc::new(Completions::default());
        let told = Arc::clone(&completions);
        let completed = move |event| {
            told.note(match event {
                Event::Completed { outcome, .. } => outcome,
                other => panic!("{other:?} is no end of a copy"),
            });
        };
        let chunk = settings.chunk;
        let plane = DataPlane::start(&plane, Box::new(Pattern), completed)?;
        let this = Self { moves: plane, completions, chunk, ops: AtomicU64::new(0) };
        this.run(1, |_| Operation::OpenArena { rank: RANK, len: chunk })?;
        for tier in [UPPER, LOWER, SCRATCH, STORAGE] {
            this.run(1, |_| Operation::AddChunk { tier, chunk: CHUNK })?;
        }
        Ok(this)
    }

    pub(super) fn prepare(&self, route: Route, sample: Bytes) -> anyhow::Result<Turns<'_>> {
        let count = self.chunk.0 / sample.0;
        let (from, _) = route.ends();
        let slot = |number| slot(sample, number);
        self.run(count, |number| Operation::Fetch {
            sample: SampleId(number),
            to: slot(number),
            retention: Retention::Kept,
        })?;
        self.run(count, |number| {
            let (from, to) = (Origin::Staging(slot(number)), place(from, sample, number));
            Operation::Demote { sample: SampleId(number), from, len: sample, to }
        })?;
        Ok(Turns { plane: self, route, sample })
    }

    fn run(&self, count: u64, operation: impl Fn(u32) -> Operation) -> anyhow::Result<()> {
        *self.completions.left.lock().unwrap_or_else(PoisonError::into_inner) = count;
        for number in 0..u32::try_from(count)? {
            let op = OpId(self.ops.fetch_add(1, Ordering::Relaxed));
            self.moves.execute(op, operation(number));
        }
        self.completions.wait()
    }
}

impl Turns<'_> {
    /// Moves all samples once. Returns bytes per second.
    pub(super) fn turn(&self) -> anyhow::Result<f64> {
        let Self { plane, route, sample } = *self;
        let count = plane.chunk.0 / sample.0;
        let (from, to) = route.ends();
        let start = now();
        plane.run(count, |number| {
            let (id, origin) = (SampleId(number), place(from, sample, number));
            if let Some(to) = to {
                let to = place(to, sample, number);
                Operation::Demote { sample: id, from: Origin::Tier(origin), len: sample, to }
            } else {
                let (to, held) = (slot(sample, number), Held::Retained);
                let part = Promotion { sample: id, from: origin, to, held };
                Operation::Promote { parts: vec![part] }
            }
        })?;
        Ok(rate(count * sample.0, start))
    }
}

impl Completions {
    fn note(&self, outcome: Result<(), Fault>) {
        if let Err(fault) = outcome {
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
        }
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.bell.notify_all();
        }
    }

    fn wait(&self) -> anyhow::Result<()> {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.bell.wait_while(left, |left| *left > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(failed.is_none(), "a copy failed: {failed:?}");
        Ok(())
    }
}

fn slot(sample: Bytes, number: u32) -> Slot {
    Slot { rank: RANK, offset: Bytes(sample.0 * u64::from(number)), len: sample }
}

fn place(tier: TierId, sample: Bytes, number: u32) -> Place {
    const { assert!(PIECES_MAX >= 1, "a sample may lie in one piece") };
    let offset = Bytes(sample.0 * u64::from(number));
    Place { tier, pieces: Pieces::One(Piece { chunk: CHUNK, offset, len: sample }) }
}

pub(super) fn rate(bytes: u64, start: Instant) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no 53 bits")]
    let bytes = bytes as f64;
    bytes / start.elapsed().as_secs_f64()
}
