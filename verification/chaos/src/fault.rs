//! The faults of a campaign, and their schedule, which follows from a seed.

use std::time::Duration;

use tierfeed_core::latency_quantiles::Draws;

use crate::{
    role::World,
    samples::Samples,
    testbed::{Disk, Source, Testbed},
};

/// Long enough for the agent to check its memory several times.
const PRESSURE_MIN: Duration = Duration::from_secs(2);

/// Attaching strace takes a moment, and some calls are seldom made.
const FAILING_MIN: Duration = Duration::from_secs(1);

/// A stretched fault may silence a node for longer than the manager waits; then the node is gone for the
/// others.
const ALONE_STRETCH_MAX: u64 = 5;

/// Longer than a read from another node may take.
const OUTAGE_MIN: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    AgentKilled,
    TrainerKilled,
    ManagerKilled,
    AgentStopped,
    TrainerStopped,
    ManagerStopped,
    TierFull,
    TierLost,
    MemoryTaken,
    MemoryShort,
    MemoryLent,
    ObjectsVanished,
    ObjectsCut,
    ObjectStalled,
    StoreRefuses,
    TrainerOrphaned,
    SecondAgent,
    HostileClient,
    AgentPanics,
    ManagerPanics,
    AgentCallsFail,
    ManagerCallsFail,
    SilentPeers,
    LinkDrops,
    HostCutOff,
    LinkSlow,
    WorkersKilled,
    WorkersStopped,
}

impl Kind {
    /// In the order of the report.
    pub(crate) const ALL: [Self; 28] = [
        Self::AgentKilled,
        Self::TrainerKilled,
        Self::ManagerKilled,
        Self::AgentStopped,
        Self::TrainerStopped,
        Self::ManagerStopped,
        Self::TierFull,
        Self::TierLost,
        Self::MemoryTaken,
        Self::MemoryShort,
        Self::MemoryLent,
        Self::ObjectsVanished,
        Self::ObjectsCut,
        Self::ObjectStalled,
        Self::StoreRefuses,
        Self::TrainerOrphaned,
        Self::SecondAgent,
        Self::HostileClient,
        Self::AgentPanics,
        Self::ManagerPanics,
        Self::AgentCallsFail,
        Self::ManagerCallsFail,
        Self::SilentPeers,
        Self::LinkDrops,
        Self::HostCutOff,
        Self::LinkSlow,
        Self::WorkersKilled,
        Self::WorkersStopped,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::AgentKilled => "agent killed",
            Self::TrainerKilled => "trainer killed",
            Self::ManagerKilled => "manager killed",
            Self::AgentStopped => "agent stopped",
            Self::TrainerStopped => "trainer stopped",
            Self::ManagerStopped => "manager stopped",
            Self::TierFull => "tier full",
            Self::TierLost => "tier directory gone",
            Self::MemoryTaken => "memory taken",
            Self::MemoryShort => "memory short",
            Self::MemoryLent => "tier memory lent",
            Self::ObjectsVanished => "objects vanished",
            Self::ObjectsCut => "objects cut short",
            Self::ObjectStalled => "object stalled",
            Self::StoreRefuses => "store refuses",
            Self::TrainerOrphaned => "trainer orphaned",
            Self::SecondAgent => "second agent",
            Self::HostileClient => "hostile client",
            Self::AgentPanics => "agent thread panics",
            Self::ManagerPanics => "manager thread panics",
            Self::AgentCallsFail => "agent calls fail",
            Self::ManagerCallsFail => "manager calls fail",
            Self::SilentPeers => "silent connections",
            Self::LinkDrops => "nodes parted",
            Self::HostCutOff => "host cut off",
            Self::LinkSlow => "link slow",
            Self::WorkersKilled => "workers killed",
            Self::WorkersStopped => "workers stopped",
        }
    }

    pub(crate) const fn ends_agent(self) -> bool {
        matches!(self, Self::AgentKilled | Self::TierLost | Self::AgentPanics)
    }

    /// Whether this fault is also injected alone, on several nodes, to measure its cost.
    pub(crate) const fn may_be_alone(self) -> bool {
        let is_of_process = matches!(
            self,
            Self::AgentKilled
                | Self::AgentStopped
                | Self::ManagerKilled
                | Self::ManagerStopped
                | Self::TrainerKilled
        );
        is_of_process || self.is_of_network()
    }

    /// Whether this fault is one of the network between hosts.
    pub(crate) const fn is_of_network(self) -> bool {
        matches!(self, Self::LinkDrops | Self::HostCutOff | Self::LinkSlow)
    }

    /// Whether this fault makes a job that skips unreadable samples skip good ones.
    const fn leaves_samples_out(self) -> bool {
        matches!(
            self,
            Self::ObjectsVanished
                | Self::ObjectsCut
                | Self::ObjectStalled
                | Self::StoreRefuses
                | Self::AgentCallsFail
        )
    }

    /// The reason why this fault cannot be injected in this campaign, or `None` if it can.
    pub(crate) fn obstacle(self, testbed: &Testbed) -> Option<String> {
        let has_one_node = testbed.world.nodes == 1;
        if testbed.samples == Samples::Images && self.leaves_samples_out() {
            return Some("the job of images would leave out good samples".to_owned());
        }
        match (self, &testbed.disk, &testbed.source) {
            (Self::TierFull, Disk::Shared { reason }, _) => Some(reason.clone()),
            (Self::TierLost, Disk::Shared { reason }, _) if !has_one_node => Some(reason.clone()),
            (Self::MemoryShort, ..) if has_one_node => testbed.cgroup.as_ref().err().cloned(),
            (Self::MemoryShort | Self::HostileClient, ..) if !has_one_node => {
                Some("one node is tested with it".to_owned())
            }
            (Self::StoreRefuses, _, Source::Files) => {
                Some("files have no server that could refuse; --source bucket has one".to_owned())
            }
            (Self::AgentPanics | Self::ManagerPanics, ..) if !cfg!(debug_assertions) => {
                Some("this build has no failpoints; a build with debug assertions has".to_owned())
            }
            (Self::AgentCallsFail | Self::ManagerCallsFail, ..) => testbed.calls.clone().err(),
            (Self::WorkersKilled | Self::WorkersStopped, ..)
                if testbed.samples == Samples::Noise =>
            {
                Some("noise needs no transform worker; --samples images does".to_owned())
            }
            (kind, ..) if kind.is_of_network() => testbed.network.as_ref().err().cloned(),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    All,
    /// The faults that the agent survives, so that the growth of one process can be measured.
    AgentSurvives,
}

impl Selection {
    fn has(self, kind: Kind) -> bool {
        self == Self::All || !kind.ends_agent()
    }

    const fn stream(self) -> u64 {
        match self {
            Self::All => 0,
            Self::AgentSurvives => 1,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Schedule {
    kinds: Vec<Kind>,
    draws: Draws,
    /// Faults of nodes and of the network last up to this many times as long.
    stretch_max: u64,
    /// Kinds that were not drawn yet in this pass.
    left: Vec<Kind>,
}

impl Schedule {
    /// The schedule of a seed, of the kinds that are possible. Each selection has its own stream of draws, so
    /// that the length of one does not change the other.
    pub(crate) fn new(seed: u64, selection: Selection, possible: &[Kind]) -> Self {
        let kinds = possible.iter().copied().filter(|it| selection.has(*it)).collect();
        let draws = Draws::of(seed, selection.stream());
        Self { kinds, draws, stretch_max: 1, left: Vec::new() }
    }

    /// As [`Self::new`], of those kinds that are injected alone, for longer.
    pub(crate) fn alone(seed: u64, selection: Selection, possible: &[Kind]) -> Self {
        let is_selected = |it: &Kind| selection.has(*it) && it.may_be_alone();
        let kinds = possible.iter().copied().filter(is_selected).collect();
        let draws = Draws::of(seed, selection.stream() + 2);
        Self { kinds, draws, stretch_max: ALONE_STRETCH_MAX, left: Vec::new() }
    }

    pub(crate) fn draw(&mut self) -> Fault {
        if self.left.is_empty() {
            self.left.clone_from(&self.kinds);
        }
        let draws = &mut self.draws;
        let kind = self.left.swap_remove(below(draws, self.left.len() as u64));
        let target = draws.word();
        let min = match kind {
            Kind::MemoryShort => PRESSURE_MIN,
            Kind::AgentCallsFail | Kind::ManagerCallsFail => FAILING_MIN,
            _ if kind.is_of_network() => OUTAGE_MIN,
            _ => Duration::ZERO,
        };
        let duration = min + Duration::from_millis(100 + below(draws, 2400) as u64);
        let is_of_nodes = matches!(kind, Kind::AgentKilled | Kind::AgentStopped);
        let stretch = if is_of_nodes || kind.is_of_network() { self.stretch_max } else { 1 };
        let duration = match stretch {
            1 => duration,
            most => duration * u32::try_from(1 + below(draws, most)).expect("a small number"),
        };
        let pause = Duration::from_millis(100 + below(draws, 900) as u64);
        Fault { kind, target, duration, pause }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// A random number that selects the rank, object or place that the fault affects.
    pub(crate) target: u64,
    pub(crate) duration: Duration,
    /// The time from the start of this fault to the start of the next.
    pub(crate) pause: Duration,
}

impl Fault {
    pub(crate) fn rank(self, world: World) -> u32 {
        self.below(world.ranks().end)
    }

    pub(crate) fn node(self, world: World) -> u32 {
        self.below(world.nodes)
    }

    pub(crate) fn below(self, end: u32) -> u32 {
        u32::try_from(self.target % u64::from(end)).expect("below a small number")
    }
}

fn below(draws: &mut Draws, end: u64) -> usize {
    usize::try_from(draws.word() % end).expect("below a small number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_fixes_the_schedule() {
        let drawn = |seed| {
            let mut schedule = Schedule::new(seed, Selection::All, &Kind::ALL);
            std::iter::repeat_with(|| schedule.draw()).take(100).collect::<Vec<_>>()
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }

    #[test]
    fn every_kind_is_drawn_before_one_is_drawn_again() {
        let mut schedule = Schedule::new(1, Selection::All, &Kind::ALL);
        for _ in 0..5 {
            let mut kinds: Vec<Kind> = Kind::ALL.iter().map(|_| schedule.draw().kind).collect();
            kinds.sort_unstable();
            let mut all = Kind::ALL.to_vec();
            all.sort_unstable();
            assert_eq!(kinds, all);
        }
    }

    #[test]
    fn impossible_kinds_are_never_drawn() {
        let mut schedule =
            Schedule::new(1, Selection::All, &[Kind::AgentKilled, Kind::ManagerStopped]);
        assert!((0..100).all(|_| schedule.draw().kind != Kind::StoreRefuses));
    }

    #[test]
    fn the_agent_survives_every_fault_of_its_selection() {
        let mut schedule = Schedule::new(1, Selection::AgentSurvives, &Kind::ALL);
        assert!((0..100).all(|_| !schedule.draw().kind.ends_agent()));
    }
}
