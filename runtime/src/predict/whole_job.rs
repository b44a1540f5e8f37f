//! Simulates all nodes of a job with `policy: partitioned`: what they read from each other and from the cold
//! store, step by step, and how long they wait for each other.
//!
//! All nodes are assumed to be like this one. The order of the next epoch is worked out on a second thread
//! while an epoch is simulated.

mod moment;
mod table;

use std::{collections::BTreeMap, num::NonZeroU32, ops::ControlFlow, panic::resume_unwind, thread};

use serde::Serialize;
use tierfeed_core::{
    id::{Epoch as EpochId, NodeId, Step},
    retention::{form::SampleTime, replay::Amount},
    session::Settings,
    simulator::{
        Model, TransformCosts,
        whole_job::{
            Change, ChangeKind, EpochReads, Felt, Link, Links, NodeReads, Setting, SettingError,
            Tier, Times, Transforming, WholeJob,
        },
    },
    tier::Speed,
    units::{Bytes, BytesPerSecond, float, seconds},
};

pub use moment::{Moment, MomentError};

/// The links between the nodes, and between all of them and the cold store.
#[derive(Debug, Clone, Copy)]
pub struct SharedLinks {
    /// The rate of the cold store for all nodes together; 0 means unlimited.
    pub store: BytesPerSecond,
    /// The network of each node, in each direction.
    pub network: Speed,
}

/// All nodes of a job; `tierfeed plan --simulate --whole-job --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WholeJobPlan {
    pub nodes: u32,
    pub ranks_per_node: u32,
    /// Of all nodes together.
    pub capacity_bytes: u64,
    /// Batches that are staged ahead of each rank.
    pub staged_batches: u32,
    /// Nodes that are lost or come back, in order.
    pub changes: Vec<ChangeEntry>,
    pub epochs: Vec<Epoch>,
    pub total: Figures,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangeEntry {
    pub node: u32,
    /// `lost` or `back`.
    pub change: &'static str,
    pub epoch: u32,
    /// The step of `epoch` before which it happens.
    pub step: u32,
    /// The epoch of the first batches that are begun after it.
    pub felt_epoch: u32,
    /// The step of these batches.
    pub felt_step: u32,
    /// The epoch from which on the nodes divide the samples among those that are there; `None` if the run ends
    /// before.
    pub divided_epoch: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Epoch {
    /// Counted from 0.
    pub epoch: u32,
    #[serde(flatten)]
    pub figures: Figures,
    /// The node that all others waited for longest; `None` if none waited.
    pub slowest: Option<Slowest>,
    pub by_node: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Steps of each rank.
    pub steps: u64,
    pub demand_bytes: u64,
    /// Bytes by the tier of the reading node that they come from.
    pub tier_read_bytes: BTreeMap<&'static str, u64>,
    pub peer_read_bytes: u64,
    pub cold_read_bytes: u64,
    /// The part of `cold_read_bytes` that lost nodes held.
    pub lost_read_bytes: u64,
    /// The part of `cold_read_bytes` that the holder did not have in memory.
    pub absent_read_bytes: u64,
    /// The part of `cold_read_bytes` that trainers of lost nodes read by themselves.
    pub unattended_read_bytes: u64,
    /// Cold bytes that cannot be avoided.
    pub minimal_cold_bytes: u64,
    /// The most bytes that a node sends, divided by the mean.
    pub sent_imbalance: f64,
    /// Time for which the training stood still, in seconds.
    pub stall_s: f64,
    /// Time of computing and pauses.
    pub computed_s: f64,
    /// From the first step to the end of the last.
    pub duration_s: f64,
}

/// The link that the training waited for longest in an epoch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Slowest {
    /// `None` for the cold store, which all nodes share.
    pub node: Option<u32>,
    /// `cold`, `receiving`, `sending`, `transforms`, `shared-cold`, or a tier.
    pub link: &'static str,
    /// The stall in the steps for which it was ready last.
    pub stall_s: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Node {
    pub node: u32,
    pub tier_read_bytes: BTreeMap<&'static str, u64>,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub cold_read_bytes: u64,
}

impl WholeJobPlan {
    /// Simulates all nodes, which are like the one of `settings`. `step` is called after each step of each epoch, and
    /// may end the simulation.
    ///
    /// # Errors
    ///
    /// [`SettingError`] if the nodes cannot be simulated together, or a change cannot happen.
    pub fn of<B: Send>(
        settings: &Settings,
        model: &Model,
        links: SharedLinks,
        changes: Vec<Change>,
        step: &mut dyn FnMut() -> ControlFlow<B>,
    ) -> Result<ControlFlow<B, Self>, SettingError> {
        let setting = setting(settings, model, links, changes);
        let rooms = setting.tiers.iter().map(|tier| tier.room.0);
        let (order, room) = (settings.order, rooms.fold(0_u64, u64::saturating_add));
        let staged_batches = setting.depth.get();
        let kinds: Vec<_> = settings.tiers.iter().map(|tier| tier.kind.name()).collect();
        let mut job = WholeJob::try_new(setting)?;
        let changes = job.changes().map(|felt| entry(felt, order.epochs)).collect();
        let (mut epochs, mut total) = (Vec::new(), Sums::default());
        let played = thread::scope(|scope| {
            let expand = |epoch: EpochId| {
                (epoch.0 < order.epochs).then(|| scope.spawn(move || order.epoch(epoch)))
            };
            let mut ahead = expand(job.next());
            while let Some(expanded) = ahead {
                let expanded = expanded.join().unwrap_or_else(|panic| resume_unwind(panic));
                let Some(order) = expanded else { break };
                ahead = expand(EpochId(job.next().0 + 1));
                let reads = job.epoch(&order, step)?;
                total.add(&reads);
                epochs.push(epoch(&reads, &kinds));
            }
            ControlFlow::Continue(())
        });
        Ok(match played {
            ControlFlow::Break(reason) => ControlFlow::Break(reason),
            ControlFlow::Continue(()) => ControlFlow::Continue(Self {
                nodes: order.world.nodes,
                ranks_per_node: order.world.ranks_per_node,
                capacity_bytes: room.saturating_mul(order.world.nodes.into()),
                staged_batches,
                changes,
                epochs,
                total: total.figures(&kinds),
            }),
        })
    }

    /// The number of steps of the run, which is how often the simulation calls back.
    #[must_use]
    pub fn steps(settings: &Settings) -> u64 {
        let epochs = (0..settings.order.epochs).map(EpochId);
        epochs.map(|epoch| u64::from(settings.order.steps_in(epoch))).sum()
    }
}

/// All nodes are like the one of `settings`. Room for samples to come is taken from the fastest tiers, as a session
/// does.
fn setting(
    settings: &Settings,
    model: &Model,
    links: SharedLinks,
    changes: Vec<Change>,
) -> Setting {
    let mut reserved = settings.first_room.0;
    let tiers = settings.tiers.iter().zip(&model.tiers).map(|(tier, speed)| {
        let capacity = tier.capacity(settings.chunk).0;
        let ahead = capacity.min(reserved);
        reserved -= ahead;
        Tier { kind: tier.kind, room: Bytes(capacity - ahead), speed: *speed }
    });
    let transform = settings.transform.as_ref().map(|transform| {
        let at_once = || TransformCosts::of_mean(SampleTime::default(), Bytes(0));
        (transform, model.transforms.clone().unwrap_or_else(at_once))
    });
    Setting {
        order: settings.order,
        sizes: settings.sizes.clone(),
        tiers: tiers.collect(),
        depth: NonZeroU32::new(settings.staged_batches).unwrap_or(NonZeroU32::MIN),
        links: Links {
            cold: model.cold,
            cold_threads: model.cold_threads,
            cold_burst: model.cold_burst,
            store: links.store,
            network: links.network,
        },
        step_time: model.step_time,
        pause: model.pause,
        head_start: model.head_start,
        transforming: transform.map(|(transform, costs)| Transforming {
            cached: transform.cached,
            stored: transform.stored.clone(),
            threads: transform.threads,
            costs,
        }),
        changes,
    }
}

fn entry(felt: &Felt, epochs: u32) -> ChangeEntry {
    let Change { node: NodeId(node), epoch: EpochId(epoch), step: Step(step), kind } = felt.change;
    let (EpochId(felt_epoch), Step(felt_step)) = felt.from;
    let change = match kind {
        ChangeKind::Lost => "lost",
        ChangeKind::Back => "back",
    };
    let from = felt.membership.as_ref().map(|membership| membership.from.0);
    let divided_epoch = from.filter(|epoch| *epoch < epochs);
    ChangeEntry { node, change, epoch, step, felt_epoch, felt_step, divided_epoch }
}

fn epoch(reads: &EpochReads, kinds: &[&'static str]) -> Epoch {
    let mut sums = Sums::default();
    sums.add(reads);
    let node = |(node, reads): (u32, &NodeReads)| Node {
        node,
        tier_read_bytes: by_tier(kinds, &reads.tiers),
        received_bytes: reads.received.bytes.0,
        sent_bytes: reads.sent.bytes.0,
        cold_read_bytes: reads.cold.bytes.0,
    };
    let slowest = reads.slowest.map(|slowest| Slowest {
        node: slowest.node.map(|node| node.0),
        link: match slowest.link {
            Link::Cold => "cold",
            Link::Receiving => "receiving",
            Link::Sending => "sending",
            Link::Transforms => "transforms",
            Link::Tier(tier) => kinds[usize::from(tier.0)],
            Link::Store => "shared-cold",
        },
        stall_s: seconds(slowest.stall),
    });
    let by_node = (0..).zip(&reads.nodes).map(node).collect();
    Epoch { epoch: reads.epoch.0, figures: sums.figures(kinds), slowest, by_node }
}

fn by_tier(kinds: &[&'static str], amounts: &[Amount]) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    for (kind, amount) in kinds.iter().zip(amounts) {
        *sums.entry(*kind).or_default() += amount.bytes.0;
    }
    sums
}

#[derive(Debug, Default)]
struct Sums {
    steps: u64,
    tiers: Vec<Amount>,
    received: u64,
    cold: u64,
    lost: u64,
    absent: u64,
    unattended: u64,
    minimal_cold: u64,
    /// Bytes that each node sends.
    sent: Vec<u64>,
    times: Times,
}

impl Sums {
    fn add(&mut self, reads: &EpochReads) {
        self.steps += u64::from(reads.steps);
        self.minimal_cold += reads.minimal_cold.0;
        self.sent.resize(reads.nodes.len(), 0);
        for (node, sent) in reads.nodes.iter().zip(&mut self.sent) {
            self.tiers.resize(node.tiers.len(), Amount::default());
            for (sum, amount) in self.tiers.iter_mut().zip(&node.tiers) {
                sum.samples += amount.samples;
                sum.bytes.0 += amount.bytes.0;
            }
            self.received += node.received.bytes.0;
            self.cold += node.cold.bytes.0;
            self.lost += node.lost.bytes.0;
            self.absent += node.absent.bytes.0;
            self.unattended += node.unattended.bytes.0;
            *sent += node.sent.bytes.0;
        }
        self.times.stall.0 += reads.times.stall.0;
        self.times.computed.0 += reads.times.computed.0;
        self.times.duration.0 += reads.times.duration.0;
    }

    fn figures(&self, kinds: &[&'static str]) -> Figures {
        let local: u64 = self.tiers.iter().map(|amount| amount.bytes.0).sum();
        Figures {
            steps: self.steps,
            demand_bytes: local + self.received + self.cold,
            tier_read_bytes: by_tier(kinds, &self.tiers),
            peer_read_bytes: self.received,
            cold_read_bytes: self.cold,
            lost_read_bytes: self.lost,
            absent_read_bytes: self.absent,
            unattended_read_bytes: self.unattended,
            minimal_cold_bytes: self.minimal_cold,
            sent_imbalance: imbalance(&self.sent),
            stall_s: seconds(self.times.stall),
            computed_s: seconds(self.times.computed),
            duration_s: seconds(self.times.duration),
        }
    }
}

fn imbalance(bytes: &[u64]) -> f64 {
    let (most, sum) = (bytes.iter().max().copied().unwrap_or(0), bytes.iter().sum::<u64>());
    if sum == 0 { 1.0 } else { float(most) * float(bytes.len() as u64) / float(sum) }
}
