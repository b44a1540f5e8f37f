//! The worker of one node as a sans-IO state machine: what to stage next, from where, and what stays.
//!
//! [`Session::handle`] is told what happened, [`Session::poll_command`] says what to do; in between
//! nothing waits and nothing is read but the arguments. Each rank is staged along its own order, as
//! far ahead as its staging memory reaches, so that a rank that is slow or absent holds up no other.
//! What a batch needs and what it leaves in the tiers is decided when the batch is placed in its arena,
//! batch by batch, never when bytes arrive: the speed of a disk changes no decision. Only the order in
//! which operations are given out follows from the time: earliest deadline first.
//!
//! A sample that the policy keeps is copied to its tier before the batch is handed over, because
//! afterwards the trainer may write over it. A sample that stays in a tier which trainers map
//! ([`Settings::in_place_tiers`]) is not copied at all: its batch names the place ([`in_place`]).
//!
//! The session coordinates components that own their state: [`planner`] (orders, plans and the cache),
//! [`staging`] (arenas and batches), [`operations`] (dependencies and scheduling), [`answers`] (requests
//! of trainers) and [`deadlines`]. What concerns several of them stands here, in [`stage`] (a batch is
//! placed) and in [`completion`] (an operation ends).
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. Every batch that is asked for is leased or refused, once, under every fault, and every connection gets
//!    its answers in the order of its requests.
//! 2. A batch is leased only when every sample of it arrived or was skipped.
//! 3. A place is never written while it is read, nor read before it was written.
//! 4. Equal events at equal times give equal commands.
//! 5. A failure of a tier costs a cold read, never a batch.
//! 6. At most [`Settings::operations_max`] operations run at a time, and in each channel at most
//!    [`Settings::windows`], or what the window has become ([`Adaptation`]).
//! 7. No operation that a batch needs waits for one that is queued for a later batch.
//! 8. Nothing is read for a batch that was dropped, but what a tier is to keep or is on its way.
//! 9. A place that a batch names holds its sample when the batch is handed over, and until it is released.

pub mod assignment;
pub mod staging_depth;

mod answers;
mod busy;
mod cold_window;
mod command;
mod completion;
mod deadlines;
mod decisions;
mod dependencies;
mod edf_scheduler;
mod entry;
mod in_place;
mod jump_budget;
mod look_ahead;
mod observed;
mod op_table;
mod operation;
mod operations;
mod phases;
mod planner;
mod progress;
mod set_points;
mod settings;
mod skipped;
mod stage;
mod staging;
mod stall;
mod tally;
mod threads;
mod transform;
mod transform_times;
mod waiting;
mod waits;
mod windows;

use alloc::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    vec::Vec,
};
use core::num::NonZeroU32;

pub use busy::Busy;
pub use command::{Answer, Command, Concern, Event, Fault, Refusal};
pub use look_ahead::AUTO_RATE_MAX;
pub use observed::{Observed, ObservedLink};
pub use operation::{Held, Memory, Operation, Origin, Promotion, Retention, Slot};
pub use phases::{Cycle, Supply};
pub use planner::{Finished, Job};
pub use progress::{
    DatasetProgress, EpochProgress, Evictions, FAULTS_KEPT, Progress, READY_WITHIN, Refusals,
    Refused, Run, Taken,
};
pub use set_points::SetPoints;
pub use settings::{LookAhead, OnError, STAGED_MIN, Settings, SkipShare};
pub use skipped::Skipped;
pub use stall::{LoopLoad, StallBreakdown, StallCause};
pub use tally::{Tally, Wait};
pub use transform::{Handed, Row, Transform, TransformCount};
pub use transform_times::{ObservedTransforms, SHARES, TransformTimes};
pub use waits::Waits;
pub use windows::{Adaptation, Windows};

pub use crate::{
    place::{Pieces, Place},
    retention::form::Form,
};

use self::{
    answers::Answers,
    deadlines::{BatchNumber, Deadlines},
    jump_budget::JumpBudget,
    look_ahead::Horizon,
    observed::Links,
    operations::{Operations, Work},
    phases::Phases,
    planner::Planner,
    progress::Content,
    stage::{Gathered, PartlyPlanned},
    staging::{Attached, Claim, RankStaging, Staging},
};
use crate::{
    id::{BatchId, ConnectionId, DatasetId, Epoch, LeaseId, NodeId, OpId, Rank, SampleId, TierId},
    order::Shuffle,
    retention::{cache::Change, future_accesses::Publication, residency::Level},
    units::{Bytes, Nanoseconds},
};

/// A sample whose bytes stay in place while they are sent to another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loan {
    /// For [`Session::end_loan`].
    pub op: OpId,
    pub place: Place,
    pub len: Bytes,
}

#[derive(Debug)]
pub struct Session {
    settings: Settings,
    planner: Planner,
    staging: Staging,
    operations: Operations,
    answers: Answers,
    deadlines: Deadlines,
    jumps: JumpBudget,
    skipped: Skipped,
    horizon: Horizon,
    phases: Phases,
    /// Of the loop that calls the session.
    load: LoopLoad,
    /// Other nodes that answer requests for the samples that they hold.
    peers: BTreeSet<NodeId>,
    depth: u32,
    /// The state of the links at the start of each epoch that still counts as observed.
    earlier: VecDeque<Links>,
    dataset: Bytes,
    progress: Progress,
    /// The most samples that are staged in one call.
    slice: Option<NonZeroU32>,
    partly_planned: Option<PartlyPlanned>,
    gathered: Option<Gathered>,
    /// Empty while no changes are followed.
    changes: Vec<Change>,
    has_more: bool,
    /// Whether nothing has changed, since batches were staged, that could let others be staged or fetched
    /// ahead.
    is_settled: bool,
    now: Nanoseconds,
    /// The time of the event that is handled now. It lies before `now` if later events were handled first.
    event_at: Nanoseconds,
}

impl Session {
    /// Starts to stage the first batches of every rank of the node.
    ///
    /// # Panics
    ///
    /// If there is no such order ([`crate::order::Spec::validate`]) or no such node in its world, or if
    /// `sizes` has not one entry for each sample: the settings mix two jobs.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let order = settings.order;
        assert_eq!(order.validate(), Ok(()), "the order exists");
        assert!(settings.node.0 < order.world.nodes, "the node is one of the world's");
        assert_eq!(settings.sizes.len(), order.all_samples() as usize, "one size for each sample");
        let ranks: Vec<Rank> = order.world.ranks_of(settings.node).collect();
        let first = *ranks.first().expect("a node has ranks");
        let mut session = Self {
            planner: Planner::new(&settings),
            staging: Staging::new(&settings),
            operations: Operations::new(&settings),
            answers: Answers::default(),
            deadlines: Deadlines::new(first, order.world.ranks_per_node),
            jumps: JumpBudget::default(),
            skipped: Skipped::default(),
            horizon: Horizon::new(&settings),
            phases: Phases::default(),
            load: LoopLoad::default(),
            peers: BTreeSet::new(),
            depth: settings.staged_batches,
            earlier: VecDeque::from([Links::unused(settings.tiers.len())]),
            dataset: Bytes(
                settings.sizes.iter().fold(0, |sum: u64, len| sum.saturating_add(len.0)),
            ),
            progress: Progress::new(order.epochs, settings.tiers.len(), order.datasets().count()),
            slice: None,
            partly_planned: None,
            gathered: None,
            changes: Vec::new(),
            has_more: false,
            is_settled: false,
            now: Nanoseconds(0),
            event_at: Nanoseconds(0),
            settings,
        };
        if let Some(room) = session.settings.room_at_start() {
            let room = room.min(session.room_of_most_ahead());
            session.progress.look_ahead_room.insert(order.start.epoch, room);
            session.planner.cache_mut().reserve(room);
        }
        ranks.into_iter().for_each(|rank| session.open_arena(rank));
        session
    }

    /// Lets no call stage more than this many samples, so that it returns soon. [`Self::go_on`] stages the
    /// rest.
    #[must_use]
    pub fn with_slices(self, samples: NonZeroU32) -> Self {
        Self { slice: Some(samples), ..self }
    }

    /// Handles an event at a time on the caller's clock. The session's own clock does not go back: an event
    /// that is told late changes only the timeline of its batch.
    ///
    /// An event about something that the session does not know (an operation that ended before, a
    /// connection that is gone) changes nothing.
    pub fn handle(&mut self, event: Event, now: Nanoseconds) {
        self.now = self.now.max(now);
        self.event_at = now;
        let is_delivery = matches!(event, Event::Delivered { .. });
        // Most operations end while others of their batch run, and nothing follows from that.
        self.is_settled &= matches!(
            event,
            Event::Completed { outcome: Ok(()), .. } | Event::Transformed { outcome: Ok(()), .. }
        );
        match event {
            Event::Completed { op, outcome } => self.handle_completed(op, outcome),
            Event::PartsFailed { op, parts } => self.handle_parts_failed(op, &parts),
            Event::Transformed { op, outcome, took } => self.handle_transformed(op, outcome, took),
            Event::Attached { connection, rank } => self.handle_attached(connection, rank),
            Event::ArenaPinned { rank } => {
                self.staging.get_mut(rank).into_iter().for_each(RankStaging::pin);
            }
            Event::Requested { connection, batch } => self.handle_requested(connection, batch),
            Event::Delivered { connection, lease, wait } => {
                self.handle_delivered(connection, lease, wait);
            }
            Event::Tallied { connection, rank, tally } => {
                self.handle_tallied(connection, rank, &tally);
            }
            Event::Released { connection, lease } => self.handle_released(connection, lease),
            Event::Gone { connection } => self.handle_gone(connection),
            Event::Published { rank, epoch, samples } => {
                self.handle_published(rank, epoch, samples);
            }
            Event::Resized { tier, chunks_max } => self.handle_resized(tier, chunks_max),
            Event::StagingLimited { batches } => self.handle_staging_limited(batches),
            Event::Membership(membership) => self.planner.cache_mut().follow(membership),
            Event::PeerFound { node } => {
                if node != self.settings.node {
                    self.peers.insert(node);
                }
            }
            Event::PeerLost { node } => {
                self.peers.remove(&node);
            }
            Event::Scheduled { generation, from, points } => {
                self.handle_scheduled(generation, from, points);
            }
        }
        let looks_otherwise = self.is_looking_ahead() != self.horizon.is_looking();
        if !self.is_settled || looks_otherwise || self.is_to_look_further() {
            self.follow_up();
        }
        if is_delivery {
            self.divide_threads();
        }
    }

    /// Whether batches could be staged without a further event: [`Self::go_on`] does it.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    pub fn go_on(&mut self, now: Nanoseconds) {
        self.now = self.now.max(now);
        self.has_more = false;
        self.follow_up();
    }

    /// The next piece of work for another thread; its result goes to [`Self::finish`]. There is at most one
    /// for each epoch that is held, one plan, and one to give memory back for each epoch that was left.
    pub fn poll_job(&mut self) -> Option<Job> {
        self.planner.next_job()
    }

    /// Results of several jobs may come in any order.
    pub fn finish(&mut self, finished: Finished, now: Nanoseconds) {
        self.now = self.now.max(now);
        let Some(waiting) = self.planner.finish(finished) else { return };
        for rank in waiting {
            self.staging.get_mut(rank).into_iter().for_each(RankStaging::unblock);
        }
        self.follow_up();
    }

    /// Runs all jobs before it returns, for a caller that has no other thread.
    pub fn run_jobs(&mut self) {
        while let Some(job) = self.poll_job() {
            self.finish(job.run(), self.now);
        }
    }

    fn follow_up(&mut self) {
        self.is_settled = true;
        // Before batches are staged, all room is free that the event freed: places in tiers that no batch
        // names any more, slots of dropped batches, and the ranges behind a limit that must stay empty.
        self.reclaim_unpinned();
        self.cancel_dropped();
        self.resize_arenas();
        if !self.has_more {
            self.stage();
        }
        // A batch that was cancelled, or dropped before it was planned, may have been all that held an
        // arena open.
        self.close_arenas();
        // Staging drops batches that no trainer asked for, and asks for trimmed ranges back.
        self.resize_arenas();
        self.reclaim_unpinned();
    }

    fn reclaim_unpinned(&mut self) {
        let unpinned = self.staging.take_unpinned();
        if !unpinned.is_empty() {
            unpinned.into_iter().for_each(|place| self.planner.cache_mut().unpin(place));
            self.follow_changes(None);
        }
    }

    /// Gives unused memory of arenas back, and takes it again.
    fn resize_arenas(&mut self) {
        for operation in self.staging.resize_arenas() {
            self.plan(Work::Run(operation), None, None);
        }
    }

    fn open_arena(&mut self, rank: Rank) {
        if let Some(operation) = self.staging.get_mut(rank).map(RankStaging::open) {
            self.plan(Work::Run(operation), None, None);
        }
    }

    /// Closes the arenas whose trainers left, once no operation uses them. An arena for which connections
    /// wait is opened again.
    fn close_arenas(&mut self) {
        let closed = self.staging.close_idle();
        closed.iter().for_each(|rank| self.operations.free(Memory::Arena(*rank)));
        for rank in closed {
            if self.staging.get(rank).is_some_and(RankStaging::has_pending_admissions) {
                self.open_arena(rank);
            }
        }
    }

    /// The next command, answers to trainers first, because they wait for nothing; `None` until something
    /// happens.
    pub fn poll_command(&mut self) -> Option<Command> {
        if let Some(answer) = self.answers.next() {
            return Some(Command::Answer(answer));
        }
        let command = self.operations.next(&self.deadlines, &mut self.progress, self.now);
        if let Some(Command::Start { operation: Operation::Prefetch { sample, .. }, .. }) = &command
        {
            self.planner.cache_mut().note_arriving(*sample);
        }
        command
    }

    fn handle_attached(&mut self, connection: ConnectionId, rank: Rank) {
        match self.staging.get_mut(rank).map(|staging| staging.attach(connection)) {
            None => self.answers.push(Answer::Reject { connection, rank }),
            Some(Attached::Admitted) => self.answers.push(Answer::Admit { connection, rank }),
            Some(Attached::Waiting) => {}
            Some(Attached::NeedsArena) => self.open_arena(rank),
        }
    }

    fn handle_requested(&mut self, connection: ConnectionId, batch: BatchId) {
        if !self.staging.has_connection(connection) {
            return;
        }
        let refusal = self.request(connection, batch).err();
        if refusal.is_none() {
            self.deadlines.requested(BatchNumber::of(batch, self.planner.spec()), self.now);
        }
        self.answers.request(connection, batch, refusal, self.now);
        self.answer(connection);
    }

    fn request(&mut self, connection: ConnectionId, batch: BatchId) -> Result<(), Refusal> {
        let spec = *self.planner.spec();
        let staging = self.staging.get_mut(batch.rank);
        let staging = staging.filter(|it| it.has_connection(connection) && spec.contains(batch));
        let staging = staging.ok_or(Refusal::NotInOrder)?;
        let is_jump = !self.planner.holds(batch.epoch) && staging.is_far(batch, &spec);
        if is_jump && !self.jumps.allow(batch.rank, spec.all_samples(), self.now) {
            return Err(Refusal::TooManyJumps);
        }
        if spec.shuffle == Shuffle::Published {
            let samples = self.planner.samples(batch).ok_or(Refusal::NotPublished)?;
            if samples.is_empty() {
                return Err(Refusal::NotInOrder);
            }
        }
        staging.request(connection, batch, &spec)
    }

    fn answer(&mut self, connection: ConnectionId) {
        self.answers.answer(connection, &mut self.staging, &mut self.progress, self.now);
    }

    /// Refuses a request that has no batch yet.
    fn refuse(&mut self, connection: ConnectionId, batch: BatchId, reason: Refusal) {
        self.answers.refuse(connection, batch, reason, self.now);
        self.answer(connection);
    }

    /// The wait ended before now: the trainer reports it with its next request or release.
    fn handle_delivered(&mut self, connection: ConnectionId, lease: LeaseId, wait: Wait) {
        let until = wait.until.min(self.now);
        let wait = Wait { since: wait.since.min(until), until };
        let staged = self.staging.leased(connection, lease);
        let leased = Claim::Leased(connection, lease);
        let Some(staged) = staged.filter(|staged| staged.claim == leased) else { return };
        staged.claim = Claim::Held(connection, lease);
        self.deadlines.delivered(staged.number, wait.until, wait.len());
        let samples = staged.batch.entries.iter().filter(|entry| entry.len.is_some()).count();
        let skipped = staged.batch.entries.len() - samples;
        let len = self.settings.demand_of(&staged.batch);
        let taken = Taken {
            batch: staged.batch.id,
            placed: staged.timeline.placed,
            ready: staged.timeline.ready(),
            at: wait.until,
            waited: wait.len(),
            causes: staged.timeline.delivered(wait).under(self.load),
        };
        let rank = taken.batch.rank;
        self.phases.delivered(rank, wait, len);
        let dataset = self.dataset_of(taken.batch);
        let content = Content { dataset, samples: samples as u64, skipped: skipped as u64, len };
        self.progress.delivered(taken, content);
        self.staging.get_mut(rank).into_iter().for_each(RankStaging::unblock);
    }

    fn dataset_of(&self, batch: BatchId) -> DatasetId {
        self.planner.spec().dataset_of_batch(batch)
    }

    fn handle_tallied(&mut self, connection: ConnectionId, rank: Rank, tally: &Tally) {
        if self.staging.get(rank).is_some_and(|staging| staging.has_connection(connection)) {
            self.progress.tallied(rank, *tally, self.now);
        }
    }

    fn handle_released(&mut self, connection: ConnectionId, lease: LeaseId) {
        let Some(staged) = self.staging.leased(connection, lease) else { return };
        let (batch, held) = (staged.batch.id, staged.timeline.held(self.now));
        held.into_iter().for_each(|held| self.progress.released(held));
        self.staging.get_mut(batch.rank).into_iter().for_each(|staging| staging.vacate(batch));
    }

    fn handle_gone(&mut self, connection: ConnectionId) {
        self.answers.forget(connection);
        for rank in self.staging.detach(connection) {
            self.deadlines.detached(rank);
            self.phases.detached(rank);
            let spec = self.planner.spec();
            let cursor = match self.progress.farthest(rank) {
                Some(batch) => spec.after(batch),
                None => Some(spec.first(rank)),
            };
            self.staging.get_mut(rank).into_iter().for_each(|staging| staging.close(cursor));
        }
        self.close_arenas();
    }

    /// Records the samples that a trainer will read. If its order changed, nothing that was staged under
    /// the old order is handed over: requests for it are refused, and the trainer reads those batches
    /// itself.
    fn handle_published(&mut self, rank: Rank, epoch: Epoch, samples: Arc<Vec<SampleId>>) {
        let publication = self.planner.publish(rank, epoch, samples);
        let Some(staging) = self.staging.get_mut(rank) else { return };
        staging.unblock();
        if publication == Publication::Changed {
            self.abandon_epoch(rank, epoch);
            let Some(staging) = self.staging.get_mut(rank) else { return };
            for (batch, connection) in staging.restart_epoch(epoch) {
                self.refuse(connection, batch, Refusal::NotPublished);
            }
        }
    }

    fn handle_resized(&mut self, tier: TierId, chunks_max: u32) {
        self.planner.cache_mut().resize(tier, chunks_max);
        self.follow_changes(None);
    }

    fn handle_staging_limited(&mut self, batches: u32) {
        let is_limit = batches < self.settings.staged_max();
        self.staging.limit(is_limit.then_some(batches.max(STAGED_MIN)));
    }

    #[must_use]
    pub fn divided(&self) -> Epoch {
        self.planner.planned().unwrap_or(self.settings.order.start.epoch)
    }

    /// Keeps a sample where it lies, while its bytes are sent to another node, until [`Self::end_loan`];
    /// `None` if no tier holds all of them.
    pub fn lend(&mut self, sample: SampleId) -> Option<Loan> {
        let place = self.planner.cache().place(sample)?;
        let len = self.settings.sizes.get(sample.0 as usize).copied()?;
        let op = self.operations.lend(sample, place.clone())?;
        Some(Loan { op, place, len })
    }

    /// To be called when the bytes of a loan were sent, or will not be.
    pub fn end_loan(&mut self, loan: OpId, now: Nanoseconds) {
        self.now = self.now.max(now);
        if let Some((_, runnable)) = self.operations.remove(loan) {
            self.start(runnable);
        }
    }

    /// Notes whether the loop that calls the session keeps up. It has an effect only on the causes of waits
    /// that are reported.
    pub fn note_load(&mut self, load: LoopLoad) {
        self.load = load;
    }

    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.operations.len()
    }

    /// Chunks that a tier may have: those that the session was told, less those that it was refused since.
    #[must_use]
    pub fn chunks_max(&self, tier: TierId) -> u32 {
        self.planner.cache().chunks_max(tier)
    }

    /// Batches that are staged ahead for each rank now, the one in use included.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// The most reads of the cold store that may run now ([`Windows::adaptation`]).
    #[must_use]
    pub fn cold_window(&self) -> usize {
        self.operations.scheduler().cold_window()
    }

    /// Batches that the trainers of each rank have or were handed.
    pub fn leases(&self) -> impl Iterator<Item = (Rank, usize)> + '_ {
        self.staging.iter().map(|(rank, staging)| (rank, staging.leases()))
    }

    /// Batches of each rank that are complete and that no trainer has taken yet.
    pub fn ready(&self) -> impl Iterator<Item = (Rank, usize)> + '_ {
        self.staging.iter().map(|(rank, staging)| (rank, staging.ready()))
    }

    /// Bytes read for batches that no trainer took, with those that were fetched ahead in vain.
    #[must_use]
    pub fn wasted(&self) -> Bytes {
        Bytes(self.staging.wasted().0.saturating_add(self.progress.in_vain.0))
    }

    /// By [`TierId`].
    pub fn levels(&self) -> impl Iterator<Item = Level> + '_ {
        self.planner.cache().levels().iter().copied()
    }

    /// `None` if no idle phases were observed.
    #[must_use]
    pub fn cycle(&self) -> Option<Cycle> {
        self.phases.cycle(self.settings.order.world.ranks_per_node)
    }

    /// Samples that wait in tiers for their use, or are on their way there.
    #[must_use]
    pub fn fetched_ahead(&self) -> usize {
        self.planner.cache().ahead_count()
    }
}

#[cfg(test)]
mod tests;
