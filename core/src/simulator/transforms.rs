//! When a transform ends: threads take one sample after the other, and each takes as long as it costs.

use alloc::{vec, vec::Vec};

use super::machine::TransformCosts;
use crate::{
    latency_quantiles::Draws,
    session::{Form, Transform},
    units::{Bytes, Nanoseconds},
};

/// The stream of random numbers of transforms; links have lower ones.
const STREAM: u64 = 1 << 33;

#[derive(Debug)]
pub(super) struct Transforms {
    costs: TransformCosts,
    draws: Draws,
    /// The time at which each thread is free.
    free_at: Vec<Nanoseconds>,
}

impl Transforms {
    pub(super) fn new(transform: &Transform, costs: &TransformCosts, seed: u64) -> Self {
        Self {
            costs: costs.clone(),
            draws: Draws::of(seed, STREAM),
            free_at: vec![Nanoseconds(0); transform.threads.get() as usize],
        }
    }

    /// The end of a transform that is given out now, and the time that a thread works at it.
    pub(super) fn carry_out(
        &mut self,
        form: Form,
        read: Bytes,
        now: Nanoseconds,
    ) -> (Nanoseconds, Nanoseconds) {
        let took = self.costs.draw(form, read, &mut self.draws);
        let free = self.free_at.iter_mut().min().expect("a transform has a thread");
        *free = Nanoseconds(now.max(*free).0.saturating_add(took.0));
        (*free, took)
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use core::num::NonZeroU32;

    use super::*;
    use crate::{latency_quantiles::LatencyQuantiles, simulator::machine::StepCost};

    #[test]
    fn a_thread_takes_one_sample_after_the_other_and_bytes_cost_time() {
        let transform = Transform {
            rows: vec![],
            threads: NonZeroU32::new(2).unwrap(),
            cached: Form::Stored,
            stored: Arc::new([]),
        };
        let cost = |each, kib| StepCost {
            each: LatencyQuantiles::constant(Nanoseconds(each)),
            kib: Nanoseconds(kib),
        };
        let costs = TransformCosts {
            prepare: cost(10, 3),
            rest: LatencyQuantiles::constant(Nanoseconds(5)),
        };
        let mut transforms = Transforms::new(&transform, &costs, 0);
        let mut ends = |form, len| {
            let (end, took) = transforms.carry_out(form, Bytes(len), Nanoseconds(100));
            (end.0, took.0)
        };
        assert_eq!(ends(Form::Stored, 2048), (121, 21));
        assert_eq!(ends(Form::Prepared, 2048), (105, 5));
        assert_eq!(ends(Form::Stored, 0), (120, 15));
        assert_eq!(ends(Form::Prepared, 0), (125, 5), "after the first that is free");
    }
}
