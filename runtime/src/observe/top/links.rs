//! The sources from which the nodes of a job read, the busiest first: cold store, tiers, other nodes.

use tierfeed_core::{
    fleet::members::{PeerLink, Standing},
    units::Bytes,
};

use super::{bytes_rate, change::Change, table::Table, unknown};
use crate::observe::status::{NodeStatus, TierStatus};

const LINKS_MAX: usize = 16;

struct Link {
    name: String,
    rate: Option<f64>,
    in_flight: Option<Bytes>,
    failures: Option<u64>,
}

/// Empty for a job whose nodes do not read from each other.
pub(super) fn lines(nodes: &[Change<'_, NodeStatus>]) -> Vec<String> {
    if nodes.iter().all(|node| node.now.peers.is_empty()) {
        return Vec::new();
    }
    let mut links: Vec<Link> = nodes.iter().flat_map(of_node).collect();
    links.sort_by(|one, other| other.rate.unwrap_or(0.0).total_cmp(&one.rate.unwrap_or(0.0)));
    let mut table = Table::new(&["link", "read", "in flight", "failed"]);
    for link in links.iter().take(LINKS_MAX) {
        let Link { name, rate, in_flight, failures } = link;
        table.row([
            name.clone(),
            bytes_rate(*rate),
            in_flight.map_or_else(unknown, |bytes| bytes.to_string()),
            failures.map_or_else(unknown, |count| count.to_string()),
        ]);
    }
    let mut shown = table.lines();
    let more = links.len().saturating_sub(LINKS_MAX);
    shown.extend((more > 0).then(|| format!("and {more} more links; `tierfeed status` lists all")));
    shown
}

fn of_node(node: &Change<'_, NodeStatus>) -> Vec<Link> {
    let name = |from: &str| format!("node {} from {from}", node.now.node);
    let plain = |from: &str, rate| Link { name: name(from), rate, in_flight: None, failures: None };
    let cold = plain("cold-store", node.rate(|it| it.cold_read_bytes));
    let tiers = node.now.tiers.iter().map(|TierStatus { tier, .. }| {
        let read = |it: &NodeStatus| {
            let same = it.tiers.iter().filter(|other| other.tier.name == tier.name);
            same.map(|tier| tier.read_bytes).sum()
        };
        plain(tier.name.name(), node.rate(read))
    });
    let peers = node.now.peers.iter().map(|peer| {
        let received = |it: &NodeStatus| {
            let same = it.peers.iter().find(|other| other.peer == peer.peer);
            same.map_or(0, |peer| peer.received.0)
        };
        Link {
            name: name(&of_peer(peer)),
            rate: node.rate(received),
            in_flight: Some(peer.in_flight),
            failures: Some(peer.failures),
        }
    });
    [cold].into_iter().chain(tiers).chain(peers).collect()
}

fn of_peer(peer: &PeerLink) -> String {
    match peer.standing {
        Standing::Asked => format!("node {}", peer.peer.0),
        standing => format!("node {}: {}", peer.peer.0, standing.name()),
    }
}
