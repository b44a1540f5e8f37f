//! What a job will do on its nodes, from the same core that the agent runs, beside what no policy can
//! undercut.
//!
//! Every figure stands beside its limit ([`bound`]): cold bytes beside the least, the duration beside the
//! longer of computing and reading that least.

pub mod bound;
pub mod curve;
pub mod depth;
mod figures;
pub mod minimum;
pub mod peers;
mod plot;
pub mod site;
mod spread;
pub mod trace;
pub mod wear;

use std::{convert::Infallible, ops::ControlFlow};

use serde::Serialize;
use tierfeed_core::{
    id::NodeId,
    policy, session,
    simulator::{Model, Observer, Outcome, Read, StepOutcome, simulate_observed},
    tier::{Kind, Speed},
    units::{BytesPerSecond, Nanoseconds},
};
use tierfeed_resource_gatherer::Report;
use xxhash_rust::xxh3::Xxh3;

pub use figures::Figures;
pub use plot::{Drawn, plot};
pub use spread::Spread;

use self::{
    figures::Sums,
    spread::{Spreads, StepSpreads},
    wear::Wear,
};
use crate::layout::{Layout, Place};

/// A link that is never waited for.
pub const UNLIMITED: Speed = Speed { latency: Nanoseconds(0), bandwidth: BytesPerSecond(0) };

/// What one policy will do, as `tierfeed plan --simulate --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// The rule of retention.
    pub policy: &'static str,
    /// Which nodes were simulated.
    #[serde(flatten)]
    pub nodes: Nodes,
    /// Epoch by epoch. Bytes of several nodes are summed, times are those of the slowest.
    pub epochs: Vec<Epoch>,
    /// The whole run.
    pub total: Figures,
    /// What evening out would cost where tiers wear out, on the first of the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wear: Option<Wear>,
    /// Equal plans have equal digests: a hash of every command in order, in hexadecimal digits.
    pub digest: String,
}

/// The nodes that a prediction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Nodes {
    /// One of them.
    One {
        /// Which one.
        node: u32,
    },
    /// All of them. Each is simulated alone, so one does not wait for another within an epoch.
    All {
        /// How many there are.
        nodes: u32,
    },
}

/// One predicted epoch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Epoch {
    /// Which one.
    pub epoch: u32,
    /// What it comes to.
    #[serde(flatten)]
    pub figures: Figures,
    /// How evenly its cold bytes fall; unknown if no step of it is full.
    #[serde(flatten)]
    pub spreads: StepSpreads,
}

impl Nodes {
    /// How many are simulated.
    #[must_use]
    pub const fn count(self) -> u32 {
        match self {
            Self::One { .. } => 1,
            Self::All { nodes } => nodes,
        }
    }

    /// Their numbers.
    pub fn ids(self) -> impl Iterator<Item = NodeId> {
        let ids = match self {
            Self::One { node } => node..node + 1,
            Self::All { nodes } => 0..nodes,
        };
        ids.map(NodeId)
    }
}

impl Prediction {
    /// Runs the session of `settings` with `policy` against `model`, on the node of the settings.
    #[must_use]
    pub fn of(settings: &session::Settings, policy: policy::Kind, model: &Model) -> Self {
        let nodes = Nodes::One { node: settings.node.0 };
        let ControlFlow::Continue(prediction) =
            Self::observed(settings, nodes, policy, model, &mut Nobody);
        prediction
    }

    /// The same on `nodes`, one after the other, before an observer, who may end it.
    pub fn observed<O: Observer>(
        settings: &session::Settings,
        nodes: Nodes,
        policy: policy::Kind,
        model: &Model,
        observer: &mut O,
    ) -> ControlFlow<O::Stop, Self> {
        let mut epochs: Vec<(Sums, Spreads)> = Vec::new();
        let mut digests = Vec::new();
        for node in nodes.ids() {
            let settings = session::Settings { policy, node, ..settings.clone() };
            let spreads = vec![Spreads::default(); settings.order.epochs as usize];
            let batch_size = settings.order.batch_size;
            let mut watch = Watch { observer: &mut *observer, spreads, batch_size };
            let Outcome { epochs: outcomes, digest, .. } =
                simulate_observed(&settings, &model.into(), &mut watch)?;
            digests.push(digest);
            let limits = bound::limits(&settings, &outcomes);
            let here = outcomes.iter().zip(&limits).map(|(it, limit)| Sums::of(it, *limit, model));
            join(&mut epochs, here.zip(watch.spreads));
        }
        let kinds: Vec<_> = settings.tiers.iter().map(|tier| tier.kind.name()).collect();
        let mut total = Sums::default();
        epochs.iter().for_each(|(sums, _)| total.then(sums));
        let epoch = |(epoch, (sums, spreads)): (u32, &(Sums, Spreads))| Epoch {
            epoch,
            figures: sums.figures(&kinds),
            spreads: spreads.finish(),
        };
        ControlFlow::Continue(Self {
            policy: policy.name(),
            nodes,
            epochs: (0..).zip(&epochs).map(epoch).collect(),
            total: total.figures(&kinds),
            wear: nodes
                .ids()
                .next()
                .and_then(|node| Wear::of(&session::Settings { policy, node, ..settings.clone() })),
            digest: format!("{:016x}", joined(&digests)),
        })
    }
}

/// Adds what a node does to what those before it did at the same time.
fn join(epochs: &mut Vec<(Sums, Spreads)>, here: impl Iterator<Item = (Sums, Spreads)>) {
    for (at, (sums, spreads)) in here.enumerate() {
        match epochs.get_mut(at) {
            Some((others, steps)) => {
                others.beside(&sums);
                steps.merge(&spreads);
            }
            None => epochs.push((sums, spreads)),
        }
    }
}

fn joined(digests: &[u64]) -> u64 {
    let [only] = digests else {
        let mut hash = Xxh3::new();
        digests.iter().for_each(|digest| hash.update(&digest.to_le_bytes()));
        return hash.digest();
    };
    *only
}

/// Sees how evenly cold bytes fall, and passes on what it is told.
struct Watch<'a, O> {
    observer: &'a mut O,
    spreads: Vec<Spreads>,
    batch_size: u32,
}

impl<O: Observer> Observer for Watch<'_, O> {
    type Stop = O::Stop;

    fn read(&mut self, read: &Read) {
        self.observer.read(read);
    }

    fn step(&mut self, step: &StepOutcome) -> ControlFlow<O::Stop> {
        if let Some(spreads) = self.spreads.get_mut(step.epoch.0 as usize) {
            spreads.add(step, self.batch_size);
        }
        self.observer.step(step)
    }
}

struct Nobody;

impl Observer for Nobody {
    type Stop = Infallible;

    fn step(&mut self, _: &StepOutcome) -> ControlFlow<Infallible> {
        ControlFlow::Continue(())
    }
}

/// The speed of each tier of `layout`: what the job imposes, else what was measured, else unlimited.
#[must_use]
pub fn tier_speeds(layout: &Layout, measured: Option<&Report>) -> Vec<Speed> {
    layout.places.iter().map(|place| tier_speed(place, measured)).collect()
}

fn tier_speed(place: &Place, measured: Option<&Report>) -> Speed {
    if let Some(speed) = place.settings.emulated {
        return speed;
    }
    Speed { bandwidth: rate_of(place.settings.kind, measured), ..UNLIMITED }
}

/// How fast a kind of tier was measured to be; 0, for unlimited, if it was not.
fn rate_of(kind: Kind, measured: Option<&Report>) -> BytesPerSecond {
    let tier = measured.and_then(|report| report.tiers.iter().find(|tier| tier.kind == kind));
    let rate = tier.and_then(|tier| tier.copy_bytes_per_s.or(tier.read_bytes_per_s));
    BytesPerSecond(rate.unwrap_or(0))
}

#[cfg(test)]
mod tests;
