//! The identity of a process: its rank, node and world, from the environment variables of
//! launchers.
//!
//! Every part of tierfeed uses the one table of launchers ([`table`]): the command line, the agent,
//! the Python client. The environment is an argument, so that the table can be tested, and so that
//! an agent can read the variables that a trainer sends.
//!
//! Launchers are often nested: `srun` starts `torchrun`, which starts the ranks. The table lists
//! them from the inside out, and the innermost one that gives a rank counts. An outer one supplies
//! the numbers that the inner one lacks, if both agree about rank and world.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. A number is never guessed: it comes from a variable, or the job leaves only one possibility.
//! 2. If two sources contradict each other, neither is used: an error names both.
//! 3. A process passes [`Identity::rank_in`] only if its launcher started exactly the ranks of the job.
//!
//! Deliberately absent: reading the environment (callers do it), and finding two processes with one
//! rank (only the agent sees both).

mod job_world;
mod placement;
mod table;

use alloc::{
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

pub use job_world::{JobWorld, LaunchMismatch};
pub use placement::{ProcessPlacement, Task};
pub use table::{
    NODE_ARGUMENT, NODES_ARGUMENT, RANK_ARGUMENT, RUN_RANK, RUN_UNDER, is_known, variables,
};
use table::{ROWS, Row};

/// The launcher of a process, or another source of its identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// The program itself: `connect(rank=…)`, `--node`.
    Argument,
    /// The user, by `TIERFEED_RANK` and the variables beside it.
    User,
    /// `tierfeed run`, which starts a command once for each rank.
    Run,
    /// `torchrun`, `accelerate launch`, `deepspeed`, or a user who sets the variables of PyTorch.
    Torchrun,
    Horovod,
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpiexec` of MPICH and its descendants.
    Mpich,
    /// `mpirun_rsh` of MVAPICH2.
    Mvapich,
    /// Any launcher with `PMIx`.
    Pmix,
    /// `jsrun` of IBM's job step manager.
    Jsm,
    Flux,
    /// `aprun` of Cray's ALPS.
    Alps,
    /// Slurm, whose tasks `srun` starts.
    Slurm,
    /// Kubeflow's Trainer, which tells `torchrun` the number of its node.
    Kubeflow,
    /// An indexed job of Kubernetes.
    Kubernetes,
}

impl Launcher {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Argument => "the arguments",
            Self::User => "the environment",
            Self::Run => "tierfeed run",
            Self::Torchrun => "torchrun",
            Self::Horovod => "Horovod",
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
            Self::Mvapich => "MVAPICH2",
            Self::Pmix => "PMIx",
            Self::Jsm => "jsrun",
            Self::Flux => "Flux",
            Self::Alps => "ALPS",
            Self::Slurm => "Slurm",
            Self::Kubeflow => "Kubeflow",
            Self::Kubernetes => "Kubernetes",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LauncherValue {
    pub value: u32,
    /// The variable, or the name of the argument.
    pub variable: &'static str,
    pub launcher: Launcher,
}

impl fmt::Display for LauncherValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={} of {}", self.variable, self.value, self.launcher.name())
    }
}

/// A number that no source gives is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Identity {
    /// The number among all processes of the job.
    pub rank: Option<LauncherValue>,
    pub world: Option<LauncherValue>,
    /// The number among the processes of its node.
    pub local_rank: Option<LauncherValue>,
    pub ranks_per_node: Option<LauncherValue>,
    pub node: Option<LauncherValue>,
    pub nodes: Option<LauncherValue>,
    /// A number that shows that there are other processes, from a launcher that does not say which this one
    /// is.
    pub unranked: Option<LauncherValue>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    #[error("{variable} is '{value}'; it must be a whole number from 0 to 4294967295")]
    NotANumber { variable: &'static str, value: String },
    #[error("{user} and {launcher} contradict each other; unset {}, or make them equal", .user.variable)]
    Contradiction { user: LauncherValue, launcher: LauncherValue },
    #[error(
        "{outer} and {inner} contradict each other: the command was started once for each rank and \
         starts ranks itself; let `tierfeed run --launch once` start it once"
    )]
    Nested { outer: LauncherValue, inner: LauncherValue },
}

/// Looks a variable up. An empty value counts as unset.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Identity {
    /// Reads the identity of a process from its variables.
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

    /// The number of the process's node, if its launcher gives one: to tell nodes apart before the
    /// job is known. [`Self::node_in`] and [`Self::rank_in`] check it.
    #[must_use]
    pub fn claimed_node(&self) -> Option<u32> {
        let by_rank = || Some(self.rank?.value / self.ranks_per_node?.value.max(1));
        self.node.map(|node| node.value).or_else(by_rank)
    }

    #[must_use]
    pub fn launcher(&self) -> Option<Launcher> {
        self.rank.map(|rank| rank.launcher)
    }

    /// `self`, with missing numbers taken from `other`.
    fn or(self, other: Self) -> Self {
        Self {
            rank: self.rank.or(other.rank),
            world: self.world.or(other.world),
            local_rank: self.local_rank.or(other.local_rank),
            ranks_per_node: self.ranks_per_node.or(other.ranks_per_node),
            node: self.node.or(other.node),
            nodes: self.nodes.or(other.nodes),
            unranked: self.unranked.or(other.unranked),
        }
    }

    /// A number that shows that this process is one of several.
    fn of_several(&self) -> Option<LauncherValue> {
        let count = [self.world, self.ranks_per_node].into_iter().flatten().find(|it| it.value > 1);
        count.or(self.local_rank.filter(|it| it.value > 0))
    }

    /// The launcher's numbers of a process, without the node, which other systems number too.
    fn of_process(&self) -> [Option<LauncherValue>; 4] {
        [self.rank, self.world, self.local_rank, self.ranks_per_node]
    }

    /// Whether `outer` describes the same process: a launcher around another launcher does not.
    fn is_told_by(&self, outer: &Self) -> bool {
        let same = |own: Option<LauncherValue>, other: Option<LauncherValue>| {
            own.zip(other).is_none_or(|(own, other)| own.value == other.value)
        };
        same(self.rank, outer.rank) && same(self.world, outer.world)
    }
}

/// The launchers of the table that gave this process a rank, the innermost first.
pub fn launchers(lookup: Lookup<'_>) -> Result<Vec<Launcher>, LaunchError> {
    let ranks = ROWS.iter().map(|row| row.read(lookup).map(|identity| identity.launcher()));
    let launchers: Result<Vec<_>, _> = ranks.collect();
    Ok(launchers?.into_iter().flatten().collect())
}

fn launched(lookup: Lookup<'_>) -> Result<Identity, LaunchError> {
    let (mut said, mut unranked) = (Vec::new(), None);
    for row in ROWS {
        let told = row.told(lookup)?;
        let identity = row.complete(told);
        if identity == Identity::default() {
            unranked = unranked.or(told.of_several());
        } else {
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
    let identity = said.iter().fold(inner, fills);
    let unranked = unranked.filter(|_| identity.rank.is_none());
    Ok(Identity { unranked, ..identity })
}

/// Refuses a command that `tierfeed run` started for a rank and that starts ranks itself. Variables
/// that `run` set, or the launcher that started `run`, do not count.
fn refuse_nesting(
    said: &mut [Identity],
    outer: LauncherValue,
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
        let Self { rank, world, local_rank, ranks_per_node, node, nodes, unranked: _ } = self;
        for said in [rank, world, local_rank, ranks_per_node, node, nodes].into_iter().flatten() {
            said.launcher = launcher;
        }
    }
}

/// The launcher's identity, unless the user's numbers contradict it. A launcher that started a single
/// process has numbered nothing, so the user may give that process any rank.
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

const QUOTED_CHARS_MAX: usize = 64;

impl Row {
    fn read(&self, lookup: Lookup<'_>) -> Result<Identity, LaunchError> {
        self.told(lookup).map(|told| self.complete(told))
    }

    fn told(&self, lookup: Lookup<'_>) -> Result<Identity, LaunchError> {
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
            unranked: None,
        })
    }

    /// If a launcher gives no rank, its other numbers are not those of this process.
    fn complete(&self, told: Identity) -> Identity {
        let may_count = self.rank.is_empty() || self.may_lack_rank || told.rank.is_some();
        if may_count { told } else { Identity::default() }
    }

    fn number(
        &self,
        names: &[&'static str],
        lookup: Lookup<'_>,
    ) -> Result<Option<LauncherValue>, LaunchError> {
        for &variable in names {
            let Some(text) = set(lookup, variable) else { continue };
            let launcher = self.launcher;
            match table::parse(variable, &text) {
                table::Parsed::Number(value) => {
                    return Ok(Some(LauncherValue { value, variable, launcher }));
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
