//! The partitioned cache of `CoorDL` (VLDB 2021, doi:10.14778/3446095.3446100): the nodes of a job share what
//! their tiers hold, one copy of each sample.
//!
//! Which node holds a sample is computed ([`Partition`]), by a [`Job`] before an epoch is read. The node keeps
//! a sample that it holds when it reads it, in the fastest tier with room, and keeps no other. What other
//! nodes hold it reads from them ([`Policy::holder`]). On one node this is [`super::pinned`].

use alloc::{boxed::Box, vec::Vec};

use super::{Need, Outcome, Policy, Preparation, Read, Setting, Task, first_with_room};
use crate::{
    id::{Epoch, NodeId, SampleId, TierId},
    retention::{
        future_accesses::FutureAccesses,
        partition::{Holders, Membership, Partition},
        residency::Residency,
    },
    units::Bytes,
};

/// Samples that each read checks after the nodes changed, for whether they belong to another node now.
const CHECKED: u32 = 4096;

#[derive(Debug)]
pub(super) struct Partitioned {
    node: NodeId,
    /// `None` while a job uses it.
    partition: Option<Box<Partition>>,
    holders: Option<Holders>,
    divided: Option<Epoch>,
    /// Memberships that the partition does not know yet.
    news: Vec<Membership>,
    /// The first sample that was not checked since the nodes changed.
    unchecked: Option<u32>,
}

#[derive(Debug)]
pub(super) struct Job {
    partition: Box<Partition>,
    epoch: Epoch,
}

#[derive(Debug)]
pub(super) struct Planned {
    partition: Box<Partition>,
    epoch: Epoch,
    holders: Holders,
}

impl Job {
    pub(super) fn run(self) -> Planned {
        let Self { mut partition, epoch } = self;
        let holders = partition.after(epoch);
        Planned { partition, epoch, holders }
    }
}

impl Partitioned {
    pub(super) fn new(setting: &Setting) -> Self {
        let room = Bytes(setting.capacities.iter().fold(0, |sum, it| sum.saturating_add(it.0)));
        let sizes = setting.sizes.clone();
        let partition = Partition::new(setting.order, sizes, setting.node, room);
        Self {
            node: setting.node,
            partition: Some(Box::new(partition)),
            holders: None,
            divided: None,
            news: Vec::new(),
            unchecked: None,
        }
    }

    fn is_mine(&self, sample: SampleId) -> bool {
        self.holder(sample) == Some(self.node)
    }

    /// Gives up some of the samples that other nodes hold now.
    fn give_up(&mut self, residency: &mut Residency) {
        let Some(first) = self.unchecked else { return };
        let samples = u32::try_from(residency.samples()).unwrap_or(u32::MAX);
        let last = first.saturating_add(CHECKED).min(samples);
        for sample in (first..last).map(SampleId) {
            if residency.tier_of(sample).is_some() && !self.is_mine(sample) {
                residency.take_out(sample);
            }
        }
        self.unchecked = (last < samples).then_some(last);
    }
}

impl Policy for Partitioned {
    fn lookahead(&self) -> u32 {
        0
    }

    fn prepare(&mut self, epoch: Epoch, _: Need, _: &FutureAccesses, _: &Residency) -> Preparation {
        if self.divided >= Some(epoch) {
            return Preparation::Ready;
        }
        let Some(mut partition) = self.partition.take() else { return Preparation::Pending };
        self.news.drain(..).for_each(|membership| partition.follow(membership));
        Preparation::Job(super::Job(Task::Partition(Job { partition, epoch })))
    }

    fn prepared(&mut self, planned: super::Planned) {
        let Outcome::Partition(Planned { partition, epoch, holders }) = planned.0 else {
            return;
        };
        self.partition = Some(partition);
        self.divided = Some(epoch);
        if self.holders.replace(holders).is_some() {
            self.unchecked = Some(0);
        }
        let is_late = self.news.iter().any(|membership| membership.from <= epoch);
        self.divided = self.divided.filter(|_| !is_late);
    }

    fn follow(&mut self, membership: Membership) {
        if self.divided >= Some(membership.from) {
            self.divided = None;
        }
        self.news.push(membership);
    }

    fn holder(&self, sample: SampleId) -> Option<NodeId> {
        self.holders.as_ref()?.of(sample)
    }

    fn read(&mut self, read: Read, future: &FutureAccesses, residency: &mut Residency) {
        if self.divided < Some(read.at.epoch)
            && let Preparation::Job(job) = self.prepare(read.at.epoch, Need::Now, future, residency)
        {
            self.prepared(job.run());
        }
        self.give_up(residency);
        if self.is_mine(read.sample)
            && residency.tier_of(read.sample).is_none()
            && let Some(tier) = first_with_room(read.sample, residency)
        {
            // There is room: the tier was chosen for the sample.
            _ = residency.put(read.sample, tier);
        }
    }

    fn displaced(&mut self, _: SampleId, _: TierId, _: Option<TierId>) {}
}
