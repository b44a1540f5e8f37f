//! Predicts what a job does on its nodes, with the same core that the agent runs, and the bounds of every
//! policy.
//!
//! Each figure has its bound ([`bound`]): the minimal cold bytes, and the longest of computing, of reading
//! these bytes and of transforming.

pub mod bound;
pub mod depth;
mod evenness;
mod figures;
pub mod node_model;
pub mod replay;
pub mod wear;
pub mod whole_job;

use std::ops::ControlFlow;

use serde::Serialize;
use tierfeed_core::{
    id::{Epoch as EpochId, NodeId},
    order::{Position, Spec},
    retention::{partition::Member, policy},
    session,
    simulator::{
        LateStart, Machine, Model, Observer, Outcome, Peers, StepOutcome, simulate_through, warm_up,
    },
    tier::{Kind, Speed},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_resource_gatherer::Report;
use xxhash_rust::xxh3::Xxh3;

pub use evenness::Evenness;
pub use figures::Figures;

use self::{
    evenness::{EvennessSums, StepEvenness},
    figures::Sums,
    wear::Wear,
};
use crate::layout::{Layout, TierLayout};

/// The speed of a link without latency and with unlimited bandwidth (0 means unlimited).
pub const UNLIMITED: Speed = Speed { latency: Nanoseconds(0), bandwidth: BytesPerSecond(0) };

/// The prediction of one policy; `tierfeed plan --simulate --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    pub policy: &'static str,
    #[serde(flatten)]
    pub nodes: Nodes,
    /// The epoch with which the simulation began, with empty tiers; `None` if it began with the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub played_from: Option<u32>,
    /// How close the bytes by source are then to those of the whole run: `equal`, `near` or `estimate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carried_over: Option<&'static str>,
    /// Epoch by epoch. Bytes of several nodes are summed, times are those of the slowest.
    pub epochs: Vec<Epoch>,
    pub total: Figures,
    /// The wear of evening out cold reads, on the first of the nodes; `None` if no tier wears out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wear: Option<Wear>,
    /// Equal plans have equal digests: a hash of every command in order, in hexadecimal digits.
    pub digest: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Nodes {
    One {
        node: u32,
    },
    /// All nodes. Each is simulated alone, so one does not wait for another within an epoch.
    All {
        nodes: u32,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Epoch {
    /// Counted from 0.
    pub epoch: u32,
    #[serde(flatten)]
    pub figures: Figures,
    /// How evenly its cold bytes are distributed; `None` if no step is full.
    #[serde(flatten)]
    pub evenness: StepEvenness,
}

impl Nodes {
    #[must_use]
    pub const fn count(self) -> u32 {
        match self {
            Self::One { .. } => 1,
            Self::All { nodes } => nodes,
        }
    }

    pub fn ids(self) -> impl Iterator<Item = NodeId> {
        let ids = match self {
            Self::One { node } => node..node + 1,
            Self::All { nodes } => 0..nodes,
        };
        ids.map(NodeId)
    }
}

impl Prediction {
    /// Runs the session of `settings` with `policy` against `model` on `nodes`, one after the other, with an observer,
    /// which may stop it. Of one `epoch` alone only as many before it are simulated as tiers take to be as full as
    /// after the whole run ([`warm_up`]).
    pub fn of<O: Observer>(
        settings: &session::Settings,
        nodes: Nodes,
        policy: policy::Kind,
        model: &Model,
        epoch: Option<EpochId>,
        observer: &mut O,
    ) -> ControlFlow<O::Stop, Self> {
        let part = Part::of(&settings.order, epoch);
        let begins = settings.order.start.epoch;
        let mut settings = settings.clone();
        if part.played.0 > begins.0 {
            settings.order.start = Position { epoch: part.played, samples: 0 };
        }
        let mut epochs: Vec<(Sums, EvennessSums)> = Vec::new();
        let (mut total, mut digests) = (Sums::default(), Vec::new());
        for node in nodes.ids() {
            let settings = session::Settings { policy, node, ..settings.clone() };
            let evenness = vec![EvennessSums::default(); settings.order.epochs as usize];
            let batch_size = settings.order.batch_size;
            let mut watch = EvennessObserver { observer: &mut *observer, evenness, batch_size };
            let Outcome { epochs: outcomes, digest, .. } =
                simulate_through(&settings, &machine(&settings, model), part.last, &mut watch)?;
            digests.push(digest);
            let minimal = bound::minimal_cold(&settings, &outcomes);
            let here = outcomes.iter().zip(minimal).map(|(it, cold)| Sums::of(it, cold, model));
            let here = here.zip(watch.evenness).skip(part.first.0 as usize);
            let here: Vec<_> = here.collect();
            let mut of_node = Sums::default();
            here.iter().for_each(|(sums, _)| of_node.add_epoch(sums));
            total.add_node(&of_node);
            add_node(&mut epochs, here.into_iter());
        }
        let kinds: Vec<_> = settings.tiers.iter().map(|tier| tier.kind.name()).collect();
        let epoch = |(epoch, (sums, evenness)): (u32, &(Sums, EvennessSums))| Epoch {
            epoch,
            figures: sums.figures(&kinds),
            evenness: evenness.finish(),
        };
        ControlFlow::Continue(Self {
            policy: policy.name(),
            nodes,
            played_from: (part.played > begins).then_some(part.played.0),
            carried_over: (part.played > begins)
                .then(|| LateStart::of(policy, settings.order.world.nodes).name()),
            epochs: (part.first.0..).zip(&epochs).map(epoch).collect(),
            total: total.figures(&kinds),
            wear: nodes
                .ids()
                .next()
                .and_then(|node| Wear::of(&session::Settings { policy, node, ..settings.clone() })),
            digest: format!("{:016x}", combined_digest(&digests)),
        })
    }
}

/// The machine of a node. If nodes share what they keep, all are like this one, and nothing is known of the
/// network between them that would limit it.
fn machine(settings: &session::Settings, model: &Model) -> Machine {
    let nodes = settings.order.world.nodes;
    let shares = settings.policy.shares() && nodes > 1;
    let capacity = settings.tiers.iter().map(|tier| tier.capacity(settings.chunk).0);
    let room = Bytes(capacity.sum::<u64>().saturating_sub(settings.first_room.0));
    let member = Member { room, process: 1 };
    let members = (0..nodes).map(|_| member).collect();
    let peers = shares.then(|| Peers { link: UNLIMITED.into(), members });
    Machine { peers, ..Machine::from(model) }
}

/// The part of a run that is simulated, and the part of that which is reported.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Where the simulation begins.
    played: EpochId,
    first: EpochId,
    last: EpochId,
}

impl Part {
    fn of(order: &Spec, epoch: Option<EpochId>) -> Self {
        let begins = order.start.epoch;
        match epoch {
            None => Self { played: begins, first: EpochId(0), last: EpochId(order.epochs - 1) },
            Some(epoch) => {
                let played = EpochId(epoch.0.saturating_sub(warm_up(order))).max(begins);
                Self { played, first: epoch, last: epoch }
            }
        }
    }
}

/// Adds the epochs of a node to those of the nodes before it.
fn add_node(
    epochs: &mut Vec<(Sums, EvennessSums)>,
    here: impl Iterator<Item = (Sums, EvennessSums)>,
) {
    for (at, (sums, evenness)) in here.enumerate() {
        match epochs.get_mut(at) {
            Some((others, steps)) => {
                others.add_node(&sums);
                steps.merge(&evenness);
            }
            None => epochs.push((sums, evenness)),
        }
    }
}

fn combined_digest(digests: &[u64]) -> u64 {
    let [only] = digests else {
        let mut hash = Xxh3::new();
        digests.iter().for_each(|digest| hash.update(&digest.to_le_bytes()));
        return hash.digest();
    };
    *only
}

/// Records the distribution of cold bytes, and forwards to another observer.
struct EvennessObserver<'a, O> {
    observer: &'a mut O,
    evenness: Vec<EvennessSums>,
    batch_size: u32,
}

impl<O: Observer> Observer for EvennessObserver<'_, O> {
    type Stop = O::Stop;

    fn step(&mut self, step: &StepOutcome) -> ControlFlow<O::Stop> {
        if let Some(evenness) = self.evenness.get_mut(step.epoch.0 as usize) {
            evenness.add(step, self.batch_size);
        }
        self.observer.step(step)
    }
}

/// The speed of each tier of `layout`: imposed by the job, else measured, else unlimited.
#[must_use]
pub fn tier_speeds(layout: &Layout, measured: Option<&Report>) -> Vec<Speed> {
    layout.tiers.iter().map(|tier| tier_speed(tier, measured)).collect()
}

fn tier_speed(tier: &TierLayout, measured: Option<&Report>) -> Speed {
    if let Some(speed) = tier.settings.emulated {
        return speed;
    }
    // The figures of this very tier; else of one of its kind, which may be at another place.
    let own = tier.standing.figures.bandwidth;
    let bandwidth = own.unwrap_or_else(|| rate_of(tier.settings.kind, measured));
    Speed { bandwidth, ..UNLIMITED }
}

/// The measured bandwidth of a kind of tier; 0, which means unlimited, if there is none.
fn rate_of(kind: Kind, measured: Option<&Report>) -> BytesPerSecond {
    let tier = measured.and_then(|report| report.tiers.iter().find(|tier| tier.kind == kind));
    let rate = tier.and_then(|tier| tier.copy_bytes_per_s.or(tier.read_bytes_per_s));
    BytesPerSecond(rate.unwrap_or(0))
}

#[cfg(test)]
mod tests;
