//! The faults of a campaign: a table of what there is, how each begins and what it needs, and the schedule,
//! which follows from a seed.

#![expect(clippy::unnecessary_wraps, reason = "all faults begin by functions of one signature")]

mod links;
mod objects;
mod processes;
mod resources;

use std::time::Duration;

use tierfeed_core::latency_quantiles::Draws;

use crate::{
    role::{Role, World},
    samples::Samples,
    supervisor::Supervisor,
    testbed::Testbed,
};

/// Long enough for the agent to check its memory several times.
const PRESSURE_MIN: Duration = Duration::from_secs(2);

/// Attaching strace takes a moment, and some calls are seldom made.
const FAILING_MIN: Duration = Duration::from_secs(1);

/// Longer than a read from another node may take.
const OUTAGE_MIN: Duration = Duration::from_secs(2);

/// A fault that is injected alone lasts up to this many times as long. If it silences a node for longer than
/// the manager waits, the node is gone for the others.
const ALONE_STRETCH_MAX: u64 = 5;

/// What a fault leaves to be done when it is over: this is called with the time since the end of its duration,
/// again until it has ended. `None` if the fault could not be injected now.
pub(crate) type Injection<'a> = anyhow::Result<Option<Recovery<'a>>>;

pub(crate) type Recovery<'a> =
    Box<dyn FnMut(&mut Supervisor<'a>, Duration) -> anyhow::Result<Ended> + 'a>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    NotYet,
    Injected,
    /// The process that it needed did not do its part, as when another fault ended it.
    WithoutEffect,
}

/// The reason why a fault cannot be injected on a testbed, or `None` if it can.
type Obstacle = fn(&Testbed) -> Option<String>;

/// A kind of faults.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    inject: for<'a> fn(&mut Supervisor<'a>, Fault) -> Injection<'a>,
    obstacles: &'static [Obstacle],
    lasts_min: Duration,
    pub(crate) ends_agent: bool,
    /// Whether it means something only while the agent runs.
    pub(crate) needs_agent: bool,
    /// Whether the agent may end by itself as long as the fault lasts.
    pub(crate) lets_agent_fail: bool,
    /// If it is also injected alone, on several nodes, to measure its cost: it lasts up to so many times as long
    /// then. 0 if it is not.
    stretch_alone: u64,
}

/// In the order in which seeds draw them.
pub(crate) static KINDS: [Kind; 28] = [
    Kind::new("agent killed", |at, it| processes::kill(at, it.agent(at), it))
        .ending_agent()
        .alone(ALONE_STRETCH_MAX),
    Kind::new("trainer killed", |at, it| processes::kill(at, it.trainer(at), it)).alone(1),
    Kind::new("manager killed", |at, it| processes::kill(at, Role::Manager, it)).alone(1),
    Kind::new("agent stopped", |at, it| processes::stop(at, it.agent(at))).alone(ALONE_STRETCH_MAX),
    Kind::new("trainer stopped", |at, it| processes::stop(at, it.trainer(at))),
    Kind::new("manager stopped", |at, _| processes::stop(at, Role::Manager)).alone(1),
    Kind::new("tier full", |at, _| resources::fill_tier(at))
        .unless(&[disk_is_shared])
        .letting_agent_fail(),
    Kind::new("tier directory gone", resources::lose_tier)
        .unless(&[has_several_nodes])
        .ending_agent()
        .letting_agent_fail(),
    Kind::new("memory taken", resources::take_memory),
    Kind::new("memory short", |at, _| resources::limit_memory(at))
        .unless(&[has_no_group])
        .lasting(PRESSURE_MIN),
    Kind::new("tier memory lent", resources::borrow_memory),
    Kind::new("objects vanished", objects::hide).unless(&[would_lose_samples]),
    Kind::new("objects cut short", objects::cut).unless(&[would_lose_samples]),
    Kind::new("object stalled", objects::stall).unless(&[would_lose_samples]),
    Kind::new("store refuses", objects::refuse).unless(&[would_lose_samples, has_no_bucket]),
    Kind::new("trainer orphaned", processes::orphan),
    Kind::new("second agent", processes::start_second_agent).needing_agent(),
    Kind::new("hostile client", processes::attack).unless(&[has_several_nodes]),
    Kind::new("agent thread panics", |at, it| processes::panic(at, it.agent(at), it))
        .unless(&[has_no_failpoints])
        .ending_agent(),
    Kind::new("manager thread panics", |at, it| processes::panic(at, Role::Manager, it))
        .unless(&[has_no_failpoints]),
    Kind::new("agent calls fail", |at, it| processes::fail_calls(at, it.agent(at), it))
        .unless(&[would_lose_samples, cannot_trace])
        .lasting(FAILING_MIN),
    Kind::new("manager calls fail", |at, it| processes::fail_calls(at, Role::Manager, it))
        .unless(&[cannot_trace])
        .lasting(FAILING_MIN),
    Kind::new("silent connections", |at, _| links::open_silent(at)),
    Kind::new("nodes parted", links::part_nodes).of_network(),
    Kind::new("host cut off", links::cut_off_host).of_network(),
    Kind::new("link slow", links::slow_link).of_network(),
    Kind::new("workers killed", processes::kill_workers).unless(&[has_no_workers]),
    Kind::new("workers stopped", processes::stop_workers).unless(&[has_no_workers]),
];

impl Kind {
    const fn new(
        name: &'static str,
        inject: for<'a> fn(&mut Supervisor<'a>, Fault) -> Injection<'a>,
    ) -> Self {
        Self {
            name,
            inject,
            obstacles: &[],
            lasts_min: Duration::ZERO,
            ends_agent: false,
            needs_agent: false,
            lets_agent_fail: false,
            stretch_alone: 0,
        }
    }

    const fn unless(self, obstacles: &'static [Obstacle]) -> Self {
        Self { obstacles, ..self }
    }

    const fn lasting(self, lasts_min: Duration) -> Self {
        Self { lasts_min, ..self }
    }

    const fn alone(self, stretch_alone: u64) -> Self {
        Self { stretch_alone, ..self }
    }

    const fn ending_agent(self) -> Self {
        Self { ends_agent: true, ..self }
    }

    const fn needing_agent(self) -> Self {
        Self { needs_agent: true, ..self }
    }

    const fn letting_agent_fail(self) -> Self {
        Self { lets_agent_fail: true, ..self }
    }

    const fn of_network(self) -> Self {
        self.unless(&[has_no_network]).lasting(OUTAGE_MIN).alone(ALONE_STRETCH_MAX)
    }

    pub(crate) fn obstacle(&self, testbed: &Testbed) -> Option<String> {
        self.obstacles.iter().find_map(|obstacle| obstacle(testbed))
    }
}

fn disk_is_shared(testbed: &Testbed) -> Option<String> {
    testbed.own_disk.clone().err()
}

fn has_several_nodes(testbed: &Testbed) -> Option<String> {
    (testbed.world.nodes > 1).then(|| "one node is tested with it".to_owned())
}

fn has_no_group(testbed: &Testbed) -> Option<String> {
    testbed.group.as_ref().err().cloned()
}

fn has_no_network(testbed: &Testbed) -> Option<String> {
    testbed.network.as_ref().err().cloned()
}

fn has_no_bucket(testbed: &Testbed) -> Option<String> {
    let why = || "files have no server that could refuse; --source bucket has one".to_owned();
    testbed.bucket.is_none().then(why)
}

/// The fault makes a job that skips unreadable samples skip good ones.
fn would_lose_samples(testbed: &Testbed) -> Option<String> {
    let is_skipping = testbed.samples == Samples::Images;
    is_skipping.then(|| "the job of images would leave out good samples".to_owned())
}

fn has_no_workers(testbed: &Testbed) -> Option<String> {
    let has_none = testbed.samples == Samples::Noise;
    has_none.then(|| "noise needs no transform worker; --samples images does".to_owned())
}

fn has_no_failpoints(_: &Testbed) -> Option<String> {
    let why = || "this build has no failpoints; a build with debug assertions has".to_owned();
    (!cfg!(debug_assertions)).then(why)
}

fn cannot_trace(testbed: &Testbed) -> Option<String> {
    testbed.failing_calls.clone().err()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    All,
    /// The faults that the agent survives, so that the growth of one process can be measured.
    AgentSurvives,
}

pub(crate) struct Schedule {
    kinds: Vec<&'static Kind>,
    draws: Draws,
    is_alone: bool,
    /// Kinds that were not drawn yet in this pass.
    left: Vec<&'static Kind>,
}

impl Schedule {
    /// The schedule of a seed, of the kinds that are possible. Each selection has its own stream of draws, so
    /// that the length of one does not change the other.
    pub(crate) fn new(seed: u64, selection: Selection, possible: &[&'static Kind]) -> Self {
        let has = |it: &&Kind| selection == Selection::All || !it.ends_agent;
        let kinds = possible.iter().copied().filter(has).collect();
        let draws = Draws::of(seed, selection as u64);
        Self { kinds, draws, is_alone: false, left: Vec::new() }
    }

    /// As [`Self::new`], of those kinds that are injected alone, for longer.
    pub(crate) fn alone(seed: u64, selection: Selection, possible: &[&'static Kind]) -> Self {
        let mut schedule = Self::new(seed, selection, possible);
        schedule.kinds.retain(|it| it.stretch_alone > 0);
        schedule.draws = Draws::of(seed, selection as u64 + 2);
        schedule.is_alone = true;
        schedule
    }

    pub(crate) fn draw(&mut self) -> Fault {
        if self.left.is_empty() {
            self.left.clone_from(&self.kinds);
        }
        let draws = &mut self.draws;
        let kind = self.left.swap_remove(below(draws, self.left.len() as u64));
        let target = draws.word();
        let mut duration = kind.lasts_min + Duration::from_millis(100 + below(draws, 2400) as u64);
        if self.is_alone && kind.stretch_alone > 1 {
            let times = 1 + below(draws, kind.stretch_alone);
            duration *= u32::try_from(times).expect("a small number");
        }
        let pause = Duration::from_millis(100 + below(draws, 900) as u64);
        Fault { kind, target, duration, pause }
    }
}

fn below(draws: &mut Draws, end: u64) -> usize {
    usize::try_from(draws.word() % end).expect("below a small number")
}

#[derive(Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) kind: &'static Kind,
    /// A random number that selects the rank, object or place that the fault affects.
    target: u64,
    pub(crate) duration: Duration,
    /// The time from the start of this fault to the start of the next.
    pub(crate) pause: Duration,
}

impl Fault {
    pub(crate) fn inject<'a>(self, at: &mut Supervisor<'a>) -> Injection<'a> {
        (self.kind.inject)(at, self)
    }

    fn rank(self, world: World) -> u32 {
        self.below(world.ranks().end)
    }

    fn node(self, world: World) -> u32 {
        self.below(world.nodes)
    }

    fn agent(self, at: &Supervisor<'_>) -> Role {
        Role::Agent(self.node(at.testbed.world))
    }

    fn trainer(self, at: &Supervisor<'_>) -> Role {
        Role::Trainer(self.rank(at.testbed.world))
    }

    fn below(self, end: u32) -> u32 {
        u32::try_from(self.target % u64::from(end)).expect("below a small number")
    }
}

/// The end of a fault that ends by itself.
fn ends_itself<'a>() -> Recovery<'a> {
    Box::new(|_, _| Ok(Ended::Injected))
}

/// The end of a fault that something undoes.
fn undone_by<'a>(
    mut undo: impl FnMut(&mut Supervisor<'a>) -> anyhow::Result<()> + 'a,
) -> Recovery<'a> {
    Box::new(move |at, _| undo(at).map(|()| Ended::Injected))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<&'static Kind> {
        KINDS.iter().collect()
    }

    #[test]
    fn a_seed_fixes_the_schedule() {
        let drawn = |seed| {
            let mut schedule = Schedule::new(seed, Selection::All, &all());
            let next = || {
                let Fault { kind, target, duration, pause } = schedule.draw();
                (kind.name, target, duration, pause)
            };
            std::iter::repeat_with(next).take(100).collect::<Vec<_>>()
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }

    #[test]
    fn every_kind_is_drawn_before_one_is_drawn_again() {
        let mut schedule = Schedule::new(1, Selection::All, &all());
        for _ in 0..5 {
            let mut drawn: Vec<&str> = KINDS.iter().map(|_| schedule.draw().kind.name).collect();
            drawn.sort_unstable();
            let mut names: Vec<&str> = KINDS.iter().map(|it| it.name).collect();
            names.sort_unstable();
            assert_eq!(drawn, names);
        }
    }

    #[test]
    fn impossible_kinds_are_never_drawn() {
        let possible: Vec<_> = KINDS.iter().filter(|it| it.name.starts_with("agent")).collect();
        let mut schedule = Schedule::new(1, Selection::All, &possible);
        assert!((0..100).all(|_| schedule.draw().kind.name.starts_with("agent")));
    }

    #[test]
    fn the_agent_survives_every_fault_of_its_selection() {
        let mut schedule = Schedule::new(1, Selection::AgentSurvives, &all());
        assert!((0..100).all(|_| !schedule.draw().kind.ends_agent));
    }
}
