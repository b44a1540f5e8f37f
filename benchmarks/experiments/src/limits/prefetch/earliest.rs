//! Belady's rule, which evicts the sample that is needed last, and prefetching as early as there is room.

use std::collections::BTreeSet;

use tierfeed_core::id::{Epoch, NodeId, SampleId};

use super::{Bandwidth, Tally};
use crate::limits::{forms::Run, retention};

/// All reads of one node that reads the whole dataset in every epoch.
#[derive(Debug)]
pub(super) struct Orders {
    samples: u32,
    sequence: Vec<SampleId>,
    /// For each read the next of the same sample, or [`NEVER`].
    next: Vec<u32>,
}

const NEVER: u32 = u32::MAX;

pub(super) fn orders(run: Run, accesses: u32) -> Orders {
    let spec = retention::setting(run, accesses).order;
    let epochs = (0..run.epochs).filter_map(|epoch| spec.epoch_of(NodeId(0), Epoch(epoch)));
    let sequence: Vec<SampleId> = epochs.flat_map(|epoch| epoch.samples().to_vec()).collect();
    let mut next = vec![NEVER; sequence.len()];
    let mut later = vec![NEVER; accesses as usize];
    for (at, sample) in (0..).zip(&sequence).collect::<Vec<(u32, _)>>().into_iter().rev() {
        next[at as usize] = std::mem::replace(&mut later[sample.0 as usize], at);
    }
    Orders { samples: accesses, sequence, next }
}

/// The reads that miss if the sample that is needed last is evicted, or not inserted.
pub(super) fn misses_of_belady(orders: &Orders, slots: u32) -> Vec<bool> {
    let mut cache = Cache::new(orders.samples, slots);
    let reads = orders.sequence.iter().zip(&orders.next);
    let miss = |(sample, next): (&SampleId, &u32)| {
        let was_there = cache.leave(*sample);
        cache.offer(*sample, *next);
        !was_there
    };
    reads.map(miss).collect()
}

/// Fetches the next read whose sample is not there, in every slot that has the bandwidth, as long as
/// something is there that is needed later still.
pub(super) fn run(orders: &Orders, slots: u32, bandwidth: Bandwidth) -> Tally {
    let mut tally = Tally::default();
    let mut cache = Cache::new(orders.samples, slots);
    let (mut credit, mut ahead) = (Bandwidth(0), 0_u32);
    for (now, (sample, next)) in (0..).zip(orders.sequence.iter().zip(&orders.next)) {
        credit.0 += bandwidth.0;
        ahead = ahead.max(now);
        let there = |at: u32| orders.sequence.get(at as usize).is_some_and(|it| cache.holds(*it));
        while there(ahead) {
            ahead += 1;
        }
        // The evicted sample is needed later than the inserted one, so the search still comes to it.
        let is_wanted = |at: u32| at as usize != orders.sequence.len() && cache.takes(at);
        if !is_wanted(ahead) {
            credit = credit.min(Bandwidth::WHOLE);
        } else if credit >= Bandwidth::WHOLE {
            credit.0 -= Bandwidth::WHOLE.0;
            cache.offer(orders.sequence[ahead as usize], ahead);
            tally.cold += 1;
        }
        let is_there = cache.leave(*sample);
        tally.cold += u64::from(!is_there);
        tally.read(now >= orders.samples, is_there);
        if let Offer::Entered(Some(gone)) = cache.offer(*sample, *next) {
            ahead = ahead.min(gone);
        }
    }
    tally
}

/// Samples in the order in which they are needed.
#[derive(Debug)]
struct Cache {
    slots: usize,
    /// By sample: when it is needed, or [`NEVER`] if it is not there.
    needed: Vec<u32>,
    by_need: BTreeSet<(u32, SampleId)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Offer {
    /// The sample is in the cache; the next use of the evicted one, if one was evicted.
    Entered(Option<u32>),
    /// The sample is not in the cache: all others are needed earlier.
    Refused,
}

impl Cache {
    fn new(samples: u32, slots: u32) -> Self {
        let needed = vec![NEVER; samples as usize];
        Self { slots: slots as usize, needed, by_need: BTreeSet::new() }
    }

    fn holds(&self, sample: SampleId) -> bool {
        self.needed[sample.0 as usize] != NEVER
    }

    fn leave(&mut self, sample: SampleId) -> bool {
        let needed = std::mem::replace(&mut self.needed[sample.0 as usize], NEVER);
        self.by_need.remove(&(needed, sample))
    }

    /// Whether a sample that is needed then would enter.
    fn takes(&self, needed: u32) -> bool {
        let has_room = self.by_need.len() < self.slots;
        needed != NEVER && (has_room || self.by_need.last().is_some_and(|last| last.0 > needed))
    }

    fn offer(&mut self, sample: SampleId, needed: u32) -> Offer {
        if !self.takes(needed) {
            return Offer::Refused;
        }
        let is_full = self.by_need.len() == self.slots;
        let gone = self.by_need.last().copied().filter(|_| is_full);
        if let Some((_, farthest)) = gone {
            self.leave(farthest);
        }
        self.needed[sample.0 as usize] = needed;
        self.by_need.insert((needed, sample));
        Offer::Entered(gone.map(|(latest, _)| latest))
    }
}
