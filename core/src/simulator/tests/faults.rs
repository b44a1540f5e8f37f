//! Fault injection: a seed draws what goes wrong, in virtual time, with the machine of the simulator and
//! trainers that go on alone.
//!
//! Single operations stall, fail, or leave wrong bytes that a checksum finds later. Jobs of the session end
//! at any time, in any order. Beside them there are incidents: a tier is lost or shrinks, a trainer is killed
//! or keeps its batches, the agent is killed and starts anew with an empty node. Everything follows from
//! settings, machine and scenario, so a seed that failed fails again.
//!
//! What must hold, and is a [`Violation`] if it does not:
//!
//! 1. A connection gets one answer to each request, in the order of its requests.
//! 2. A batch that is handed over holds its samples. Its trainer writes over them at once, as one that
//!    normalises in place; what it wrote stays until the batch goes back, and is never taken for a sample.
//! 3. Every rank uses every batch of its order, once, in order.
//! 4. The run ends, and then nothing is in flight and no staging memory is open.

mod memory;
mod rank_trainer;

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use self::{
    memory::{Injected, NodeMemory},
    rank_trainer::{Handed, RankTrainer, Step},
};
use crate::{
    id::{BatchId, ConnectionId, LeaseId, OpId, Rank, SampleId, TierId},
    latency_quantiles::{Draws, PerMillion},
    session::{Answer, Command, Event, Job, Memory, Operation, Refusal, Session, Settings, Wait},
    simulator::{Clock, Machine, links::Links},
    units::Nanoseconds,
};

const STALL: Nanoseconds = Nanoseconds(2_000_000_000);

/// The upper bound of the duration of a job.
const JOB: Nanoseconds = Nanoseconds(20_000_000);

const INCIDENT: Nanoseconds = Nanoseconds(100_000_000);

/// The number of events for each batch of the order beyond which a run counts as endless.
const EVENTS_MAX: u64 = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    /// The share of operations that stall, fail, or leave wrong bytes.
    pub(super) operations: PerMillion,
    pub(super) incidents: u32,
    /// The mean time from one incident to the next.
    pub(super) every: Nanoseconds,
}

/// A fault of a whole tier, trainer or agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Incident {
    TierLost,
    TierShrunk,
    /// The trainer starts again behind the last batch that it used.
    TrainerKilled,
    /// The trainer keeps the batches that it uses.
    TrainerKeepsBatches,
    /// Another agent starts.
    AgentKilled,
}

impl Incident {
    pub(super) const ALL: [Self; 5] = [
        Self::TierLost,
        Self::TierShrunk,
        Self::TrainerKilled,
        Self::TrainerKeepsBatches,
        Self::AgentKilled,
    ];
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Violation {
    /// An answer that was not requested, or not at this point.
    Unasked(ConnectionId, BatchId),
    /// A batch was handed over with other bytes in the place of a sample.
    WrongBytes(BatchId, SampleId),
    /// The bytes of a batch changed while a trainer had it.
    Overwritten(BatchId),
    /// An operation used a place against the rules: it read before a write, or wrote outside of a chunk.
    Misused(Operation),
    /// A refusal whose reason cannot occur in this run.
    Groundless(BatchId, Refusal),
    Stuck(Rank, Option<BatchId>),
    Endless,
    /// After all trainers left.
    Left {
        planned: usize,
        running: usize,
        /// Ranks whose staging memory is open though their trainers left.
        arenas: usize,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FaultReport {
    pub(super) incidents: BTreeMap<Incident, u64>,
    pub(super) operations: u64,
    /// In the order of use.
    pub(super) used: BTreeMap<Rank, Vec<BatchId>>,
    pub(super) from_agent: u64,
    /// Batches that trainers read themselves.
    pub(super) alone: u64,
    pub(super) violation: Option<Violation>,
}

#[must_use]
pub(super) fn run_with_faults(
    settings: &Settings,
    machine: &Machine,
    scenario: &Scenario,
) -> FaultReport {
    let mut run = FaultRun::new(settings, machine, scenario);
    run.report.violation = run.run().err();
    run.report.used =
        run.trainers.into_iter().map(|trainer| (trainer.rank, trainer.used)).collect();
    run.report
}

/// An event of an earlier life of its agent or trainer is ignored.
#[derive(Debug, Clone, Copy)]
enum Due {
    Completed { life: u32, op: OpId },
    Used { trainer: usize, life: u32 },
    Incident,
    TierBack(TierId),
    TierGrown(TierId),
    TrainerBack { trainer: usize },
    GivenBack { trainer: usize, connection: ConnectionId, lease: LeaseId },
    AgentBack,
    JobEnded { life: u32, job: u64 },
}

#[derive(Debug)]
struct Running {
    operation: Operation,
    injected: Injected,
}

struct FaultRun<'a> {
    settings: &'a Settings,
    machine: &'a Machine,
    scenario: &'a Scenario,
    draws: Draws,
    clock: Clock<Due>,
    links: Links,
    /// `None` while there is no agent.
    session: Option<Session>,
    /// The number of times that the agent was killed.
    life: u32,
    memory: NodeMemory,
    running: BTreeMap<OpId, Running>,
    jobs: BTreeMap<u64, Job>,
    job_draws: Draws,
    trainers: Vec<RankTrainer>,
    /// Ranks whose last connection to this agent was admitted. Only their staging memory must be closed at
    /// the end, because an agent stages ahead for ranks that have not come yet.
    admitted: BTreeSet<Rank>,
    incidents_left: u32,
    report: FaultReport,
}

impl<'a> FaultRun<'a> {
    fn new(settings: &'a Settings, machine: &'a Machine, scenario: &'a Scenario) -> Self {
        let ranks = settings.order.world.ranks_of(settings.node);
        Self {
            settings,
            machine,
            scenario,
            draws: Draws::of(scenario.seed, 0),
            clock: Clock::default(),
            links: Links::new(settings, machine),
            session: None,
            life: 0,
            memory: NodeMemory::default(),
            running: BTreeMap::new(),
            jobs: BTreeMap::new(),
            job_draws: Draws::of(scenario.seed, 1),
            trainers: ranks.map(|rank| RankTrainer::new(rank, &settings.order)).collect(),
            admitted: BTreeSet::new(),
            incidents_left: scenario.incidents,
            report: FaultReport::default(),
        }
    }

    fn run(&mut self) -> Result<(), Violation> {
        let batches = self.settings.order.batches_per_rank() * self.trainers.len() as u64;
        let mut events_left = batches.saturating_mul(EVENTS_MAX);
        self.clock.at(Nanoseconds(0), Due::AgentBack);
        self.schedule_incident();
        while let Some(due) = self.clock.next() {
            events_left = events_left.checked_sub(1).ok_or(Violation::Endless)?;
            self.apply(due)?;
            if self.trainers.iter().all(RankTrainer::is_done) {
                return self.finish_run();
            }
        }
        let waiting = self.trainers.iter().find(|trainer| !trainer.is_done());
        let waiting = waiting.expect("a run whose trainers are all done has returned");
        Err(Violation::Stuck(waiting.rank, waiting.position))
    }

    /// Has all trainers leave; the agent must come to rest then.
    fn finish_run(&mut self) -> Result<(), Violation> {
        self.incidents_left = 0;
        for trainer in 0..self.trainers.len() {
            self.leave(trainer)?;
        }
        while let Some(due) = self.clock.next() {
            if matches!(due, Due::Completed { .. } | Due::JobEnded { .. }) {
                self.apply(due)?;
            }
        }
        let planned = self.session.as_ref().map_or(0, Session::in_flight);
        let (running, arenas) = (self.running.len(), self.memory.arenas_of(&self.admitted));
        if planned + running + arenas > 0 {
            return Err(Violation::Left { planned, running, arenas });
        }
        Ok(())
    }

    fn apply(&mut self, due: Due) -> Result<(), Violation> {
        match due {
            Due::Completed { life, op } if life == self.life => self.complete(op),
            Due::Used { trainer, life } if life == self.trainers[trainer].life => {
                self.finish(trainer)
            }
            Due::JobEnded { life, job } if life == self.life => self.end_job(job),
            Due::Completed { .. } | Due::Used { .. } | Due::JobEnded { .. } => Ok(()),
            Due::Incident => self.inject_incident(),
            Due::TierBack(tier) => {
                self.memory.lost.remove(&tier);
                Ok(())
            }
            Due::TierGrown(tier) => {
                let chunks_max = self.settings.tiers[usize::from(tier.0)].chunks_max;
                self.tell(Event::Resized { tier, chunks_max })
            }
            Due::TrainerBack { trainer } => {
                self.trainers[trainer].is_alive = true;
                self.attach(trainer)?;
                self.go_on(trainer)
            }
            Due::GivenBack { trainer, connection, lease } => {
                self.give_back(trainer, connection, lease)
            }
            Due::AgentBack => self.start_agent(),
        }
    }

    /// Tells the session, and executes its commands.
    fn tell(&mut self, event: Event) -> Result<(), Violation> {
        let now = self.clock.now;
        if let Some(session) = &mut self.session {
            session.handle(event, now);
        }
        self.carry_out()
    }

    fn carry_out(&mut self) -> Result<(), Violation> {
        while let Some(job) = self.session.as_mut().and_then(Session::poll_job) {
            let (name, lasts) = (self.job_draws.word(), self.job_draws.word() % JOB.0);
            self.jobs.insert(name, job);
            let due = Due::JobEnded { life: self.life, job: name };
            self.clock.at(Nanoseconds(self.clock.now.0 + lasts), due);
        }
        while let Some(command) = self.session.as_mut().and_then(Session::poll_command) {
            match command {
                Command::Start { op, operation } => self.start(op, operation),
                Command::Free(Memory::Arena(rank)) => self.memory.close_arena(rank),
                Command::Free(Memory::Chunk(tier, chunk)) => self.memory.drop_chunk(tier, chunk),
                Command::Answer(answer) => self.answer(answer)?,
            }
        }
        Ok(())
    }

    fn end_job(&mut self, job: u64) -> Result<(), Violation> {
        let finished = self.jobs.remove(&job).map(Job::run);
        if let Some((session, finished)) = self.session.as_mut().zip(finished) {
            session.finish(finished, self.clock.now);
        }
        self.carry_out()
    }

    fn start(&mut self, op: OpId, operation: Operation) {
        let done_at = self.links.carry_out(&operation, self.clock.now);
        let is_faulty = self.draws.word() % 1_000_000 < u64::from(self.scenario.operations.0);
        let injected =
            if is_faulty { Injected::draw(&operation, &mut self.draws) } else { Injected::None };
        self.report.operations += u64::from(injected != Injected::None);
        let late = if injected == Injected::Stalls { STALL.0 } else { 0 };
        let due = Due::Completed { life: self.life, op };
        self.clock.at(Nanoseconds(done_at.0.saturating_add(late)), due);
        self.running.insert(op, Running { operation, injected });
    }

    fn complete(&mut self, op: OpId) -> Result<(), Violation> {
        let Some(Running { operation, injected }) = self.running.remove(&op) else { return Ok(()) };
        let outcome = self.memory.end(&operation, injected)?;
        self.tell(Event::Completed { op, outcome })
    }

    fn answer(&mut self, answer: Answer) -> Result<(), Violation> {
        match answer {
            Answer::Admit { connection, .. } => {
                if let Some(trainer) = self.trainer_of(connection) {
                    self.trainers[trainer].is_admitted = true;
                    self.admitted.insert(self.trainers[trainer].rank);
                    self.ask(trainer)?;
                }
            }
            Answer::Reject { connection, .. } => {
                if let Some(trainer) = self.trainer_of(connection) {
                    self.trainers[trainer].detach();
                    self.go_on(trainer)?;
                }
            }
            Answer::Lease { connection, lease, offset, batch } => {
                self.memory.check(&batch, offset)?;
                if let Some(trainer) = self.trainer_of(connection) {
                    let id = batch.id;
                    let handed = Handed { connection, lease, offset, batch };
                    self.memory.overwrite(&handed);
                    self.trainers[trainer].receive(id, Some(handed))?;
                    self.go_on(trainer)?;
                }
            }
            Answer::Refuse { connection, batch, reason } => {
                if !matches!(reason, Refusal::NoRoom | Refusal::Unreadable(..)) {
                    return Err(Violation::Groundless(batch, reason));
                }
                if let Some(trainer) = self.trainer_of(connection) {
                    self.trainers[trainer].receive(batch, None)?;
                    self.go_on(trainer)?;
                }
            }
        }
        Ok(())
    }

    fn trainer_of(&self, connection: ConnectionId) -> Option<usize> {
        self.trainers.iter().position(|trainer| trainer.connection == Some(connection))
    }

    fn attach(&mut self, trainer: usize) -> Result<(), Violation> {
        if self.session.is_none()
            || !self.trainers[trainer].is_alive
            || self.trainers[trainer].is_done()
        {
            return Ok(());
        }
        let connection = self.trainers[trainer].attach(&self.settings.order);
        let rank = self.trainers[trainer].rank;
        self.admitted.remove(&rank);
        self.tell(Event::Attached { connection, rank })
    }

    fn ask(&mut self, trainer: usize) -> Result<(), Violation> {
        let window = self.settings.staged_batches.max(1) as usize;
        while let Some((connection, batch)) =
            self.trainers[trainer].next_request(&self.settings.order, window)
        {
            self.tell(Event::Requested { connection, batch })?;
        }
        Ok(())
    }

    /// Starts the next step of a trainer, if it has what it needs.
    fn go_on(&mut self, trainer: usize) -> Result<(), Violation> {
        let own = &mut self.trainers[trainer];
        let (current, life) = (own.connection, own.life);
        // Reading alone takes its time too.
        let (times, delivered) = match own.begin(&self.settings.order) {
            None => return Ok(()),
            Some(Step::Alone) => (2, None),
            Some(Step::Handed(Handed { connection, lease, .. })) => {
                (1, (current == Some(*connection)).then_some((*connection, *lease)))
            }
        };
        let time = self.machine.step_time.draw(&mut self.draws).0.max(1).saturating_mul(times);
        self.clock
            .at(Nanoseconds(self.clock.now.0.saturating_add(time)), Due::Used { trainer, life });
        match delivered {
            Some((connection, lease)) => self.tell(Event::Delivered {
                connection,
                lease,
                wait: Wait::ending(self.clock.now, Nanoseconds(0)),
            }),
            None => Ok(()),
        }
    }

    fn finish(&mut self, trainer: usize) -> Result<(), Violation> {
        let own = &mut self.trainers[trainer];
        let Some(step) = own.end(&self.settings.order) else { return Ok(()) };
        match step {
            Step::Handed(handed) => {
                let Handed { connection, lease, .. } = handed;
                self.report.from_agent += 1;
                // A batch of an agent that is gone does not go back.
                if own.connection == Some(connection) {
                    own.held += 1;
                    let later = own.keeps_until.max(self.clock.now);
                    self.clock.at(later, Due::GivenBack { trainer, connection, lease });
                    self.memory.check_held(&handed)?;
                }
            }
            Step::Alone => self.report.alone += 1,
        }
        if self.trainers[trainer].connection.is_none() {
            self.attach(trainer)?;
        }
        self.ask(trainer)?;
        self.go_on(trainer)
    }

    fn give_back(
        &mut self,
        trainer: usize,
        connection: ConnectionId,
        lease: LeaseId,
    ) -> Result<(), Violation> {
        if self.trainers[trainer].connection != Some(connection) {
            return Ok(());
        }
        self.trainers[trainer].held -= 1;
        self.tell(Event::Released { connection, lease })?;
        self.ask(trainer)
    }

    fn leave(&mut self, trainer: usize) -> Result<(), Violation> {
        match self.trainers[trainer].detach() {
            Some(connection) => self.tell(Event::Gone { connection }),
            None => Ok(()),
        }
    }

    fn schedule_incident(&mut self) {
        if self.incidents_left > 0 {
            self.incidents_left -= 1;
            let after = self.draws.word() % (2 * self.scenario.every.0.max(1));
            self.clock.at(Nanoseconds(self.clock.now.0.saturating_add(after)), Due::Incident);
        }
    }

    fn inject_incident(&mut self) -> Result<(), Violation> {
        let word = self.draws.word();
        let incident = Incident::ALL[pick(word, Incident::ALL.len())];
        *self.report.incidents.entry(incident).or_default() += 1;
        let over = Nanoseconds(self.clock.now.0 + INCIDENT.0);
        let trainer = pick(word >> 16, self.trainers.len());
        let tiers = self.settings.tiers.len();
        let tier = TierId(u8::try_from(pick(word >> 32, tiers.max(1))).unwrap_or(0));
        match incident {
            Incident::TierLost if tiers > 0 => {
                self.memory.lose(tier);
                self.clock.at(over, Due::TierBack(tier));
            }
            Incident::TierShrunk if tiers > 0 => {
                self.clock.at(over, Due::TierGrown(tier));
                self.tell(Event::Resized { tier, chunks_max: 0 })?;
            }
            Incident::TrainerKilled if self.trainers[trainer].is_alive => {
                self.trainers[trainer].die();
                self.leave(trainer)?;
                self.clock.at(over, Due::TrainerBack { trainer });
            }
            Incident::TrainerKeepsBatches => self.trainers[trainer].keeps_until = over,
            Incident::AgentKilled if self.session.is_some() => self.kill_agent(over)?,
            _ => {}
        }
        self.schedule_incident();
        Ok(())
    }

    fn kill_agent(&mut self, back_at: Nanoseconds) -> Result<(), Violation> {
        self.session = None;
        self.life += 1;
        self.running.clear();
        self.jobs.clear();
        self.admitted.clear();
        self.memory = NodeMemory::default();
        self.clock.at(back_at, Due::AgentBack);
        for trainer in 0..self.trainers.len() {
            self.trainers[trainer].detach();
            self.go_on(trainer)?;
        }
        Ok(())
    }

    /// An agent on an empty node. Trainers look for it between two steps.
    fn start_agent(&mut self) -> Result<(), Violation> {
        self.session = Some(Session::new(self.settings.clone()));
        for trainer in 0..self.trainers.len() {
            if self.trainers[trainer].is_new() {
                self.attach(trainer)?;
            }
        }
        self.carry_out()
    }
}

fn pick(word: u64, count: usize) -> usize {
    usize::try_from(word % count as u64).expect("below a count")
}

#[cfg(test)]
mod tests;
