//! A process that reads batches of the job: its rank, and the training process that it reads for.

use tierfeed_core::{
    fleet::launch::{Identity, JobWorld, LaunchMismatch, LauncherValue},
    id::Rank,
};

use super::trainer::Trainer;
use crate::message::SentHello;

#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) rank: Rank,
    said: Option<LauncherValue>,
    process: Process,
    /// The training process that it reads for, as the kernel reports it; `None` if it is not
    /// visible.
    pub(super) trainer: Option<Trainer>,
    /// Whether it states that it is the training process itself, rather than a worker of it.
    is_trainer: bool,
}

/// The numbers of a process in its own container and in this one: together they distinguish
/// processes that run in different containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    own: u32,
    seen: i32,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum TurnedAway {
    #[error(transparent)]
    LaunchMismatch(#[from] LaunchMismatch),
    #[error(
        "rank {} is read by process {} ({}) and asked for by process {} ({}): two processes would train on \
         the same samples; start one process for each rank, and give each its own (RANK, TIERFEED_RANK)",
        .first.rank.0, .first.process.own, source(.first), .second.process.own, source(.second)
    )]
    Twice { first: Member, second: Member },
}

fn source(member: &Member) -> String {
    member.said.map_or_else(|| "which no launcher numbers".to_owned(), |said| said.to_string())
}

impl Member {
    #[expect(clippy::result_large_err, reason = "a few of these in the life of an agent")]
    pub(super) fn of(hello: &SentHello, seen: i32, post: &JobWorld) -> Result<Self, TurnedAway> {
        let lookup = |name: &str| hello.variables.get(name).cloned();
        let identity = Identity::read(&lookup).map_err(LaunchMismatch::from)?;
        Ok(Self {
            rank: identity.rank_in(post)?,
            said: identity.rank,
            process: Process { own: hello.pid, seen },
            trainer: u32::try_from(seen).ok().and_then(|it| Trainer::of(it, hello.trainer)),
            is_trainer: hello.pid == hello.trainer,
        })
    }

    /// Whether both read one rank, but not for one training process that is alive.
    pub(super) fn doubles(&self, other: &Self) -> bool {
        self.rank == other.rank
            && self.process != other.process
            && match (self.trainer, other.trainer) {
                (Some(first), Some(second)) => first != second && first.is_alive(),
                // In process namespaces that are not visible there are only the statements of the
                // processes.
                (None, None) => self.is_trainer && other.is_trainer,
                _ => true,
            }
    }
}
