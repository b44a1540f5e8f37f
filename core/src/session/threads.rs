//! Divides threads over ranks whenever a trainer took a batch, as the job's rule says.

use alloc::vec::Vec;

use super::{
    Session, Transform,
    assignment::{Assignment, Queue, Threads, stages},
    edf_scheduler::Channel,
    staging::RankStaging,
};
use crate::{id::Rank, units::Bytes};

impl Session {
    pub(super) fn divide_threads(&mut self) {
        match self.settings.windows.assignment {
            Assignment::Shared => {}
            Assignment::Proportional => self.operations.scheduler_mut().divide_in_proportion(),
            Assignment::Lobster => self.divide_by_rates(),
        }
    }

    /// Divides all threads, those that read and those that transform, by the observed rates.
    fn divide_by_rates(&mut self) {
        let transform = self.settings.transform.as_ref();
        let transforming_max = transform.map_or(0, |transform| Transform::window(transform).get());
        let all = self.settings.windows.cold.get().saturating_add(transforming_max);
        let (rates, training) = (self.operations.rates(), self.deadlines.step_time());
        let (Some(rates), Some(training)) = (rates, training) else { return };
        let stages = stages(&self.queues(), rates, training, Threads { all, transforming_max });
        self.operations.scheduler_mut().divide(&stages);
        self.progress.threads = Some(stages);
    }

    /// The queue of each rank and the needs of its next batch: all that dividing threads over ranks needs
    /// beside rates ([`crate::session::assignment`]).
    pub(super) fn queues(&self) -> Vec<Queue> {
        let scheduler = self.operations.scheduler();
        let reads = scheduler.requests(Channel::Cold);
        let queued = reads.zip(scheduler.requests(Channel::Transform));
        let queue = |((_, staging), (requests, transforms)): ((Rank, &RankStaging), (u64, u64))| {
            let mut ahead = staging.staged().values();
            let next = ahead.find(|staged| staged.is_awaited() && staged.pending > 0);
            let places = next.map(|staged| [staged.local, staged.remote, staged.cold]);
            let [local, remote, cold] = places.unwrap_or([Bytes(0); 3]);
            let samples = next.map_or(0, |staged| staged.batch.entries.len() as u64);
            Queue { requests, local, remote, cold, samples, transforms, ..Queue::default() }
        };
        self.staging.iter().zip(queued).map(queue).collect()
    }
}
