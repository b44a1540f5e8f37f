//! What may go wrong in a chaos run, and when: drawn from a seed.

use std::time::Duration;

use tierfeed_core::latency_quantiles::Draws;

use super::{
    part::RANKS,
    scene::{Disk, Scene, Source},
};

/// Some looks of the agent.
const PRESSURE_MIN: Duration = Duration::from_secs(2);

/// Attaching to a process takes a moment, and some calls are seldom made.
const FAILING_MIN: Duration = Duration::from_secs(1);

/// Everything that can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
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
}

impl Kind {
    pub(super) const ALL: [Self; 23] = [
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
    ];

    pub(super) const fn name(self) -> &'static str {
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
        }
    }

    /// Whether this fault ends the life of the agent.
    pub(super) const fn ends_agent(self) -> bool {
        matches!(self, Self::AgentKilled | Self::TierLost | Self::AgentPanics)
    }

    /// Why this fault cannot be inflicted at all in this run.
    pub(super) fn left_out(self, scene: &Scene) -> Option<String> {
        match (self, &scene.disk, &scene.source, &scene.group) {
            (Self::TierFull, Disk::Shared { reason }, ..)
            | (Self::MemoryShort, .., Err(reason)) => Some(reason.clone()),
            (Self::StoreRefuses, _, Source::Files, _) => {
                Some("files answer at once; --source bucket has a store".to_owned())
            }
            (Self::AgentPanics | Self::ManagerPanics, ..) if !cfg!(debug_assertions) => {
                Some("this build has no drills; take one with debug assertions".to_owned())
            }
            (Self::AgentCallsFail | Self::ManagerCallsFail, ..) => scene.calls.clone().err(),
            _ => None,
        }
    }
}

/// Which faults may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Range {
    All,
    /// Those that the agent survives, so that its growth can be seen.
    AgentLives,
}

/// Draws faults: each kind once, in random order, then all of them again.
#[derive(Debug)]
pub(super) struct Deck {
    kinds: Vec<Kind>,
    draws: Draws,
    left: Vec<Kind>,
}

impl Deck {
    /// The faults of a seed, of the kinds that are possible. Ranges are drawn apart, so that the end of
    /// one moves nothing in the other.
    pub(super) fn new(seed: u64, range: Range, possible: &[Kind]) -> Self {
        let stream = match range {
            Range::All => 0,
            Range::AgentLives => 1,
        };
        let is_in_range = |kind: &Kind| range == Range::All || !kind.ends_agent();
        let kinds = possible.iter().copied().filter(is_in_range).collect();
        Self { kinds, draws: Draws::of(seed, stream), left: Vec::new() }
    }

    pub(super) fn draw(&mut self) -> Fault {
        if self.left.is_empty() {
            self.left.clone_from(&self.kinds);
        }
        let draws = &mut self.draws;
        let kind = self.left.swap_remove(below(draws, self.left.len() as u64));
        let victim = draws.word();
        let least = match kind {
            Kind::MemoryShort => PRESSURE_MIN,
            Kind::AgentCallsFail | Kind::ManagerCallsFail => FAILING_MIN,
            _ => Duration::ZERO,
        };
        let lasts = least + Duration::from_millis(100 + below(draws, 2400) as u64);
        let pause = Duration::from_millis(100 + below(draws, 900) as u64);
        Fault { kind, victim, lasts, pause }
    }
}

/// A fault as it was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    /// Which rank or object it hits.
    pub(super) victim: u64,
    /// How long it lasts.
    pub(super) lasts: Duration,
    /// How long after it the next one comes.
    pub(super) pause: Duration,
}

impl Fault {
    pub(super) fn rank(self) -> u32 {
        u32::try_from(self.victim % u64::from(RANKS)).expect("below the number of ranks")
    }
}

fn below(draws: &mut Draws, end: u64) -> usize {
    usize::try_from(draws.word() % end).expect("below a small number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_faults_again() {
        let drawn = |seed| {
            let mut deck = Deck::new(seed, Range::All, &Kind::ALL);
            std::iter::repeat_with(|| deck.draw()).take(100).collect::<Vec<_>>()
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }

    #[test]
    fn every_kind_comes_before_one_comes_again() {
        let mut deck = Deck::new(1, Range::All, &Kind::ALL);
        for _ in 0..5 {
            let mut kinds: Vec<Kind> = Kind::ALL.iter().map(|_| deck.draw().kind).collect();
            kinds.sort_unstable();
            let mut all = Kind::ALL.to_vec();
            all.sort_unstable();
            assert_eq!(kinds, all);
        }
    }

    #[test]
    fn what_is_impossible_here_never_comes() {
        let mut deck = Deck::new(1, Range::All, &[Kind::AgentKilled, Kind::ManagerStopped]);
        assert!((0..100).all(|_| deck.draw().kind != Kind::StoreRefuses));
    }

    #[test]
    fn no_fault_of_the_second_half_ends_the_agent() {
        let mut deck = Deck::new(1, Range::AgentLives, &Kind::ALL);
        assert!((0..100).all(|_| !deck.draw().kind.ends_agent()));
    }
}
