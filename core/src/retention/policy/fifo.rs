//! FIFO buffers without foresight: every sample enters the fastest tier and is demoted as it ages.
//!
//! On a shuffled epoch this keeps almost nothing until its next use: it is the field's baseline.

use super::{Policy, Read, Setting, queue::Queues};
use crate::{
    id::{SampleId, TierId},
    retention::{future_accesses::FutureAccesses, residency::Residency},
};

#[derive(Debug)]
pub(super) struct Fifo {
    queues: Queues,
}

impl Fifo {
    pub(super) fn new(setting: &Setting) -> Self {
        Self { queues: Queues::new(setting.sizes.len(), setting.capacities.len()) }
    }
}

impl Policy for Fifo {
    fn lookahead(&self) -> u32 {
        0
    }

    fn read(&mut self, read: Read, _: &FutureAccesses, residency: &mut Residency) {
        if residency.tier_of(read.sample).is_none() {
            self.queues.admit(read.sample, residency);
        }
    }

    fn displaced(&mut self, sample: SampleId, from: TierId, to: Option<TierId>) {
        self.queues.displaced(sample, from, to);
    }
}
