//! What a process of `tierfeed run` does for its node.
//!
//! A launcher starts either one such process on each node, which starts the ranks of the node, or one for
//! each rank. Then the first of a node holds the agent, and each process starts its own rank.

use super::{Identity, JobWorld, LaunchMismatch, Launcher, LauncherValue};
use crate::{
    id::{NodeId, Rank},
    order::World,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessPlacement {
    pub node: NodeId,
    pub task: Task,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    Node,
    /// One rank; the launcher started a process for each rank of the node.
    Rank {
        rank: Rank,
        /// The number of the rank on its node. Process 0 holds the agent.
        local: u32,
    },
}

impl Identity {
    /// The world that the launcher started, for a job that does not give its own: one rank on one node if
    /// no variable says otherwise.
    #[must_use]
    pub fn launched_world(&self) -> World {
        let ranks_per_node = self.ranks_per_node.map_or(1, |said| said.value.max(1));
        let by_world = || Some(self.world?.value / ranks_per_node);
        let nodes = self.nodes.map(|said| said.value).or_else(by_world).unwrap_or(1).max(1);
        World { nodes, ranks_per_node }
    }

    /// The place of this process of `tierfeed run`.
    ///
    /// # Errors
    ///
    /// [`LaunchMismatch`] if the launcher started neither one process on each node nor one for each rank, or nothing
    /// gives the number of the node where the job has several.
    pub fn seat_in(&self, post: &JobWorld) -> Result<ProcessPlacement, LaunchMismatch> {
        let ranks_per_node = post.world.ranks_per_node;
        let tasks = self.ranks_per_node.filter(|said| said.value > 1);
        let Some(tasks) = tasks else {
            self.check_nodes(post)?;
            // All ranks of the job may be stated where this process starts them.
            let is_world = |said: LauncherValue| said.value == post.world.ranks() && said.value > 1;
            if let Some(said) = self.unranked.filter(|said| !is_world(*said)) {
                return Err(LaunchMismatch::Unranked { said });
            }
            return Ok(ProcessPlacement { node: self.node_in(post)?, task: Task::Node });
        };
        if tasks.value != ranks_per_node {
            let (key, at) = ("world.ranks_per_node", post.ranks_per_node_at.clone());
            return Err(LaunchMismatch::World { said: tasks, key, of_job: ranks_per_node, at });
        }
        let rank = self.rank_in(post)?;
        let local = rank.0 % ranks_per_node;
        Ok(ProcessPlacement {
            node: NodeId(rank.0 / ranks_per_node),
            task: Task::Rank { rank, local },
        })
    }

    /// Checks the number of nodes that the user gives; [`Identity::node_in`] checks those of launchers.
    fn check_nodes(&self, post: &JobWorld) -> Result<(), LaunchMismatch> {
        let is_typed = |launcher| matches!(launcher, Launcher::Argument | Launcher::User);
        let of_job = post.world.nodes;
        match self.nodes.filter(|said| is_typed(said.launcher) && said.value != of_job) {
            Some(said) => {
                let at = post.nodes_at.clone();
                Err(LaunchMismatch::World { said, key: "world.nodes", of_job, at })
            }
            None => Ok(()),
        }
    }
}
