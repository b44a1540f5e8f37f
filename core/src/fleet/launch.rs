//! Who a process is: its rank, node and world, as launchers tell them by environment variables.
//!
//! There is one table ([`table`]), and every part of tierfeed uses it: the command line, the
//! agent, the Python client. The environment is an argument, so that the table can be tested, and so that
//! an agent can read the variables of a trainer that sends them.
//!
//! Several launchers are often nested: `srun` starts `torchrun`, which starts the ranks. The table lists
//! them from the inside out, and the innermost one that gives a rank is believed. An outer one fills in
//! what the inner one leaves out, if both agree about rank and world.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. A number is never guessed: it comes from a variable, or the job leaves only one possibility.
//! 2. Of two sources that contradict each other none is believed: both are named in an error.
//! 3. A process passes [`Identity::rank_in`] only if its launcher started exactly the ranks of the job.
//!
//! Deliberately absent: reading the environment (callers do), two processes with one rank (only the agent
//! sees both).

mod fit;
mod table;

use alloc::{
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

pub use fit::{Misfit, Post};
pub use table::{NODE_ARGUMENT, RANK_ARGUMENT, RUN_RANK, RUN_UNDER, is_known, variables};
use table::{ROWS, Row};

/// What started a process, or who else said who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// The program itself: `connect(rank=…)`, `--node`.
    Argument,
    /// The user, by `TIERFEED_RANK` and its kin.
    User,
    /// `tierfeed run`, which starts a command once for each rank.
    Run,
    /// `torchrun`, `accelerate launch`, `deepspeed`, or a user who sets the variables of PyTorch.
    Torchrun,
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpiexec` of MPICH and its descendants.
    Mpich,
    /// Any launcher with `PMIx`.
    Pmix,
    /// `srun`.
    Slurm,
    /// Kubeflow's Trainer, which tells `torchrun` of its node.
    Kubeflow,
    /// An indexed job of Kubernetes.
    Kubernetes,
}

impl Launcher {
    /// As messages name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Argument => "the arguments",
            Self::User => "the environment",
            Self::Run => "tierfeed run",
            Self::Torchrun => "torchrun",
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
            Self::Pmix => "PMIx",
            Self::Slurm => "Slurm",
            Self::Kubeflow => "Kubeflow",
            Self::Kubernetes => "Kubernetes",
        }
    }
}

/// A number, and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// The number.
    pub value: u32,
    /// The variable, or the name of the argument.
    pub variable: &'static str,
    /// Whose variable it is.
    pub launcher: Launcher,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={} of {}", self.variable, self.value, self.launcher.name())
    }
}

/// What the environment says about a process. What no source says is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its number among all processes of the job.
    pub rank: Option<Said>,
    /// Processes of the job.
    pub world: Option<Said>,
    /// Its number among those of its node.
    pub local_rank: Option<Said>,
    /// Processes on its node.
    pub ranks_per_node: Option<Said>,
    /// The number of its node.
    pub node: Option<Said>,
    /// Nodes of the job.
    pub nodes: Option<Said>,
}

/// Why the environment does not say who a process is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A variable holds something else than a number.
    #[error("{variable} is '{value}'; it must be a whole number from 0 to 4294967295")]
    NotANumber {
        /// The variable.
        variable: &'static str,
        /// What it holds, cut to a length that a message can bear.
        value: String,
    },
    /// The user says one thing and the launcher another.
    #[error("{user} and {launcher} contradict each other; unset {}, or make them equal", .user.variable)]
    Contradiction {
        /// What the user says.
        user: Said,
        /// What the launcher says.
        launcher: Said,
    },
    /// `tierfeed run` starts the command for each rank, and the command starts ranks too.
    #[error(
        "{outer} and {inner} contradict each other: the command was started once for each rank and \
         starts ranks itself; let `tierfeed run --launch once` start it once"
    )]
    Nested {
        /// What `tierfeed run` set.
        outer: Said,
        /// What the launcher in the command set.
        inner: Said,
    },
}

/// Looks a variable up. An empty value counts as none.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Identity {
    /// Reads who a process is from its variables.
    ///
    /// # Errors
    ///
    /// As [`LaunchError`] tells.
    ///
    /// # Example
    ///
    /// ```
    /// use tierfeed_core::fleet::launch::Identity;
    ///
    /// let variables = |name: &str| match name {
    ///     "RANK" => Some("3".to_string()),
    ///     "WORLD_SIZE" => Some("4".to_string()),
    ///     _ => None,
    /// };
    /// let identity = Identity::read(&variables)?;
    /// assert_eq!(identity.rank.unwrap().to_string(), "RANK=3 of torchrun");
    /// # Ok::<(), tierfeed_core::fleet::launch::LaunchError>(())
    /// ```
    pub fn read(lookup: Lookup<'_>) -> Result<Self, LaunchError> {
        let argument = table::ARGUMENT.read(lookup)?;
        let user = table::USER.read(lookup)?;
        let launched = launched(lookup)?;
        if argument.rank.is_some() {
            return Ok(Self { node: user.node, nodes: user.nodes, ..argument });
        }
        let launched = overruled(launched, &user)?;
        Ok(argument.or(user).or(launched))
    }

    /// The number of the node that the process runs on, as far as its launcher says: to tell nodes apart
    /// before the job is known. [`Self::node_in`] and [`Self::rank_in`] say whether it is right.
    #[must_use]
    pub fn claimed_node(&self) -> Option<u32> {
        let by_rank = || Some(self.rank?.value / self.ranks_per_node?.value.max(1));
        self.node.map(|node| node.value).or_else(by_rank)
    }

    /// The launcher that started the process, if it gave a rank.
    #[must_use]
    pub fn launcher(&self) -> Option<Launcher> {
        self.rank.map(|rank| rank.launcher)
    }

    /// `self`, with what it leaves out taken from `other`.
    fn or(self, other: Self) -> Self {
        Self {
            rank: self.rank.or(other.rank),
            world: self.world.or(other.world),
            local_rank: self.local_rank.or(other.local_rank),
            ranks_per_node: self.ranks_per_node.or(other.ranks_per_node),
            node: self.node.or(other.node),
            nodes: self.nodes.or(other.nodes),
        }
    }

    /// What a launcher says of a process, beside its node, which other systems number too.
    fn of_process(&self) -> [Option<Said>; 4] {
        [self.rank, self.world, self.local_rank, self.ranks_per_node]
    }

    /// Whether `outer` speaks of the same process: one that is wrapped around a launcher does not.
    fn is_told_by(&self, outer: &Self) -> bool {
        let same = |own: Option<Said>, other: Option<Said>| {
            own.zip(other).is_none_or(|(own, other)| own.value == other.value)
        };
        same(self.rank, outer.rank) && same(self.world, outer.world)
    }
}

/// The launchers of the table that gave this process a rank, the innermost first.
///
/// # Errors
///
/// As [`Identity::read`].
pub fn launchers(lookup: Lookup<'_>) -> Result<Vec<Launcher>, LaunchError> {
    let ranks = ROWS.iter().map(|row| row.read(lookup).map(|identity| identity.launcher()));
    let launchers: Result<Vec<_>, _> = ranks.collect();
    Ok(launchers?.into_iter().flatten().collect())
}

/// What the launchers of the table say, the innermost first.
fn launched(lookup: Lookup<'_>) -> Result<Identity, LaunchError> {
    let mut said = Vec::new();
    for row in ROWS {
        let identity = row.read(lookup)?;
        if identity != Identity::default() {
            said.push(identity);
        }
    }
    if let Some(outer) = table::RUN.read(lookup)?.rank {
        refuse_nesting(&mut said, outer, lookup)?;
    }
    let innermost = said.iter().position(|identity| identity.rank.is_some());
    let inner = innermost.map_or_else(Identity::default, |at| said.remove(at));
    let fills = |inner: Identity, outer: &Identity| {
        if inner.is_told_by(outer) { inner.or(*outer) } else { inner }
    };
    Ok(said.iter().fold(inner, fills))
}

/// A command that `tierfeed run` started for a rank starts no ranks itself. What `run` set itself, and the
/// launcher that `run` was started by, are no sign of it.
fn refuse_nesting(
    said: &mut [Identity],
    outer: Said,
    lookup: Lookup<'_>,
) -> Result<(), LaunchError> {
    let under = lookup(RUN_UNDER).unwrap_or_default();
    let is_under = |launcher: Launcher| under.split(',').any(|name| name == launcher.name());
    for identity in said {
        let Some(rank) = identity.rank.filter(|rank| !is_under(rank.launcher)) else { continue };
        let is_elastic = lookup(table::TORCHELASTIC).is_some();
        let is_own = rank.launcher == Launcher::Torchrun && rank.value == outer.value;
        if !is_own || is_elastic {
            return Err(LaunchError::Nested { outer, inner: rank });
        }
        identity.attribute_to(Launcher::Run);
    }
    Ok(())
}

impl Identity {
    fn attribute_to(&mut self, launcher: Launcher) {
        let Self { rank, world, local_rank, ranks_per_node, node, nodes } = self;
        for said in [rank, world, local_rank, ranks_per_node, node, nodes].into_iter().flatten() {
            said.launcher = launcher;
        }
    }
}

/// What a launcher says where the user says something too. A launcher that started a single process has
/// numbered nothing, so the user may give that process any rank.
fn overruled(launched: Identity, user: &Identity) -> Result<Identity, LaunchError> {
    if user.rank.is_some() && launched.world.is_some_and(|world| world.value == 1) {
        return Ok(Identity::default());
    }
    for (user, launcher) in user.of_process().into_iter().zip(launched.of_process()) {
        if let (Some(user), Some(launcher)) = (user, launcher)
            && user.value != launcher.value
        {
            return Err(LaunchError::Contradiction { user, launcher });
        }
    }
    Ok(launched)
}

/// The longest value that a message quotes.
const QUOTED_CHARS_MAX: usize = 64;

impl Row {
    fn read(&self, lookup: Lookup<'_>) -> Result<Identity, LaunchError> {
        let is_there = self
            .task
            .is_none_or(|task| set(lookup, task).is_some_and(|step| table::is_of_task(&step)));
        if !is_there {
            return Ok(Identity::default());
        }
        let number = |names: &[&'static str]| self.number(names, lookup);
        Ok(Identity {
            rank: number(self.rank)?,
            world: number(self.world)?,
            local_rank: number(self.local_rank)?,
            ranks_per_node: number(self.ranks_per_node)?,
            node: number(self.node)?,
            nodes: number(self.nodes)?,
        })
        .map(|identity| if self.is_complete(&identity) { identity } else { Identity::default() })
    }

    /// The world of a launcher that gave no rank is one that the user typed for another program.
    fn is_complete(&self, identity: &Identity) -> bool {
        self.rank.is_empty() || self.may_lack_rank || identity.rank.is_some()
    }

    fn number(
        &self,
        names: &[&'static str],
        lookup: Lookup<'_>,
    ) -> Result<Option<Said>, LaunchError> {
        for &variable in names {
            let Some(text) = set(lookup, variable) else { continue };
            let launcher = self.launcher;
            match table::parse(variable, &text) {
                table::Parsed::Number(value) => {
                    return Ok(Some(Said { value, variable, launcher }));
                }
                table::Parsed::Several => (),
                table::Parsed::Nonsense => {
                    let value = text.chars().take(QUOTED_CHARS_MAX).collect();
                    return Err(LaunchError::NotANumber { variable, value });
                }
            }
        }
        Ok(None)
    }
}

fn set(lookup: Lookup<'_>, variable: &str) -> Option<String> {
    lookup(variable).map(|value| value.trim().to_string()).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests;
