//! Sessions under every order of completions, with faults and trainers that come and go.

mod ahead;
mod answered;
mod faulty;
mod further;
mod in_place;
mod jobs;
mod jumping;
mod limited;
mod look_ahead;
mod measured;
mod peers;
mod scheduled;
mod threads;
mod transform;
mod whole_job;

use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    vec,
};

use proptest::prelude::*;

use super::{
    assignment::{Assignment, Stages},
    edf_scheduler::Channel,
    staging::Arena,
    *,
};
use crate::{
    batch::{Entry, InPlace},
    id::{ChunkId, NodeId, OpId, Step},
    order::{FurtherDatasets, Position, Spec, World},
    retention::policy,
    space::{Piece, Space},
    tier::{Buffer, Kind as TierKind},
};

const SKIP_ALL: OnError = OnError::Skip(SkipShare(1_000_000));

fn settings(policy: policy::Kind, samples: u32, ranks: u32, on_error: OnError) -> Settings {
    Settings {
        order: Spec {
            samples,
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 7,
            epochs: 3,
            drop_last: false,
            batch_size: 4,
            world: World { nodes: 1, ranks_per_node: ranks },
            start: Position::START,
            further: FurtherDatasets::NONE,
        },
        node: NodeId(0),
        sizes: (0..u64::from(samples)).map(|i| Bytes(i * 37 % 400)).collect(),
        tiers: [2, 1, 3]
            .map(|chunks_max| Buffer { kind: TierKind::CxlMemory, chunks_max })
            .to_vec(),
        chunk: Bytes(1024),
        policy,
        staged_batches: 3,
        staged_batches_max: 0,
        arena: Bytes(4 * 4096),
        on_error,
        windows: windows(3, 2),
        aim: policy::Aim::default(),
        in_place_tiers: Vec::new(),
        transform: None,
        first_room: Bytes(0),
        look_ahead: LookAhead::Off,
    }
}

fn windows(cold: u32, tier: u32) -> Windows {
    let window = |count| NonZeroU32::new(count).unwrap();
    Windows { cold: window(cold), tier: window(tier), ..Windows::default() }
}

/// A checksum in place of bytes. Transforms are played on it, so a sample that is transformed in the wrong
/// form, twice or not at all has another checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sum(u64);

impl Sum {
    fn of(sample: SampleId, form: Form) -> Self {
        let stored = Self(0).and(u64::from(sample.0));
        if form == Form::Stored { stored } else { stored.prepared() }
    }

    fn and(self, word: u64) -> Self {
        let mixed = (self.0 ^ word).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(mixed ^ (mixed >> 31))
    }

    fn prepared(self) -> Self {
        self.and(u64::MAX)
    }

    fn row(self, epoch: Epoch) -> Self {
        self.and(u64::from(epoch.0) << 32)
    }
}

/// A data plane that checks that each place holds what was put there.
#[derive(Debug, Default)]
struct CheckedPlane {
    running: Vec<(OpId, Operation)>,
    /// One entry for each grain.
    tiers: BTreeMap<(TierId, ChunkId, u64), Sum>,
    /// The checksums in arenas, with the length of their bytes. Empty samples are nowhere.
    arenas: BTreeMap<(Rank, u64), (u64, Sum)>,
    /// The form of samples in tiers.
    cached: Option<Form>,
    /// The places of bytes that were fetched to be read once.
    unvouched: BTreeSet<(Rank, u64)>,
    chunks: BTreeSet<(TierId, ChunkId)>,
    demoted: u64,
    broken: BTreeSet<(TierId, ChunkId)>,
    /// Pages of arenas whose memory was given back.
    trimmed: BTreeSet<(Rank, u64)>,
}

fn pages(rank: Rank, offset: Bytes, len: Bytes) -> impl Iterator<Item = (Rank, u64)> {
    (offset.0 / 4096..(offset.0 + len.0).div_ceil(4096)).map(move |page| (rank, page))
}

fn grains(place: &Place) -> impl Iterator<Item = (TierId, ChunkId, u64)> + '_ {
    place.pieces.iter().flat_map(move |piece| {
        (0..piece.len.0 / 64).map(move |i| (place.tier, piece.chunk, piece.offset.0 / 64 + i))
    })
}

impl CheckedPlane {
    /// The checksum of a sample in tiers, and as it comes from other nodes.
    fn cached(&self, sample: SampleId) -> Sum {
        Sum::of(sample, self.cached.unwrap_or(Form::Stored))
    }

    /// Writes to an arena; overlapping samples are broken by that.
    fn arrive(&mut self, sum: Sum, slot: Slot) {
        if slot.len.0 > 0 {
            let mut pages = pages(slot.rank, slot.offset, slot.len);
            assert!(pages.all(|page| !self.trimmed.contains(&page)), "no memory at {slot:?}");
            let (start, end) = (slot.offset.0, slot.offset.0 + slot.len.0);
            self.arenas.retain(|(rank, offset), (len, _)| {
                *rank != slot.rank || *offset >= end || *offset + *len <= start
            });
            self.arenas.insert((slot.rank, start), (slot.len.0, sum));
            self.unvouched.remove(&(slot.rank, start));
        }
    }

    /// The checksum at a slot of an arena; `empty` for an empty slot.
    fn staged(&self, slot: Slot, empty: Sum) -> Option<Sum> {
        let there = || Some(self.arenas.get(&(slot.rank, slot.offset.0))?.1);
        if slot.len.0 == 0 { Some(empty) } else { there() }
    }

    /// Checks that the bytes that an operation reads in staging are there when it starts.
    fn assert_readable(&self, operation: &Operation) {
        match operation {
            Operation::Demote { sample, from: Origin::Staging(slot), .. } => {
                let expected = self.cached(*sample);
                assert_eq!(self.staged(*slot, expected), Some(expected), "{operation:?}");
            }
            Operation::Transform { sample, from, form, .. } => {
                let expected = Sum::of(*sample, *form);
                assert_eq!(self.staged(*from, expected), Some(expected), "{operation:?}");
            }
            _ => {}
        }
    }

    /// Ends a running operation. The bytes that it moves arrive only now.
    fn end(&mut self, operation: &Operation, outcome: Result<(), Fault>) {
        match operation {
            Operation::AddChunk { tier, chunk, .. } if outcome.is_ok() => {
                assert!(self.chunks.insert((*tier, *chunk)), "{chunk:?} was added twice");
            }
            Operation::Fetch { sample, to, retention, .. } if outcome.is_ok() => {
                self.arrive(Sum::of(*sample, Form::Stored), *to);
                // An empty one has the place of its neighbour.
                if *retention == Retention::Dropped && to.len.0 > 0 {
                    self.unvouched.insert((to.rank, to.offset.0));
                }
            }
            Operation::Receive { sample, to, .. } if outcome.is_ok() => {
                self.arrive(self.cached(*sample), *to);
                if to.len.0 > 0 {
                    self.unvouched.insert((to.rank, to.offset.0));
                }
            }
            Operation::RestoreArena { rank, offset, len, .. } if outcome.is_ok() => {
                for page in pages(*rank, *offset, *len) {
                    assert!(self.trimmed.remove(&page), "{page:?} was there");
                }
            }
            Operation::Promote { parts } if outcome.is_ok() => {
                for Promotion { sample, from, to, .. } in parts {
                    self.assert_held(*sample, from);
                    self.arrive(self.cached(*sample), *to);
                }
            }
            Operation::Transform { sample, epoch, from, form, prepared, to } if outcome.is_ok() => {
                self.assert_readable(operation);
                let there = self.staged(*from, Sum::of(*sample, *form)).expect("it was there");
                let done = if *form == Form::Stored { there.prepared() } else { there };
                prepared.iter().for_each(|slot| self.arrive(done, *slot));
                self.arrive(done.row(*epoch), *to);
            }
            Operation::Prefetch { sample, to, .. } if outcome.is_ok() => {
                self.put(Sum::of(*sample, Form::Stored), to);
            }
            Operation::Advance { sample, from, to, .. } if outcome.is_ok() => {
                self.assert_held(*sample, from);
                self.put(self.cached(*sample), to);
            }
            Operation::Demote { sample, from, to, .. } if outcome.is_ok() => {
                self.demoted += to.pieces.iter().map(|piece| piece.len.0).sum::<u64>();
                match from {
                    Origin::Staging(slot) if slot.len.0 == 0 => {}
                    Origin::Staging(slot) => {
                        self.assert_readable(operation);
                        let is_unvouched = self.unvouched.contains(&(slot.rank, slot.offset.0));
                        assert!(!is_unvouched, "kept, though fetched to be dropped: {operation:?}");
                    }
                    Origin::Tier(place) => self.assert_held(*sample, place),
                }
                self.put(self.cached(*sample), to);
            }
            _ => {}
        }
    }

    fn assert_held(&self, sample: SampleId, place: &Place) {
        for grain in grains(place) {
            let there = self.tiers.get(&grain);
            assert_eq!(there, Some(&self.cached(sample)), "invariant 3: {sample:?} at {place:?}");
        }
    }

    fn put(&mut self, sum: Sum, to: &Place) {
        for grain in grains(to) {
            assert!(self.chunks.contains(&(grain.0, grain.1)), "written before added");
            self.tiers.insert(grain, sum);
        }
    }
}

fn moved(operation: &Operation) -> Vec<Moved> {
    match operation {
        Operation::Fetch { sample, .. } | Operation::Receive { sample, .. } => {
            vec![(*sample, None, None)]
        }
        Operation::Promote { parts } => {
            parts.iter().map(|part| (part.sample, Some(part.from.tier), None)).collect()
        }
        Operation::Prefetch { sample, to, .. } => vec![(*sample, None, Some(to.tier))],
        Operation::Demote { sample, from: Origin::Staging(_), to, .. } => {
            vec![(*sample, None, Some(to.tier))]
        }
        Operation::Advance { sample, from, to, .. }
        | Operation::Demote { sample, from: Origin::Tier(from), to, .. } => {
            vec![(*sample, Some(from.tier), Some(to.tier))]
        }
        _ => Vec::new(),
    }
}

fn channel_of(operation: &Operation) -> Option<Channel> {
    match operation {
        Operation::Fetch { .. } | Operation::Prefetch { .. } => Some(Channel::Cold),
        Operation::Receive { .. } => Some(Channel::Peers),
        Operation::Transform { .. } => Some(Channel::Transform),
        Operation::Promote { parts } => Some(Channel::Tier(parts[0].from.tier)),
        Operation::Advance { from, .. } => Some(Channel::Tier(from.tier)),
        Operation::Demote { to, .. } => Some(Channel::Tier(to.tier)),
        _ => None,
    }
}

/// A trainer of one rank that asks ahead and checks what it gets.
#[derive(Debug)]
struct Trainer {
    connection: ConnectionId,
    rank: Rank,
    is_admitted: bool,
    next: Option<BatchId>,
    asked: BTreeSet<BatchId>,
    leases: VecDeque<(LeaseId, BatchId)>,
    keeps: bool,
    kept: Vec<(LeaseId, BatchId)>,
    got: Vec<BatchId>,
    refused: Vec<(BatchId, Refusal)>,
}

impl Trainer {
    fn new(rank: u32) -> Self {
        let rank = Rank(rank);
        Self {
            connection: ConnectionId(u64::from(rank.0) + 10),
            rank,
            is_admitted: false,
            next: Some(BatchId { epoch: Epoch(0), step: Step(0), rank }),
            asked: BTreeSet::new(),
            leases: VecDeque::new(),
            keeps: false,
            kept: Vec::new(),
            got: Vec::new(),
            refused: Vec::new(),
        }
    }
}

struct Play {
    session: Session,
    plane: CheckedPlane,
    trainers: Vec<Trainer>,
    skipped: u64,
    /// Samples that are missing in the batches that each rank was handed.
    missing: BTreeMap<(Epoch, Rank), BTreeSet<SampleId>>,
    cold_fault: Fault,
    /// Samples whose stored bytes lay beside their rows.
    beside: u64,
    now: Nanoseconds,
    /// Jobs that are ended in any order; `None` if each ends at once.
    jobs: Option<Vec<Job>>,
    /// The number of times that each sample was read from and copied to each place.
    moves: BTreeMap<Moved, u64>,
}

/// A sample that was read, or copied to a tier: from where, and where to.
type Moved = (SampleId, Option<TierId>, Option<TierId>);

impl Play {
    fn new(settings: &Settings) -> Self {
        Self::with_jobs(settings, None)
    }

    fn with_jobs(settings: &Settings, jobs: Option<Vec<Job>>) -> Self {
        let ranks = settings.order.world.ranks_of(settings.node);
        let mut world = Self {
            session: Session::new(settings.clone()),
            plane: CheckedPlane {
                cached: settings.transform.as_ref().map(|transform| transform.cached),
                ..CheckedPlane::default()
            },
            trainers: ranks.map(|rank| Trainer::new(rank.0)).collect(),
            skipped: 0,
            missing: BTreeMap::new(),
            cold_fault: Fault::Vanished,
            beside: 0,
            now: Nanoseconds(0),
            jobs,
            moves: BTreeMap::new(),
        };
        for i in 0..world.trainers.len() {
            let (connection, rank) = (world.trainers[i].connection, world.trainers[i].rank);
            world.tell(Event::Attached { connection, rank });
        }
        world
    }

    fn tell(&mut self, event: Event) {
        self.now.0 += 1000;
        self.session.handle(event, self.now);
        self.go_on();
    }

    fn go_on(&mut self) {
        match &mut self.jobs {
            Some(jobs) => jobs.extend(core::iter::from_fn(|| self.session.poll_job())),
            None => self.session.run_jobs(),
        }
        while let Some(command) = self.session.poll_command() {
            self.carry_out(command);
        }
    }

    /// Stages what a slice left. Returns whether there was something.
    fn stage_more(&mut self) -> bool {
        let had_more = self.session.has_more();
        if had_more {
            self.session.go_on(self.now);
            self.go_on();
        }
        had_more
    }

    /// Returns whether there was a job.
    fn end_job(&mut self, pick: usize) -> bool {
        let Some(jobs) = self.jobs.as_mut().filter(|jobs| !jobs.is_empty()) else { return false };
        let job = jobs.swap_remove(pick % jobs.len());
        self.now.0 += 1000;
        self.session.finish(job.run(), self.now);
        self.go_on();
        true
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Start { op, operation } => self.start(op, operation),
            Command::Free(Memory::Chunk(tier, chunk)) => {
                let names_it = |place: &InPlace| (place.tier, place.chunk) == (tier, chunk);
                let is_named =
                    self.named().filter_map(|at| self.entry(at)?.in_place).any(|it| names_it(&it));
                assert!(!is_named, "invariant 9: {chunk:?} is named");
                let was_there = self.plane.chunks.remove(&(tier, chunk));
                assert!(was_there, "{chunk:?} was dropped before it was added");
            }
            Command::Free(Memory::Arena(rank)) => {
                self.plane.arenas.retain(|(other, _), _| *other != rank);
                self.plane.trimmed.retain(|(other, _)| *other != rank);
            }
            Command::Answer(answer) => self.hear(answer),
        }
    }

    fn hear(&mut self, answer: Answer) {
        match answer {
            Answer::Admit { connection, .. } => self.trainer(connection).is_admitted = true,
            Answer::Reject { .. } => panic!("no connection is rejected"),
            Answer::Lease { connection, lease, offset, batch } => {
                for entry in &batch.entries {
                    let is_broken = |it: InPlace| self.plane.broken.contains(&(it.tier, it.chunk));
                    assert!(!entry.in_place.is_some_and(is_broken), "{entry:?} is known as broken");
                    let key = (batch.id.rank, offset.0 + entry.offset.0);
                    let stored = Sum::of(entry.sample, Form::Stored);
                    let row = || stored.prepared().row(batch.id.epoch);
                    let settings = &self.session.settings;
                    let dataset = settings.order.dataset_of_batch(batch.id);
                    let transform = settings.transform.as_ref();
                    let is_row = transform.is_some_and(|it| it.row_of(dataset).is_some());
                    let expected = if is_row { row() } else { stored };
                    match entry.len {
                        Some(Bytes(0)) => {}
                        Some(_) if entry.in_place.is_some() => self.assert_in_place(entry),
                        // The trainer writes over it at once, as one that normalises in place: what
                        // reads it later finds no sample there.
                        Some(_) => {
                            let there = self.plane.arenas.remove(&key);
                            assert_eq!(there.map(|(_, sum)| sum), Some(expected), "{entry:?}");
                        }
                        None => {
                            self.skipped += 1;
                            let of = (batch.id.epoch, batch.id.rank);
                            self.missing.entry(of).or_default().insert(entry.sample);
                        }
                    }
                    let beside = entry.stored.filter(|it| entry.len.is_some() && it.len.0 > 0);
                    if let Some(beside) = beside {
                        let key = (batch.id.rank, offset.0 + beside.offset.0);
                        let there = self.plane.arenas.get(&key);
                        assert_eq!(there, Some(&(beside.len.0, stored)), "beside {entry:?}");
                        self.beside += 1;
                    }
                }
                let trainer = self.trainer(connection);
                assert!(trainer.asked.remove(&batch.id), "invariant 1: leased unasked");
                trainer.leases.push_back((lease, batch.id));
            }
            Answer::Refuse { connection, batch, reason } => {
                let trainer = self.trainer(connection);
                assert!(trainer.asked.remove(&batch), "invariant 1: refused unasked");
                trainer.refused.push((batch, reason));
            }
        }
    }

    fn start(&mut self, op: OpId, operation: Operation) {
        for moved in moved(&operation) {
            *self.moves.entry(moved).or_default() += 1;
        }
        if let Operation::TrimArena { rank, offset, len } = operation {
            self.plane.trimmed.extend(pages(rank, offset, len));
            let range = offset.0..offset.0 + len.0;
            let staged = self.session.staging.get(rank).unwrap().staged().values();
            for piece in staged.map(|staged| staged.piece) {
                let is_apart =
                    piece.offset.0 >= range.end || piece.offset.0 + piece.len.0 <= range.start;
                assert!(is_apart, "{piece:?} is staged where {range:?} is given back");
            }
            self.plane
                .arenas
                .retain(|(other, offset), _| *other != rank || !range.contains(offset));
        }
        self.plane.assert_readable(&operation);
        self.plane.running.push((op, operation));
        let running = self.plane.running.iter();
        let on = |channel| {
            running.clone().filter(|(_, other)| channel_of(other) == Some(channel)).count()
        };
        let Windows { cold, tier, .. } = self.session.settings.windows;
        assert!(on(Channel::Cold) <= cold.get() as usize, "invariant 6");
        let transforms = self.session.settings.transform.as_ref().map(Transform::window);
        let transforms = transforms.map_or(0, |window| window.get() as usize);
        assert!(on(Channel::Transform) <= transforms, "invariant 6");
        for id in 0..3 {
            assert!(on(Channel::Tier(TierId(id))) <= tier.get() as usize, "invariant 6");
        }
    }

    fn trainer(&mut self, connection: ConnectionId) -> &mut Trainer {
        self.trainers.iter_mut().find(|it| it.connection == connection).unwrap()
    }

    /// One step of the world, chosen by `pick`. Returns whether anything could happen.
    fn step(&mut self, pick: usize, faults: usize) -> bool {
        let which = pick % self.trainers.len();
        let can_end = !self.plane.running.is_empty();
        match (pick >> 8) % 3 {
            _ if (pick >> 12).is_multiple_of(4) && self.end_job(pick >> 16) => true,
            _ if (pick >> 14).is_multiple_of(2) && self.stage_more() => true,
            0 if self.take(which) => true,
            1 if self.ask(which) => true,
            _ if can_end => {
                self.end_one(pick >> 16, faults);
                true
            }
            _ => self.stage_more(),
        }
    }

    fn take(&mut self, which: usize) -> bool {
        let trainer = &mut self.trainers[which];
        let connection = trainer.connection;
        let Some((lease, batch)) = trainer.leases.pop_front() else { return false };
        let waited = Nanoseconds(trainer.got.len() as u64 % 5 * 3000);
        trainer.got.push(batch);
        if trainer.keeps {
            trainer.kept.push((lease, batch));
        }
        let keeps = trainer.keeps;
        self.tell(Event::Delivered { connection, lease, wait: Wait::ending(self.now, waited) });
        if !keeps {
            self.give_back(which, lease);
        }
        true
    }

    /// Checks that the bytes that the trainer read lay there all the time.
    fn give_back(&mut self, which: usize, lease: LeaseId) {
        let connection = self.trainers[which].connection;
        let staged = self.session.staging.batches();
        let staged = staged.filter(|staged| staged.claim == Claim::Held(connection, lease));
        let entries = staged.flat_map(|staged| &staged.batch.entries);
        entries
            .filter(|entry| entry.in_place.is_some())
            .for_each(|entry| self.assert_in_place(entry));
        self.tell(Event::Released { connection, lease });
    }

    /// The samples that staged batches name in tiers: batch, claim and index of the entry.
    fn named(&self) -> impl Iterator<Item = (BatchId, Claim, usize)> + '_ {
        let staged = self.session.staging.batches();
        staged.flat_map(|staged| {
            let entries = staged.batch.entries.iter().enumerate();
            let named = entries.filter(|(_, entry)| entry.in_place.is_some());
            named.map(|(at, _)| (staged.batch.id, staged.claim, at))
        })
    }

    fn entry(&self, (batch, _, at): (BatchId, Claim, usize)) -> Option<Entry> {
        let staged = self.session.staging.batch(batch)?;
        staged.batch.entries.get(at).copied()
    }

    fn assert_in_place(&self, entry: &Entry) {
        let (place, len) = (entry.in_place.unwrap(), entry.len.unwrap());
        assert!(place.offset.0.is_multiple_of(64));
        let piece = Piece { chunk: place.chunk, offset: place.offset, len: Space::rounded(len) };
        for grain in grains(&Place { tier: place.tier, pieces: Pieces::One(piece) }) {
            let there = self.plane.tiers.get(&grain);
            assert_eq!(there, Some(&self.plane.cached(entry.sample)), "invariant 9: {entry:?}");
            assert!(self.plane.chunks.contains(&(grain.0, grain.1)), "invariant 9: {entry:?}");
        }
    }

    /// Checks that no copy ends where a batch that was handed over names a sample. Before the hand-over, a
    /// copy that was on its way when the place changed hands may end there: the content of the batch is
    /// checked at the hand-over.
    fn assert_unnamed(&self, operation: &Operation) {
        let (Operation::Prefetch { to, .. }
        | Operation::Advance { to, .. }
        | Operation::Demote { to, .. }) = operation
        else {
            return;
        };
        let is_out = |claim: Claim| matches!(claim, Claim::Leased(..) | Claim::Held(..));
        for at in self.named().filter(|at| is_out(at.1)) {
            let Some(Entry { in_place: Some(place), len: Some(len), .. }) = self.entry(at) else {
                continue;
            };
            let piece =
                Piece { chunk: place.chunk, offset: place.offset, len: Space::rounded(len) };
            let is_apart = place.tier != to.tier || !to.pieces.iter().any(|it| it.overlaps(&piece));
            assert!(is_apart, "invariant 9: {operation:?} while {at:?} names {place:?}");
        }
    }

    fn ask(&mut self, which: usize) -> bool {
        let trainer = &mut self.trainers[which];
        let (connection, outstanding) =
            (trainer.connection, trainer.asked.len() + trainer.leases.len());
        let Some(batch) = trainer.next.filter(|_| trainer.is_admitted && outstanding < 3) else {
            return false;
        };
        trainer.asked.insert(batch);
        trainer.next = self.session.planner.spec().after(batch);
        self.tell(Event::Requested { connection, batch });
        true
    }

    fn end_one(&mut self, pick: usize, faults: usize) {
        let (op, operation) = self.plane.running.swap_remove(pick % self.plane.running.len());
        let may_fail = !matches!(operation, Operation::OpenArena { .. });
        let fails = may_fail && (pick >> 8) % 100 < faults;
        let broken = match &operation {
            Operation::Promote { parts } => {
                let place = &parts[0].from;
                place.pieces.last().map(|piece| Fault::Poisoned(place.tier, piece.chunk))
            }
            Operation::Prefetch { to: place, .. }
            | Operation::Advance { to: place, .. }
            | Operation::Demote { to: place, .. } => {
                place.pieces.last().map(|piece| Fault::Poisoned(place.tier, piece.chunk))
            }
            Operation::Fetch { .. } => Some(self.cold_fault),
            _ => None,
        };
        let is_cold = matches!(operation, Operation::Fetch { .. });
        let fault =
            broken.filter(|_| is_cold || (pick >> 24).is_multiple_of(4)).unwrap_or(Fault::Io);
        let is_transform = matches!(operation, Operation::Transform { .. });
        let fault = if is_transform { Fault::Untransformable } else { fault };
        let outcome = if fails { Err(fault) } else { Ok(()) };
        if let Err(Fault::Poisoned(tier, chunk)) = outcome {
            self.plane.broken.insert((tier, chunk));
        }
        self.assert_unnamed(&operation);
        // Half of a list that fails is done.
        if let (Operation::Promote { parts }, Err(fault), true) =
            (&operation, outcome, (pick >> 16).is_multiple_of(2))
        {
            let (failed, done) = parts.split_at(parts.len().div_ceil(2));
            self.plane.end(&Operation::Promote { parts: done.to_vec() }, Ok(()));
            let parts = (0..failed.len()).map(|part| (part, fault)).collect();
            return self.tell(Event::PartsFailed { op, parts });
        }
        self.plane.end(&operation, outcome);
        self.tell(match operation {
            Operation::Transform { .. } => {
                Event::Transformed { op, outcome, took: Nanoseconds(500) }
            }
            _ => Event::Completed { op, outcome },
        });
    }

    /// Lets operations end until none is left, without trainers.
    fn drain(&mut self) {
        loop {
            if !self.plane.running.is_empty() {
                self.end_one(0, 0);
            } else if !self.stage_more() {
                return;
            }
        }
    }

    fn play(&mut self, picks: &[usize], faults: usize) {
        let mut idle = 0;
        for (i, pick) in picks.iter().cycle().enumerate() {
            let mixed = (pick ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            idle = if self.step(mixed ^ (mixed >> 29), faults) { 0 } else { idle + 1 };
            if idle > 1000 {
                return;
            }
        }
    }

    /// Invariant 1: every batch of a rank was answered once. A job that skips refuses a batch only when the
    /// share of an epoch is used up.
    #[track_caller]
    fn assert_answered(&self, rank: u32) {
        let trainer = &self.trainers[rank as usize];
        let refused = trainer.refused.iter().map(|(batch, _)| *batch);
        let mut answered: Vec<_> = trainer.got.iter().copied().chain(refused).collect();
        answered.sort();
        assert_eq!(answered, self.expected(rank), "invariant 1");
        let is_due = |reason: &Refusal| match self.session.settings.on_error {
            OnError::Skip(_) => matches!(reason, Refusal::TooManySkipped { .. }),
            OnError::Fail => true,
        };
        assert!(trainer.refused.iter().all(|(_, reason)| is_due(reason)), "{:?}", trainer.refused);
    }

    fn is_all_got(&self) -> bool {
        self.trainers.iter().all(|trainer| trainer.refused.is_empty())
    }

    fn expected(&self, rank: u32) -> Vec<BatchId> {
        let first = BatchId { epoch: Epoch(0), step: Step(0), rank: Rank(rank) };
        let spec = *self.session.planner.spec();
        core::iter::successors(Some(first), |batch| spec.after(*batch)).collect()
    }
}

fn any_look_ahead() -> impl Strategy<Value = LookAhead> {
    prop_oneof![
        Just(LookAhead::Off),
        Just(LookAhead::Auto),
        (0_u64..5_000).prop_map(|room| LookAhead::Room(Bytes(room)))
    ]
}

fn any_policy() -> impl Strategy<Value = policy::Kind> {
    prop::sample::select(&policy::Kind::ALL[..])
}

/// Two ranks that are staged ahead, with one read at a time, none of which has ended.
fn staged_ahead(policy: policy::Kind, samples: u32) -> Play {
    let mut settings = settings(policy, samples, 2, OnError::Fail);
    settings.windows = windows(1, 1);
    let mut world = Play::new(&settings);
    let is_arena = |(_, operation): &_| matches!(operation, Operation::OpenArena { .. });
    while let Some(at) = world.plane.running.iter().position(is_arena) {
        let (op, _) = world.plane.running.remove(at);
        world.tell(Event::Completed { op, outcome: Ok(()) });
    }
    world
}
