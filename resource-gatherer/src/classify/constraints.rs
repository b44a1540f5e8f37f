//! What stands before any measurement: the settings of the user, and what was decided before.

use std::path::{Path, PathBuf};

use tierfeed_core::tier::Kind;

use super::{Grouping, MemoryClass};
use crate::{figures::View, inventory::node::Node};

/// Places that the user puts into one tier; it wins over everything measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The kind of the tier.
    pub kind: Kind,
    /// The memory nodes that make it; empty for a directory.
    pub numa_nodes: Vec<u32>,
    /// The directory that makes it; `None` for memory nodes.
    pub path: Option<PathBuf>,
}

/// What an earlier probe decided.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Classification {
    /// The host that it was decided for.
    pub(crate) host: String,
    /// The memory nodes of each tier.
    pub(crate) tiers: Vec<Vec<u32>>,
    /// The tiers as the CPUs of each node saw them.
    pub(crate) views: Vec<View>,
}

/// Everything that binds the classification beforehand.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Constraints<'a> {
    /// What the user decided.
    pub(crate) assignments: &'a [Assignment],
    /// What an earlier probe decided; that of another host is not looked at.
    pub(crate) previous: Option<&'a Classification>,
}

impl<'a> Constraints<'a> {
    /// The same, without what was decided for another host than `host`.
    pub(crate) fn on(self, host: &str) -> Self {
        Self { previous: self.previous.filter(|previous| previous.host == host), ..self }
    }

    /// The kind of the tier that a memory node makes; `None` if it makes none.
    pub(crate) fn kind(&self, node: &Node) -> Option<Kind> {
        self.assignment(node.id).map_or(node.tier_kind(), |(_, it)| Some(it.kind))
    }

    /// With which others a memory node may share a tier.
    pub(crate) fn grouping(&self, node: &Node) -> Grouping {
        match self.assignment(node.id) {
            Some((number, _)) => Grouping::Assigned(number),
            None => Grouping::Node(MemoryClass::of(node.kind)),
        }
    }

    /// Whether the user said to which tier a memory node belongs.
    pub(crate) fn names_node(&self, node: u32) -> bool {
        self.assignment(node).is_some()
    }

    /// Whether the user said to which tier a directory belongs.
    pub(crate) fn names_path(&self, path: &Path) -> bool {
        self.assignments.iter().any(|it| it.path.as_deref() == Some(path))
    }

    /// The number of the tier that a memory node had before.
    pub(crate) fn before(&self, node: u32) -> Option<usize> {
        self.previous?.tiers.iter().position(|nodes| nodes.contains(&node))
    }

    /// The number of the tier that a memory node had before, as `initiator` sees it.
    pub(crate) fn before_in_view(&self, initiator: u32, node: u32) -> Option<usize> {
        let view = self.previous?.views.iter().find(|view| view.initiator == initiator)?;
        view.tiers.iter().position(|nodes| nodes.contains(&node))
    }

    fn assignment(&self, node: u32) -> Option<(usize, &'a Assignment)> {
        self.assignments.iter().enumerate().find(|(_, it)| it.numa_nodes.contains(&node))
    }
}
