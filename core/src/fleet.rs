//! The manager's view of a job: the schedule, progress and lent memory of each node.
//!
//! A schedule ([`schedule`]) is small because an agent expands it itself: order and policy are the same
//! for all nodes; the tiers, their use and the depths follow from what the node found. The fleet decides
//! which agent works as which node, when a silent node counts as lost, and how many chunks of CXL memory its
//! workloads may hold. Later generations of a schedule are made by its node ([`revision`]), which tells them.
//!
//! An agent states which node it works as: numbers are never assigned by order of arrival, because
//! trainers get theirs from their launcher. A node is also identified by its `home` (the run
//! directory on its host) and its `incarnation` (the process). If the same home comes back as
//! another process, that is a restart, and it gets a schedule of the next generation.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. A number below `world.nodes` belongs to at most one home at a time; other numbers are
//!    refused.
//! 2. A node that comes back as the same process keeps its schedule; as another process it gets the
//!    next generation.
//! 3. A node never lends more chunks than it registered, and a new process starts with none lent.
//! 4. A silent node is reported lost once per silence, and not after it drained.
//!
//! Deliberately absent: what makes a schedule of an offer ([`first_schedule`]), for which the caller has the inputs of
//! the job, and the memory itself, which agents hold.

pub mod depth;
pub mod first_schedule;
pub mod launch;
pub mod members;
pub mod revision;
pub mod schedule;
pub mod standing;
pub mod training;

mod ledger;
mod message;

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

pub use ledger::{Denial, Ledger};
pub use message::{
    Applied, Assignment, Direction, Notice, Progress, Refusal, Registration, TransformProgress,
};

pub use self::schedule::Origin;
use self::{
    members::{Members, PeerLink, PeerReport, Peers},
    schedule::{Offer, Schedule},
};
use crate::{
    id::NodeId,
    order::Spec,
    retention::{partition::Membership, policy},
    session::Observed,
    units::Nanoseconds,
};

/// A node that an earlier manager knew is gone if this manager has not heard of it within this time. Agents
/// try to register again at least every 30 s.
const UNHEARD_MAX: Nanoseconds = Nanoseconds(60_000_000_000);

/// Settings that all nodes of a job share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Which sample each rank reads when; its world has the number of nodes.
    pub order: Spec,
    pub policy: policy::Kind,
    /// A node without a message for this long counts as lost.
    pub lost_after: Nanoseconds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Alive,
    Lost,
    Drained,
}

impl State {
    pub const ALL: [Self; 3] = [Self::Alive, Self::Lost, Self::Drained];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Lost => "lost",
            Self::Drained => "drained",
        }
    }
}

/// As the manager knows it.
#[derive(Debug, Clone)]
pub struct Node {
    /// The run directory and its host, as a number.
    pub home: u64,
    /// The process, as a number.
    pub incarnation: u64,
    /// The number of processes that worked as this node before.
    pub generation: u32,
    pub offer: Offer,
    pub schedule: Schedule,
    pub progress: Progress,
    pub observed: Option<Observed>,
    pub lent: Ledger,
    pub state: State,
    heard_at: Nanoseconds,
}

#[derive(Debug)]
pub struct Fleet {
    settings: Settings,
    nodes: BTreeMap<NodeId, Node>,
    members: Members,
    /// The time of the first tick.
    began: Option<Nanoseconds>,
    is_draining: bool,
    is_over: bool,
    notices: VecDeque<Notice>,
}

impl Fleet {
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            nodes: BTreeMap::new(),
            members: Members::new(settings.order),
            began: None,
            is_draining: false,
            is_over: false,
            notices: VecDeque::new(),
        }
    }

    /// Goes on with the memberships that an earlier manager of the job made, in their order.
    #[must_use]
    pub fn resume(mut self, memberships: Vec<Membership>) -> Self {
        self.members.resume(memberships);
        self
    }

    #[must_use]
    pub fn memberships(&self) -> &[Membership] {
        &self.members.peers().memberships
    }

    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The nodes that ever registered, by number.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Registers an agent, which gets `schedule`, made of its offer. An agent that registers again keeps
    /// the schedule that it has.
    ///
    /// # Errors
    ///
    /// [`Refusal`] names the reason; the fleet is then unchanged.
    pub fn handle_registration(
        &mut self,
        registration: Registration,
        schedule: Schedule,
        now: Nanoseconds,
    ) -> Result<Assignment, Refusal> {
        let number = registration.node;
        self.check_number(&registration)?;
        let generation = match self.nodes.get(&number) {
            Some(node) if node.incarnation == registration.incarnation => node.generation,
            _ if self.is_draining => return Err(Refusal::Draining),
            Some(node) => node.generation + 1,
            None => 0,
        };
        let schedule = self.admit(number, generation, registration, schedule, now);
        Ok(Assignment {
            node: number,
            generation,
            order: self.settings.order.fingerprint(),
            policy: self.settings.policy,
            schedule,
        })
    }

    pub fn handle_progress(
        &mut self,
        node: NodeId,
        incarnation: u64,
        progress: Progress,
        now: Nanoseconds,
    ) -> Direction {
        let is_draining = self.is_draining;
        match self.hear(node, incarnation, now) {
            Ok(node) => {
                node.progress = progress;
                if is_draining { Direction::Drain } else { Direction::Continue }
            }
            Err(direction) => direction,
        }
    }

    pub fn handle_observed(&mut self, id: NodeId, observed: Observed) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.observed = Some(observed);
        }
    }

    /// Records a later generation of its schedule that a node has made.
    pub fn handle_schedule(&mut self, id: NodeId, schedule: Schedule) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        // Generations are counted on from it.
        if (node.schedule.generation + 1..u32::MAX / 2).contains(&schedule.generation) {
            node.schedule = schedule;
            self.notices.push_back(Notice::Revised { node: id });
        }
    }

    /// Records what a node says of itself as a peer. Returns what it has to know of the others; `None` if
    /// the fleet does not know the process.
    pub fn handle_peer_report(
        &mut self,
        node: NodeId,
        incarnation: u64,
        report: PeerReport,
        now: Nanoseconds,
    ) -> Option<&Peers> {
        self.hear(node, incarnation, now).ok()?;
        self.members.handle_report(node, incarnation, report);
        Some(self.members.peers())
    }

    #[must_use]
    pub fn peer_links(&self, node: NodeId) -> &[PeerLink] {
        self.members.links(node)
    }

    /// Lends `chunks` of a node's CXL memory to a workload there, all or none.
    ///
    /// # Errors
    ///
    /// [`Denial`] if the node has fewer left, or if the fleet does not know it.
    pub fn handle_memory_asked(
        &mut self,
        node: NodeId,
        incarnation: u64,
        chunks: u32,
        now: Nanoseconds,
    ) -> Result<(), Denial> {
        let node = self.hear(node, incarnation, now).map_err(|_| Denial::Unknown)?;
        node.lent.lend(chunks)
    }

    /// Notes that a workload gave chunks back.
    ///
    /// # Errors
    ///
    /// [`Denial`] if fewer are lent, or if the fleet does not know the node.
    pub fn handle_memory_returned(
        &mut self,
        node: NodeId,
        incarnation: u64,
        chunks: u32,
        now: Nanoseconds,
    ) -> Result<(), Denial> {
        let node = self.hear(node, incarnation, now).map_err(|_| Denial::Unknown)?;
        node.lent.take_back(chunks)
    }

    /// Asks every node to end. Each learns it in the reply to its next report.
    pub fn handle_drain(&mut self) {
        self.is_draining = true;
        self.note_if_over();
    }

    pub fn handle_drained(&mut self, node: NodeId, incarnation: u64, progress: Progress) {
        if let Some(node) = self.nodes.get_mut(&node)
            && node.incarnation == incarnation
        {
            node.progress = progress;
            node.state = State::Drained;
            node.lent.clear();
        }
        self.forget_peers();
        self.note_if_over();
    }

    pub fn handle_tick(&mut self, now: Nanoseconds) {
        let lost_after = self.settings.lost_after;
        for (id, node) in &mut self.nodes {
            let silent = Nanoseconds(now.0.saturating_sub(node.heard_at.0));
            if node.state == State::Alive && silent > lost_after {
                node.state = State::Lost;
                self.notices.push_back(Notice::NodeLost { node: *id, silent });
            }
        }
        self.forget_peers();
        let began = *self.began.get_or_insert(now);
        if now.0.saturating_sub(began.0) > UNHEARD_MAX.0 && !self.is_draining {
            let unheard: Vec<NodeId> = self.members.unheard().collect();
            unheard.into_iter().for_each(|node| self.members.handle_gone(node));
        }
        self.note_if_over();
    }

    /// The next notice of the fleet, oldest first.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    fn check_number(&self, registration: &Registration) -> Result<(), Refusal> {
        let (node, nodes) = (registration.node, self.settings.order.world.nodes);
        if node.0 >= nodes {
            return Err(Refusal::NoSuchNode { node, nodes });
        }
        match self.nodes.get(&node) {
            Some(other) if other.home != registration.home && other.state == State::Alive => {
                Err(Refusal::DuplicateNode { node })
            }
            _ => Ok(()),
        }
    }

    fn admit(
        &mut self,
        number: NodeId,
        generation: u32,
        registration: Registration,
        schedule: Schedule,
        now: Nanoseconds,
    ) -> Schedule {
        let Registration { home, incarnation, offer, .. } = registration;
        if let Ok(node) = self.hear(number, incarnation, now) {
            // The reply to its first registration was lost: its ledger and progress remain valid.
            node.home = home;
            return node.schedule.clone();
        }
        let before = self.nodes.get(&number).map(|node| node.schedule.generation + 1);
        let schedule = Schedule { generation: before.unwrap_or(0), ..schedule };
        let budgets = schedule.used(&offer).map(|(_, found)| (found.kind, found.budget));
        let lent = Ledger::of(budgets, schedule.chunk);
        let progress = Progress::default();
        let node = Node {
            home,
            incarnation,
            generation,
            offer,
            schedule: schedule.clone(),
            progress,
            observed: None,
            lent,
            state: State::Alive,
            heard_at: now,
        };
        self.nodes.insert(number, node);
        schedule
    }

    fn hear(
        &mut self,
        id: NodeId,
        incarnation: u64,
        now: Nanoseconds,
    ) -> Result<&mut Node, Direction> {
        let node = self.nodes.get_mut(&id).ok_or(Direction::Unknown)?;
        if node.incarnation != incarnation {
            return Err(Direction::Superseded);
        }
        node.heard_at = now;
        if node.state == State::Lost {
            node.state = State::Alive;
            self.notices.push_back(Notice::NodeBack { node: id });
        }
        Ok(node)
    }

    /// Takes nodes that are lost or have ended out of the members, unless the whole job is ending.
    fn forget_peers(&mut self) {
        if !self.is_draining {
            let gone = self.nodes.iter().filter(|(_, node)| node.state != State::Alive);
            gone.for_each(|(id, _)| self.members.handle_gone(*id));
        }
    }

    fn note_if_over(&mut self) {
        let has_ended = self.nodes.values().all(|node| node.state != State::Alive);
        if self.is_draining && has_ended && !self.is_over {
            self.is_over = true;
            self.notices.push_back(Notice::Over);
        }
    }
}

#[cfg(test)]
mod tests;
