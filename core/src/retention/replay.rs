//! Runs a policy over the order of a node without time: counts the source of each read.
//!
//! It counts what the agent would read with ranks in lock-step, many times faster than the
//! simulator, which also computes times.

use alloc::{boxed::Box, sync::Arc, vec, vec::Vec};

use crate::{
    id::{BatchId, Epoch, NodeId, SampleId, Step, TierId},
    order::Spec,
    retention::{
        future_accesses::{FutureAccesses, Use},
        policy::{self, Policy, Read, Setting},
        residency::{Move, Residency},
        wear::Wear,
    },
    units::Bytes,
};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Served {
    pub cold: Amount,
    /// Fastest first.
    pub tiers: Vec<Amount>,
    pub written: Vec<Bytes>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    pub samples: u64,
    pub bytes: Bytes,
}

impl Amount {
    pub(crate) fn add(&mut self, len: Bytes) {
        self.samples += 1;
        self.bytes.0 += len.0;
    }
}

impl Served {
    fn none(tiers: usize) -> Self {
        let written = vec![Bytes(0); tiers];
        Self { cold: Amount::default(), tiers: vec![Amount::default(); tiers], written }
    }

    fn add(&mut self, tier: Option<TierId>, len: Bytes) {
        match tier {
            Some(tier) => self.tiers[usize::from(tier.0)].add(len),
            None => self.cold.add(len),
        }
    }

    #[must_use]
    pub fn total(&self) -> Amount {
        let mut total = self.cold;
        for tier in &self.tiers {
            total.samples += tier.samples;
            total.bytes.0 += tier.bytes.0;
        }
        total
    }
}

/// A node whose reads are replayed, epoch by epoch.
#[derive(Debug)]
pub struct Replay {
    spec: Spec,
    node: NodeId,
    sizes: Arc<[Bytes]>,
    future: FutureAccesses,
    policy: Box<dyn Policy>,
    residency: Residency,
    wear: Wear,
    next: Epoch,
    /// Tiers whose samples are read from the cold store all the same.
    bypassed: Vec<bool>,
}

impl Replay {
    #[must_use]
    pub fn new(kind: policy::Kind, setting: &Setting) -> Self {
        let policy = policy::build(kind, setting);
        let tiers = (0..=u8::MAX).map(TierId).take(setting.capacities.len());
        Self {
            spec: setting.order,
            node: setting.node,
            sizes: Arc::clone(&setting.sizes),
            future: FutureAccesses::new(setting.order, setting.node, policy.lookahead()),
            residency: Residency::new(
                Arc::clone(&setting.sizes),
                setting.capacities.iter().copied(),
            ),
            policy,
            wear: Wear::within(setting.aim.writes_per_epoch.clone()),
            next: setting.order.start.epoch,
            bypassed: tiers.map(|tier| setting.aim.bypasses(kind, tier)).collect(),
        }
    }

    #[must_use]
    pub fn residency(&self) -> &Residency {
        &self.residency
    }

    /// Replays the next epoch; `None` after the last one and for an order that only the trainer
    /// knows.
    pub fn epoch(&mut self) -> Option<Served> {
        self.epoch_seen(&mut |_, _, _| {})
    }

    /// As [`Self::epoch`]; calls `see` with every read, in order, and the tier that served it.
    pub fn epoch_seen(
        &mut self,
        see: &mut dyn FnMut(BatchId, SampleId, Option<TierId>),
    ) -> Option<Served> {
        let epoch = self.next;
        if epoch.0 >= self.spec.epochs {
            return None;
        }
        self.future.prepare(epoch);
        self.future.epoch(epoch)?;
        self.wear.enter(epoch);
        let mut served = Served::none(self.residency.levels().len());
        for step in (0..self.spec.steps_in(epoch)).map(Step) {
            for rank in self.spec.world.ranks_of(self.node) {
                let batch = BatchId { epoch, step, rank };
                let samples = self.future.batch(batch).unwrap_or_default();
                let Use { place: first, .. } = self.future.read_of(batch, 0);
                self.residency.touch(samples);
                self.policy.touch(samples);
                for (place, sample) in (first..).zip(samples.iter().copied()) {
                    let tier = self.residency.tier_of(sample);
                    let tier = tier.filter(|it| !self.bypassed[usize::from(it.0)]);
                    served.add(tier, self.sizes[sample.0 as usize]);
                    see(batch, sample, tier);
                    let read = Read { sample, at: Use { epoch, place } };
                    self.policy.read(read, &self.future, &mut self.residency);
                    if self.wear.is_limited() {
                        // One by one, as the cache does it.
                        let Self { sizes, residency, policy, wear, .. } = self;
                        count(sizes, &mut served, limited(residency, policy.as_mut(), wear));
                    }
                }
                count(&self.sizes, &mut served, self.residency.drain_moves());
            }
        }
        self.next = Epoch(epoch.0 + 1);
        Some(served)
    }
}

fn count(sizes: &[Bytes], served: &mut Served, moves: impl IntoIterator<Item = Move>) {
    for Move { sample, to, .. } in moves {
        if let Some(tier) = to {
            served.written[usize::from(tier.0)].0 += sizes[sample.0 as usize].0;
        }
    }
}

/// The moves since the last call, without those that would exceed the write budget of a tier.
fn limited(residency: &mut Residency, policy: &mut dyn Policy, wear: &mut Wear) -> Vec<Move> {
    let mut moves: Vec<Move> = residency.drain_moves().collect();
    moves.retain(|it| {
        let Some(tier) = it.to else { return true };
        if residency.tier_of(it.sample).is_none() {
            return false;
        }
        let may_go = wear.admits(tier, residency.len_of(it.sample));
        if !may_go {
            residency.take_out(it.sample);
            policy.displaced(it.sample, tier, None);
        }
        may_go
    });
    residency.drain_moves();
    moves
}
