//! Runs a session against a virtual clock, modelled links and a modelled trainer.
//!
//! The session is the one that the agent runs, so bytes per tier are predicted exactly as far as the
//! trainer keeps its ranks in step; times are as good as the link model: a rate that everything in
//! flight shares, then a latency, which is also how emulated tiers behave. A [`Machine`] adds what was
//! measured: rates by threads, and times that spread.

mod clock;
mod digest;
mod late_start;
mod links;
mod machine;
mod trace;
mod trainer;
mod transforms;

pub mod whole_job;

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{num::NonZeroU32, ops::ControlFlow};

pub use late_start::{LateStart, warm_up};
pub use machine::{LinkModel, Machine, Pause, Peers, StepCost, TransformCosts};
pub use trace::{Observer, RankStep, StepOutcome};

use self::{
    clock::Clock,
    digest::Digest,
    links::Links,
    trace::{InFlight, Trace},
    trainer::Trainer,
};
use crate::{
    fleet::{Applied, revision::Held},
    id::{Epoch, NodeId, OpId},
    retention::partition::Membership,
    session::{
        Busy, Command, Cycle, EpochProgress, Event, Operation, Session, SetPoints, Settings,
        StallBreakdown, Waits,
    },
    tier::Speed,
    units::{Bytes, Nanoseconds},
};

/// The machine and the training that a session is run against, with one speed for each link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    pub cold: Speed,
    /// The most reads of the cold store that run at the same time; `None` for no limit.
    pub cold_threads: Option<NonZeroU32>,
    /// The time by which the cold store may be ahead of its rate after it was idle.
    pub cold_burst: Nanoseconds,
    /// As in [`Settings::tiers`].
    pub tiers: Vec<Speed>,
    /// The time that a training step computes, without loading.
    pub step_time: Nanoseconds,
    /// The pauses of the training between steps, in which it reads nothing.
    pub pause: Option<Pause>,
    /// `None` if transforms take no time.
    pub transforms: Option<TransformCosts>,
    /// The time that the agent reads before the training begins.
    pub head_start: Nanoseconds,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochOutcome {
    pub epoch: Epoch,
    pub steps: u32,
    /// By origin, as the agent counts them.
    pub read: EpochProgress,
    /// The time that the training stood still, with ranks in lock-step.
    pub stall: Nanoseconds,
    /// The stall by cause: the causes of the ranks that waited for something other than each other.
    pub causes: StallBreakdown,
    /// From the first request to the end of the last step.
    pub duration: Nanoseconds,
    /// A bound that no policy can undercut: the longest of computing, of reading `minimal_cold`, and of the
    /// transforms of each thread.
    pub lower_bound: Nanoseconds,
    /// Bytes that every policy has to read from the cold store on this node: a cache can save no more than
    /// it held when the epoch began. On several nodes no policy reaches this in every epoch. With peers, it
    /// is the part of the node in the bytes that the caches of all nodes cannot hold.
    pub minimal_cold: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// By epoch number.
    pub epochs: Vec<EpochOutcome>,
    pub waits: Waits,
    pub first_stall: Nanoseconds,
    /// `None` if the training has no idle phases.
    pub cycle: Option<Cycle>,
    pub cold_busy: Busy,
    pub tiers_busy: Vec<Busy>,
    /// A hash of every command in order: equal plans have equal digests.
    pub digest: u64,
    /// [`crate::session::Progress::decisions`] of the run, which do not depend on time.
    pub decisions: u64,
}

/// Runs all epochs of a job on one node.
#[must_use]
pub fn simulate(settings: &Settings, model: &Model) -> Outcome {
    simulate_on(settings, &Machine::from(model))
}

/// As [`simulate`], with a more detailed machine.
#[must_use]
pub fn simulate_on(settings: &Settings, machine: &Machine) -> Outcome {
    let ControlFlow::Continue(outcome) = simulate_observed(settings, machine, &mut ());
    outcome
}

/// As [`simulate_on`], with an observer, which may end the run: then only the value with which it breaks is
/// returned. Observations revise the schedule as a manager would.
pub fn simulate_observed<O: Observer>(
    settings: &Settings,
    machine: &Machine,
    observer: &mut O,
) -> ControlFlow<O::Stop, Outcome> {
    simulate_through(settings, machine, Epoch(settings.order.epochs - 1), observer)
}

/// As [`simulate_observed`], up to the end of the epoch `last`.
pub fn simulate_through<O: Observer>(
    settings: &Settings,
    machine: &Machine,
    last: Epoch,
    observer: &mut O,
) -> ControlFlow<O::Stop, Outcome> {
    let threads = machine.cold.threads.unwrap_or(settings.windows.cold_max());
    let held = Box::new(Held::at_first(settings, threads));
    run(settings, machine, last, &mut Manager::Revises { generation: 0, held }, observer)
}

/// Runs with recorded schedules, each with its generation and the first epoch in which it was applied.
#[must_use]
pub fn simulate_recorded(
    settings: &Settings,
    machine: &Machine,
    schedules: &[(Applied, SetPoints)],
) -> Outcome {
    let last = Epoch(settings.order.epochs - 1);
    let ControlFlow::Continue(outcome) =
        run(settings, machine, last, &mut Manager::Recorded(schedules), &mut ());
    outcome
}

enum Manager<'a> {
    Revises { generation: u32, held: Box<Held> },
    Recorded(&'a [(Applied, SetPoints)]),
}

impl Manager<'_> {
    /// The events before the run.
    fn begin(&self) -> Vec<Event> {
        let Self::Recorded(schedules) = self else { return Vec::new() };
        let event = |(applied, points): &(Applied, SetPoints)| {
            let Applied { generation, epoch } = *applied;
            Event::Scheduled { generation, from: epoch, points: *points }
        };
        schedules.iter().map(event).collect()
    }

    /// The event that follows from the observations of a session.
    fn revise(&mut self, session: &Session) -> Option<Event> {
        let Self::Revises { generation, held } = self else { return None };
        if !session.follows_schedules() {
            return None;
        }
        let points = held.revise(&session.observed())?.points;
        *generation += 1;
        Some(Event::Scheduled { generation: *generation, from: held.from, points })
    }
}

fn run<O: Observer>(
    settings: &Settings,
    machine: &Machine,
    last: Epoch,
    manager: &mut Manager<'_>,
    observer: &mut O,
) -> ControlFlow<O::Stop, Outcome> {
    let mut clock = Clock::with_lanes(Links::lanes(machine));
    let mut links = Links::new(settings, machine);
    let mut session = Session::new(settings.clone());
    let mut trainer = Trainer::new(settings, machine);
    let mut trace = Trace::new(settings, observer);
    let mut digest = Digest::default();
    let peers = machine.peers.iter().flat_map(|peers| peers.join(settings.order.start.epoch));
    let first = peers.chain(manager.begin());
    first.for_each(|event| session.handle(event, clock.now));
    if machine.head_start > clock.now {
        clock.at(machine.head_start, Due::TrainingBegins);
    } else {
        trainer.attach().into_iter().for_each(|event| session.handle(event, clock.now));
    }
    loop {
        session.run_jobs();
        while let Some(command) = session.poll_command() {
            digest.add(&command);
            match command {
                Command::Start { op, operation } => {
                    let read = trace.started(&operation);
                    start(op, &operation, read, &mut links, &mut clock);
                }
                Command::Free(_) => {}
                Command::Answer(answer) => {
                    trace.answered(&answer);
                    let reaction = trainer.handle(&answer, clock.now);
                    react(&mut session, &mut clock, &mut trace, reaction)?;
                }
            }
            session.run_jobs();
        }
        match clock.next() {
            Some(Due::Completed(op, read)) => {
                read.into_iter().for_each(|read| trace.completed(read));
                session.handle(Event::Completed { op, outcome: Ok(()) }, clock.now);
            }
            Some(Due::Transformed(op, took, read)) => {
                read.into_iter().for_each(|read| trace.completed(read));
                session.handle(Event::Transformed { op, outcome: Ok(()), took }, clock.now);
            }
            Some(Due::TrainingBegins) => {
                trainer.attach().into_iter().for_each(|event| session.handle(event, clock.now));
            }
            Some(Due::StepEnded) => {
                let reaction = trainer.end_step(clock.now);
                if trainer.epoch() > last {
                    break;
                }
                let revised = manager.revise(&session);
                revised.into_iter().for_each(|event| session.handle(event, clock.now));
                react(&mut session, &mut clock, &mut trace, reaction)?;
            }
            None => break,
        }
    }
    let epochs = &session.progress().epochs[..=last.0 as usize];
    let epochs = trainer.outcomes(settings, machine, epochs);
    ControlFlow::Continue(outcome(&session, epochs, digest.finish()))
}

fn outcome(session: &Session, epochs: Vec<EpochOutcome>, digest: u64) -> Outcome {
    let progress = session.progress();
    Outcome {
        epochs,
        waits: progress.waits.clone(),
        first_stall: progress.first_stall,
        cycle: session.cycle(),
        cold_busy: progress.cold_busy,
        tiers_busy: progress.tiers_busy.clone(),
        digest,
        decisions: progress.decisions(),
    }
}

fn start(
    op: OpId,
    operation: &Operation,
    read: Vec<InFlight>,
    links: &mut Links,
    clock: &mut Clock<Due>,
) {
    let (ends_at, due) = match operation {
        Operation::Transform { form, from, .. } => {
            let (ends_at, took) = links.transform(*form, from.len, clock.now);
            (ends_at, Due::Transformed(op, took, read))
        }
        _ => (links.carry_out(operation, clock.now), Due::Completed(op, read)),
    };
    match Links::lane(operation) {
        Some(lane) => clock.at_end(lane, ends_at, due),
        None => clock.at(ends_at, due),
    }
}

impl Peers {
    /// The events for a session if all nodes are there from the start.
    fn join(&self, from: Epoch) -> impl Iterator<Item = Event> {
        let nodes = Arc::clone(&self.members);
        let found =
            (0..).zip(nodes.iter()).map(|(node, _)| Event::PeerFound { node: NodeId(node) });
        let found: Vec<Event> = found.collect();
        let membership = Membership { generation: 0, from, nodes };
        found.into_iter().chain([Event::Membership(membership)])
    }
}

fn react<O: Observer>(
    session: &mut Session,
    clock: &mut Clock<Due>,
    trace: &mut Trace<'_, O>,
    reaction: trainer::Reaction,
) -> ControlFlow<O::Stop> {
    reaction.events.into_iter().for_each(|event| session.handle(event, clock.now));
    if let Some(time) = reaction.step_ends_at {
        clock.at(time, Due::StepEnded);
    }
    reaction.started.map_or(ControlFlow::Continue(()), |started| trace.start(started))
}

#[derive(Debug, Clone)]
enum Due {
    Completed(OpId, Vec<InFlight>),
    /// With the time that a thread worked at it.
    Transformed(OpId, Nanoseconds, Vec<InFlight>),
    TrainingBegins,
    StepEnded,
}

#[cfg(test)]
mod tests;
