//! What the nodes of a job would read from each other with a shared cache.
//!
//! All nodes are assumed to be like this one. The plan decides which node serves which read, but no times:
//! it needs no clock, so it covers the whole job at once.

mod dump;
mod table;

use std::collections::BTreeMap;

use serde::Serialize;
use tierfeed_core::{
    fleet::peers::{
        Cluster, NodeTraffic, Setting, SettingError, Traffic, least_cold, least_remote_of_covering,
    },
    order::Shuffle,
    session::Settings,
    units::Bytes,
};

pub use dump::{DumpError, dump};

/// The memory limit of the look-ahead.
const MEMORY: Bytes = Bytes::mib(512);

/// The plan of a shared cache; `tierfeed plan --peers --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SharedCachePlan {
    /// The number of nodes.
    pub nodes: u32,
    /// The capacity of all nodes together.
    pub capacity_bytes: u64,
    /// Epochs of look-ahead beyond the current one.
    pub ahead_epochs: u32,
    /// Steps that are decided together.
    pub round_steps: u32,
    /// The figures of each epoch.
    pub epochs: Vec<Epoch>,
    /// The figures of the whole run.
    pub total: Figures,
}

/// One epoch of all nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Epoch {
    /// The number of the epoch, counted from 0.
    pub epoch: u32,
    /// The sums over all nodes.
    #[serde(flatten)]
    pub figures: Figures,
    /// The figures of each node.
    pub by_node: Vec<Node>,
}

/// The sums over all nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Bytes that the ranks take.
    pub demand_bytes: u64,
    /// Bytes by the tier of the reading node that they come from.
    pub tier_read_bytes: BTreeMap<&'static str, u64>,
    /// Bytes read from other nodes.
    pub peer_read_bytes: u64,
    /// Bytes read from the cold store.
    pub cold_read_bytes: u64,
    /// Bytes that no plan can avoid to read from the cold store.
    pub minimal_cold_bytes: u64,
    /// Bytes written to tiers.
    pub written_bytes: u64,
    /// The share of the demand that the reading node holds.
    pub local_ratio: f64,
    /// The largest possible `local_ratio` in a long run of equal samples with as few cold reads; `None` for
    /// orders that do not redistribute the samples in each epoch.
    pub best_local_ratio: Option<f64>,
    /// The most bytes that a node sends, divided by the mean.
    pub sent_imbalance: f64,
    /// The most bytes that a node receives, divided by the mean.
    pub received_imbalance: f64,
    /// The most bytes that a node keeps, divided by the mean.
    pub kept_imbalance: f64,
}

/// The figures of one node in an epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Node {
    /// The number of the node.
    pub node: u32,
    /// Bytes by the tier that they are read from.
    pub tier_read_bytes: BTreeMap<&'static str, u64>,
    /// Bytes that it reads from others.
    pub received_bytes: u64,
    /// Bytes that others read from it.
    pub sent_bytes: u64,
    /// Bytes that it reads from the cold store.
    pub cold_read_bytes: u64,
    /// Bytes that it writes to its tiers.
    pub written_bytes: u64,
    /// Bytes that it holds after the epoch.
    pub kept_bytes: u64,
    /// Bytes of `kept_bytes` that another node holds too.
    pub kept_twice_bytes: u64,
}

impl SharedCachePlan {
    /// Plans the whole job, whose nodes all are like the one of `settings`.
    ///
    /// # Errors
    ///
    /// [`SettingError`] if the job is too large to be planned.
    pub fn of(settings: &Settings) -> Result<Self, SettingError> {
        let setting = setting(settings);
        let (ahead_epochs, round_steps) = (setting.ahead, setting.round_steps);
        let limits = Limits::of(settings);
        let mut cluster = Cluster::try_new(setting)?;
        let (mut epochs, mut total): (Vec<Epoch>, Option<(Traffic, Bytes)>) = (Vec::new(), None);
        let first = settings.order.start.epoch.0;
        for epoch in first..settings.order.epochs {
            let Some(traffic) = cluster.epoch() else { break };
            let held = if epoch == first { Bytes(0) } else { limits.capacity };
            let cold = least_cold(traffic.distinct.bytes, held);
            let figures = limits.figures(traffic, cold);
            epochs.push(Epoch { epoch, figures, by_node: limits.nodes(traffic) });
            match &mut total {
                Some((sum, least)) => {
                    sum.then(traffic);
                    least.0 += cold.0;
                }
                None => total = Some((traffic.clone(), cold)),
            }
        }
        let (sum, least) = total.unwrap_or_else(|| (Traffic::default(), Bytes(0)));
        Ok(Self {
            nodes: settings.order.world.nodes,
            capacity_bytes: limits.capacity.0,
            ahead_epochs,
            round_steps,
            epochs,
            total: limits.figures(&sum, least),
        })
    }
}

/// The plan of a job whose nodes all are like the one of `settings`.
fn setting(settings: &Settings) -> Setting {
    let tiers: Vec<_> = settings.tiers.iter().map(|tier| tier.capacity(settings.chunk)).collect();
    Setting {
        order: settings.order,
        sizes: settings.sizes.clone(),
        capacities: vec![tiers; settings.order.world.nodes as usize],
        ahead: Setting::ahead_within(MEMORY, &settings.order),
        // The batches in staging, except for the one that the trainer uses.
        round_steps: settings.staged_batches.saturating_sub(1).max(1),
    }
}

/// The bounds that figures are compared with.
struct Limits {
    kinds: Vec<&'static str>,
    capacity: Bytes,
    best_local: Option<f64>,
}

impl Limits {
    fn of(settings: &Settings) -> Self {
        let nodes = settings.order.world.nodes;
        let each = settings
            .tiers
            .iter()
            .fold(0_u64, |sum, tier| sum.saturating_add(tier.capacity(settings.chunk).0));
        let dataset = settings.sizes.iter().fold(0_u64, |sum, len| sum.saturating_add(len.0));
        let is_dealt_anew = matches!(
            settings.order.shuffle,
            Shuffle::TorchDistributed { .. }
                | Shuffle::TorchRandom(_)
                | Shuffle::TfIndex(_)
                | Shuffle::Grain
        );
        let local = || 1.0 - least_remote_of_covering(nodes, share(each, dataset).min(1.0));
        Self {
            kinds: settings.tiers.iter().map(|tier| tier.kind.name()).collect(),
            capacity: Bytes(each.saturating_mul(u64::from(nodes))),
            best_local: is_dealt_anew.then(local),
        }
    }

    fn figures(&self, traffic: &Traffic, minimal_cold: Bytes) -> Figures {
        let demand = traffic.total(NodeTraffic::reads).bytes.0;
        Figures {
            demand_bytes: demand,
            tier_read_bytes: self.by_tier(&traffic.nodes),
            peer_read_bytes: traffic.total(|node| node.received).bytes.0,
            cold_read_bytes: traffic.total(|node| node.cold).bytes.0,
            minimal_cold_bytes: minimal_cold.0,
            written_bytes: traffic.total(|node| node.written).bytes.0,
            local_ratio: share(traffic.total(NodeTraffic::local).bytes.0, demand),
            best_local_ratio: self.best_local,
            sent_imbalance: traffic.imbalance(|node| node.sent.bytes),
            received_imbalance: traffic.imbalance(|node| node.received.bytes),
            kept_imbalance: traffic.imbalance(|node| node.kept),
        }
    }

    fn nodes(&self, traffic: &Traffic) -> Vec<Node> {
        let node = |(number, node): (u32, &NodeTraffic)| Node {
            node: number,
            tier_read_bytes: self.by_tier(std::slice::from_ref(node)),
            received_bytes: node.received.bytes.0,
            sent_bytes: node.sent.bytes.0,
            cold_read_bytes: node.cold.bytes.0,
            written_bytes: node.written.bytes.0,
            kept_bytes: node.kept.0,
            kept_twice_bytes: node.kept_twice.0,
        };
        (0..).zip(&traffic.nodes).map(node).collect()
    }

    fn by_tier(&self, nodes: &[NodeTraffic]) -> BTreeMap<&'static str, u64> {
        let mut sums: BTreeMap<_, _> = self.kinds.iter().map(|kind| (*kind, 0)).collect();
        for node in nodes {
            for (kind, amount) in self.kinds.iter().zip(&node.tiers) {
                *sums.entry(*kind).or_default() += amount.bytes.0;
            }
        }
        sums
    }
}

#[expect(clippy::cast_precision_loss, reason = "a prediction needs no more than 53 bits")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests;
