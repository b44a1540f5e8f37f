//! The constraints that precede any measurement: the settings of the user, and earlier decisions.

use std::path::{Path, PathBuf};

use tierfeed_core::tier::Kind;

use super::{Grouping, MemoryClass};
use crate::{figures::View, inventory::node::Node};

/// Places that the user puts into one tier; this overrides everything measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub kind: Kind,
    /// Empty for a directory.
    pub numa_nodes: Vec<u32>,
    /// `None` for memory nodes.
    pub path: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Classification {
    pub(crate) host: String,
    /// The memory nodes of each tier.
    pub(crate) tiers: Vec<Vec<u32>>,
    pub(crate) views: Vec<View>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Constraints<'a> {
    pub(crate) assignments: &'a [Assignment],
    /// An earlier probe's decision, which is ignored on another host.
    pub(crate) previous: Option<&'a Classification>,
}

impl<'a> Constraints<'a> {
    /// Drops a decision that was made for another host than `host`.
    pub(crate) fn on(self, host: &str) -> Self {
        Self { previous: self.previous.filter(|previous| previous.host == host), ..self }
    }

    /// `None` if the node makes no tier.
    pub(crate) fn kind(&self, node: &Node) -> Option<Kind> {
        self.assignment(node.id).map_or(node.tier_kind(), |(_, it)| Some(it.kind))
    }

    pub(crate) fn grouping(&self, node: &Node) -> Grouping {
        match self.assignment(node.id) {
            Some((number, _)) => Grouping::Assigned(number),
            None => Grouping::Node(MemoryClass::of(node.kind)),
        }
    }

    pub(crate) fn names_node(&self, node: u32) -> bool {
        self.assignment(node).is_some()
    }

    pub(crate) fn names_path(&self, path: &Path) -> bool {
        self.assignments.iter().any(|it| it.path.as_deref() == Some(path))
    }

    /// Number of the tier that the node had in the earlier classification.
    pub(crate) fn before(&self, node: u32) -> Option<usize> {
        self.previous?.tiers.iter().position(|nodes| nodes.contains(&node))
    }

    /// The same, as `initiator` sees it.
    pub(crate) fn before_in_view(&self, initiator: u32, node: u32) -> Option<usize> {
        let view = self.previous?.views.iter().find(|view| view.initiator == initiator)?;
        view.tiers.iter().position(|nodes| nodes.contains(&node))
    }

    fn assignment(&self, node: u32) -> Option<(usize, &'a Assignment)> {
        self.assignments.iter().enumerate().find(|(_, it)| it.numa_nodes.contains(&node))
    }
}
