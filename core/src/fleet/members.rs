//! The nodes of a job that share what their tiers hold: who there is, where each answers, and from which epoch
//! on all of them go by it.
//!
//! Each node says where it answers and how much it holds. A change makes the next generation of the
//! [`Membership`], which holds from the first epoch that no node has divided yet ([`crate::retention::partition`]).
//! Nodes that were told late ask each other in vain for some samples and read them cold.
//!
//! A manager that is restarted goes on with the memberships of the one before ([`Members::resume`]): who holds
//! what follows from all of them. Of a node that it has not heard of yet it says nothing; one that stays away is
//! gone.

use alloc::{string::String, vec, vec::Vec};
use core::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::{
    id::{Epoch, NodeId},
    order::Spec,
    retention::partition::{Member, Membership},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

/// The report of a node about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerReport {
    /// The address at which it answers other nodes.
    pub address: String,
    /// The room of its tiers for retained samples.
    pub room: Bytes,
    /// The generation of the members that it knows.
    pub generation: u32,
    /// The latest epoch that it has divided among the nodes.
    pub divided: Epoch,
    /// Its reads from other nodes and for them. Of more than [`LINKS_MAX`] links, those to peers that it
    /// does not ask and those with the most bytes.
    pub links: Vec<PeerLink>,
}

impl PeerReport {
    /// The report of a node that answers nowhere yet: the manager tells it the secret of the job.
    #[must_use]
    pub const fn before_it_listens() -> Self {
        Self {
            address: String::new(),
            room: Bytes(0),
            generation: 0,
            divided: Epoch(0),
            links: Vec::new(),
        }
    }
}

const LINKS_MAX: usize = 16;

/// The traffic between a node and one of its peers since the process of the node began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerLink {
    pub peer: NodeId,
    #[serde(rename = "received_bytes")]
    pub received: Bytes,
    #[serde(rename = "sent_bytes")]
    pub sent: Bytes,
    /// Bytes that were requested from it and have not arrived.
    #[serde(rename = "in_flight_bytes")]
    pub in_flight: Bytes,
    /// Reads of it that failed, late ones included.
    pub failures: u64,
    /// The recent rate of arriving bytes; `None` before the first.
    #[serde(rename = "bytes_per_s")]
    pub rate: Option<BytesPerSecond>,
    /// The shortest recent time from a request to the first byte of its answer; `None` before the first.
    #[serde(rename = "round_trip_ns")]
    pub round_trip: Option<Nanoseconds>,
    pub standing: Standing,
}

impl PeerLink {
    /// The links that the manager is told of, by number of the peer.
    #[must_use]
    pub fn told(mut links: Vec<Self>) -> Vec<Self> {
        let traffic = |it: &Self| it.received.0.saturating_add(it.sent.0);
        links.sort_by_key(|it| (it.standing == Standing::Asked, Reverse(traffic(it))));
        links.truncate(LINKS_MAX);
        links.sort_by_key(|it| it.peer);
        links
    }
}

/// Whether a node asks a peer for the samples that the peer holds, or reads them cold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Asked,
    /// Not asked for a while: it is slower than the cold store.
    Slow,
    /// Not asked for a while: reads of it failed.
    Failing,
    /// No process works as the node.
    Gone,
}

impl Standing {
    pub const ALL: [Self; 4] = [Self::Asked, Self::Slow, Self::Failing, Self::Gone];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Slow => "too-slow",
            Self::Failing => "failing",
            Self::Gone => "gone",
        }
    }
}

/// The address at which a node answers, and its process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerAddress {
    /// Host and port; empty if it is gone or was never heard of.
    pub address: String,
    /// The process; zero if it was never heard of.
    pub process: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peers {
    /// Grows by one with each change.
    pub generation: u32,
    /// The memberships by the epoch from which they hold.
    pub memberships: Vec<Membership>,
    pub addresses: Vec<PeerAddress>,
}

#[derive(Debug)]
pub struct Members {
    order: Spec,
    nodes: Vec<Member>,
    peers: Peers,
    divided: Epoch,
    links: Vec<Vec<PeerLink>>,
}

impl Members {
    #[must_use]
    pub fn new(order: Spec) -> Self {
        let nodes = order.world.nodes as usize;
        let addresses = vec![PeerAddress::default(); nodes];
        Self {
            order,
            nodes: vec![Member::default(); nodes],
            peers: Peers { addresses, ..Peers::default() },
            divided: order.start.epoch,
            links: vec![Vec::new(); nodes],
        }
    }

    pub fn resume(&mut self, memberships: Vec<Membership>) {
        let is_whole = |it: &Membership| it.nodes.len() == self.nodes.len();
        let Some(last) = memberships.last().filter(|_| memberships.iter().all(is_whole)) else {
            return;
        };
        self.nodes = last.nodes.to_vec();
        self.peers.generation = last.generation;
        self.peers.memberships = memberships;
    }

    #[must_use]
    pub fn links(&self, node: NodeId) -> &[PeerLink] {
        self.links.get(node.0 as usize).map_or(&[], Vec::as_slice)
    }

    #[must_use]
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// A report without an address changes neither the addresses nor the memberships.
    pub fn handle_report(&mut self, node: NodeId, process: u64, report: PeerReport) {
        let PeerReport { address, room, generation, divided, mut links } = report;
        // Both are counted on from here.
        let (generation, divided) =
            (generation.min(u32::MAX / 2), divided.min(Epoch(u32::MAX / 2)));
        self.divided = self.divided.max(divided);
        // Of an earlier manager, whose numbers go on: what it said last may not be known.
        let is_behind = generation > self.peers.generation;
        self.peers.generation = self.peers.generation.max(generation);
        let at = node.0 as usize;
        if let Some(told) = self.links.get_mut(at) {
            links.truncate(LINKS_MAX);
            *told = links;
        }
        let (Some(member), Some(known)) =
            (self.nodes.get_mut(at), self.peers.addresses.get_mut(at))
        else {
            return;
        };
        let (now, told) = (Member { room, process }, PeerAddress { address, process });
        if told.address.is_empty() || (*member == now && *known == told && !is_behind) {
            return;
        }
        let is_same = *member == now && !is_behind;
        (*member, *known) = (now, told);
        if is_same {
            // As when it registers with a restarted manager: the others learn its address again.
            self.peers.generation += 1;
        } else {
            self.change();
        }
    }

    /// The nodes of an earlier manager that did not come back to this one.
    pub fn unheard(&self) -> impl Iterator<Item = NodeId> {
        let nodes = (0..).map(NodeId).zip(self.nodes.iter().zip(&self.peers.addresses));
        let is_unheard = |(member, known): (&Member, &PeerAddress)| {
            member.room > Bytes(0) && known.address.is_empty()
        };
        nodes.filter(move |(_, node)| is_unheard(*node)).map(|(node, _)| node)
    }

    pub fn handle_gone(&mut self, node: NodeId) {
        let at = node.0 as usize;
        let (Some(member), Some(known)) =
            (self.nodes.get_mut(at), self.peers.addresses.get_mut(at))
        else {
            return;
        };
        if known.address.is_empty() && member.room == Bytes(0) {
            return;
        }
        *known = PeerAddress { address: String::new(), process: member.process };
        member.room = Bytes(0);
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
    use crate::order::{FurtherDatasets, Position, Shuffle, World};

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
            further: FurtherDatasets::NONE,
        })
    }

    fn report(room: u64, divided: u32) -> PeerReport {
        let address = String::from("10.0.0.1:700");
        let (generation, divided, links) = (0, Epoch(divided), Vec::new());
        PeerReport { address, room: Bytes(room), generation, divided, links }
    }

    fn log(members: &Members) -> Vec<(u32, Vec<u64>)> {
        let rooms = |it: &Membership| it.nodes.iter().map(|node| node.room.0).collect();
        members.peers().memberships.iter().map(|it| (it.from.0, rooms(it))).collect()
    }

    #[test]
    fn of_many_links_those_are_told_that_are_not_asked_or_carry_most() {
        let link = |peer: u32| PeerLink {
            peer: NodeId(peer),
            received: Bytes(u64::from(peer)),
            sent: Bytes(0),
            in_flight: Bytes(0),
            failures: 0,
            rate: None,
            round_trip: None,
            standing: if peer == 3 { Standing::Slow } else { Standing::Asked },
        };
        let links = PeerLink::told((0..40).map(link).collect());
        let told = links.iter().map(|it| it.peer.0);
        assert!(told.eq(core::iter::once(3).chain(25..40)));
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

    #[test]
    fn a_restarted_manager_changes_nothing_for_nodes_that_go_on() {
        let mut before = members();
        (0..3).for_each(|node| before.handle_report(NodeId(node), 7, report(10, 0)));
        before.handle_report(NodeId(1), 8, report(10, 3));
        let mut members = members();
        members.resume(before.peers().memberships.clone());
        assert_eq!(log(&members), [(0, vec![10; 3]), (4, vec![10; 3])]);
        assert_eq!(members.unheard().count(), 3);
        let unknown = PeerAddress::default();
        assert!(members.peers().addresses.iter().all(|it| *it == unknown), "none has come yet");
        for (node, process) in [(0, 7), (1, 8)] {
            let told = PeerReport { generation: 4, ..report(10, 5) };
            members.handle_report(NodeId(node), process, told);
        }
        assert_eq!(members.peers().memberships, before.peers().memberships);
        assert_eq!(members.peers().generation, 6, "the addresses are news");
        assert_eq!(members.unheard().collect::<Vec<_>>(), [NodeId(2)]);
        members.handle_gone(NodeId(2));
        assert_eq!(log(&members).last(), Some(&(6, vec![10, 10, 0])));
        let gone = PeerAddress { address: String::new(), process: 7 };
        assert_eq!(members.peers().addresses[2], gone, "told from one that was never heard of");
        assert_eq!(members.unheard().count(), 0);
    }

    #[test]
    fn what_the_manager_before_said_last_and_did_not_note_is_said_again() {
        let mut before = members();
        (0..3).for_each(|node| before.handle_report(NodeId(node), 7, report(10, 0)));
        let noted = before.peers().memberships.clone();
        before.handle_report(NodeId(1), 8, report(10, 3));
        let mut members = members();
        members.resume(noted);
        members.handle_report(NodeId(0), 7, PeerReport { generation: 4, ..report(10, 5) });
        assert_eq!(log(&members), [(0, vec![10; 3]), (6, vec![10; 3])]);
        members.handle_report(NodeId(1), 8, PeerReport { generation: 4, ..report(10, 5) });
        assert_eq!(members.peers().memberships[1].nodes[1].process, 8);
    }

    #[test]
    fn memberships_of_another_job_are_not_resumed() {
        let mut members = members();
        let nodes = [Member::default(); 2].into_iter().collect();
        members.resume(vec![Membership { generation: 9, from: Epoch(0), nodes }]);
        assert_eq!(members.peers().generation, 0);
    }
}
