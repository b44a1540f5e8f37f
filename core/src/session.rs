//! The worker of one node as a sans-IO state machine: what to stage next, from where, and what stays.
//!
//! [`Session::handle`] is told what happened, [`Session::poll_command`] says what to do; in between
//! nothing waits and nothing is read but the arguments. Each rank is staged along its own order, as
//! far ahead as its staging memory reaches, so that a rank that is slow or absent holds up no other.
//! What a batch needs and what it leaves in the tiers is decided when the batch gets its place in
//! staging, batch by batch, never when bytes arrive: the speed of a disk changes no decision.
//!
//! A sample that the policy keeps is copied to its tier before the batch is handed over, because
//! afterwards the trainer may write over it.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. Every batch that is asked for is leased or refused, once, whatever fails, and every holder gets
//!    its answers in the order of its requests.
//! 2. A batch is leased only when every sample of it arrived or was skipped.
//! 3. A place is never written while it is read, nor read before it was written.
//! 4. Equal events in equal order give equal commands.
//! 5. A failure of a tier costs a cold read, never a batch.

mod command;
mod ops;
mod orders;
mod progress;
mod staging;
mod work;

use alloc::{boxed::Box, collections::BTreeMap, collections::VecDeque, sync::Arc, vec, vec::Vec};

pub use command::{Command, Event, Fault, Origin, Place, Refusal, Slot};
pub use progress::{EpochProgress, FAULTS_KEPT, Progress, READY_WITHIN, Run, Waits};

use self::{
    ops::{Access, Ops, Touch},
    orders::Orders,
    staging::{Arena, Staged, Staging, Taker},
    work::{Kind, Work},
};
use crate::{
    batch::Batch,
    cache::{Cache, Change},
    id::{BatchId, ChunkId, Epoch, HolderId, LeaseId, NodeId, OpId, Rank, SampleId, Step, TierId},
    order::Spec,
    policy::{self, Policy, Setting},
    space::{Piece, Space},
    tier::Buffer,
    units::Bytes,
};

/// What happens when a sample cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The batch is refused with the name of the sample.
    Fail,
    /// The batch is handed over without the sample.
    Skip,
}

/// What a session is built from.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The order of the job.
    pub order: Spec,
    /// This node.
    pub node: NodeId,
    /// The length of every sample, by [`SampleId`].
    pub sizes: Arc<[Bytes]>,
    /// The cache tiers of this node, fastest first.
    pub tiers: Vec<Buffer>,
    /// The unit in which tiers take memory.
    pub chunk: Bytes,
    /// The rule of retention.
    pub policy: policy::Kind,
    /// Batches staged ahead per rank, the one that the trainer works with included.
    pub staged_batches: u32,
    /// Staging memory of each rank.
    pub arena: Bytes,
    /// What happens when a sample cannot be read.
    pub on_error: OnError,
}

/// The state machine of one node.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    orders: Orders,
    policy: Box<dyn Policy>,
    cache: Cache,
    ranks: BTreeMap<Rank, Staging>,
    ops: Ops,
    works: BTreeMap<OpId, Work>,
    /// The operation that brings a cached sample to its place, while it is in flight.
    writers: BTreeMap<SampleId, OpId>,
    /// What each holder waits for, in the order of its requests, with the refusals among them.
    answers: BTreeMap<HolderId, VecDeque<(BatchId, Option<Refusal>)>>,
    commands: VecDeque<Command>,
    progress: Progress,
    leases: u64,
}

impl Session {
    /// Starts to stage the first batches of every rank of the node.
    ///
    /// # Panics
    ///
    /// If `sizes` has not as many entries as the order has samples: the index is of another dataset.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let order = settings.order;
        assert_eq!(settings.sizes.len(), order.samples as usize, "one size for each sample");
        let ranks = order.world.ranks_of(settings.node).map(|rank| {
            let first = BatchId { epoch: Epoch(0), step: Step(0), rank };
            (rank, Staging::new(settings.arena, first))
        });
        let mut session = Self {
            orders: Orders::new(order),
            policy: policy::build(settings.policy, setting(&settings)),
            cache: Cache::new(&settings.tiers, settings.chunk),
            ranks: ranks.collect(),
            ops: Ops::default(),
            works: BTreeMap::new(),
            writers: BTreeMap::new(),
            answers: BTreeMap::new(),
            commands: VecDeque::new(),
            progress: Progress::new(order.epochs, settings.tiers.len()),
            leases: 0,
            settings,
        };
        for rank in session.ranks.keys().copied().collect::<Vec<_>>() {
            session.open_arena(rank);
        }
        session
    }

    /// Takes note of something that happened.
    ///
    /// Events about what the session does not know (an operation that ended before, a holder that is
    /// gone) change nothing.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Completed { op, outcome } => self.handle_completed(op, outcome),
            Event::Attached { holder, rank } => self.handle_attached(holder, rank),
            Event::Requested { holder, batch } => self.handle_requested(holder, batch),
            Event::Delivered { holder, lease, waited } => {
                let staged =
                    self.ranks.values_mut().find_map(|staging| staging.leased(holder, lease));
                if let Some(staged) = staged {
                    staged.taker = Taker::Held(holder, lease);
                    let (batch, len) = (staged.batch.id, staged.batch.payload());
                    let samples = staged.batch.entries.iter().filter(|entry| entry.len.is_some());
                    let samples = samples.count() as u64;
                    self.progress.delivered(batch, samples, len, waited);
                }
            }
            Event::Released { holder, lease } => {
                for staging in self.ranks.values_mut() {
                    if let Some(staged) = staging.leased(holder, lease) {
                        let batch = staged.batch.id;
                        staging.free(batch);
                    }
                }
            }
            Event::Gone { holder } => self.handle_gone(holder),
            Event::Published { rank, epoch, samples } => {
                self.orders.publish(rank, epoch, samples);
            }
            Event::Resized { tier, chunks_max } => {
                let (epoch, step) = self.front();
                self.orders.prepare(epoch);
                let outlook = self.orders.seen_from(epoch, step);
                self.cache.resize(tier, chunks_max, &*self.policy, &outlook);
                self.follow_changes();
            }
        }
        self.stage();
    }

    /// The next thing to do, or `None` until something happens.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// What was done so far.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Operations that were asked for, or will be, and have not ended.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ops.len()
    }

    fn handle_attached(&mut self, holder: HolderId, rank: Rank) {
        let Some(staging) = self.ranks.get_mut(&rank) else {
            self.commands.push_back(Command::Reject { holder, rank });
            return;
        };
        match staging.arena {
            Arena::Open => {
                staging.holders.insert(holder);
                self.commands.push_back(Command::Admit { holder, rank });
            }
            Arena::Opening | Arena::Closing => staging.knocking.push(holder),
            Arena::Closed | Arena::Refused => {
                staging.knocking.push(holder);
                self.open_arena(rank);
            }
        }
    }

    fn handle_requested(&mut self, holder: HolderId, batch: BatchId) {
        let refusal = self.request(holder, batch).err();
        self.answers.entry(holder).or_default().push_back((batch, refusal));
        self.answer(holder);
    }

    fn request(&mut self, holder: HolderId, batch: BatchId) -> Result<(), Refusal> {
        let spec = *self.orders.spec();
        let staging = self.ranks.get_mut(&batch.rank);
        let staging = staging.filter(|it| it.holders.contains(&holder) && spec.contains(batch));
        let staging = staging.ok_or(Refusal::NotInOrder)?;
        if let Some(staged) = staging.staged.get_mut(&batch) {
            if !matches!(staged.taker, Taker::Nobody | Taker::Dropped) {
                return Err(Refusal::AlreadyTaken);
            }
            staged.taker = Taker::Requested(holder);
            return Ok(());
        }
        self.orders.prepare(batch.epoch);
        if self.orders.batch(batch).is_none() {
            return Err(Refusal::NotPublished);
        }
        if staging.is_wanted(batch) {
            return Err(Refusal::AlreadyTaken);
        }
        staging.wanted.push_back((batch, holder));
        Ok(())
    }

    fn handle_gone(&mut self, holder: HolderId) {
        self.answers.remove(&holder);
        for (rank, staging) in &mut self.ranks {
            if !staging.holders.contains(&holder) {
                staging.knocking.retain(|other| *other != holder);
                continue;
            }
            staging.leave(holder);
            if staging.holders.is_empty() && staging.arena == Arena::Open {
                let last = self.progress.handed.get(rank).and_then(|runs| runs.last());
                staging.cursor = match last {
                    Some(run) => {
                        let step = Step(run.first.0 + run.count - 1);
                        self.orders.spec().after(BatchId { epoch: run.epoch, step, rank: *rank })
                    }
                    None => Some(BatchId { epoch: Epoch(0), step: Step(0), rank: *rank }),
                };
                staging.arena = Arena::Closing;
                staging.abandon();
            }
        }
        self.close_arenas();
    }

    /// Gives batches places until every rank has what it may have.
    fn stage(&mut self) {
        let mut full: Vec<Rank> = Vec::new();
        loop {
            let staged_max = self.settings.staged_batches;
            let ready = self.ranks.iter().filter(|(rank, _)| !full.contains(rank));
            let Some(batch) = ready.filter_map(|(_, it)| it.next(staged_max)).min() else { break };
            if !self.stage_batch(batch) {
                full.push(batch.rank);
            }
        }
    }

    /// Gives one batch its place and plans everything that it needs. Returns `false` if the rank must
    /// wait for room, or for its trainer to publish the order.
    fn stage_batch(&mut self, id: BatchId) -> bool {
        self.orders.prepare(id.epoch);
        let Some(samples) = self.orders.batch(id) else { return false };
        let sizes = &self.settings.sizes;
        let with_len = samples.iter().map(|sample| (*sample, sizes[sample.0 as usize]));
        let batch = Batch::lay_out(id, with_len);
        let after = self.orders.spec().after(id);
        let staging = self.ranks.get_mut(&id.rank).expect("only ranks of this node are staged");
        if batch.len > staging.len() {
            let reason = Refusal::TooLarge { needed: batch.len, arena: staging.len() };
            staging.advance(id, after);
            if let Some(holder) = staging.take_wanted(id) {
                self.refuse(holder, id, reason);
            }
            return true;
        }
        let Some(piece) = staging.make_room(id, batch.len) else {
            if staging.is_held_entirely()
                && let Some(holder) = staging.take_wanted(id)
            {
                staging.advance(id, after);
                self.refuse(holder, id, Refusal::NoRoom);
                return true;
            }
            return false;
        };
        staging.advance(id, after);
        let taker = staging.take_wanted(id).map_or(Taker::Nobody, Taker::Requested);
        let entries = batch.entries.clone();
        let staged = Staged { batch, piece, pending: 0, unreadable: None, taker };
        staging.staged.insert(id, staged);
        for (index, entry) in entries.iter().enumerate() {
            let len = entry.len.expect("nothing was skipped yet");
            let offset = Bytes(piece.offset.0 + entry.offset.0);
            self.stage_sample(id, index, entry.sample, Slot { rank: id.rank, offset, len });
        }
        self.settle(id);
        true
    }

    fn stage_sample(&mut self, batch: BatchId, entry: usize, sample: SampleId, slot: Slot) {
        let op = self.ops.name();
        if let Some(place) = self.cache.place(sample).cloned() {
            let command = Command::Promote { op, sample, from: place.clone(), to: slot };
            let kind = Kind::Arrive { batch, entry, sample, tier: Some(place.tier), slot };
            let touch = Touch { tier: place.tier, pieces: place.pieces, access: Access::Read };
            let source = self.writers.get(&sample).copied();
            self.plan(op, kind, command, &[touch], source);
            return;
        }
        let command = Command::Fetch { op, sample, to: slot };
        let kind = Kind::Arrive { batch, entry, sample, tier: None, slot };
        self.plan(op, kind, command, &[], None);
        let outlook = self.orders.seen_from(batch.epoch, batch.step);
        let place = self.cache.admit(sample, slot.len, &*self.policy, &outlook);
        self.follow_changes();
        if let Some(place) = place {
            self.retain(batch, sample, slot, place, op);
        }
    }

    /// Plans the copy of a sample that is being staged to its place in a tier.
    fn retain(&mut self, batch: BatchId, sample: SampleId, slot: Slot, to: Place, arrival: OpId) {
        let op = self.ops.name();
        let from = Origin::Staging(slot);
        let command = Command::Demote { op, sample, from, len: slot.len, to: to.clone() };
        let touch = Touch { tier: to.tier, pieces: to.pieces.clone(), access: Access::Write };
        self.writers.insert(sample, op);
        let kind = Kind::Retain { batch, sample, place: to };
        self.plan(op, kind, command, &[touch], Some(arrival));
    }

    /// Plans the copies that the books of the cache ask for.
    fn follow_changes(&mut self) {
        for change in self.cache.take_changes() {
            match change {
                Change::ChunkAdded { tier, chunk } => {
                    let op = self.ops.name();
                    let touch = self.whole_chunk(tier, chunk);
                    let command = Command::AddChunk { op, tier, chunk };
                    self.plan(op, Kind::AddChunk { tier, chunk }, command, &[touch], None);
                }
                Change::ChunkDropped { tier, chunk } => {
                    let op = self.ops.name();
                    let touch = self.whole_chunk(tier, chunk);
                    let command = Command::DropChunk { tier, chunk };
                    self.plan(op, Kind::DropChunk, command, &[touch], None);
                }
                Change::Demoted { sample, len, from, to } => {
                    let op = self.ops.name();
                    let touches = [
                        Touch {
                            tier: from.tier,
                            pieces: from.pieces.clone(),
                            access: Access::Read,
                        },
                        Touch { tier: to.tier, pieces: to.pieces.clone(), access: Access::Write },
                    ];
                    let origin = Origin::Tier(from);
                    let command = Command::Demote { op, sample, from: origin, len, to: to.clone() };
                    let source = self.writers.insert(sample, op);
                    self.plan(op, Kind::Move { sample, place: to }, command, &touches, source);
                }
                Change::Evicted { sample } => {
                    self.writers.remove(&sample);
                }
            }
        }
    }

    fn whole_chunk(&self, tier: TierId, chunk: ChunkId) -> Touch {
        let piece = Piece { chunk, offset: Bytes(0), len: self.settings.chunk };
        Touch { tier, pieces: vec![piece], access: Access::Write }
    }

    /// Looks whether a batch is complete, and if so goes on with whoever waits for it.
    fn settle(&mut self, batch: BatchId) {
        let Some(staging) = self.ranks.get_mut(&batch.rank) else { return };
        let Some(staged) = staging.staged.get(&batch).filter(|it| it.pending == 0) else { return };
        match staged.taker {
            Taker::Requested(holder) => self.answer(holder),
            Taker::Dropped => staging.sweep(),
            Taker::Nobody | Taker::Leased(..) | Taker::Held(..) => {}
        }
    }

    /// Gives a holder the answers that are ready, in the order of its requests.
    fn answer(&mut self, holder: HolderId) {
        while let Some(&(batch, refusal)) = self.answers.get(&holder).and_then(|it| it.front()) {
            let command = match refusal {
                Some(reason) => Command::Refuse { holder, batch, reason },
                None => match self.hand_over(holder, batch) {
                    Some(command) => command,
                    None => return,
                },
            };
            self.commands.push_back(command);
            self.answers.get_mut(&holder).and_then(VecDeque::pop_front);
        }
    }

    /// The lease of a batch if it is complete, or the refusal if a sample of it is missing.
    fn hand_over(&mut self, holder: HolderId, batch: BatchId) -> Option<Command> {
        let staging = self.ranks.get_mut(&batch.rank)?;
        let staged = staging.staged.get_mut(&batch).filter(|it| it.pending == 0)?;
        if let Some((sample, fault)) = staged.unreadable {
            staging.free(batch);
            let reason = Refusal::Unreadable(sample, fault);
            return Some(Command::Refuse { holder, batch, reason });
        }
        self.leases += 1;
        let lease = LeaseId(self.leases);
        staged.taker = Taker::Leased(holder, lease);
        let (offset, batch) = (staged.piece.offset, staged.batch.clone());
        Some(Command::Lease { holder, lease, offset, batch })
    }

    /// Notes that a request which has no batch yet will get none.
    fn refuse(&mut self, holder: HolderId, batch: BatchId, reason: Refusal) {
        let answers = self.answers.entry(holder).or_default();
        let answer =
            answers.iter_mut().find(|(other, refusal)| *other == batch && refusal.is_none());
        if let Some((_, refusal)) = answer {
            *refusal = Some(reason);
        }
        self.answer(holder);
    }

    fn open_arena(&mut self, rank: Rank) {
        let op = self.ops.name();
        let Some(staging) = self.ranks.get_mut(&rank) else { return };
        staging.arena = Arena::Opening;
        let command = Command::OpenArena { op, rank, len: staging.len() };
        self.plan(op, Kind::OpenArena(rank), command, &[], None);
    }

    /// Closes the arenas whose trainers left, once nothing is on its way into them.
    fn close_arenas(&mut self) {
        let mut reopen = Vec::new();
        for (rank, staging) in &mut self.ranks {
            if staging.arena == Arena::Closing && staging.staged.is_empty() {
                staging.closed();
                self.commands.push_back(Command::CloseArena { rank: *rank });
                if !staging.knocking.is_empty() {
                    reopen.push(*rank);
                }
            }
        }
        reopen.into_iter().for_each(|rank| self.open_arena(rank));
    }

    /// The earliest point that some rank has not been staged beyond.
    fn front(&self) -> (Epoch, Step) {
        let cursors = self.ranks.values().filter_map(|staging| staging.cursor);
        let last = Epoch(self.orders.spec().epochs - 1);
        cursors.min().map_or((last, Step(0)), |batch| (batch.epoch, batch.step))
    }
}

/// What a policy needs to know of the settings.
fn setting(settings: &Settings) -> Setting {
    let chunks: u64 = settings.tiers.iter().map(|tier| u64::from(tier.chunks_max)).sum();
    let total: u64 = settings.sizes.iter().map(|len| Space::rounded(*len).0).sum();
    let order = &settings.order;
    let per_node = total / u64::from(order.world.nodes);
    Setting {
        capacity: Bytes(chunks * settings.chunk.0),
        bytes_per_step: Bytes(per_node / u64::from(order.steps_per_epoch())),
    }
}

#[cfg(test)]
mod tests;
