use std::{collections::BTreeMap, string::ToString, vec::Vec};

use super::*;
use crate::{
    id::{NodeId, Rank},
    order::World,
};

type Variables = BTreeMap<&'static str, std::string::String>;

/// `RANK=1 WORLD_SIZE=2`, as a shell writes it.
fn variables(text: &'static str) -> Variables {
    let pairs = text.split_whitespace().map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(name, value)| (name, value.replace('_', " "))).collect()
}

fn read(text: &'static str) -> Result<Identity, LaunchError> {
    let variables = variables(text);
    Identity::read(&|name| variables.get(name).cloned())
}

fn post(nodes: u32, ranks_per_node: u32) -> JobWorld {
    JobWorld {
        world: World { nodes, ranks_per_node },
        nodes_at: "job.yaml:11".to_string(),
        ranks_per_node_at: "job.yaml:12".to_string(),
        node: None,
    }
}

fn rank_in(text: &'static str, post: &JobWorld) -> Result<Rank, std::string::String> {
    let identity = read(text).map_err(|error| error.to_string())?;
    identity.rank_in(post).map_err(|error| error.to_string())
}

fn seat_in(text: &'static str, post: &JobWorld) -> Result<ProcessPlacement, std::string::String> {
    let identity = read(text).map_err(|error| error.to_string())?;
    identity.seat_in(post).map_err(|error| error.to_string())
}

fn node_in(text: &'static str, post: &JobWorld) -> Result<NodeId, std::string::String> {
    let identity = read(text).map_err(|error| error.to_string())?;
    identity.node_in(post).map_err(|error| error.to_string())
}

// Seen with torchrun of PyTorch 2.15, Open MPI 4.1.4, MPICH 4.0.2 and Slurm 22.05.8.
const TORCHRUN: &str = "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 \
                        GROUP_WORLD_SIZE=1 TORCHELASTIC_RUN_ID=none";
const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 \
                        OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_NODE_RANK=1 PMIX_RANK=1";
const MPICH: &str = "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2";
const SLURM: &str = "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 \
                     SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=2 SLURM_NODEID=0 \
                     SLURM_STEP_NUM_NODES=1";
const SLURM_NODE_2: &str = "SLURM_STEP_ID=3 SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=0 \
                            SLURM_STEP_TASKS_PER_NODE=1(x4) SLURM_NODEID=2 SLURM_STEP_NUM_NODES=4";
/// The variables of a batch script, which is no task.
const SLURM_BATCH: &str = "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_NODEID=0";

#[test]
fn every_launcher_tells_the_second_of_two_ranks() {
    for (text, launcher) in [
        (TORCHRUN, Launcher::Torchrun),
        ("RANK=1 WORLD_SIZE=2", Launcher::Torchrun),
        (
            "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_SIZE=2 CROSS_RANK=0 CROSS_SIZE=1",
            Launcher::Torchrun,
        ),
        (OPEN_MPI, Launcher::OpenMpi),
        (MPICH, Launcher::Mpich),
        (SLURM, Launcher::Slurm),
        ("PMIX_RANK=1", Launcher::Pmix),
        ("HOROVOD_RANK=1 HOROVOD_SIZE=2 HOROVOD_LOCAL_RANK=1", Launcher::Horovod),
        ("MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2", Launcher::Mvapich),
        ("JSM_NAMESPACE_RANK=1 JSM_NAMESPACE_SIZE=2", Launcher::Jsm),
        ("FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 FLUX_TASK_LOCAL_ID=1 FLUX_JOB_NNODES=1", Launcher::Flux),
        ("ALPS_APP_PE=1", Launcher::Alps),
        ("TIERFEED_RANK=1", Launcher::User),
        (
            "TIERFEED_RANK=1 TIERFEED_WORLD_SIZE=2 TIERFEED_LOCAL_RANK=1 TIERFEED_NODE=0",
            Launcher::User,
        ),
        ("rank=1 RANK=0 WORLD_SIZE=1", Launcher::Argument),
        ("RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 TIERFEED_RUN_RANK=1", Launcher::Run),
    ] {
        assert_eq!(rank_in(text, &post(1, 2)), Ok(Rank(1)), "{text}");
        assert_eq!(read(text).unwrap().launcher(), Some(launcher), "{text}");
    }
}

#[test]
fn the_only_process_of_a_node_has_the_number_of_the_node() {
    let of_job = post(4, 1);
    for text in
        [SLURM_NODE_2, "JOB_COMPLETION_INDEX=2", "PET_NODE_RANK=2 PET_NNODES=4", "TIERFEED_NODE=2"]
    {
        assert_eq!(rank_in(text, &of_job), Ok(Rank(2)), "{text}");
        assert_eq!(node_in(text, &of_job), Ok(NodeId(2)), "{text}");
    }
}

#[test]
fn the_innermost_launcher_is_believed() {
    // srun starts torchrun on node 2 of 4, torchrun two ranks on each.
    let nested = "SLURM_STEP_ID=3 SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=0 SLURM_NODEID=2 \
                  RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=2 GROUP_WORLD_SIZE=4";
    assert_eq!(rank_in(nested, &post(4, 2)), Ok(Rank(5)));
    // mpirun starts its daemons by srun: the Slurm variables are the daemon's.
    let daemon = "SLURM_STEP_ID=1 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=3 SLURM_LOCALID=0 SLURM_NODEID=0 \
                  OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 \
                  OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_RANK=3";
    assert_eq!(rank_in(daemon, &post(4, 1)), Ok(Rank(3)));
    // mpirun in a batch script of Slurm.
    let batch = "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_NODEID=0 PMI_RANK=1 PMI_SIZE=2 \
                 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2";
    assert_eq!(rank_in(batch, &post(1, 2)), Ok(Rank(1)));
    // torchrun in a pod of an indexed job.
    let pod =
        "JOB_COMPLETION_INDEX=1 RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1";
    assert_eq!(rank_in(pod, &post(2, 2)), Ok(Rank(3)));
}

#[test]
fn an_outer_launcher_that_agrees_fills_in_what_the_inner_one_leaves_out() {
    let pmix = "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_NODEID=1 \
                SLURM_STEP_NUM_NODES=2 PMIX_RANK=1";
    let identity = read(pmix).unwrap();
    assert_eq!(identity.world.unwrap().to_string(), "SLURM_STEP_NUM_TASKS=2 of Slurm");
    assert_eq!(identity.node.unwrap().value, 1);
    let daemon = "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 PMIX_RANK=1 SLURM_NODEID=0";
    assert_eq!(read(daemon).unwrap().world, None);
}

#[test]
fn what_is_no_task_of_slurm_has_no_rank_of_it() {
    for text in [SLURM_BATCH, "SLURM_STEP_ID=4294967290 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4"] {
        assert_eq!(read(text).unwrap(), Identity::default(), "{text}");
        assert_eq!(rank_in(text, &post(1, 1)), Ok(Rank(0)), "{text}");
        assert!(rank_in(text, &post(4, 1)).unwrap_err().contains("nothing says"), "{text}");
    }
}

#[test]
fn one_rank_needs_no_launcher() {
    for text in ["", "RANK=0 WORLD_SIZE=1", "RANK=", SLURM_BATCH, "LOCAL_RANK=0", "WORLD_SIZE=1"] {
        assert_eq!(rank_in(text, &post(1, 1)), Ok(Rank(0)), "{text}");
        assert_eq!(node_in(text, &post(1, 1)), Ok(NodeId(0)), "{text}");
        let seat = ProcessPlacement { node: NodeId(0), task: Task::Node };
        assert_eq!(seat_in(text, &post(1, 1)), Ok(seat), "{text}");
    }
}

#[test]
fn a_world_that_is_stated_without_a_rank_is_refused() {
    for (text, said) in [
        ("WORLD_SIZE=2", "WORLD_SIZE=2 of torchrun"),
        ("WORLD_SIZE=2 LOCAL_WORLD_SIZE=2", "WORLD_SIZE=2"),
        ("LOCAL_RANK=1", "LOCAL_RANK=1 of torchrun"),
        ("LOCAL_RANK=1 WORLD_SIZE=2 NODE_RANK=0", "WORLD_SIZE=2"),
        ("HOROVOD_SIZE=4", "HOROVOD_SIZE=4 of Horovod"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2 of Open MPI"),
    ] {
        for error in [rank_in(text, &post(1, 1)).err(), seat_in(text, &post(1, 1)).err()] {
            let error = error.expect(text);
            assert!(error.starts_with(said) && error.contains("set RANK too"), "{text}: {error}");
        }
        assert!(rank_in(text, &post(1, 4)).is_err(), "{text}");
        let by_user = std::format!("{text} TIERFEED_RANK=0 TIERFEED_WORLD_SIZE=1").leak();
        assert_eq!(rank_in(by_user, &post(1, 1)), Ok(Rank(0)), "{by_user}");
    }
    let seat = ProcessPlacement { node: NodeId(0), task: Task::Node };
    assert_eq!(seat_in("WORLD_SIZE=8", &post(1, 8)), Ok(seat), "a script that starts them all");
    assert_eq!(rank_in("WORLD_SIZE=8 PMI_RANK=1 PMI_SIZE=2", &post(1, 2)), Ok(Rank(1)));
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn every_wrong_combination_of_world_and_ranks_is_refused_with_both_sources() {
    let two = post(1, 2);
    let two_nodes = post(2, 2);
    let at_node_1 = JobWorld { node: Some(NodeId(1)), ..post(2, 1) };
    let cases: &[(&'static str, &JobWorld, &[&str])] = &[
        // More ranks than the job has.
        (
            TORCHRUN,
            &post(1, 1),
            &["LOCAL_WORLD_SIZE=2 of torchrun", "world.ranks_per_node: 1 in job.yaml:12"],
        ),
        (
            OPEN_MPI,
            &post(1, 1),
            &["OMPI_COMM_WORLD_LOCAL_SIZE=2 of Open MPI", "world.ranks_per_node: 1"],
        ),
        (MPICH, &post(1, 1), &["MPI_LOCALNRANKS=2 of MPICH", "world.ranks_per_node: 1"]),
        (SLURM, &post(1, 1), &["SLURM_STEP_TASKS_PER_NODE=2 of Slurm", "world.ranks_per_node: 1"]),
        (
            SLURM_NODE_2,
            &post(1, 1),
            &["SLURM_STEP_NUM_NODES=4 of Slurm", "world.nodes: 1 in job.yaml:11"],
        ),
        (
            "RANK=0 WORLD_SIZE=2",
            &post(1, 1),
            &["WORLD_SIZE=2 of torchrun", "1 ranks", "job.yaml:12"],
        ),
        (
            "RANK=1 WORLD_SIZE=2",
            &post(1, 1),
            &["WORLD_SIZE=2 of torchrun", "1 ranks", "job.yaml:12"],
        ),
        (
            "TIERFEED_RANK=1",
            &post(1, 1),
            &["TIERFEED_RANK=1 of the environment", "ranks 0 to 0", "job.yaml:12"],
        ),
        ("rank=2", &two, &["rank=2 of the arguments", "ranks 0 to 1", "job.yaml:12"]),
        ("PMIX_RANK=7", &two, &["PMIX_RANK=7 of PMIx", "ranks 0 to 1"]),
        (
            "JOB_COMPLETION_INDEX=4",
            &post(4, 1),
            &["JOB_COMPLETION_INDEX=4 of Kubernetes", "ranks 0 to 3"],
        ),
        // Fewer.
        ("", &two, &["which of the 2 ranks", "world.ranks_per_node: 2 in job.yaml:12", "torchrun"]),
        ("", &post(2, 1), &["which of the 2 ranks", "world.nodes: 2 in job.yaml:11"]),
        ("RANK=0 WORLD_SIZE=1", &two, &["WORLD_SIZE=1 of torchrun", "2 ranks", "job.yaml:12"]),
        (
            "RANK=0 WORLD_SIZE=1 LOCAL_WORLD_SIZE=1",
            &two,
            &["LOCAL_WORLD_SIZE=1", "world.ranks_per_node: 2"],
        ),
        (SLURM, &two_nodes, &["SLURM_STEP_NUM_NODES=1 of Slurm", "world.nodes: 2 in job.yaml:11"]),
        (
            TORCHRUN,
            &two_nodes,
            &["GROUP_WORLD_SIZE=1 of torchrun", "world.nodes: 2 in job.yaml:11"],
        ),
        ("JOB_COMPLETION_INDEX=1", &two_nodes, &["which of the 4 ranks"]),
        // Placed otherwise than the job says.
        (
            "RANK=1 WORLD_SIZE=4 LOCAL_RANK=0",
            &two_nodes,
            &[
                "RANK=1 of torchrun",
                "LOCAL_RANK=0 of torchrun",
                "world.ranks_per_node: 2 in job.yaml:12",
                "--map-by slot",
            ],
        ),
        (
            "RANK=1 WORLD_SIZE=4 GROUP_RANK=1",
            &two_nodes,
            &["RANK=1", "GROUP_RANK=1", "node by node"],
        ),
        (
            "RANK=0 WORLD_SIZE=2",
            &at_node_1,
            &["RANK=0 of torchrun", "rank of node 0", "works as node 1"],
        ),
        (
            "RANK=0 WORLD_SIZE=2 GROUP_RANK=0",
            &at_node_1,
            &["GROUP_RANK=0 of torchrun", "works as node 1"],
        ),
        // Contradictions in the environment itself.
        (
            "TIERFEED_RANK=0 RANK=1 WORLD_SIZE=2",
            &two,
            &["TIERFEED_RANK=0 of the environment", "RANK=1 of torchrun", "unset TIERFEED_RANK"],
        ),
        (
            "TIERFEED_RANK=1 TIERFEED_WORLD_SIZE=4 RANK=1 WORLD_SIZE=2",
            &two,
            &["TIERFEED_WORLD_SIZE=4", "WORLD_SIZE=2 of torchrun"],
        ),
        (
            "TIERFEED_RUN_RANK=0 RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x",
            &two,
            &["TIERFEED_RUN_RANK=0 of tierfeed run", "RANK=0 of torchrun", "--launch once"],
        ),
        (
            "TIERFEED_RUN_RANK=0 RANK=0 WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1",
            &two,
            &["TIERFEED_RUN_RANK=0", "OMPI_COMM_WORLD_RANK=1 of Open MPI", "--launch once"],
        ),
        ("RANK=first", &two, &["RANK is 'first'", "whole number"]),
        ("RANK=-1", &two, &["RANK is '-1'"]),
        ("RANK=4294967296", &two, &["RANK is '4294967296'"]),
        ("RANK=0 WORLD_SIZE=+2", &two, &["WORLD_SIZE is '+2'"]),
    ];
    for (text, post, expected) in cases {
        let error = rank_in(text, post).expect_err(text);
        for part in *expected {
            assert!(error.contains(part), "{text}: `{error}` lacks `{part}`");
        }
    }
}

#[test]
fn a_run_under_a_launcher_starts_ranks_of_its_own() {
    let under = "TIERFEED_RUN_RANK=1 TIERFEED_RUN_UNDER=Slurm RANK=1 WORLD_SIZE=2 SLURM_STEP_ID=0 \
                 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1";
    let identity = read(under).unwrap();
    assert_eq!(identity.rank.unwrap().to_string(), "RANK=1 of tierfeed run");
    assert_eq!(rank_in(under, &post(1, 2)), Ok(Rank(1)));
}

#[test]
fn a_user_may_number_what_a_launcher_started_alone() {
    let alone =
        "TIERFEED_RANK=1 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_NODEID=0";
    assert_eq!(rank_in(alone, &post(1, 2)), Ok(Rank(1)));
    let index = "TIERFEED_NODE=0 JOB_COMPLETION_INDEX=5";
    assert_eq!(node_in(index, &post(1, 1)), Ok(NodeId(0)));
}

#[test]
fn an_agent_gets_the_number_of_its_node_or_an_error() {
    for (text, nodes, expected) in [
        ("", 1, 0),
        ("--node=1", 2, 1),
        ("--node=1 SLURM_STEP_ID=0 SLURM_PROCID=2 SLURM_NODEID=2 SLURM_STEP_NUM_TASKS=4", 2, 1),
        ("TIERFEED_NODE=1", 2, 1),
        (SLURM_NODE_2, 4, 2),
        (
            "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 \
          OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_NODE_RANK=0",
            2,
            1,
        ),
        ("RANK=1 WORLD_SIZE=2", 2, 1),
        ("JOB_COMPLETION_INDEX=3", 4, 3),
        (SLURM_BATCH, 1, 0),
    ] {
        assert_eq!(node_in(text, &post(nodes, 8)), Ok(NodeId(expected)), "{text}");
    }
    let cases: &[(&'static str, u32, &[&str])] = &[
        ("", 4, &["which of the 4 nodes", "world.nodes: 4 in job.yaml:11", "--node"]),
        (SLURM_BATCH, 4, &["which of the 4 nodes"]),
        ("PMIX_RANK=1", 4, &["which of the 4 nodes"]),
        ("--node=4", 4, &["--node=4 of the arguments", "nodes 0 to 3", "job.yaml:11"]),
        ("JOB_COMPLETION_INDEX=4", 4, &["JOB_COMPLETION_INDEX=4 of Kubernetes", "nodes 0 to 3"]),
        (SLURM_NODE_2, 2, &["SLURM_STEP_NUM_NODES=4 of Slurm", "world.nodes: 2 in job.yaml:11"]),
        ("RANK=1 WORLD_SIZE=4", 2, &["WORLD_SIZE=4 of torchrun", "world.nodes: 2"]),
        (OPEN_MPI, 2, &["OMPI_COMM_WORLD_LOCAL_SIZE=2 of Open MPI", "one agent for each node"]),
        (SLURM, 1, &["SLURM_STEP_TASKS_PER_NODE=2 of Slurm", "--ntasks-per-node=1"]),
    ];
    for (text, nodes, expected) in cases {
        let error = node_in(text, &post(*nodes, 8)).expect_err(text);
        for part in *expected {
            assert!(error.contains(part), "{text}: `{error}` lacks `{part}`");
        }
    }
}

#[test]
fn a_step_of_slurm_says_how_many_tasks_all_nodes_have_or_nothing() {
    let of = |text: &'static str| {
        let text = text.to_string();
        let lookup = move |name: &str| match name {
            "SLURM_STEP_ID" | "SLURM_PROCID" => Some("0".to_string()),
            "SLURM_STEP_TASKS_PER_NODE" => Some(text.clone()),
            _ => None,
        };
        Identity::read(&lookup).unwrap().ranks_per_node.map(|said| said.value)
    };
    assert_eq!(of("2"), Some(2));
    assert_eq!(of("1(x4)"), Some(1));
    for uneven in ["2,1", "2(x3),1", "2(x3", "(x3)", ""] {
        assert_eq!(of(uneven), None, "{uneven}");
    }
}

#[test]
fn the_table_names_every_variable_once_and_nothing_else_is_looked_up() {
    let names: Vec<_> = super::variables().collect();
    for (at, name) in names.iter().enumerate() {
        assert!(!names[..at].contains(name), "{name}");
    }
    let asked = core::cell::RefCell::new(Vec::new());
    let lookup = |name: &str| {
        asked.borrow_mut().push(name.to_string());
        // All variables are set, so that none is left out.
        Some("0".to_string())
    };
    let _ = (Identity::read(&lookup), launchers(&lookup));
    for name in asked.borrow().iter() {
        assert!(is_known(name), "{name}");
    }
}

#[test]
fn nodes_are_told_apart_before_the_job_is_known() {
    for (text, expected) in [
        (SLURM_NODE_2, Some(2)),
        (OPEN_MPI, Some(0)),
        ("PMI_RANK=5 PMI_SIZE=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", Some(2)),
        ("JOB_COMPLETION_INDEX=3", Some(3)),
        ("--node=1 JOB_COMPLETION_INDEX=3", Some(1)),
        ("RANK=1 WORLD_SIZE=2", None),
        ("", None),
    ] {
        assert_eq!(read(text).unwrap().claimed_node(), expected, "{text}");
    }
}

#[test]
fn all_launchers_around_a_process_are_known() {
    let both = "SLURM_STEP_ID=0 SLURM_PROCID=0 PMI_RANK=1 JOB_COMPLETION_INDEX=1";
    let variables = variables(both);
    let found = launchers(&|name| variables.get(name).cloned()).unwrap();
    assert_eq!(found, [Launcher::Mpich, Launcher::Slurm]);
}

#[test]
fn a_launcher_starts_run_once_on_each_node_or_once_for_each_rank() {
    let node = |node| ProcessPlacement { node: NodeId(node), task: Task::Node };
    let rank = |rank, local, node| ProcessPlacement {
        node: NodeId(node),
        task: Task::Rank { rank: Rank(rank), local },
    };
    let of_four = "SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1 \
                   SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_NODEID=1 SLURM_STEP_NUM_NODES=2";
    for (text, post, seat) in [
        ("", post(1, 8), node(0)),
        (SLURM_BATCH, post(1, 8), node(0)),
        (SLURM_NODE_2, post(4, 1), node(2)),
        (SLURM_NODE_2, post(4, 8), node(2)),
        ("--node=1 --nodes=2", post(2, 8), node(1)),
        ("TIERFEED_NODE=1", post(2, 8), node(1)),
        (TORCHRUN, post(1, 2), rank(1, 1, 0)),
        (OPEN_MPI, post(1, 2), rank(1, 1, 0)),
        (MPICH, post(1, 2), rank(1, 1, 0)),
        (SLURM, post(1, 2), rank(1, 1, 0)),
        (of_four, post(2, 2), rank(3, 1, 1)),
    ] {
        assert_eq!(seat_in(text, &post), Ok(seat), "{text}");
    }
}

#[test]
fn processes_of_run_that_fit_neither_nodes_nor_ranks_are_refused() {
    for (text, post, message) in [
        (SLURM, post(1, 3), "SLURM_STEP_TASKS_PER_NODE=2 of Slurm, but world.ranks_per_node: 3"),
        (SLURM, post(2, 2), "SLURM_STEP_NUM_NODES=1 of Slurm, but world.nodes: 2 in job.yaml:11"),
        (SLURM_NODE_2, post(2, 1), "SLURM_STEP_NUM_NODES=4 of Slurm, but world.nodes: 2"),
        ("--node=1 --nodes=3", post(2, 1), "--nodes=3 of the arguments, but world.nodes: 2"),
        ("--nodes=2", post(2, 1), "nothing says which of the 2 nodes of the job this is"),
    ] {
        let error = seat_in(text, &post).unwrap_err();
        assert!(error.contains(message), "{text}: {error}");
    }
}

#[test]
fn a_launcher_tells_the_world_of_a_job_that_leaves_it_out() {
    let of_four = "SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1 \
                   SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_NODEID=1 SLURM_STEP_NUM_NODES=2";
    for (text, nodes, ranks_per_node) in [
        ("", 1, 1),
        (SLURM_BATCH, 1, 1),
        (SLURM_NODE_2, 4, 1),
        (of_four, 2, 2),
        (OPEN_MPI, 1, 2),
        ("OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=6 OMPI_COMM_WORLD_LOCAL_SIZE=2", 3, 2),
        ("--node=1 --nodes=3", 3, 1),
        ("RANK=0 WORLD_SIZE=0 LOCAL_WORLD_SIZE=0", 1, 1),
    ] {
        let world = read(text).unwrap().launched_world();
        assert_eq!(world, World { nodes, ranks_per_node }, "{text}");
    }
}
