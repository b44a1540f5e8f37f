//! Checks whether a process fits the job: if the job has ranks, its launcher must have started
//! these.

use alloc::{string::String, vec};

use super::{Identity, LaunchError, Launcher, LauncherValue};
use crate::{
    id::{NodeId, Rank},
    order::World,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobWorld {
    pub world: World,
    /// Position of `world.nodes`, such as `job.yaml:12`.
    pub nodes_at: String,
    pub ranks_per_node_at: String,
    /// The node of the agent that the process connected to.
    pub node: Option<NodeId>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchMismatch {
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("{said}, but {key}: {of_job} in {at}; {}", advice(.said, .key))]
    World { said: LauncherValue, key: &'static str, of_job: u32, at: String },
    /// The number of ranks differs from what both keys of the job give.
    #[error(
        "{said}, but the job has {ranks} ranks ({}); start {ranks} processes, or change world to what \
         is started", world(.post)
    )]
    Ranks { said: LauncherValue, ranks: u32, post: JobWorld },
    #[error("{said}, but the job has ranks 0 to {} ({}); start {ranks} processes", .ranks - 1, world(.post))]
    NoSuchRank { said: LauncherValue, ranks: u32, post: JobWorld },
    #[error(
        "nothing says which of the {ranks} ranks of the job ({}) this process is; start it by torchrun, \
         srun, mpirun or `tierfeed run`, set TIERFEED_RANK, or give the job one rank", world(.post)
    )]
    Unnumbered { ranks: u32, post: JobWorld },
    /// The job has one rank, and a launcher says that there are several, but not which this one is.
    #[error(
        "{said}, but nothing says which rank this process is; set RANK too (or TIERFEED_RANK and \
         TIERFEED_WORLD_SIZE), or unset {} if there is one process", .said.variable
    )]
    Unranked { said: LauncherValue },
    #[error(
        "{rank} and {said} contradict world.ranks_per_node: {ranks_per_node} in {at}: rank {} is process \
         {} of node {}; number ranks node by node (mpirun --map-by slot, srun --distribution=block)",
        .rank.value, .rank.value % .ranks_per_node, .rank.value / .ranks_per_node
    )]
    NotConsecutive { rank: LauncherValue, said: LauncherValue, ranks_per_node: u32, at: String },
    #[error(
        "{said}, but the agent of this host works as node {}; give launcher and agent the same number \
         of this node (torchrun --node-rank, tierfeed agent --node)", .agent.0
    )]
    OtherNode { said: LauncherValue, agent: NodeId },
    #[error(
        "{said} is a rank of node {of_rank} (world.ranks_per_node: {ranks_per_node} in {at}), but the \
         agent of this host works as node {}; give launcher and agent the same number of this node \
         (torchrun --node-rank, tierfeed agent --node)", .agent.0
    )]
    RankOfOtherNode {
        said: LauncherValue,
        of_rank: u32,
        ranks_per_node: u32,
        at: String,
        agent: NodeId,
    },
    #[error(
        "nothing says which of the {nodes} nodes of the job this is (world.nodes: {nodes} in {at}); start \
         one agent on each node by srun or mpirun, give it --node NUMBER, or set TIERFEED_NODE"
    )]
    UnnumberedNode { nodes: u32, at: String },
    #[error("{said}, but the job has nodes 0 to {} (world.nodes: {nodes} in {at})", .nodes - 1)]
    NoSuchNode { said: LauncherValue, nodes: u32, at: String },
    #[error(
        "{said}: several agents were started on one node; one serves all its ranks: start one agent for \
         each node (srun --ntasks-per-node=1, mpirun --map-by ppr:1:node)"
    )]
    SeveralAgents { said: LauncherValue },
}

fn advice(said: &LauncherValue, key: &str) -> String {
    let what = if key == "world.nodes" { "nodes" } else { "processes on each node" };
    alloc::format!("start as many {what} as the job has, or make it {key}: {}", said.value)
}

fn world(post: &JobWorld) -> String {
    let World { nodes, ranks_per_node } = post.world;
    let JobWorld { nodes_at, ranks_per_node_at, .. } = post;
    if nodes == 1 {
        return alloc::format!("world.ranks_per_node: {ranks_per_node} in {ranks_per_node_at}");
    }
    alloc::format!(
        "world.nodes: {nodes} in {nodes_at}, world.ranks_per_node: {ranks_per_node} in \
         {ranks_per_node_at}"
    )
}

impl Identity {
    /// The rank of this process in the job.
    ///
    /// # Errors
    ///
    /// [`LaunchMismatch`] if the launcher and the job contradict each other, or nothing gives a rank where the
    /// job has several.
    pub fn rank_in(&self, post: &JobWorld) -> Result<Rank, LaunchMismatch> {
        self.check_world(post)?;
        let ranks = post.world.ranks();
        // The only process of a node has the number of the node.
        let Some(rank) = self.rank.or(self.node.filter(|_| post.world.ranks_per_node == 1)) else {
            return match self.unranked {
                _ if ranks > 1 => Err(LaunchMismatch::Unnumbered { ranks, post: post.clone() }),
                Some(said) => Err(LaunchMismatch::Unranked { said }),
                None => Ok(Rank(0)),
            };
        };
        if rank.value >= ranks {
            return Err(LaunchMismatch::NoSuchRank { said: rank, ranks, post: post.clone() });
        }
        self.check_place(rank, post)?;
        Ok(Rank(rank.value))
    }

    /// The number of this node in the job, for its agent.
    ///
    /// # Errors
    ///
    /// [`LaunchMismatch`] if the launcher and the job contradict each other, or nothing gives a number where the
    /// job has several nodes.
    pub fn node_in(&self, post: &JobWorld) -> Result<NodeId, LaunchMismatch> {
        let nodes = post.world.nodes;
        let at = || post.nodes_at.clone();
        let is_chosen =
            |said: &LauncherValue| matches!(said.launcher, Launcher::Argument | Launcher::User);
        if !self.node.as_ref().is_some_and(is_chosen) {
            self.check_agents(post)?;
        }
        // If each node has one process, its rank is the number of the node.
        let said = self.node.or(self.rank.filter(|_| self.world.is_some()));
        match said {
            Some(said) if said.value >= nodes => {
                Err(LaunchMismatch::NoSuchNode { said, nodes, at: at() })
            }
            Some(said) => Ok(NodeId(said.value)),
            None if nodes == 1 => Ok(NodeId(0)),
            None => Err(LaunchMismatch::UnnumberedNode { nodes, at: at() }),
        }
    }

    /// Agents are started once per node, so the world of their launcher counts nodes.
    fn check_agents(&self, post: &JobWorld) -> Result<(), LaunchMismatch> {
        let several = self.ranks_per_node.filter(|said| said.value > 1);
        if let Some(said) = several.or(self.local_rank.filter(|said| said.value > 0)) {
            return Err(LaunchMismatch::SeveralAgents { said });
        }
        let of_job = post.world.nodes;
        for said in [self.nodes, self.world].into_iter().flatten() {
            if said.value != of_job {
                let at = post.nodes_at.clone();
                return Err(LaunchMismatch::World { said, key: "world.nodes", of_job, at });
            }
        }
        Ok(())
    }

    fn check_world(&self, post: &JobWorld) -> Result<(), LaunchMismatch> {
        let World { nodes, ranks_per_node } = post.world;
        let keys = vec![
            (self.nodes, "world.nodes", nodes, &post.nodes_at),
            (self.ranks_per_node, "world.ranks_per_node", ranks_per_node, &post.ranks_per_node_at),
        ];
        for (said, key, of_job, at) in keys {
            if let Some(said) = said.filter(|said| said.value != of_job) {
                return Err(LaunchMismatch::World { said, key, of_job, at: at.clone() });
            }
        }
        let ranks = post.world.ranks();
        match self.world.filter(|said| said.value != ranks) {
            Some(said) => Err(LaunchMismatch::Ranks { said, ranks, post: post.clone() }),
            None => Ok(()),
        }
    }

    fn check_place(&self, rank: LauncherValue, post: &JobWorld) -> Result<(), LaunchMismatch> {
        let ranks_per_node = post.world.ranks_per_node;
        let (of_rank, local) = (rank.value / ranks_per_node, rank.value % ranks_per_node);
        let at = || post.ranks_per_node_at.clone();
        if let (Some(said), Some(agent)) = (self.node, post.node)
            && said.value != agent.0
        {
            return Err(LaunchMismatch::OtherNode { said, agent });
        }
        for (said, expected) in [(self.local_rank, local), (self.node, of_rank)] {
            if let Some(said) = said.filter(|said| said.value != expected) {
                return Err(LaunchMismatch::NotConsecutive {
                    rank,
                    said,
                    ranks_per_node,
                    at: at(),
                });
            }
        }
        match post.node.filter(|agent| agent.0 != of_rank) {
            Some(agent) => {
                let at = at();
                Err(LaunchMismatch::RankOfOtherNode {
                    said: rank,
                    of_rank,
                    ranks_per_node,
                    at,
                    agent,
                })
            }
            None => Ok(()),
        }
    }
}
