//! Sessions under every order of completions, with faults and trainers that come and go.

mod limited;
mod shown;

use alloc::{collections::BTreeSet, vec};
use core::num::NonZeroU32;

use proptest::prelude::*;

use super::{
    line::Link,
    staging::{Arena, Taker},
    *,
};
use crate::{
    batch::{Entry, Shown},
    id::{ChunkId, Epoch, LeaseId, Step},
    order::{Position, Shuffle, World},
    space::{Piece, Space},
    tier::Kind as TierKind,
    units::Nanoseconds,
};

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
        },
        node: NodeId(0),
        sizes: (0..u64::from(samples)).map(|i| Bytes(i * 37 % 400)).collect(),
        tiers: [2, 1, 3]
            .map(|chunks_max| Buffer { kind: TierKind::CxlMemory, chunks_max })
            .to_vec(),
        chunk: Bytes(1024),
        policy,
        staged_batches: 3,
        arena: Bytes(4 * 4096),
        on_error,
        windows: windows(3, 2),
        aim: policy::Aim::default(),
        shows: Vec::new(),
    }
}

fn windows(cold: u32, tier: u32) -> Windows {
    let window = |count| NonZeroU32::new(count).unwrap();
    Windows { cold: window(cold), tier: window(tier), ..Windows::default() }
}

/// A body that checks what the brain asks for: places hold what was put there, or nothing.
#[derive(Debug, Default)]
struct Body {
    running: Vec<Command>,
    /// What lies where: one entry for each grain.
    tiers: BTreeMap<(TierId, ChunkId, u64), SampleId>,
    arenas: BTreeMap<(Rank, u64), SampleId>,
    /// Where bytes lie that were fetched to be read once.
    unvouched: BTreeSet<(Rank, u64)>,
    chunks: BTreeSet<(TierId, ChunkId)>,
    /// Bytes that were copied to tiers.
    demoted: u64,
    /// Chunks whose memory broke, as the session was told.
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

impl Body {
    fn arrive(&mut self, sample: SampleId, slot: Slot) {
        if slot.len.0 > 0 {
            let mut pages = pages(slot.rank, slot.offset, slot.len);
            assert!(pages.all(|page| !self.trimmed.contains(&page)), "no memory at {slot:?}");
            self.arenas.insert((slot.rank, slot.offset.0), sample);
            self.unvouched.remove(&(slot.rank, slot.offset.0));
        }
    }

    /// Ends a running command; what it moves arrives only now.
    fn end(&mut self, command: &Command, outcome: Result<(), Fault>) {
        match command {
            Command::AddChunk { tier, chunk, .. } if outcome.is_ok() => {
                assert!(self.chunks.insert((*tier, *chunk)), "{chunk:?} was added twice");
            }
            Command::Fetch { sample, to, retention, .. } if outcome.is_ok() => {
                self.arrive(*sample, *to);
                // An empty one has the place of its neighbour.
                if *retention == Retention::Dropped && to.len.0 > 0 {
                    self.unvouched.insert((to.rank, to.offset.0));
                }
            }
            Command::RestoreArena { rank, offset, len, .. } if outcome.is_ok() => {
                for page in pages(*rank, *offset, *len) {
                    assert!(self.trimmed.remove(&page), "{page:?} was there");
                }
            }
            Command::Promote { sample, from, to, .. } if outcome.is_ok() => {
                for grain in grains(from) {
                    assert_eq!(self.tiers.get(&grain), Some(sample), "invariant 3: {command:?}");
                }
                self.arrive(*sample, *to);
            }
            Command::Demote { sample, from, to, .. } if outcome.is_ok() => {
                self.demoted += to.pieces.iter().map(|piece| piece.len.0).sum::<u64>();
                match from {
                    Origin::Staging(slot) if slot.len.0 == 0 => {}
                    Origin::Staging(slot) => {
                        let there = self.arenas.get(&(slot.rank, slot.offset.0));
                        assert_eq!(there, Some(sample), "invariant 3: {command:?}");
                        let is_unvouched = self.unvouched.contains(&(slot.rank, slot.offset.0));
                        assert!(!is_unvouched, "kept, though fetched to be dropped: {command:?}");
                    }
                    Origin::Tier(place) => {
                        for grain in grains(place) {
                            assert_eq!(self.tiers.get(&grain), Some(sample), "invariant 3");
                        }
                    }
                }
                for grain in grains(to) {
                    assert!(self.chunks.contains(&(grain.0, grain.1)), "written before added");
                    self.tiers.insert(grain, *sample);
                }
            }
            _ => {}
        }
    }
}

fn link_of(command: &Command) -> Option<Link> {
    match command {
        Command::Fetch { .. } => Some(Link::Cold),
        Command::Promote { from, .. } => Some(Link::Tier(from.tier)),
        Command::Demote { to, .. } => Some(Link::Tier(to.tier)),
        _ => None,
    }
}

/// A trainer of one rank that asks ahead and checks what it gets.
#[derive(Debug)]
struct Trainer {
    holder: HolderId,
    rank: Rank,
    is_admitted: bool,
    next: Option<BatchId>,
    asked: BTreeSet<BatchId>,
    leases: VecDeque<(LeaseId, BatchId)>,
    /// Whether it keeps every batch that it takes.
    keeps: bool,
    kept: Vec<(LeaseId, BatchId)>,
    got: Vec<BatchId>,
    refused: Vec<(BatchId, Refusal)>,
}

impl Trainer {
    fn new(rank: u32) -> Self {
        let rank = Rank(rank);
        Self {
            holder: HolderId(u64::from(rank.0) + 10),
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
    body: Body,
    trainers: Vec<Trainer>,
    skipped: u64,
    now: Nanoseconds,
}

impl Play {
    fn new(settings: &Settings) -> Self {
        let ranks = settings.order.world.ranks_per_node;
        let mut world = Self {
            session: Session::new(settings.clone()),
            body: Body::default(),
            trainers: (0..ranks).map(Trainer::new).collect(),
            skipped: 0,
            now: Nanoseconds(0),
        };
        for i in 0..world.trainers.len() {
            let (holder, rank) = (world.trainers[i].holder, world.trainers[i].rank);
            world.tell(Event::Attached { holder, rank });
        }
        world
    }

    fn tell(&mut self, event: Event) {
        self.now.0 += 1000;
        self.session.handle(event, self.now);
        while let Some(command) = self.session.poll_command() {
            self.obey(command);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Admit { holder, .. } => self.trainer(holder).is_admitted = true,
            Command::Lease { holder, lease, offset, batch } => {
                for entry in &batch.entries {
                    let is_broken = |it: Shown| self.body.broken.contains(&(it.tier, it.chunk));
                    assert!(!entry.shown.is_some_and(is_broken), "{entry:?} is known to be broken");
                    let key = (batch.id.rank, offset.0 + entry.offset.0);
                    match entry.len {
                        Some(Bytes(0)) => {}
                        Some(_) if entry.shown.is_some() => self.assert_shown(entry),
                        Some(_) => assert_eq!(self.body.arenas.get(&key), Some(&entry.sample)),
                        None => self.skipped += 1,
                    }
                }
                let trainer = self.trainer(holder);
                assert!(trainer.asked.remove(&batch.id), "invariant 1: leased unasked");
                trainer.leases.push_back((lease, batch.id));
            }
            Command::Refuse { holder, batch, reason } => {
                let trainer = self.trainer(holder);
                assert!(trainer.asked.remove(&batch), "invariant 1: refused unasked");
                trainer.refused.push((batch, reason));
            }
            Command::DropChunk { tier, chunk } => {
                let names_it = |shown: &Shown| (shown.tier, shown.chunk) == (tier, chunk);
                let is_named =
                    self.named().filter_map(|at| self.entry(at)?.shown).any(|it| names_it(&it));
                assert!(!is_named, "invariant 9: {chunk:?} is named");
                let was_there = self.body.chunks.remove(&(tier, chunk));
                assert!(was_there, "{chunk:?} was dropped before it was added");
            }
            Command::CloseArena { rank } => {
                self.body.arenas.retain(|(other, _), _| *other != rank);
                self.body.trimmed.retain(|(other, _)| *other != rank);
            }
            Command::Reject { .. } => panic!("no one is turned away"),
            command => {
                if let Command::TrimArena { rank, offset, len, .. } = command {
                    self.body.trimmed.extend(pages(rank, offset, len));
                    let range = offset.0..offset.0 + len.0;
                    let staged = self.session.ranks[&rank].staged.values();
                    for piece in staged.map(|staged| staged.piece) {
                        let is_apart = piece.offset.0 >= range.end
                            || piece.offset.0 + piece.len.0 <= range.start;
                        assert!(is_apart, "{piece:?} is staged where {range:?} is given back");
                    }
                    self.body
                        .arenas
                        .retain(|(other, offset), _| *other != rank || !range.contains(offset));
                }
                self.body.running.push(command);
                let on = |link| {
                    self.body.running.iter().filter(|other| link_of(other) == Some(link)).count()
                };
                let Windows { cold, tier, .. } = self.session.settings.windows;
                assert!(on(Link::Cold) <= cold.get() as usize, "invariant 6");
                for id in 0..3 {
                    assert!(on(Link::Tier(TierId(id))) <= tier.get() as usize, "invariant 6");
                }
            }
        }
    }

    fn trainer(&mut self, holder: HolderId) -> &mut Trainer {
        self.trainers.iter_mut().find(|it| it.holder == holder).unwrap()
    }

    /// One step of the world, chosen by `pick`. Returns whether anything could happen.
    fn step(&mut self, pick: usize, faults: usize) -> bool {
        let which = pick % self.trainers.len();
        let can_end = !self.body.running.is_empty();
        match (pick >> 8) % 3 {
            0 if self.take(which) => true,
            1 if self.ask(which) => true,
            _ if can_end => {
                self.end_one(pick >> 16, faults);
                true
            }
            _ => false,
        }
    }

    fn take(&mut self, which: usize) -> bool {
        let trainer = &mut self.trainers[which];
        let holder = trainer.holder;
        let Some((lease, batch)) = trainer.leases.pop_front() else { return false };
        let waited = Nanoseconds(trainer.got.len() as u64 % 5 * 3000);
        trainer.got.push(batch);
        if trainer.keeps {
            trainer.kept.push((lease, batch));
        }
        let keeps = trainer.keeps;
        self.tell(Event::Delivered { holder, lease, waited });
        if !keeps {
            self.give_back(which, lease);
        }
        true
    }

    /// What the trainer read is what lay there all the time.
    fn give_back(&mut self, which: usize, lease: LeaseId) {
        let holder = self.trainers[which].holder;
        let staged = self.session.ranks.values().flat_map(|staging| staging.staged.values());
        let staged = staged.filter(|staged| staged.taker == Taker::Held(holder, lease));
        let entries = staged.flat_map(|staged| &staged.batch.entries);
        entries.filter(|entry| entry.shown.is_some()).for_each(|entry| self.assert_shown(entry));
        self.tell(Event::Released { holder, lease });
    }

    /// Every sample that a staged batch names where it lies: batch, who it is for, and which of its entries.
    fn named(&self) -> impl Iterator<Item = (BatchId, Taker, usize)> + '_ {
        let staged = self.session.ranks.values().flat_map(|staging| staging.staged.values());
        staged.flat_map(|staged| {
            let entries = staged.batch.entries.iter().enumerate();
            let named = entries.filter(|(_, entry)| entry.shown.is_some());
            named.map(|(at, _)| (staged.batch.id, staged.taker, at))
        })
    }

    fn entry(&self, (batch, _, at): (BatchId, Taker, usize)) -> Option<Entry> {
        let staged = self.session.ranks[&batch.rank].staged.get(&batch)?;
        staged.batch.entries.get(at).copied()
    }

    fn assert_shown(&self, entry: &Entry) {
        let (shown, len) = (entry.shown.unwrap(), entry.len.unwrap());
        assert!(shown.offset.0.is_multiple_of(64));
        let piece = Piece { chunk: shown.chunk, offset: shown.offset, len: Space::rounded(len) };
        for grain in grains(&Place { tier: shown.tier, pieces: vec![piece] }) {
            let there = self.body.tiers.get(&grain);
            assert_eq!(there, Some(&entry.sample), "invariant 9: {entry:?}");
            assert!(self.body.chunks.contains(&(grain.0, grain.1)), "invariant 9: {entry:?}");
        }
    }

    /// No copy may end where a batch that was handed over names a sample. Before that, one that was on its
    /// way when the place changed hands may: what the batch is handed over with is looked at then.
    fn assert_unnamed(&self, command: &Command) {
        let Command::Demote { to, .. } = command else { return };
        let is_out = |taker: Taker| matches!(taker, Taker::Leased(..) | Taker::Held(..));
        for at in self.named().filter(|at| is_out(at.1)) {
            let Some(Entry { shown: Some(shown), len: Some(len), .. }) = self.entry(at) else {
                continue;
            };
            let piece =
                Piece { chunk: shown.chunk, offset: shown.offset, len: Space::rounded(len) };
            let is_apart = shown.tier != to.tier || !to.pieces.iter().any(|it| it.overlaps(&piece));
            assert!(is_apart, "invariant 9: {command:?} while {at:?} names {shown:?}");
        }
    }

    fn ask(&mut self, which: usize) -> bool {
        let trainer = &mut self.trainers[which];
        let (holder, outstanding) = (trainer.holder, trainer.asked.len() + trainer.leases.len());
        let Some(batch) = trainer.next.filter(|_| trainer.is_admitted && outstanding < 3) else {
            return false;
        };
        trainer.asked.insert(batch);
        trainer.next = self.session.horizon.spec().after(batch);
        self.tell(Event::Requested { holder, batch });
        true
    }

    fn end_one(&mut self, pick: usize, faults: usize) {
        let command = self.body.running.swap_remove(pick % self.body.running.len());
        let may_fail = !matches!(command, Command::OpenArena { .. });
        let fails = may_fail && (pick >> 8) % 100 < faults;
        let broken = match &command {
            Command::Promote { from: place, .. } | Command::Demote { to: place, .. } => {
                place.pieces.last().map(|piece| Fault::Poisoned(place.tier, piece.chunk))
            }
            _ => None,
        };
        let fault = broken.filter(|_| (pick >> 24).is_multiple_of(4)).unwrap_or(Fault::Io);
        let outcome = if fails { Err(fault) } else { Ok(()) };
        if let Err(Fault::Poisoned(tier, chunk)) = outcome {
            self.body.broken.insert((tier, chunk));
        }
        self.assert_unnamed(&command);
        self.body.end(&command, outcome);
        self.tell(Event::Completed { op: command.op().unwrap(), outcome });
    }

    /// Lets operations end until none is left; no trainer does anything.
    fn drain(&mut self) {
        while !self.body.running.is_empty() {
            self.end_one(0, 0);
        }
    }

    /// Plays until nothing can happen any more.
    fn play(&mut self, picks: &[usize], faults: usize) {
        let mut idle = 0;
        for (i, pick) in picks.iter().cycle().enumerate() {
            let mixed = (pick ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            idle = if self.step(mixed ^ (mixed >> 29), faults) { 0 } else { idle + 1 };
            if idle > 100 {
                return;
            }
        }
    }

    fn expected(&self, rank: u32) -> Vec<BatchId> {
        let first = BatchId { epoch: Epoch(0), step: Step(0), rank: Rank(rank) };
        let spec = *self.session.horizon.spec();
        core::iter::successors(Some(first), |batch| spec.after(*batch)).collect()
    }
}

fn any_policy() -> impl Strategy<Value = policy::Kind> {
    prop::sample::select(&policy::Kind::ALL[..])
}

proptest! {
    #[test]
    fn every_rank_gets_every_batch_in_order_whatever_ends_first(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        samples in 1_u32..60,
        ranks in 1_u32..4,
    ) {
        let settings = settings(policy, samples, ranks, OnError::Fail);
        let mut world = Play::new(&settings);
        world.play(&picks, 0);
        for rank in 0..ranks {
            prop_assert_eq!(&world.trainers[rank as usize].got, &world.expected(rank));
        }
        prop_assert_eq!(world.session.in_flight(), 0);
        let again = {
            let mut world = Play::new(&settings);
            world.play(&picks, 0);
            world.session.progress().epochs.clone()
        };
        prop_assert_eq!(&again, &world.session.progress().epochs, "invariant 4");
    }

    #[test]
    fn faults_cost_samples_but_never_a_batch(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        faults in 1_usize..40,
        skip: bool,
    ) {
        let on_error = if skip { OnError::Skip } else { OnError::Fail };
        let settings = settings(policy, 50, 2, on_error);
        let mut world = Play::new(&settings);
        world.play(&picks, faults);
        let spec = settings.order;
        for rank in 0..2 {
            let trainer = &world.trainers[rank as usize];
            let mut answered: Vec<_> = trainer.refused.iter().map(|(batch, _)| *batch).collect();
            answered.extend(&trainer.got);
            answered.sort();
            prop_assert_eq!(answered, world.expected(rank), "invariant 1");
            if skip {
                prop_assert!(trainer.refused.is_empty());
            }
            prop_assert!(spec.contains(trainer.got.first().copied().unwrap_or(world.expected(rank)[0])));
        }
        let progress = world.session.progress();
        if skip {
            prop_assert_eq!(progress.fault_count, world.skipped);
        }
        for epoch in &progress.epochs {
            prop_assert_eq!(epoch.causes.total(), epoch.stall, "every wait has its causes");
        }
        let links = progress.tiers_busy.iter().chain([&progress.cold_busy]);
        prop_assert!(links.clone().all(|link| link.running() == 0), "{links:?}");
        let refused: u64 = world.trainers.iter().map(|it| it.refused.len() as u64).sum();
        prop_assert_eq!(progress.refusals.unreadable, refused);
        prop_assert_eq!(world.session.in_flight(), 0);
    }

    #[test]
    fn a_trainer_that_dies_leaves_nothing_staged_and_the_next_one_goes_on(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        dies_after in 0_usize..80,
    ) {
        let settings = settings(policy, 50, 1, OnError::Fail);
        let mut world = Play::new(&settings);
        for pick in picks.iter().cycle().take(dies_after) {
            world.step(pick.wrapping_mul(0x9e37_79b9_7f4a_7c15), 0);
        }
        let dead = core::mem::replace(&mut world.trainers[0], Trainer::new(0));
        world.trainers[0].holder = HolderId(99);
        world.tell(Event::Gone { holder: dead.holder });
        world.drain();
        let staging = &world.session.ranks[&Rank(0)];
        prop_assert!(staging.wanted.is_empty());
        // Who never came in leaves what was staged before anyone came.
        let expected = if dead.is_admitted { Arena::Closed } else { Arena::Open };
        prop_assert_eq!(staging.arena, expected);
        prop_assert!(staging.staged.is_empty() || !dead.is_admitted);

        world.trainers[0].next = dead.got.last().map_or(
            world.trainers[0].next, |last| settings.order.after(*last),
        );
        world.tell(Event::Attached { holder: HolderId(99), rank: Rank(0) });
        world.play(&picks, 0);
        let mut got = dead.got.clone();
        got.extend(&world.trainers[0].got);
        prop_assert_eq!(got, world.expected(0));
    }

    #[test]
    fn every_request_is_answered_whoever_asks_for_what_and_keeps_what(
        acts in prop::collection::vec((0_usize..3, 0_u32..4, 0_u32..3, 0_u32..7), 1..120),
        policy in any_policy(),
        faults in 0_usize..20,
    ) {
        let mut world = Play::new(&settings(policy, 50, 1, OnError::Fail));
        world.trainers = (0..3).map(|_| Trainer::new(0)).collect();
        for (i, trainer) in world.trainers.iter_mut().enumerate() {
            trainer.holder = HolderId(50 + i as u64);
        }
        world.tell(Event::Gone { holder: HolderId(10) });
        for i in 0..3 {
            let (holder, rank) = (world.trainers[i].holder, Rank(0));
            world.tell(Event::Attached { holder, rank });
        }
        world.drain();
        for (who, act, epoch, step) in acts {
            let holder = world.trainers[who].holder;
            match act {
                0 | 1 => {
                    let batch = BatchId { epoch: Epoch(epoch), step: Step(step), rank: Rank(0) };
                    if world.trainers[who].asked.insert(batch) {
                        world.tell(Event::Requested { holder, batch });
                    }
                }
                2 => {
                    world.take(who);
                }
                _ => {
                    if !world.body.running.is_empty() {
                        world.end_one((epoch * 7 + step) as usize, faults);
                    }
                }
            }
        }
        world.drain();
        // Some give back what they have, some keep it: nobody may wait for ever.
        while world.take(0) || world.take(1) {
            world.drain();
        }
        while let Some((lease, _)) = world.trainers[2].leases.pop_front() {
            let holder = world.trainers[2].holder;
            world.tell(Event::Delivered { holder, lease, waited: Nanoseconds(0) });
            world.drain();
            while world.take(0) || world.take(1) {
                world.drain();
            }
        }
        for trainer in &world.trainers {
            prop_assert!(trainer.asked.is_empty(), "{:?} waits for {:?}", trainer.holder, trainer.asked);
        }
    }

    #[test]
    fn chunks_that_fail_and_tiers_that_change_lose_no_batch(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        resizes in prop::collection::vec((0_u8..3, 0_u32..4), 1..12),
        faults in 1_usize..40,
    ) {
        let settings = settings(policy, 50, 2, OnError::Skip);
        let mut world = Play::new(&settings);
        for (tier, chunks_max) in resizes {
            for pick in picks.iter().cycle().take(25) {
                world.step(pick.wrapping_mul(0x9e37_79b9_7f4a_7c15), faults);
            }
            world.tell(Event::Resized { tier: TierId(tier), chunks_max });
        }
        world.play(&picks, faults);
        for rank in 0..2 {
            prop_assert_eq!(&world.trainers[rank as usize].got, &world.expected(rank));
        }
        prop_assert_eq!(world.session.in_flight(), 0);
    }

    #[test]
    fn tiers_that_change_lose_no_batch_however_threads_are_divided(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        resizes in prop::collection::vec((0_u8..3, 0_u32..4), 1..12),
    ) {
        let mut settings = settings(policy, 50, 2, OnError::Fail);
        let rule = Assignment::ALL[picks[0] % Assignment::ALL.len()];
        settings.windows.assignment = rule;
        let mut world = Play::new(&settings);
        for (tier, chunks_max) in resizes {
            for pick in picks.iter().cycle().take(25) {
                world.step(pick.wrapping_mul(0x9e37_79b9_7f4a_7c15), 0);
            }
            prop_assert_eq!(world.session.queues().len(), 2);
            let division = Division::Queues(vec![chunks_max, u32::from(tier)]);
            world.session.divide(&division);
            world.tell(Event::Resized { tier: TierId(tier), chunks_max });
        }
        world.play(&picks, 0);
        for rank in 0..2 {
            prop_assert_eq!(&world.trainers[rank as usize].got, &world.expected(rank));
        }
    }
}

#[test]
fn a_batch_that_was_ready_has_a_lead_and_one_that_was_read_late_a_cause() {
    let mut world = staged_ahead(policy::Kind::None, 40);
    let opened = world.session.ranks[&Rank(0)].opened_at;
    assert!(world.ask(0));
    world.drain();
    let (holder, lease) = (world.trainers[0].holder, world.trainers[0].leases[0].0);
    let ready = world.session.ranks[&Rank(0)].staged.values().next().unwrap().marks.ready();
    world.now.0 += 500_000;
    let waited = Nanoseconds(world.now.0 + 1000);
    world.tell(Event::Delivered { holder, lease, waited });
    let taken = world.session.progress().taken.clone().unwrap();
    assert_eq!((taken.ready, taken.at, taken.waited), (ready, waited, waited));
    assert_eq!(taken.lead(), Nanoseconds(0));
    // The trainer waits from the very beginning: for the arena, then for the reads, then for nothing
    // that the agent could do.
    assert_eq!(taken.causes.start, opened);
    assert_eq!(taken.causes.cold, Nanoseconds(ready.0 - opened.0));
    assert_eq!(taken.causes.total(), waited);
    assert_eq!(world.session.progress().first_stall, waited);
    assert_eq!(world.session.progress().epochs[0].late, 1);
    world.now.0 += 7000;
    world.tell(Event::Released { holder, lease });
    assert_eq!(world.session.progress().holds.sum(), Nanoseconds(8000));

    assert!(world.ask(0));
    world.drain();
    let (lease, _) = world.trainers[0].leases[1];
    world.now.0 += 90_000;
    world.tell(Event::Delivered { holder, lease, waited: Nanoseconds(2000) });
    let taken = world.session.progress().taken.clone().unwrap();
    assert_eq!(taken.lead().0, world.now.0 - 2000 - taken.ready.0);
    assert_eq!(taken.causes.hand_off, Nanoseconds(2000));
    assert_eq!(world.session.progress().first_stall, waited, "the second is not the first");
    assert_eq!(world.session.progress().epochs[0].late, 1);
}

#[test]
fn a_batch_is_ready_from_its_last_sample_until_a_trainer_takes_it() {
    let mut world = staged_ahead(policy::Kind::None, 400);
    let ready = |world: &Play| world.session.ready().map(|(_, count)| count).collect::<Vec<_>>();
    assert_eq!(ready(&world), [0, 0], "staged, and nothing read yet");
    world.drain();
    assert_eq!(ready(&world), [3, 3]);
    assert!(world.ask(0));
    assert_eq!(ready(&world), [3, 3], "handed over, and still in the ring");
    let (holder, lease) = (world.trainers[0].holder, world.trainers[0].leases[0].0);
    world.tell(Event::Delivered { holder, lease, waited: Nanoseconds(0) });
    assert_eq!(ready(&world), [2, 3]);
}

#[test]
fn what_is_read_for_a_batch_that_is_skipped_is_wasted() {
    let mut world = staged_ahead(policy::Kind::None, 400);
    world.drain();
    let staged = &world.session.ranks[&Rank(0)].staged;
    let read: u64 = staged.values().map(|staged| staged.batch.payload().0).sum();
    let (holder, batch) =
        (world.trainers[0].holder, BatchId { epoch: Epoch(1), step: Step(3), rank: Rank(0) });
    assert_eq!(world.session.wasted(), Bytes(0));
    world.trainers[0].asked.insert(batch);
    world.tell(Event::Requested { holder, batch });
    assert_eq!(world.session.wasted(), Bytes(read));
}

#[test]
fn what_an_epoch_writes_is_what_arrives_in_the_tiers() {
    let mut world = Play::new(&settings(policy::Kind::Gap, 50, 1, OnError::Fail));
    world.play(&[1], 0);
    let epochs = &world.session.progress().epochs;
    let all: u64 = epochs.iter().flat_map(|epoch| &epoch.written).map(|bytes| bytes.0).sum();
    assert!(epochs[0].written[0].0 > 0, "the first epoch fills the tiers");
    assert_eq!(all, world.body.demoted, "whole grains, each copy once");
}

#[test]
fn a_rank_that_never_comes_holds_up_no_other() {
    let mut world = Play::new(&settings(policy::Kind::Gap, 50, 2, OnError::Fail));
    world.trainers[1].next = None;
    world.play(&[1], 0);
    assert_eq!(world.trainers[0].got, world.expected(0));
    assert_eq!(world.session.ranks[&Rank(1)].staged.len(), 3, "rank 1 waits, staged ahead");
}

#[test]
fn a_trainer_that_keeps_every_batch_is_refused_not_blocked() {
    let mut world = Play::new(&settings(policy::Kind::None, 50, 1, OnError::Fail));
    let holder = world.trainers[0].holder;
    world.drain();
    for batch in world.expected(0) {
        world.trainers[0].asked.insert(batch);
        world.tell(Event::Requested { holder, batch });
        world.drain();
        while let Some((lease, _)) = world.trainers[0].leases.pop_front() {
            world.tell(Event::Delivered { holder, lease, waited: Nanoseconds(0) });
        }
    }
    let refused = &world.trainers[0].refused;
    assert!(!refused.is_empty());
    assert!(refused.iter().all(|(_, reason)| *reason == Refusal::NoRoom), "{refused:?}");
    assert!(world.trainers[0].asked.is_empty());
}

#[test]
fn a_batch_larger_than_the_arena_is_refused_with_both_sizes() {
    let mut settings = settings(policy::Kind::Gap, 8, 1, OnError::Fail);
    settings.sizes = (0..8).map(|_| Bytes(5000)).collect();
    let mut world = Play::new(&settings);
    let holder = world.trainers[0].holder;
    let batch = world.expected(0)[0];
    world.drain();
    world.trainers[0].asked.insert(batch);
    world.tell(Event::Requested { holder, batch });
    let reason = Refusal::TooLarge { needed: Bytes(20480), arena: Bytes(16384) };
    assert_eq!(world.trainers[0].refused, [(batch, reason)]);
}

#[test]
fn an_unpublished_epoch_is_refused_and_a_published_one_is_served() {
    let mut settings = settings(policy::Kind::Gap, 8, 1, OnError::Fail);
    settings.order.shuffle = Shuffle::Published;
    let mut world = Play::new(&settings);
    let holder = world.trainers[0].holder;
    let batch = world.expected(0)[0];
    world.drain();
    world.trainers[0].asked.insert(batch);
    world.tell(Event::Requested { holder, batch });
    assert_eq!(world.trainers[0].refused, [(batch, Refusal::NotPublished)]);
    let samples: Vec<_> = [7, 3, 1, 0, 2].map(SampleId).to_vec();
    world.tell(Event::Published { rank: Rank(0), epoch: Epoch(0), samples });
    world.trainers[0].asked.insert(batch);
    world.tell(Event::Requested { holder, batch });
    world.drain();
    assert_eq!(world.trainers[0].leases.len(), 1);
}

#[test]
fn batches_that_nobody_takes_do_not_end_the_look_ahead() {
    let mut world = Play::new(&settings(policy::Kind::Gap, 50, 1, OnError::Fail));
    let holder = world.trainers[0].holder;
    world.drain();
    // As a loader with `drop_last` does: the last batch of each epoch is never asked for.
    let taken = world.expected(0).into_iter().filter(|batch| batch.step.0 != 12);
    for batch in taken {
        world.trainers[0].asked.insert(batch);
        world.tell(Event::Requested { holder, batch });
        world.drain();
        assert!(world.take(0), "{batch:?}");
    }
    let last = BatchId { epoch: Epoch(2), step: Step(12), rank: Rank(0) };
    let staged: Vec<_> = world.session.ranks[&Rank(0)].staged.keys().copied().collect();
    assert_eq!(staged, [last], "staged ahead to the end, and nothing is left from before");
}

#[test]
fn a_jump_back_takes_the_look_ahead_along() {
    let mut world = Play::new(&settings(policy::Kind::Gap, 400, 1, OnError::Fail));
    let holder = world.trainers[0].holder;
    world.drain();
    for (epoch, step) in [(2, 99), (0, 3)] {
        let batch = BatchId { epoch: Epoch(epoch), step: Step(step), rank: Rank(0) };
        world.trainers[0].asked.insert(batch);
        world.tell(Event::Requested { holder, batch });
        world.drain();
        assert!(world.take(0));
    }
    world.drain();
    let staged: Vec<u32> =
        world.session.ranks[&Rank(0)].staged.keys().map(|batch| batch.step.0).collect();
    assert_eq!(staged, [4, 5, 6]);
}

#[test]
fn an_order_that_changes_is_never_mixed_with_the_old_one() {
    republish(true);
}

#[test]
fn nor_when_the_old_one_is_still_on_its_way() {
    republish(false);
}

fn republish(is_staged_before: bool) {
    let mut settings = settings(policy::Kind::Gap, 8, 1, OnError::Fail);
    settings.order.shuffle = Shuffle::Published;
    let mut world = Play::new(&settings);
    world.drain();
    let holder = world.trainers[0].holder;
    let batch = world.expected(0)[0];
    let publish = |first: u32| Event::Published {
        rank: Rank(0),
        epoch: Epoch(0),
        samples: [first, 1, 2].map(SampleId).to_vec(),
    };
    world.tell(publish(0));
    if is_staged_before {
        world.drain();
    }
    world.tell(publish(7));
    world.trainers[0].asked.insert(batch);
    world.tell(Event::Requested { holder, batch });
    world.drain();
    let staged = &world.session.ranks[&Rank(0)].staged[&batch];
    assert_eq!(staged.batch.entries[0].sample, SampleId(7));
    let past_the_end = BatchId { step: Step(1), ..batch };
    world.trainers[0].asked.insert(past_the_end);
    world.tell(Event::Requested { holder, batch: past_the_end });
    assert_eq!(world.trainers[0].refused, [(past_the_end, Refusal::NotInOrder)]);
}

#[test]
fn no_more_operations_run_than_the_settings_say() {
    let mut settings = settings(policy::Kind::Fifo, 60, 1, OnError::Fail);
    settings.arena = Bytes(1 << 20);
    settings.windows = windows(u32::MAX, u32::MAX);
    let operations_max = settings.operations_max();
    let mut world = Play::new(&settings);
    let holder = world.trainers[0].holder;
    world.drain();
    for batch in world.expected(0) {
        world.trainers[0].asked.insert(batch);
        world.tell(Event::Requested { holder, batch });
    }
    let mut most = 0;
    while !world.body.running.is_empty() {
        most = most.max(world.body.running.len());
        world.end_one(0, 0);
    }
    assert_eq!(most, operations_max);
    assert!(world.trainers[0].asked.is_empty());
}

#[test]
fn a_batch_that_waits_for_what_is_on_its_way_gets_its_room_in_the_end() {
    let mut settings = settings(policy::Kind::None, 50, 1, OnError::Fail);
    settings.arena = Bytes(4096);
    let mut world = Play::new(&settings);
    let holder = world.trainers[0].holder;
    let at = |epoch| BatchId { epoch: Epoch(epoch), step: Step(0), rank: Rank(0) };
    world.drain();
    for epoch in [1, 0] {
        world.trainers[0].asked.insert(at(epoch));
        world.tell(Event::Requested { holder, batch: at(epoch) });
        if epoch == 1 {
            world.drain();
            assert!(world.take(0));
        }
    }
    assert!(!world.body.running.is_empty(), "the batch after the first is on its way");
    world.drain();
    assert!(world.take(0), "{:?}", world.trainers[0].refused);
}

#[test]
fn a_chunk_that_fails_late_takes_no_other_chunk_with_it() {
    let mut settings = settings(policy::Kind::Gap, 50, 1, OnError::Fail);
    settings.tiers.truncate(1);
    let mut world = Play::new(&settings);
    let arena = world.body.running.swap_remove(0);
    world.body.end(&arena, Ok(()));
    world.tell(Event::Completed { op: arena.op().unwrap(), outcome: Ok(()) });
    let is_chunk = |command: &Command| matches!(command, Command::AddChunk { .. });
    for chunks_max in [0, 2] {
        world.tell(Event::Resized { tier: TierId(0), chunks_max });
    }
    let late = world.body.running.iter().position(is_chunk).unwrap();
    let late = world.body.running.swap_remove(late);
    world.tell(Event::Completed { op: late.op().unwrap(), outcome: Err(Fault::NoSpace) });
    world.play(&[3, 5, 7], 0);
    let known = world.session.cache.chunk_count(TierId(0));
    assert_eq!(world.body.chunks.len(), known as usize);
    assert_eq!(known, 2, "the tier may have two chunks and there is enough to keep");
}

#[test]
fn a_chunk_whose_memory_breaks_is_given_back_with_all_that_lies_in_it() {
    let mut settings = settings(policy::Kind::Gap, 50, 1, OnError::Fail);
    settings.tiers.truncate(1);
    let mut world = Play::new(&settings);
    let is_promotion = |command: &Command| matches!(command, Command::Promote { .. });
    while !world.body.running.iter().any(is_promotion) {
        world.take(0);
        world.ask(0);
        world.end_one(0, 0);
    }
    let at = world.body.running.iter().position(is_promotion).unwrap();
    let promotion = world.body.running.swap_remove(at);
    let Command::Promote { op, sample, from, .. } = promotion else { unreachable!() };
    let chunk = from.pieces[0].chunk;
    let fault = Fault::Poisoned(from.tier, chunk);
    world.tell(Event::Completed { op, outcome: Err(fault) });
    assert_eq!(world.session.cache.place(sample), None);
    let left = world.session.cache.chunk_count(from.tier);
    assert_eq!(left, 1, "of two");
    world.play(&[3, 5, 7], 0);
    assert!(!world.body.chunks.contains(&(from.tier, chunk)), "it was given back");
    assert_eq!(world.trainers[0].got, world.expected(0));
}

#[test]
fn staging_memory_that_is_lost_refuses_a_batch_so_that_the_trainer_reads_it() {
    for on_error in [OnError::Fail, OnError::Skip] {
        let mut world = Play::new(&settings(policy::Kind::None, 50, 1, on_error));
        world.end_one(0, 0);
        assert!(world.ask(0));
        let fetch = world.body.running.remove(0);
        let outcome = Err(Fault::NoSpace);
        world.tell(Event::Completed { op: fetch.op().unwrap(), outcome });
        world.play(&[3, 5, 7], 0);
        let refused = &world.trainers[0].refused;
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0].1, Refusal::NoRoom, "{on_error:?}");
    }
}

/// What is given out until nothing more has a turn, ended at once; commands for trainers left out.
fn given_out(world: &mut Play) -> Vec<Command> {
    let mut given = Vec::new();
    while !world.body.running.is_empty() {
        given.push(world.body.running[0].clone());
        world.end_one(0, 0);
    }
    given
}

/// Two ranks that are staged ahead, with one read at a time and none of them ended yet.
fn staged_ahead(policy: policy::Kind, samples: u32) -> Play {
    let mut settings = settings(policy, samples, 2, OnError::Fail);
    settings.windows = windows(1, 1);
    let mut world = Play::new(&settings);
    let is_arena = |command: &Command| matches!(command, Command::OpenArena { .. });
    while let Some(at) = world.body.running.iter().position(is_arena) {
        let command = world.body.running.remove(at);
        world.tell(Event::Completed { op: command.op().unwrap(), outcome: Ok(()) });
    }
    world
}

fn rank_of(command: &Command) -> Option<Rank> {
    match command {
        Command::Fetch { to, .. } | Command::Promote { to, .. } => Some(to.rank),
        _ => None,
    }
}

#[test]
fn a_rank_that_jumps_overtakes_and_what_it_left_behind_is_not_read() {
    let mut world = staged_ahead(policy::Kind::None, 400);
    let holder = world.trainers[1].holder;
    let batch = BatchId { epoch: Epoch(1), step: Step(30), rank: Rank(1) };
    world.trainers[1].asked.insert(batch);
    world.tell(Event::Requested { holder, batch });
    let given: Vec<Rank> = given_out(&mut world).iter().filter_map(rank_of).collect();
    // One read is on its way already; then the four of the batch that is asked for.
    assert_eq!(given[1..5], [Rank(1); 4], "{given:?}");
    assert_eq!(world.trainers[1].leases[0].1, batch);
    let of_rank = |rank| given.iter().filter(|other| **other == Rank(rank)).count();
    assert_eq!([of_rank(0), of_rank(1)], [12, 12], "invariant 8");
}

#[test]
fn a_rank_that_used_up_what_was_staged_overtakes() {
    let mut world = staged_ahead(policy::Kind::None, 400);
    world.drain();
    for _ in 0..4 {
        for which in 0..2 {
            while world.ask(which) {}
            world.drain();
            assert!(world.take(which));
            world.now.0 += 50_000;
            world.drain();
        }
    }
    (0..2).for_each(|which| while world.ask(which) {});
    world.drain();
    // Rank 1 frees the place of one batch, then rank 0 those of three, and has none left.
    let already = world.body.running.len();
    for which in [1, 0, 0, 0] {
        assert!(world.take(which));
    }
    let given: Vec<Rank> = given_out(&mut world).iter().filter_map(rank_of).collect();
    assert_eq!((already, given.len()), (0, 16));
    // The read that was given out when rank 1 had room; then the next two batches of rank 0.
    assert_eq!(given[0], Rank(1));
    assert_eq!(given[1..9], [Rank(0); 8], "{given:?}");
    assert!(given[9..].contains(&Rank(1)));
}

#[test]
fn what_a_jump_waits_for_comes_before_deep_prefetch() {
    let mut world = staged_ahead(policy::Kind::Pinned, 400);
    // A sample of the last batch that rank 0 was staged ahead with, not even read yet, which rank 1
    // reads in the next epoch. It is kept, so rank 1 gets it from its tier.
    let staged = &world.session.ranks[&Rank(0)].staged;
    let order = world.session.horizon.spec().epoch(Epoch(1)).unwrap();
    let reader = |sample: SampleId| {
        let mut steps = (0..50).map(Step);
        steps.find(|step| order.batch(Rank(1), *step).any(|other| other == sample))
    };
    let last = staged.values().next_back().unwrap().batch.entries.iter();
    let (sample, step) = last
        .rev()
        .filter(|entry| world.session.cache.place(entry.sample).is_some())
        .find_map(|entry| Some((entry.sample, reader(entry.sample)?)))
        .expect("one of four samples has the other rank next");
    let batch = BatchId { epoch: Epoch(1), step, rank: Rank(1) };
    let holder = world.trainers[1].holder;
    world.trainers[1].asked.insert(batch);
    world.tell(Event::Requested { holder, batch });
    let given = given_out(&mut world).into_iter();
    let fetched = |command| match command {
        Command::Fetch { sample, .. } => Some(sample),
        _ => None,
    };
    let fetched: Vec<_> = given.filter_map(fetched).collect();
    let at = fetched.iter().position(|other| *other == sample).unwrap();
    assert!(at < 20, "invariant 7: read as number {at} of {}", fetched.len());
}

#[test]
fn nothing_is_staged_deeper_than_the_settings_say() {
    let mut world = staged_ahead(policy::Kind::None, 400);
    let first = |rank| BatchId { epoch: Epoch(0), step: Step(0), rank: Rank(rank) };
    let last = |rank| BatchId { step: Step(2), ..first(rank) };
    world.drain();
    for rank in 0..2 {
        let staged: Vec<_> = world.session.ranks[&Rank(rank)].staged.keys().copied().collect();
        assert_eq!((staged.len(), staged[0], staged[2]), (3, first(rank), last(rank)));
    }
}

#[test]
fn what_no_tier_keeps_is_fetched_to_be_dropped() {
    let mut world = staged_ahead(policy::Kind::None, 400);
    let given = given_out(&mut world);
    let fetches = given.iter().filter_map(|command| match command {
        Command::Fetch { retention, .. } => Some(*retention),
        _ => None,
    });
    let fetches: Vec<_> = fetches.collect();
    assert!(!fetches.is_empty());
    assert!(fetches.iter().all(|it| *it == Retention::Dropped), "{fetches:?}");
}
