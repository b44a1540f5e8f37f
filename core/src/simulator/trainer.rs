//! A data-parallel training: every rank waits for its batch, all compute one step, all go on.
//!
//! A rank keeps as many requests outstanding as its staging memory holds batches, as the Python client
//! does. A batch that the agent refuses counts as delivered at once: the client reads it without the agent.

use alloc::{collections::BTreeMap, vec, vec::Vec};

use super::{EpochOutcome, Machine, Pause, trace::Started};
use crate::{
    id::{BatchId, ConnectionId, Epoch, LeaseId, Rank, Step},
    latency_quantiles::{Draws, LatencyQuantiles},
    order::Spec,
    session::{Answer, EpochProgress, Event, Form, Settings, Wait},
    units::{Bytes, Nanoseconds},
};

#[derive(Debug, Default)]
pub(super) struct Reaction {
    pub(super) events: Vec<Event>,
    pub(super) step_ends_at: Option<Nanoseconds>,
    pub(super) started: Option<Started>,
}

#[derive(Debug)]
struct RankState {
    rank: Rank,
    connection: ConnectionId,
    next: Option<BatchId>,
    /// The lease of each batch that was answered; `None` if it was refused.
    answered: BTreeMap<BatchId, Option<LeaseId>>,
    outstanding: u32,
    is_admitted: bool,
}

#[derive(Debug)]
pub(super) struct Trainer {
    order: Spec,
    window: u32,
    step_time: LatencyQuantiles,
    pause: Option<Pause>,
    steps: u64,
    draws: Draws,
    ranks: Vec<RankState>,
    epoch: Epoch,
    step: Step,
    needed_at: Nanoseconds,
    is_computing: bool,
    computed: Vec<Nanoseconds>,
    stalls: Vec<Nanoseconds>,
    ends: Vec<Nanoseconds>,
}

impl Trainer {
    pub(super) fn new(settings: &Settings, machine: &Machine) -> Self {
        let order = settings.order;
        let ranks = order.world.ranks_of(settings.node).map(|rank| RankState {
            rank,
            connection: ConnectionId(u64::from(rank.0)),
            next: Some(order.first(rank)),
            answered: BTreeMap::new(),
            outstanding: 0,
            is_admitted: false,
        });
        let first = order.first(Rank(0)).epoch;
        Self {
            order,
            window: settings.staged_batches.max(1),
            step_time: machine.step_time.clone(),
            pause: machine.pause,
            steps: 0,
            draws: Draws::of(machine.seed, u64::MAX),
            ranks: ranks.collect(),
            epoch: first,
            step: Step(0),
            needed_at: machine.head_start,
            is_computing: false,
            computed: vec![Nanoseconds(0); order.epochs as usize],
            stalls: vec![Nanoseconds(0); order.epochs as usize],
            ends: vec![machine.head_start; first.0 as usize],
        }
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(super) fn attach(&self) -> Vec<Event> {
        let attach =
            |state: &RankState| Event::Attached { connection: state.connection, rank: state.rank };
        self.ranks.iter().map(attach).collect()
    }

    pub(super) fn handle(&mut self, answer: &Answer, now: Nanoseconds) -> Reaction {
        let (order, window) = (self.order, self.window);
        let events = match answer {
            Answer::Admit { connection, .. } => {
                let Some(state) = self.state(*connection) else { return Reaction::default() };
                state.is_admitted = true;
                state.ask(&order, window)
            }
            Answer::Lease { connection, lease, batch, .. } => {
                let Some(state) = self.state(*connection) else { return Reaction::default() };
                state.answered.insert(batch.id, Some(*lease));
                Vec::new()
            }
            Answer::Refuse { connection, batch, .. } => {
                let Some(state) = self.state(*connection) else { return Reaction::default() };
                state.answered.insert(*batch, None);
                Vec::new()
            }
            Answer::Reject { .. } => return Reaction::default(),
        };
        let mut reaction = self.start_step(now);
        reaction.events.splice(0..0, events);
        reaction
    }

    /// Ends the step that all ranks computed, and asks for the next batches.
    pub(super) fn end_step(&mut self, now: Nanoseconds) -> Reaction {
        let (order, window, current) = (self.order, self.window, (self.epoch, self.step));
        let mut events = Vec::new();
        for state in &mut self.ranks {
            let batch = BatchId { epoch: current.0, step: current.1, rank: state.rank };
            state.outstanding -= 1;
            if let Some(Some(lease)) = state.answered.remove(&batch) {
                events.push(Event::Released { connection: state.connection, lease });
            }
            events.extend(state.ask(&order, window));
        }
        self.is_computing = false;
        self.needed_at = now;
        self.step.0 += 1;
        if self.step.0 == order.steps_in(self.epoch) {
            self.epoch.0 += 1;
            self.step = Step(0);
            self.ends.push(now);
        }
        let mut reaction = self.start_step(now);
        reaction.events.splice(0..0, events);
        reaction
    }

    pub(super) fn outcomes(
        &self,
        settings: &Settings,
        machine: &Machine,
        read: &[EpochProgress],
    ) -> Vec<EpochOutcome> {
        let capacity: u64 = settings.tiers.iter().map(|tier| u64::from(tier.chunks_max)).sum();
        let capacity = capacity.saturating_mul(settings.chunk.0);
        // Padding repeats samples; the second use in an epoch needs no second read.
        let dataset: u64 = settings.sizes.iter().map(|len| len.0).sum();
        let mut start = machine.head_start;
        let mut outcomes = Vec::new();
        for (epoch, read) in (0..).zip(read) {
            let end = self.ends.get(epoch as usize).copied().unwrap_or(start);
            let cached = if epoch <= self.order.start.epoch.0 { 0 } else { capacity };
            let minimal_cold = match &machine.peers {
                None => Bytes(read.demand.0.min(dataset).saturating_sub(cached)),
                Some(peers) if epoch > self.order.start.epoch.0 => {
                    peers.part_of(read.demand, dataset)
                }
                Some(_) => read.demand,
            };
            let minimal_cold = stored_part(settings, minimal_cold);
            let steps = self.order.steps_in(Epoch(epoch));
            let compute = self.computed[epoch as usize];
            let reading = machine.cold.time_for(minimal_cold);
            let working = reading.max(transforming(settings, read, minimal_cold));
            // What the agent did before the training counts for its first epoch.
            let is_first = epoch == self.order.start.epoch.0;
            let before = if is_first { machine.head_start.0 } else { 0 };
            outcomes.push(EpochOutcome {
                epoch: Epoch(epoch),
                steps,
                read: read.clone(),
                stall: self.stalls[epoch as usize],
                causes: read.causes.scaled(self.stalls[epoch as usize]),
                duration: Nanoseconds(end.0 - start.0),
                lower_bound: compute.max(Nanoseconds(working.0.saturating_sub(before))),
                minimal_cold,
            });
            start = end;
        }
        outcomes
    }

    fn start_step(&mut self, now: Nanoseconds) -> Reaction {
        let (epoch, step) = (self.epoch, self.step);
        let has_batch = |state: &RankState| {
            state.answered.contains_key(&BatchId { epoch, step, rank: state.rank })
        };
        if self.is_computing || epoch.0 >= self.order.epochs || !self.ranks.iter().all(has_batch) {
            return Reaction::default();
        }
        self.is_computing = true;
        let waited = Nanoseconds(now.0 - self.needed_at.0);
        self.stalls[epoch.0 as usize].0 += waited.0;
        let step_time = self.step_time();
        self.computed[epoch.0 as usize].0 += step_time.0;
        let deliver = |state: &RankState| {
            let lease = state.answered[&BatchId { epoch, step, rank: state.rank }]?;
            Some(Event::Delivered {
                connection: state.connection,
                lease,
                wait: Wait::ending(now, waited),
            })
        };
        let events = self.ranks.iter().filter_map(deliver).collect();
        let started = Started { epoch, step, needed: self.needed_at, stall: waited };
        let ends_at = Nanoseconds(now.0 + step_time.0);
        Reaction { events, step_ends_at: Some(ends_at), started: Some(started) }
    }

    /// The time of the slowest rank, and of a pause if one is due.
    fn step_time(&mut self) -> Nanoseconds {
        let (spread, draws) = (&self.step_time, &mut self.draws);
        let step = self.ranks.iter().map(|_| spread.draw(draws)).max().unwrap_or_default();
        self.steps += 1;
        let pause = self.pause.filter(|pause| self.steps.is_multiple_of(pause.every.get().into()));
        Nanoseconds(step.0.saturating_add(pause.map_or(0, |pause| pause.time.0)))
    }

    fn state(&mut self, connection: ConnectionId) -> Option<&mut RankState> {
        self.ranks.iter_mut().find(|state| state.connection == connection)
    }
}

/// The least time for which the transforms of an epoch keep each thread busy. If tiers hold the prepared
/// form, samples that came from the cold store without need were transformed without need, too.
fn transforming(settings: &Settings, read: &EpochProgress, minimal_cold: Bytes) -> Nanoseconds {
    let Some(transform) = &settings.transform else { return Nanoseconds(0) };
    let [stored, prepared] = read.transforms.map(|count| u128::from(count.time.0));
    let needed = match transform.cached {
        Form::Stored => stored,
        Form::Prepared => {
            let needed = minimal_cold.min(read.cold).0;
            let kept =
                prepared / u128::from(read.transforms[Form::Prepared as usize].samples.max(1));
            let all = u128::from(read.transforms[Form::Stored as usize].samples);
            let in_vain = u128::from(read.cold.0 - needed);
            let part = |of: u128| of * in_vain / u128::from(read.cold.0.max(1));
            // A hit takes what it took on average in this epoch.
            stored - part(stored) + part(all) * kept
        }
    };
    let each = (needed + prepared) / u128::from(transform.threads.get());
    Nanoseconds(u64::try_from(each).unwrap_or(u64::MAX))
}

/// The length in the cold store of samples that take `held` bytes in tiers.
fn stored_part(settings: &Settings, held: Bytes) -> Bytes {
    let Some(transform) = &settings.transform else { return held };
    let sum = |lens: &[Bytes]| lens.iter().map(|len| u128::from(len.0)).sum::<u128>();
    let part = u128::from(held.0) * sum(&transform.stored) / sum(&settings.sizes).max(1);
    Bytes(u64::try_from(part).unwrap_or(u64::MAX))
}

impl RankState {
    fn ask(&mut self, order: &Spec, window: u32) -> Vec<Event> {
        let mut events = Vec::new();
        while self.is_admitted && self.outstanding < window {
            let Some(batch) = self.next else { break };
            events.push(Event::Requested { connection: self.connection, batch });
            self.next = order.after(batch);
            self.outstanding += 1;
        }
        events
    }
}
