//! The variables by which trainers find their agent, and know who they are.

use std::{net::TcpListener, path::Path};

use anyhow::{Context, anyhow};
use tierfeed_core::{
    fleet::launch::{self, Launcher},
    id::{NodeId, Rank},
    order::World,
};
use tierfeed_runtime::{
    agent::scratch,
    run_dir::{RunDir, trainer_file::TrainerFile},
};

use crate::environment;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MeetingPlace {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl MeetingPlace {
    pub(crate) fn here() -> anyhow::Result<Self> {
        let port = free_port().context("no free port for MASTER_PORT")?;
        Ok(Self { host: "127.0.0.1".to_owned(), port })
    }
}

/// The variables by which a trainer finds its agent, and continues without it.
pub(crate) fn of_agent(run_dir: &RunDir) -> anyhow::Result<Vec<(&'static str, String)>> {
    let text = |path: &Path| -> anyhow::Result<String> {
        let text = path.to_str().ok_or_else(|| anyhow!("{} is not UTF-8", path.display()))?;
        Ok(text.to_owned())
    };
    let file = TrainerFile::read(&run_dir.trainer_file())?;
    let mut variables = vec![
        (environment::SOCKET, text(&file.socket)?),
        (environment::JOB, text(&file.job)?),
        (environment::INDEX, text(&file.index)?),
        (environment::EXE, text(&environment::exe()?)?),
        (environment::RUN_DIR, text(run_dir.path())?),
    ];
    if let Some(scratch) = &file.scratch {
        scratch::hold(scratch).with_context(|| format!("{}", scratch.display()))?;
        variables.push((environment::SCRATCH, text(scratch)?));
    }
    Ok(variables)
}

/// The identity variables of `ranks` of a node: those of torchrun, and those that distinguish a launcher inside
/// the command from this process.
pub(crate) fn rank_variables(
    world: World,
    ranks: impl Iterator<Item = Rank>,
    place: &MeetingPlace,
) -> anyhow::Result<Vec<Vec<(&'static str, String)>>> {
    let port = environment::variable("MASTER_PORT").unwrap_or_else(|| place.port.to_string());
    let address = environment::variable("MASTER_ADDR").unwrap_or_else(|| place.host.clone());
    let own = environment::launch_variables();
    let launchers = launch::launchers(&|name| own.get(name).cloned())?;
    let under: Vec<_> = launchers.into_iter().map(Launcher::name).collect();
    let World { nodes, ranks_per_node } = world;
    let of_rank = |Rank(rank): Rank| {
        vec![
            ("RANK", rank.to_string()),
            ("LOCAL_RANK", (rank % ranks_per_node).to_string()),
            ("WORLD_SIZE", world.ranks().to_string()),
            ("LOCAL_WORLD_SIZE", ranks_per_node.to_string()),
            ("MASTER_ADDR", address.clone()),
            ("MASTER_PORT", port.clone()),
            ("GROUP_RANK", (rank / ranks_per_node).to_string()),
            ("GROUP_WORLD_SIZE", nodes.to_string()),
            (launch::RUN_RANK, rank.to_string()),
            (launch::RUN_UNDER, under.join(",")),
        ]
    };
    Ok(ranks.map(of_rank).collect())
}

/// The variables by which torchrun finds the other nodes, as its own options would say it; those that are set
/// stay.
pub(crate) fn launcher_variables(
    world: World,
    node: NodeId,
    place: &MeetingPlace,
) -> Vec<(&'static str, String)> {
    let MeetingPlace { host, port } = place;
    let all = [
        ("PET_NNODES", world.nodes.to_string()),
        ("PET_NODE_RANK", node.0.to_string()),
        ("PET_MASTER_ADDR", host.clone()),
        ("PET_MASTER_PORT", port.to_string()),
        ("MASTER_ADDR", host.clone()),
        ("MASTER_PORT", port.to_string()),
    ];
    all.into_iter().filter(|(name, _)| environment::variable(name).is_none()).collect()
}

fn free_port() -> std::io::Result<u16> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr().map(|address| address.port())
}
