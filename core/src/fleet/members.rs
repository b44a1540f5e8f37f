//! The nodes of a job that share what their tiers hold: who there is, where each answers, and from which epoch
//! on all of them go by it.
//!
//! Each node says where it answers and how much it holds. A change makes the next generation of the
//! [`Membership`], which holds from the first epoch that no node has divided yet ([`crate::retention::partition`]).
//! Nodes that were told late, or by a manager that knows less because it was restarted, ask each other in vain
//! for some samples and read them cold.

use alloc::{string::String, vec, vec::Vec};

use crate::{
    id::{Epoch, NodeId},
    order::Spec,
    retention::partition::{Member, Membership},
    units::Bytes,
};

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerReport {
    /// Where it answers other nodes.
    pub address: String,
    /// What its tiers retain.
    pub room: Bytes,
    /// The generation that it knows.
    pub generation: u32,
    /// The latest epoch that it has divided among the nodes.
    pub divided: Epoch,
}

/// Where a node answers, and as which process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerAddress {
    /// Host and port; empty if it is gone or was never there.
    pub address: String,
    /// The process.
    pub process: u64,
}

/// All that a node has to know of the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peers {
    /// Counts the changes.
    pub generation: u32,
    /// The memberships by the epoch from which they hold.
    pub memberships: Vec<Membership>,
    /// The nodes by number.
    pub addresses: Vec<PeerAddress>,
}

/// The nodes that share what they hold, as the manager knows them.
#[derive(Debug)]
pub struct Members {
    order: Spec,
    nodes: Vec<Member>,
    peers: Peers,
    divided: Epoch,
}

impl Members {
    /// No node is known yet.
    #[must_use]
    pub fn new(order: Spec) -> Self {
        let nodes = order.world.nodes as usize;
        let addresses = vec![PeerAddress::default(); nodes];
        Self {
            order,
            nodes: vec![Member::default(); nodes],
            peers: Peers { addresses, ..Peers::default() },
            divided: order.start.epoch,
        }
    }

    /// What all nodes are told.
    #[must_use]
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Takes note of what a node says of itself. A node that answers nowhere yet changes nothing.
    pub fn handle_report(&mut self, node: NodeId, process: u64, report: PeerReport) {
        let PeerReport { address, room, generation, divided } = report;
        self.divided = self.divided.max(divided);
        // Of an earlier manager, whose numbers go on.
        self.peers.generation = self.peers.generation.max(generation);
        let at = node.0 as usize;
        let (Some(member), Some(known)) =
            (self.nodes.get_mut(at), self.peers.addresses.get_mut(at))
        else {
            return;
        };
        let (now, told) = (Member { room, process }, PeerAddress { address, process });
        if told.address.is_empty() || (*member == now && *known == told) {
            return;
        }
        (*member, *known) = (now, told);
        self.change();
    }

    /// Takes note that a node is gone.
    pub fn handle_gone(&mut self, node: NodeId) {
        let at = node.0 as usize;
        let Some(known) = self.peers.addresses.get_mut(at).filter(|it| !it.address.is_empty())
        else {
            return;
        };
        known.address.clear();
        self.nodes[at].room = Bytes(0);
        self.change();
    }

    fn change(&mut self) {
        self.peers.generation += 1;
        let start = self.order.start.epoch;
        let from = if self.divided > start { Epoch(self.divided.0 + 1) } else { start };
        if from.0 >= self.order.epochs {
            return;
        }
        let log = &mut self.peers.memberships;
        // No node has divided an epoch by these.
        log.retain(|it| it.from < from);
        let nodes = self.nodes.iter().copied().collect();
        log.push(Membership { generation: self.peers.generation, from, nodes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{Position, Shuffle, World};

    fn members() -> Members {
        Members::new(Spec {
            samples: 100,
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 5,
            epochs: 8,
            drop_last: false,
            batch_size: 3,
            world: World { nodes: 3, ranks_per_node: 1 },
            start: Position::START,
        })
    }

    fn report(room: u64, divided: u32) -> PeerReport {
        let address = String::from("10.0.0.1:700");
        PeerReport { address, room: Bytes(room), generation: 0, divided: Epoch(divided) }
    }

    fn log(members: &Members) -> Vec<(u32, Vec<u64>)> {
        let rooms = |it: &Membership| it.nodes.iter().map(|node| node.room.0).collect();
        members.peers().memberships.iter().map(|it| (it.from.0, rooms(it))).collect()
    }

    #[test]
    fn nodes_that_come_before_the_first_epoch_is_over_hold_from_its_start() {
        let mut members = members();
        for node in 0..3 {
            members.handle_report(NodeId(node), 7, report(10, 0));
        }
        assert_eq!(log(&members), [(0, vec![10; 3])]);
        assert_eq!(members.peers().generation, 3);
        members.handle_report(NodeId(1), 7, report(10, 0));
        assert_eq!(members.peers().generation, 3, "nothing has changed");
    }

    #[test]
    fn a_change_holds_from_an_epoch_that_no_node_has_divided() {
        let mut members = members();
        for node in 0..3 {
            members.handle_report(NodeId(node), 7, report(10, 0));
        }
        members.handle_report(NodeId(0), 7, report(10, 3));
        members.handle_gone(NodeId(2));
        members.handle_gone(NodeId(2));
        assert_eq!(log(&members), [(0, vec![10; 3]), (4, vec![10, 10, 0])]);
        assert_eq!(members.peers().generation, 4);
        assert!(
            members.peers().addresses[2].address.is_empty(),
            "a node that is gone has no address"
        );
        members.handle_report(NodeId(2), 8, report(10, 0));
        assert_eq!(log(&members), [(0, vec![10; 3]), (4, vec![10; 3])], "it is back in time");
        assert_eq!(members.peers().memberships[1].nodes[2].process, 8);
        members.handle_report(NodeId(0), 7, report(10, 7));
        members.handle_gone(NodeId(1));
        assert_eq!(log(&members).len(), 2, "there is no epoch left for it");
    }

    #[test]
    fn a_manager_that_was_restarted_goes_on_with_the_numbers_of_the_one_before() {
        let mut members = members();
        members.handle_report(NodeId(0), 7, PeerReport { generation: 9, ..report(10, 2) });
        assert_eq!(members.peers().generation, 10);
        assert_eq!(log(&members), [(3, vec![10, 0, 0])]);
        assert_eq!(members.peers().memberships[0].nodes[1].process, 0, "nothing is known of it");
    }
}
