//! The worker of one node as a sans-IO state machine: what to stage next, from where, and what stays.
//!
//! [`Session::handle`] is told what happened, [`Session::poll_command`] says what to do; in between
//! nothing waits and nothing is read but the arguments. Each rank is staged along its own order, as
//! far ahead as its staging memory reaches, so that a rank that is slow or absent holds up no other.
//! What a batch needs and what it leaves in the tiers is decided when the batch gets its place in
//! staging, batch by batch, never when bytes arrive: the speed of a disk changes no decision. Only the
//! order in which operations get their turn follows from the time: earliest deadline first.
//!
//! A sample that the policy keeps is copied to its tier before the batch is handed over, because
//! afterwards the trainer may write over it. Of a tier that trainers map ([`Settings::shows`]) a sample
//! that stays where it is is not copied at all: its batch names the place ([`show`]).
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. Every batch that is asked for is leased or refused, once, whatever fails, and every connection gets
//!    its answers in the order of its requests.
//! 2. A batch is leased only when every sample of it arrived or was skipped.
//! 3. A place is never written while it is read, nor read before it was written.
//! 4. Equal events at equal times give equal commands.
//! 5. A failure of a tier costs a cold read, never a batch.
//! 6. At most [`Settings::operations_max`] operations run at a time, and on each link at most
//!    [`Settings::windows`], or what the window has become ([`Adaptation`]).
//! 7. No operation that a batch needs waits for one that stands in line for a later batch.
//! 8. Nothing is read for a batch that was dropped, but what a tier is to keep or is on its way.
//! 9. A place that a batch names holds its sample when the batch is handed over, and until it is released.

pub mod assignment;
pub mod staging_depth;

mod ahead;
mod answers;
mod busy;
mod command;
mod depth;
mod jumps;
mod line;
mod op_table;
mod ops;
mod pace;
mod progress;
mod show;
mod stage;
mod staging;
mod stall;
mod tally;
mod work;

use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    vec::Vec,
};

use core::num::NonZeroU32;

pub use ahead::{Finished, Job};
pub use busy::Busy;
pub use command::{Command, Event, Fault, Origin, Refusal, Retention, Slot};
pub use line::{Adaptation, Windows};
pub use progress::{
    EpochProgress, Evictions, FAULTS_KEPT, Progress, READY_WITHIN, Refusals, Run, Taken, Waits,
};
pub use stall::{StallBreakdown, StallCause};
pub use tally::{Tally, Wait};

pub use crate::place::Place;

use self::{
    jumps::Jumps,
    line::Line,
    op_table::OpTable,
    ops::Ops,
    pace::{Need, Paces},
    stage::Unfinished,
    staging::{Passage, Staged, Staging},
    work::{Kind, Work},
};
use crate::{
    id::{BatchId, ConnectionId, Epoch, NodeId, OpId, Rank, SampleId, TierId},
    order::Spec,
    retention::{
        cache::Cache, future_accesses::FutureAccesses, policy, residency::Level, wear::Wear,
    },
    session::assignment::{Assignment, Division, Queue},
    tier::Buffer,
    units::{Bytes, Nanoseconds},
};

/// Batches that each rank may have staged however short memory is: one that its trainer works with, and
/// the next.
pub const STAGED_MIN: u32 = 2;

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
    /// Staging memory of each rank. Below twice the largest batch a trainer that asks ahead is
    /// refused now and then.
    pub arena: Bytes,
    /// What happens when a sample cannot be read.
    pub on_error: OnError,
    /// Operations that are given out at a time.
    pub windows: Windows,
    /// What the policy should mind beside the bytes that are read cold.
    pub aim: policy::Aim,
    /// The tiers that trainers map, so that a batch may name samples there; of no effect with a policy
    /// of which it is not known how long a sample stays ([`policy::Kind::stay`]).
    pub shows: Vec<TierId>,
}

impl Settings {
    /// Operations that run at a time: each staged sample may be read and copied once, and a few chunks
    /// and arenas may be on their way.
    #[must_use]
    pub fn operations_max(&self) -> usize {
        let Spec { batch_size, world, .. } = self.order;
        let samples = u64::from(batch_size)
            .saturating_mul(u64::from(self.staged_batches))
            .saturating_mul(u64::from(world.ranks_per_node));
        usize::try_from(samples.saturating_mul(2).saturating_add(64)).unwrap_or(usize::MAX)
    }

    /// What a policy is built for that shall decide as the session does.
    #[must_use]
    pub fn policy_setting(&self) -> policy::Setting {
        policy::Setting {
            order: self.order,
            node: self.node,
            sizes: Arc::clone(&self.sizes),
            capacities: self.tiers.iter().map(|tier| tier.capacity(self.chunk)).collect(),
            aim: self.aim.clone(),
        }
    }
}

/// The state machine of one node.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    future: FutureAccesses,
    cache: Cache,
    ranks: BTreeMap<Rank, Staging>,
    ops: Ops,
    works: OpTable<Work>,
    /// The operation that brings a cached sample to its place, while it is in flight.
    writers: BTreeMap<SampleId, OpId>,
    /// What each connection waits for, in the order of its requests, with the refusals among them.
    waiting: BTreeMap<ConnectionId, VecDeque<(BatchId, Option<Refusal>)>>,
    /// When all was there that connections were answered so far.
    turns: BTreeMap<ConnectionId, Nanoseconds>,
    /// Work for other threads.
    jobs: VecDeque<Job>,
    /// The epoch that the node is in ([`ahead`]).
    main: Epoch,
    /// Whether the epoch after it was begun.
    is_looking_ahead: bool,
    /// Ranks whose next batch waits for a job.
    unprepared: BTreeSet<Rank>,
    /// Samples that are staged in one go.
    slice: Option<NonZeroU32>,
    unfinished: Option<Unfinished>,
    has_more: bool,
    jumps: Jumps,
    /// Commands about trainers, which never have to wait.
    messages: VecDeque<Command>,
    /// Commands about arenas and chunks, given out in this order, before what needs them.
    errands: VecDeque<Command>,
    /// Commands that move samples.
    line: Line,
    paces: Paces,
    now: Nanoseconds,
    /// When the event happened that is handled now; before `now` if later ones were handled first.
    event_at: Nanoseconds,
    /// Operations that were given out and have not ended.
    running: usize,
    operations_max: usize,
    progress: Progress,
    leases: u64,
}

impl Session {
    /// Starts to stage the first batches of every rank of the node.
    ///
    /// # Panics
    ///
    /// If there is no such order ([`Spec::validate`]) or no such node in its world, or if `sizes` has
    /// not one entry for each sample: whoever made the settings mixed up two jobs.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let order = settings.order;
        assert_eq!(order.validate(), Ok(()), "the order exists");
        assert!(settings.node.0 < order.world.nodes, "the node is one of the world's");
        assert_eq!(settings.sizes.len(), order.samples as usize, "one size for each sample");
        let ranks = order.world.ranks_of(settings.node).map(|rank| {
            (rank, Staging::new(settings.arena, settings.staged_batches, order.first(rank)))
        });
        let first = order.world.ranks_of(settings.node).next().expect("a node has ranks");
        let ranks_per_node = order.world.ranks_per_node;
        let policy = policy::build(settings.policy, &settings.policy_setting());
        let future = FutureAccesses::new(order, settings.node, policy.lookahead())
            .with_next_uses(policy.next_uses());
        let sizes = Arc::clone(&settings.sizes);
        let mut session = Self {
            future,
            cache: Cache::new(&settings.tiers, settings.chunk, sizes, policy)
                .with_wear(Wear::within(settings.aim.writes_per_epoch.clone())),
            ranks: ranks.collect(),
            ops: Ops::default(),
            works: OpTable::default(),
            writers: BTreeMap::new(),
            waiting: BTreeMap::new(),
            turns: BTreeMap::new(),
            jobs: VecDeque::new(),
            main: order.start.epoch,
            is_looking_ahead: false,
            unprepared: BTreeSet::new(),
            slice: None,
            unfinished: None,
            has_more: false,
            jumps: Jumps::default(),
            messages: VecDeque::new(),
            errands: VecDeque::new(),
            line: Line::new(settings.windows, settings.tiers.len(), first, ranks_per_node),
            paces: Paces::new(first, ranks_per_node),
            now: Nanoseconds(0),
            event_at: Nanoseconds(0),
            running: 0,
            operations_max: settings.operations_max(),
            progress: Progress::new(order.epochs, settings.tiers.len()),
            leases: 0,
            settings,
        };
        for rank in session.ranks.keys().copied().collect::<Vec<_>>() {
            session.open_arena(rank);
        }
        session
    }

    /// Takes note of something that happened at a time on the caller's clock. The session's own clock
    /// does not go back: of an event that is told late only the marks of its batch know when it was.
    ///
    /// Events about what the session does not know (an operation that ended before, a connection that is
    /// gone) change nothing.
    pub fn handle(&mut self, event: Event, now: Nanoseconds) {
        self.now = self.now.max(now);
        self.event_at = now;
        let is_delivery = matches!(event, Event::Delivered { .. });
        match event {
            Event::Completed { op, outcome } => self.handle_completed(op, outcome),
            Event::Attached { connection, rank } => self.handle_attached(connection, rank),
            Event::Requested { connection, batch } => self.handle_requested(connection, batch),
            Event::Delivered { connection, lease, wait } => {
                self.handle_delivered(connection, lease, wait)
            }
            Event::Tallied { connection, rank, tally } => {
                self.handle_tallied(connection, rank, &tally)
            }
            Event::Released { connection, lease } => self.handle_released(connection, lease),
            Event::Gone { connection } => self.handle_gone(connection),
            Event::Published { rank, epoch, samples } => {
                self.handle_published(rank, epoch, samples);
            }
            Event::Resized { tier, chunks_max } => self.handle_resized(tier, chunks_max),
            Event::StagingLimited { batches } => self.handle_staging_limited(batches),
        }
        self.follow_up();
        if is_delivery && self.settings.windows.assignment == Assignment::Proportional {
            self.line.divide_in_proportion();
        }
    }

    /// Lets no call stage more than so many samples, so that it returns soon. What is left is done by
    /// [`Self::go_on`].
    #[must_use]
    pub fn with_slices(self, samples: NonZeroU32) -> Self {
        Self { slice: Some(samples), ..self }
    }

    /// Whether batches could be staged that no event leads to: [`Self::go_on`] does it.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Stages what earlier calls left.
    pub fn go_on(&mut self, now: Nanoseconds) {
        self.now = self.now.max(now);
        self.has_more = false;
        self.follow_up();
    }

    /// Does what follows from an event.
    fn follow_up(&mut self) {
        self.put_away();
        self.call_off();
        self.fit_arenas();
        if !self.has_more {
            self.stage();
        }
        // What was called off, or dropped before it was planned, may have been all that held one open.
        self.close_arenas();
        self.fit_arenas();
        self.put_away();
    }

    /// The next thing to do, or `None` until something happens.
    pub fn poll_command(&mut self) -> Option<Command> {
        if let Some(message) = self.messages.pop_front() {
            return Some(message);
        }
        let errand = self.errands.front().map(Command::op);
        if let Some(None) = errand {
            return self.errands.pop_front();
        }
        if self.running >= self.operations_max {
            return None;
        }
        let command = match errand {
            Some(_) => self.errands.pop_front()?,
            None => self.next_in_line()?,
        };
        self.running += 1;
        self.begin(&command);
        Some(command)
    }

    /// What was done so far.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Operations that were planned and have not ended.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ops.len()
    }

    /// Chunks that a tier may have: what it was told, less what it was refused since.
    #[must_use]
    pub fn chunks_max(&self, tier: TierId) -> u32 {
        self.cache.chunks_max(tier)
    }

    /// How many reads of the cold store run at a time now, at most ([`Windows::adaptation`]).
    #[must_use]
    pub fn cold_window(&self) -> usize {
        self.line.cold_window()
    }

    /// What is in line for each rank, and what its next batch needs: all that dividing loader threads
    /// over ranks asks for ([`crate::session::assignment`]).
    #[must_use]
    pub fn queues(&self) -> Vec<Queue> {
        let next = |staging: &Staging| {
            let mut ahead = staging.staged.values();
            let next = ahead.find(|staged| staged.is_awaited() && staged.pending > 0);
            next.map_or((Bytes(0), Bytes(0)), |staged| (staged.local, staged.cold))
        };
        let ranks = self.ranks.values().zip(self.line.cold_requests());
        let queue = |(staging, requests): (&Staging, u64)| {
            let (local, cold) = next(staging);
            Queue { requests, local, cold, ..Queue::default() }
        };
        ranks.map(queue).collect()
    }

    /// Batches that the trainers of each rank have or were handed.
    pub fn leases(&self) -> impl Iterator<Item = (Rank, usize)> + '_ {
        self.ranks.iter().map(|(rank, staging)| (*rank, staging.leases()))
    }

    /// Batches of each rank that are complete and that no trainer has taken yet.
    pub fn ready(&self) -> impl Iterator<Item = (Rank, usize)> + '_ {
        self.ranks.iter().map(|(rank, staging)| (*rank, staging.ready()))
    }

    /// Bytes read for batches that nobody took.
    #[must_use]
    pub fn wasted(&self) -> Bytes {
        Bytes(self.ranks.values().map(|staging| staging.wasted.0).sum())
    }

    /// What each tier may hold and holds, by [`TierId`].
    pub fn levels(&self) -> impl Iterator<Item = Level> + '_ {
        self.cache.levels().iter().copied()
    }

    /// Divides reads from the cold store over ranks as loader threads are divided, until told otherwise.
    /// At first one pool serves all. With [`Assignment::Proportional`] in [`Settings::windows`] the
    /// session itself divides anew whenever a batch was taken.
    pub fn divide(&mut self, division: &Division) {
        self.line.divide(division);
    }

    /// A batch as deadlines count it.
    fn need_of(&self, batch: BatchId) -> Need {
        let spec = self.future.spec();
        let number = spec.batches_between(spec.first(batch.rank), Some(batch)) + 1;
        Need { rank: batch.rank, number }
    }

    fn handle_resized(&mut self, tier: TierId, chunks_max: u32) {
        self.cache.resize(tier, chunks_max);
        self.follow_changes(None);
    }

    fn handle_staging_limited(&mut self, batches: u32) {
        let is_limit = batches < self.settings.staged_batches;
        let limit = is_limit.then_some(batches.max(STAGED_MIN));
        self.ranks.values_mut().for_each(|staging| staging.limit(limit));
    }

    /// Gives the memory of arenas back that is not to be used, and takes it again.
    fn fit_arenas(&mut self) {
        let passages = |(rank, staging): (&Rank, &mut Staging)| {
            let rank = *rank;
            staging.passages().into_iter().map(move |passage| (rank, passage)).collect::<Vec<_>>()
        };
        let passages: Vec<_> = self.ranks.iter_mut().flat_map(passages).collect();
        for (rank, passage) in passages {
            let op = self.ops.name();
            let (offset, len) = passage.range();
            let command = match passage {
                Passage::Out(_) => Command::TrimArena { op, rank, offset, len },
                Passage::In(_) => Command::RestoreArena { op, rank, offset, len },
            };
            self.plan(op, Kind::Pass { rank, passage }, command, &[], None);
        }
    }
}

#[cfg(test)]
mod tests;
