//! The table of launchers and their variables. `docs/launch.md` shows it to users.

use super::Launcher;

pub const RANK_ARGUMENT: &str = "rank";
pub const NODE_ARGUMENT: &str = "--node";
pub const NODES_ARGUMENT: &str = "--nodes";

/// Set by `tierfeed run` when it starts a command once for each rank: the rank that it gave.
pub const RUN_RANK: &str = "TIERFEED_RUN_RANK";
/// Set beside [`RUN_RANK`]: the [names](Launcher::name) of the launchers that `tierfeed run` was itself
/// started by, with commas between them.
pub const RUN_UNDER: &str = "TIERFEED_RUN_UNDER";

/// Set by torchrun itself, and not by programs that only use its variables.
pub(super) const TORCHELASTIC: &str = "TORCHELASTIC_RUN_ID";

/// Slurm sets it for tasks of `srun` only. A batch script has `SLURM_PROCID` too, but it is no
/// task.
const SLURM_STEP: &str = "SLURM_STEP_ID";

/// Of several variables for one number, the first that is set counts.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) launcher: Launcher,
    /// The variable without which the others have another meaning.
    pub(super) task: Option<&'static str>,
    pub(super) rank: &'static [&'static str],
    pub(super) world: &'static [&'static str],
    pub(super) local_rank: &'static [&'static str],
    pub(super) ranks_per_node: &'static [&'static str],
    pub(super) node: &'static [&'static str],
    pub(super) nodes: &'static [&'static str],
    pub(super) may_lack_rank: bool,
}

const NOTHING: Row = Row {
    launcher: Launcher::Argument,
    task: None,
    rank: &[],
    world: &[],
    local_rank: &[],
    ranks_per_node: &[],
    node: &[],
    nodes: &[],
    may_lack_rank: false,
};

pub(super) const ARGUMENT: Row = Row {
    rank: &[RANK_ARGUMENT],
    node: &[NODE_ARGUMENT],
    nodes: &[NODES_ARGUMENT],
    may_lack_rank: true,
    ..NOTHING
};

pub(super) const USER: Row = Row {
    launcher: Launcher::User,
    rank: &["TIERFEED_RANK"],
    world: &["TIERFEED_WORLD_SIZE"],
    local_rank: &["TIERFEED_LOCAL_RANK"],
    ranks_per_node: &["TIERFEED_LOCAL_WORLD_SIZE"],
    node: &["TIERFEED_NODE"],
    nodes: &["TIERFEED_NODES"],
    may_lack_rank: true,
    ..NOTHING
};

pub(super) const RUN: Row = Row { launcher: Launcher::Run, rank: &[RUN_RANK], ..NOTHING };

/// In the order in which they count: a launcher stands before the one that started it, as torchrun before
/// Slurm.
pub(super) const ROWS: &[Row] = &[
    Row {
        launcher: Launcher::Torchrun,
        rank: &["RANK"],
        world: &["WORLD_SIZE"],
        local_rank: &["LOCAL_RANK"],
        // The second variables are those of deepspeed.
        ranks_per_node: &["LOCAL_WORLD_SIZE", "LOCAL_SIZE"],
        node: &["GROUP_RANK", "CROSS_RANK"],
        nodes: &["GROUP_WORLD_SIZE", "CROSS_SIZE"],
        ..NOTHING
    },
    Row {
        launcher: Launcher::Horovod,
        rank: &["HOROVOD_RANK"],
        world: &["HOROVOD_SIZE"],
        local_rank: &["HOROVOD_LOCAL_RANK"],
        ranks_per_node: &["HOROVOD_LOCAL_SIZE"],
        node: &["HOROVOD_CROSS_RANK"],
        nodes: &["HOROVOD_CROSS_SIZE"],
        ..NOTHING
    },
    Row {
        launcher: Launcher::OpenMpi,
        rank: &["OMPI_COMM_WORLD_RANK"],
        world: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        ranks_per_node: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        // OMPI_COMM_WORLD_NODE_RANK counts processes of this host, despite its name.
        ..NOTHING
    },
    Row {
        launcher: Launcher::Mpich,
        rank: &["PMI_RANK"],
        world: &["PMI_SIZE"],
        local_rank: &["MPI_LOCALRANKID"],
        ranks_per_node: &["MPI_LOCALNRANKS"],
        ..NOTHING
    },
    Row {
        launcher: Launcher::Mvapich,
        rank: &["MV2_COMM_WORLD_RANK"],
        world: &["MV2_COMM_WORLD_SIZE"],
        local_rank: &["MV2_COMM_WORLD_LOCAL_RANK"],
        ranks_per_node: &["MV2_COMM_WORLD_LOCAL_SIZE"],
        ..NOTHING
    },
    Row { launcher: Launcher::Pmix, rank: &["PMIX_RANK"], ..NOTHING },
    Row {
        launcher: Launcher::Jsm,
        rank: &["JSM_NAMESPACE_RANK"],
        world: &["JSM_NAMESPACE_SIZE"],
        local_rank: &["JSM_NAMESPACE_LOCAL_RANK"],
        ranks_per_node: &["JSM_NAMESPACE_LOCAL_SIZE"],
        ..NOTHING
    },
    Row {
        launcher: Launcher::Flux,
        rank: &["FLUX_TASK_RANK"],
        world: &["FLUX_JOB_SIZE"],
        local_rank: &["FLUX_TASK_LOCAL_ID"],
        nodes: &["FLUX_JOB_NNODES"],
        ..NOTHING
    },
    Row { launcher: Launcher::Alps, rank: &["ALPS_APP_PE"], ..NOTHING },
    Row {
        launcher: Launcher::Slurm,
        task: Some(SLURM_STEP),
        rank: &["SLURM_PROCID"],
        world: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local_rank: &["SLURM_LOCALID"],
        ranks_per_node: &["SLURM_STEP_TASKS_PER_NODE"],
        node: &["SLURM_NODEID"],
        nodes: &["SLURM_STEP_NUM_NODES"],
        ..NOTHING
    },
    Row {
        launcher: Launcher::Kubeflow,
        node: &["PET_NODE_RANK"],
        nodes: &["PET_NNODES"],
        ..NOTHING
    },
    Row { launcher: Launcher::Kubernetes, node: &["JOB_COMPLETION_INDEX"], ..NOTHING },
];

/// Each once: what to look for in an environment.
pub fn variables() -> impl Iterator<Item = &'static str> {
    let rows = [&USER, &RUN].into_iter().chain(ROWS);
    let named = rows.flat_map(|row| {
        [row.rank, row.world, row.local_rank, row.ranks_per_node, row.node, row.nodes]
            .into_iter()
            .flatten()
            .copied()
            .chain(row.task)
    });
    named.chain([RUN_UNDER, TORCHELASTIC])
}

#[must_use]
pub fn is_known(name: &str) -> bool {
    variables().chain([RANK_ARGUMENT, NODE_ARGUMENT, NODES_ARGUMENT]).any(|known| known == name)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parsed {
    Number(u32),
    /// Several numbers, of which none is used.
    Several,
    Nonsense,
}

pub(super) fn parse(variable: &str, text: &str) -> Parsed {
    match variable {
        "SLURM_STEP_TASKS_PER_NODE" => tasks_per_node(text).map_or(Parsed::Several, Parsed::Number),
        // `auto`, or a range of nodes from which torchrun chooses.
        "PET_NNODES" => number(text).map_or(Parsed::Several, Parsed::Number),
        _ => number(text).map_or(Parsed::Nonsense, Parsed::Number),
    }
}

/// A number without a sign: `parse` alone would accept `+1`.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// `2(x4)` and `2`: Slurm's notation for two tasks on every node; `2,1` gives no single number.
fn tasks_per_node(text: &str) -> Option<u32> {
    let first = text.split_once('(').map_or(text, |(first, rest)| {
        if rest.ends_with(')') && !rest.contains(',') { first } else { "" }
    });
    number(first).filter(|_| !first.is_empty())
}

/// Slurm numbers steps that are no tasks of `srun`, such as the shell of `salloc`, downwards from
/// the maximum.
pub(super) fn is_of_task(step: &str) -> bool {
    number(step).is_some_and(|step| step < 0xffff_fff0)
}
