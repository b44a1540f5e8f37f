//! Converts what nodes say of themselves as peers, and what the manager tells all of them.

use tierfeed_core::{
    fleet::members::{PeerAddress, PeerLink, PeerReport, Peers, Standing},
    id::{Epoch, NodeId},
    retention::partition::{Member, Membership},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

use super::{WireError, pb};

const SECRET_BYTES: usize = 32;

/// The manager's answer to a node that says where it answers others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeersAnswer {
    /// Nothing has changed. The secret stands there if the node asked for it.
    Same {
        /// By which nodes prove to each other that they belong to the job.
        secret: Option<[u8; SECRET_BYTES]>,
    },
    /// The nodes that there are now.
    Changed(Peers),
    /// The manager does not know the process.
    Unknown,
}

impl TryFrom<pb::PeersRequest> for PeerReport {
    type Error = WireError;

    fn try_from(request: pb::PeersRequest) -> Result<Self, WireError> {
        Ok(Self {
            address: request.address,
            room: Bytes(request.room_bytes),
            // Both are counted on from here.
            generation: request.generation.min(u32::MAX / 2),
            divided: Epoch(request.divided_epoch.min(u32::MAX / 2)),
            links: request.links.into_iter().map(PeerLink::try_from).collect::<Result<_, _>>()?,
        })
    }
}

impl From<&PeerLink> for pb::PeerLink {
    fn from(link: &PeerLink) -> Self {
        Self {
            peer: link.peer.0,
            received_bytes: link.received.0,
            sent_bytes: link.sent.0,
            in_flight_bytes: link.in_flight.0,
            failures: link.failures,
            bytes_per_s: link.rate.map(|rate| rate.0),
            round_trip_ns: link.round_trip.map(|time| time.0),
            standing: link.standing.name().to_owned(),
        }
    }
}

impl TryFrom<pb::PeerLink> for PeerLink {
    type Error = WireError;

    fn try_from(link: pb::PeerLink) -> Result<Self, WireError> {
        let standing = Standing::ALL.into_iter().find(|it| it.name() == link.standing);
        let unknown = || WireError::Unknown { field: "standing", value: link.standing.clone() };
        Ok(Self {
            peer: NodeId(link.peer),
            received: Bytes(link.received_bytes),
            sent: Bytes(link.sent_bytes),
            in_flight: Bytes(link.in_flight_bytes),
            failures: link.failures,
            rate: link.bytes_per_s.map(BytesPerSecond),
            round_trip: link.round_trip_ns.map(Nanoseconds),
            standing: standing.ok_or_else(unknown)?,
        })
    }
}

/// The reply to a node that knows a generation: with all nodes if there is a later one, or with the secret if it
/// does not listen yet.
pub(crate) fn peers_reply(
    peers: Option<&Peers>,
    request: &PeerReport,
    secret: Option<&[u8; SECRET_BYTES]>,
) -> pb::PeersReply {
    let Some(peers) = peers else {
        return pb::PeersReply { unknown: true, ..pb::PeersReply::default() };
    };
    if request.address.is_empty() {
        let secret = secret.map(|it| it.to_vec()).unwrap_or_default();
        return pb::PeersReply { generation: request.generation, secret, ..Default::default() };
    }
    if peers.generation == request.generation {
        return pb::PeersReply { generation: peers.generation, ..pb::PeersReply::default() };
    }
    let member = |it: &Member| pb::Member { room_bytes: it.room.0, process: it.process };
    let membership = |it: &Membership| pb::Membership {
        generation: it.generation,
        from_epoch: it.from.0,
        nodes: it.nodes.iter().map(member).collect(),
    };
    let address =
        |it: &PeerAddress| pb::PeerAddress { address: it.address.clone(), process: it.process };
    pb::PeersReply {
        generation: peers.generation,
        memberships: peers.memberships.iter().map(membership).collect(),
        addresses: peers.addresses.iter().map(address).collect(),
        ..pb::PeersReply::default()
    }
}

/// What a reply says to a node that knew `generation`.
pub(crate) fn from_peers_reply(
    reply: pb::PeersReply,
    generation: u32,
) -> Result<PeersAnswer, WireError> {
    if reply.unknown {
        return Ok(PeersAnswer::Unknown);
    }
    if reply.generation == generation {
        let secret = (!reply.secret.is_empty()).then(|| {
            let unknown = |_| WireError::Unknown {
                field: "secret",
                value: format!("{} bytes", reply.secret.len()),
            };
            reply.secret.as_slice().try_into().map_err(unknown)
        });
        return Ok(PeersAnswer::Same { secret: secret.transpose()? });
    }
    let member = |it: pb::Member| Member { room: Bytes(it.room_bytes), process: it.process };
    let membership = |it: pb::Membership| Membership {
        generation: it.generation,
        from: Epoch(it.from_epoch),
        nodes: it.nodes.into_iter().map(member).collect(),
    };
    let address = |it: pb::PeerAddress| PeerAddress { address: it.address, process: it.process };
    Ok(PeersAnswer::Changed(Peers {
        generation: reply.generation,
        memberships: reply.memberships.into_iter().map(membership).collect(),
        addresses: reply.addresses.into_iter().map(address).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(address: &str, generation: u32) -> PeerReport {
        let address = address.to_owned();
        let (divided, links) = (Epoch(2), Vec::new());
        PeerReport { address, room: Bytes(5), generation, divided, links }
    }

    fn peers() -> Peers {
        let member = |process| Member { room: Bytes(10), process };
        let address = |process| PeerAddress { address: format!("10.0.0.{process}:1"), process };
        let nodes = [1, 2].map(member).into_iter().collect();
        Peers {
            generation: 4,
            memberships: vec![Membership { generation: 3, from: Epoch(1), nodes }],
            addresses: [1, 2].map(address).to_vec(),
        }
    }

    #[test]
    fn a_node_is_told_all_others_once_for_each_change() {
        let told = |generation| {
            let reply = peers_reply(Some(&peers()), &report("h:1", generation), Some(&[7; 32]));
            from_peers_reply(reply, generation).unwrap()
        };
        assert_eq!(told(2), PeersAnswer::Changed(peers()));
        assert_eq!(told(4), PeersAnswer::Same { secret: None });
    }

    #[test]
    fn links_between_nodes_are_told_whole_and_what_is_no_standing_is_refused() {
        for standing in Standing::ALL {
            let (rate, round_trip) = match standing {
                Standing::Gone => (None, None),
                _ => (Some(BytesPerSecond(5)), Some(Nanoseconds(6))),
            };
            let (received, sent, in_flight) = (Bytes(1), Bytes(2), Bytes(3));
            let peer = NodeId(7);
            let link = PeerLink {
                peer,
                received,
                sent,
                in_flight,
                failures: 4,
                rate,
                round_trip,
                standing,
            };
            assert_eq!(PeerLink::try_from(pb::PeerLink::from(&link)), Ok(link));
        }
        let other = pb::PeerLink { standing: "fast".into(), ..pb::PeerLink::default() };
        let error = PeerLink::try_from(other).unwrap_err();
        assert_eq!(error, WireError::Unknown { field: "standing", value: "fast".into() });
    }

    #[test]
    fn a_node_gets_the_secret_before_it_listens_and_a_stranger_gets_nothing() {
        let first = report("", 0);
        let reply = peers_reply(Some(&peers()), &first, Some(&[7; 32]));
        assert!(reply.memberships.is_empty());
        let secret = PeersAnswer::Same { secret: Some([7; 32]) };
        assert_eq!(from_peers_reply(reply, 0), Ok(secret));
        let reply = peers_reply(None, &first, Some(&[7; 32]));
        assert!(reply.secret.is_empty());
        assert_eq!(from_peers_reply(reply, 0), Ok(PeersAnswer::Unknown));
    }

    #[test]
    fn a_secret_of_another_length_is_refused() {
        let reply = pb::PeersReply { secret: vec![1; 31], ..pb::PeersReply::default() };
        let error = from_peers_reply(reply, 0).unwrap_err().to_string();
        assert!(error.starts_with("secret is 31 bytes"), "{error}");
    }
}
