//! The placement of `NoPFS` (SC 2021, doi:10.1145/3458817.3476181), after its published source
//! (`get_prefetch_string`): a static plan by how often a node reads each sample over all epochs.
//!
//! Samples are sorted by that number in descending order; samples that are never read are left out.
//! In this order each goes to the fastest storage class that has room left; each tier is a class of
//! its own. A sample without room is never cached, and no sample is ever evicted. The source sorts
//! unstably, so samples of equal number come in any order: here in the order of their ids. It plans
//! with the bytes of a sample, which here are rounded as they are in a tier.
//!
//! Within a class `NoPFS` prefetches in the order of first access, and a sample that is needed
//! earlier is fetched and cached at once. Here every sample enters its class when it is first read,
//! which is the same order; reading ahead is the session's staging.
//!
//! If several places have a sample, `NoPFS` reads it from the fastest: it sorts the file system, the best
//! remote class and the local class by their rates, and of equals takes the local one. So does a session
//! here ([`Aim::bypasses`](super::Aim::bypasses)): a sample in a tier that is slower than the cold store is
//! read cold, though the plan keeps it. Nodes do not read from each other here, and a sample lies in one tier,
//! so there are two sources. The rates are those in the job file, else measured ones; `NoPFS` divides the
//! rate of the file system by the nodes, which is what a measured rate of one node should show.
//!
//! The counts come from the orders of all epochs, one at a time. If only the trainer knows them,
//! there is nothing to count, and the samples that are read first stay. The plan is made once: a
//! tier that grows later gets nothing more, and samples that a shrinking tier lost return as far as
//! there is room.

use alloc::{vec, vec::Vec};

use super::{Policy, Read, Setting, first_with_room};
use crate::{
    id::{Epoch, SampleId, TierId},
    retention::{future_accesses::FutureAccesses, residency::Residency},
    space::Space,
    units::Bytes,
};

#[derive(Debug)]
pub(super) struct NoPfs {
    /// By sample; `None` if the order is not known.
    classes: Option<Vec<Option<TierId>>>,
}

impl NoPfs {
    pub(super) fn new(setting: &Setting) -> Self {
        Self { classes: counts(setting).map(|counts| classes(setting, &counts)) }
    }
}

impl Policy for NoPfs {
    fn lookahead(&self) -> u32 {
        0
    }

    fn read(&mut self, read: Read, _: &FutureAccesses, residency: &mut Residency) {
        if residency.tier_of(read.sample).is_some() {
            return;
        }
        let class = match &self.classes {
            Some(classes) => classes[read.sample.0 as usize],
            None => first_with_room(read.sample, residency),
        };
        if let Some(tier) = class {
            // A tier that shrank may be full.
            _ = residency.put(read.sample, tier);
        }
    }

    fn displaced(&mut self, _: SampleId, _: TierId, _: Option<TierId>) {}
}

pub(super) fn counts(setting: &Setting) -> Option<Vec<u32>> {
    let spec = &setting.order;
    let mut counts = vec![0_u32; setting.sizes.len()];
    for epoch in (spec.start.epoch.0..spec.epochs).map(Epoch) {
        for sample in spec.epoch_of(setting.node, epoch)?.samples() {
            counts[sample.0 as usize] += 1;
        }
    }
    Some(counts)
}

fn classes(setting: &Setting, counts: &[u32]) -> Vec<Option<TierId>> {
    let mut order: Vec<u32> =
        (0..).zip(counts).filter(|(_, count)| **count > 0).map(|it| it.0).collect();
    order.sort_unstable_by_key(|sample| (u32::MAX - counts[*sample as usize], *sample));
    let mut free = setting.capacities.clone();
    let mut classes = vec![None; counts.len()];
    for sample in order {
        let len = Space::rounded(setting.sizes[sample as usize]);
        let room = (0..).zip(&mut free).find(|(_, free)| **free >= len);
        if let Some((tier, Bytes(free))) = room {
            *free -= len.0;
            classes[sample as usize] = Some(TierId(tier));
        }
    }
    classes
}
