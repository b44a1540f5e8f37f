//! A data plane whose completions a test waits for.

use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroUsize},
    path::Path,
    sync::{Arc, mpsc},
    time::Duration,
};

use tierfeed_core::{
    id::{ChunkId, OpId, Rank, SampleId, TierId},
    session::{Event, Fault, Held, Memory, Operation, Origin, Place, Promotion, Retention, Slot},
    space::Piece,
    tier::{Kind, Locality, Speed},
    units::Bytes,
};
use tierfeed_dataset::read::Source;
use tierfeed_prefetcher::{
    fetcher::{Fetcher, ThreadFetcher},
    plane::{DataPlane, Settings, Verify},
    tier::{Backing, TierSettings},
};

pub(crate) const CHUNK: Bytes = Bytes(1 << 20);
pub(crate) const ARENA: Bytes = Bytes(4 << 20);
pub(crate) const RANK: Rank = Rank(0);

pub(crate) const MAIN: TierId = TierId(0);
pub(crate) const CXL: TierId = TierId(1);
pub(crate) const SCRATCH: TierId = TierId(2);
pub(crate) const STORAGE: TierId = TierId(3);

pub(crate) const SHARED_CHUNKS: NonZeroU32 = NonZeroU32::new(8).unwrap();

const READERS: NonZeroUsize = NonZeroUsize::new(4).unwrap();

type Outcome = Result<(), Fault>;

pub(crate) struct Rig {
    pub(crate) plane: DataPlane,
    completions: mpsc::Receiver<(OpId, Outcome)>,
    answered: BTreeMap<OpId, Outcome>,
    last_op: u64,
}

/// Four tiers. Trainers map the second one; the lower two lie in directories below `root`.
pub(crate) fn four_tiers(root: &Path) -> Settings {
    Settings {
        tiers: vec![
            tier(Kind::MainMemory, Backing::Memory(Locality::Anywhere), None),
            tier(Kind::CxlMemory, Backing::SharedMemory(Locality::Anywhere, SHARED_CHUNKS), None),
            tier(Kind::Scratch, Backing::Directory(root.join("scratch")), None),
            tier(Kind::Storage, Backing::Directory(root.join("storage")), None),
        ],
        chunk: CHUNK,
        staging: BTreeMap::new(),
        staging_behind: Vec::new(),
        operations_max: NonZeroUsize::new(256).unwrap(),
        verify: Verify::Shared,
    }
}

pub(crate) fn tier(kind: Kind, backing: Backing, emulated: Option<Speed>) -> TierSettings {
    let copy_threads = NonZeroUsize::new(2).unwrap();
    TierSettings { kind, backing, emulated, copy_threads, cpus: Vec::new() }
}

/// Reads `source` by threads, as many fetches ahead as there are operations.
pub(crate) fn fetcher(settings: &Settings, source: Arc<dyn Source>) -> Box<dyn Fetcher> {
    Box::new(ThreadFetcher::start(source, READERS, settings.operations_max).unwrap())
}

pub(crate) fn slot(offset: u64, len: u64) -> Slot {
    Slot { rank: RANK, offset: Bytes(offset), len: Bytes(len) }
}

pub(crate) fn promote(sample: SampleId, from: Place, to: Slot) -> Operation {
    let part = Promotion { sample, from, to, held: Held::Retained };
    Operation::Promote { parts: vec![part] }
}

/// A place of pieces `(chunk, offset, len)`.
pub(crate) fn place(tier: TierId, pieces: &[(u32, u64, u64)]) -> Place {
    let piece = |&(chunk, offset, len): &(u32, u64, u64)| Piece {
        chunk: ChunkId(chunk),
        offset: Bytes(offset),
        len: Bytes(len),
    };
    Place { tier, pieces: pieces.iter().map(piece).collect() }
}

impl Rig {
    pub(crate) fn start(settings: &Settings, source: Arc<dyn Source>) -> Self {
        let (sender, completions) = mpsc::channel();
        let ended = move |event| {
            let ended = match event {
                Event::Completed { op, outcome } | Event::Transformed { op, outcome, .. } => {
                    (op, outcome)
                }
                Event::PartsFailed { op, parts } => (op, Err(parts[0].1)),
                other => panic!("{other:?} is no end of an operation"),
            };
            // The receiver is gone if the test has ended.
            let _ = sender.send(ended);
        };
        let fetcher = fetcher(settings, source);
        let plane = DataPlane::start(settings, fetcher, ended).unwrap();
        Self { plane, completions, answered: BTreeMap::new(), last_op: 0 }
    }

    /// A plane with an arena, and chunks 0 and 1 in every tier.
    pub(crate) fn start_ready(settings: &Settings, source: Arc<dyn Source>) -> Self {
        let mut rig = Self::start(settings, source);
        rig.run(Operation::OpenArena { rank: RANK, len: ARENA }).unwrap();
        for index in 0..settings.tiers.len() {
            for chunk in [0, 1] {
                let tier = TierId(u8::try_from(index).unwrap());
                rig.add_chunk(tier, chunk).unwrap();
            }
        }
        rig
    }

    pub(crate) fn start_op(&mut self, operation: Operation) -> OpId {
        self.last_op += 1;
        let op = OpId(self.last_op);
        self.plane.execute(op, operation);
        op
    }

    /// Invariant 2, first half: every operation is answered, within 90 seconds on any machine.
    pub(crate) fn wait(&mut self, op: OpId) -> Outcome {
        loop {
            if let Some(outcome) = self.answered.get(&op) {
                return *outcome;
            }
            let answer = self.completions.recv_timeout(Duration::from_secs(90));
            self.note(answer.expect("an operation was never answered"));
        }
    }

    pub(crate) fn run(&mut self, operation: Operation) -> Outcome {
        let op = self.start_op(operation);
        self.wait(op)
    }

    pub(crate) fn shut_down(mut self) -> BTreeMap<OpId, Outcome> {
        self.plane.shutdown();
        // The callback went with the plane, so this ends.
        while let Ok(answer) = self.completions.recv() {
            let previous = self.answered.insert(answer.0, answer.1);
            assert_eq!(previous, None, "invariant 2: answered twice");
        }
        assert_eq!(self.answered.len() as u64, self.last_op, "invariant 2: not answered");
        self.answered
    }

    pub(crate) fn add_chunk(&mut self, tier: TierId, chunk: u32) -> Outcome {
        self.run(Operation::AddChunk { tier, chunk: ChunkId(chunk) })
    }

    pub(crate) fn drop_chunk(&mut self, tier: TierId, chunk: u32) {
        self.plane.free(Memory::Chunk(tier, ChunkId(chunk)));
    }

    pub(crate) fn fetch(&mut self, sample: u32, to: Slot) -> Outcome {
        self.run(Operation::Fetch { sample: SampleId(sample), to, retention: Retention::Kept })
    }

    pub(crate) fn promote(&mut self, sample: u32, from: &Place, to: Slot) -> Outcome {
        let (sample, from) = (SampleId(sample), from.clone());
        self.run(promote(sample, from, to))
    }

    pub(crate) fn demote(&mut self, sample: u32, from: Origin, len: u64, to: &Place) -> Outcome {
        let (sample, len, to) = (SampleId(sample), Bytes(len), to.clone());
        self.run(Operation::Demote { sample, from, len, to })
    }

    pub(crate) fn prefetch(&mut self, sample: u32, len: u64, to: &Place) -> Outcome {
        let (sample, len, to) = (SampleId(sample), Bytes(len), to.clone());
        self.run(Operation::Prefetch { sample, len, to })
    }

    pub(crate) fn advance(&mut self, sample: u32, from: &Place, len: u64, to: &Place) -> Outcome {
        let (sample, from, len, to) = (SampleId(sample), from.clone(), Bytes(len), to.clone());
        self.run(Operation::Advance { sample, from, len, to })
    }

    pub(crate) fn cache(&mut self, sample: u32, len: u64, to: &Place) {
        self.fetch(sample, slot(0, len)).unwrap();
        self.demote(sample, Origin::Staging(slot(0, len)), len, to).unwrap();
        self.scribble(slot(0, len));
    }

    /// Fills a chunk from `taken` on, so that its write buffers are written to the disk.
    pub(crate) fn fill_up(&mut self, tier: TierId, chunk: u32, taken: u64) {
        let len = CHUNK.0 - taken;
        self.cache(999, len, &place(tier, &[(chunk, taken, len)]));
    }

    pub(crate) fn staged(&self, at: Slot) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(at.len.0).unwrap()];
        self.plane.arena(at.rank).unwrap().read(at.offset, &mut bytes).unwrap();
        bytes
    }

    /// Overwrites staging memory, as a trainer may.
    pub(crate) fn scribble(&self, at: Slot) {
        self.plane.arena(at.rank).unwrap().fill(at.offset, at.len, 0xee).unwrap();
    }

    fn note(&mut self, (op, outcome): (OpId, Outcome)) {
        assert_eq!(self.answered.insert(op, outcome), None, "invariant 2: {op:?} answered twice");
    }
}
