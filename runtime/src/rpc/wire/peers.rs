//! Converts what nodes say of themselves as peers, and what the manager tells all of them.

use tierfeed_core::{
    fleet::members::{PeerAddress, PeerReport, Peers},
    id::Epoch,
    retention::partition::{Member, Membership},
    units::Bytes,
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

impl From<&pb::PeersRequest> for PeerReport {
    fn from(request: &pb::PeersRequest) -> Self {
        Self {
            address: request.address.clone(),
            room: Bytes(request.room_bytes),
            generation: request.generation,
            divided: Epoch(request.divided_epoch),
        }
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
        PeerReport { address, room: Bytes(5), generation, divided: Epoch(2) }
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
