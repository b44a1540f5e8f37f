//! The roles of the processes under test: a manager, an agent, and a trainer for each rank.

/// Ranks that are trained; the job has one more, for the hostile client.
pub(crate) const RANKS: u32 = 2;

/// What a process under test does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Manager,
    Agent,
    Trainer(u32),
}

impl Role {
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
