//! How many threads load and how many transform, and for which rank, as Lobster divides them.
//!
//! # Source
//!
//! Lobster, section 4.1, in two steps: as many threads transform as get the most done; then, as long as some rank is
//! late and transforming is not what delays it, one thread after the other is taken from transforming and loads.
//! With each number Algorithm 1 ([`super::lobster()`]) divides those that load. Left open by the paper, and read so:
//!
//! - Which ranks the threads that transform serve: those for which Algorithm 1 finds them in the same way, with
//!   loading as it is.
//! - What a queue gets done with a part of the threads: its part of what all of them get done together
//!   ([`Fit::among`]), since they run at the same time.
//! - What happens when a link was not observed yet: reading from it takes no time.

use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::{
    Fit, Queue, Reading, Scaling, fitting,
    lobster::{Costs, lobster, search},
    proportional,
};
use serde::Serialize;

use crate::{
    session::{Operation, Promotion},
    throughput::Throughput,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

/// A step may be missed by one part in this many before another division is looked for.
const THRESHOLD: u64 = 20;

#[derive(Debug, Clone, Default)]
pub struct Rates {
    pub local: Scaling,
    pub remote: Scaling,
    pub cold: Scaling,
    /// By the length of what transforms read.
    pub transforms: Scaling,
}

impl Rates {
    /// Records an operation that took `time`, while all operations of its channel took `all` together.
    pub(in crate::session) fn observe(
        &mut self,
        operation: &Operation,
        time: Nanoseconds,
        all: Nanoseconds,
    ) {
        let (scaling, len) = match operation {
            Operation::Fetch { to, .. } => (&mut self.cold, to.len),
            Operation::Prefetch { len, .. } => (&mut self.cold, *len),
            Operation::Receive { to, .. } => (&mut self.remote, to.len),
            Operation::Promote { parts } => (&mut self.local, Promotion::bytes(parts)),
            Operation::Transform { from, .. } => (&mut self.transforms, from.len),
            _ => return,
        };
        // On average so many ran.
        if let Some(count) = all.0.saturating_add(time.0 / 2).checked_div(time.0) {
            scaling.observe(u32::try_from(count).unwrap_or(u32::MAX), len, time);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threads {
    pub all: u32,
    /// The most threads that may transform; 0 if the job transforms nothing.
    pub transforming_max: u32,
}

/// How threads are divided over the ranks of a node: a thread is an operation in flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stages {
    #[serde(rename = "loading_by_rank")]
    pub loading: Vec<u32>,
    /// Threads that read the cold store, of all ranks together. The sum over all queues may be less.
    #[serde(rename = "loading")]
    pub loading_all: u32,
    /// Empty if the job transforms nothing.
    #[serde(rename = "transforming_by_rank")]
    pub transforming: Vec<u32>,
    /// The sum over all queues may be less.
    #[serde(rename = "transforming")]
    pub transforming_all: u32,
}

/// Divides the threads of a node between loading and transforming, and over the queues of its ranks.
#[must_use]
pub fn stages(queues: &[Queue], rates: &Rates, training: Nanoseconds, threads: Threads) -> Stages {
    let most = threads.transforming_max.min(threads.all.saturating_sub(1));
    let Some(most) = NonZeroU32::new(most) else {
        let links = Links::observed(rates, queues, threads.all);
        let loading = links.divide(queues, training, threads.all);
        return Stages {
            loading,
            loading_all: threads.all,
            transforming: Vec::new(),
            transforming_all: 0,
        };
    };
    let mean = mean_len(queues.iter());
    let fit = rates.transforms.fit(mean);
    let mut transforming = fit.map_or(most, |fit| fit.peak(most)).get();
    loop {
        let attempt = Attempt::with(queues, rates, training, (threads.all, transforming));
        if transforming == 1 || !attempt.gains_by_loading() {
            return attempt.stages();
        }
        transforming -= 1;
    }
}

/// The rates of threads that read from each place, together.
struct Links {
    local: Throughput,
    remote: Throughput,
    cold: Throughput,
}

struct Attempt {
    links: Links,
    /// With the time of preprocessing, as far as it is known.
    queues: Vec<Queue>,
    /// The rate of the transforming threads for each queue, together; `None` if it is not known.
    transforms: Vec<Option<Throughput>>,
    loading: Vec<u32>,
    loading_all: u32,
    transforming: u32,
    training: Nanoseconds,
}

impl Links {
    /// The rates while `threads` read.
    fn observed(rates: &Rates, queues: &[Queue], threads: u32) -> Self {
        let Rates { local, remote, cold, .. } = rates;
        let mean = mean_len(queues.iter());
        let among = |scaling: &Scaling| throughput(scaling.fit(mean).as_ref(), threads);
        let [local, remote, cold] = [local, remote, cold].map(among);
        let unlimited = || Throughput::constant(BytesPerSecond(0));
        let or_unlimited = |it: Option<Throughput>| it.unwrap_or_else(unlimited);
        Self { local: or_unlimited(local), remote: or_unlimited(remote), cold: or_unlimited(cold) }
    }

    fn costs(&self, training: Nanoseconds) -> Costs<'_> {
        let Self { local, remote, cold } = self;
        Costs { local, remote, cold, training, threshold: threshold(training) }
    }

    fn divide(&self, queues: &[Queue], training: Nanoseconds, threads: u32) -> Vec<u32> {
        let found = lobster(queues, &self.costs(training), threads, Reading::Described);
        fitting(found, threads)
    }
}

impl Attempt {
    /// Lets `transforming` of `all` threads transform, while the others load.
    fn with(
        queues: &[Queue],
        rates: &Rates,
        training: Nanoseconds,
        (all, transforming): (u32, u32),
    ) -> Self {
        let loading_all = all - transforming;
        let fits = queues.iter().map(|queue| {
            let fit = rates.transforms.fit(mean_len([queue]));
            throughput(fit.as_ref(), transforming)
        });
        let transforms: Vec<Option<Throughput>> = fits.collect();
        let of = queues.iter().zip(&transforms);
        let alone = of.clone().map(|(queue, it)| time(queue, it.as_ref(), transforming).0);
        let parts = proportional(&alone.collect::<Vec<u64>>(), transforming);
        let with_times = of.zip(parts).map(|((queue, throughput), part)| Queue {
            preprocessing: time(queue, throughput.as_ref(), part.max(1)),
            ..*queue
        });
        let queues: Vec<Queue> = with_times.collect();
        let links = Links::observed(rates, &queues, loading_all);
        let loading = links.divide(&queues, training, loading_all);
        Self { links, queues, transforms, loading, loading_all, transforming, training }
    }

    /// Whether some queue is late, and more by loading than by transforming.
    fn gains_by_loading(&self) -> bool {
        let costs = self.links.costs(self.training);
        let queues = self.queues.iter().zip(&self.loading);
        let left = queues.map(|(queue, threads)| (costs.difference(queue, *threads), queue));
        let Some((left, slowest)) = left.min_by_key(|(left, _)| *left) else { return false };
        let preprocessing = i128::from(slowest.preprocessing.0);
        let loading = i128::from(self.training.0) - left - preprocessing;
        left < -i128::from(costs.threshold.0) && loading > preprocessing
    }

    fn stages(self) -> Stages {
        let Self { links, queues, transforms, loading, loading_all, transforming, training } = self;
        let costs = links.costs(training);
        let requests: Vec<u64> = queues.iter().map(|queue| queue.transforms).collect();
        let initial = proportional(&requests, transforming);
        let found = (0..queues.len()).map(|at| {
            let difference = |count: u32| {
                let preprocessing = match count {
                    0 if queues[at].samples > 0 => Nanoseconds(u64::MAX / 2),
                    count => time(&queues[at], transforms[at].as_ref(), count),
                };
                costs.difference(&Queue { preprocessing, ..queues[at] }, loading[at])
            };
            search(difference, initial[at], transforming, costs.threshold, Reading::Described)
        });
        let found = fitting(found.collect(), transforming);
        Stages { loading, loading_all, transforming: found, transforming_all: transforming }
    }
}

/// The time for which `count` threads transform the next batch of a queue.
fn time(queue: &Queue, throughput: Option<&Throughput>, count: u32) -> Nanoseconds {
    let time = |it: &Throughput| it.at(count).time_for(queue.stored());
    throughput.map_or(Nanoseconds(0), time)
}

fn threshold(training: Nanoseconds) -> Nanoseconds {
    Nanoseconds(training.0 / THRESHOLD)
}

fn throughput(fit: Option<&Fit>, threads: u32) -> Option<Throughput> {
    Some(fit?.among(NonZeroU32::new(threads).unwrap_or(NonZeroU32::MIN)))
}

fn mean_len<'a>(queues: impl IntoIterator<Item = &'a Queue>) -> Bytes {
    let (mut bytes, mut samples) = (0_u64, 0_u64);
    for queue in queues {
        bytes = bytes.saturating_add(queue.stored().0);
        samples = samples.saturating_add(queue.samples);
    }
    Bytes(bytes / samples.max(1))
}
