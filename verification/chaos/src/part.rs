//! The parts of a chaos run: manager, agent, a trainer for each rank.

/// Ranks of the training.
pub(crate) const RANKS: u32 = 2;

/// Who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Manager,
    Agent,
    Trainer(u32),
}

impl Part {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        [Self::Manager, Self::Agent].into_iter().chain((0..RANKS).map(Self::Trainer))
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Manager => "manager".to_owned(),
            Self::Agent => "agent".to_owned(),
            Self::Trainer(rank) => format!("trainer{rank}"),
        }
    }
}
