//! Tiers that give up their oldest sample first.
//!
//! The queues of all tiers are threaded through one array, 8 bytes a sample, so that entering, leaving
//! and finding the oldest each take a few steps, however much is kept.

use alloc::{vec, vec::Vec};

use crate::{
    books::Books,
    id::{SampleId, TierId},
    policy::{fastest, slower},
};

/// No neighbour.
const END: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
}

#[derive(Debug, Clone, Copy)]
struct Ends {
    oldest: u32,
    youngest: u32,
}

/// The order in which samples entered their tiers.
#[derive(Debug)]
pub(super) struct Queues {
    links: Vec<Link>,
    ends: Vec<Ends>,
}

impl Queues {
    pub(super) fn new(samples: usize, tiers: usize) -> Self {
        let link = Link { before: END, after: END };
        let ends = Ends { oldest: END, youngest: END };
        Self { links: vec![link; samples], ends: vec![ends; tiers] }
    }

    /// The sample that entered first of those that lie in the tier.
    pub(super) fn oldest(&self, tier: TierId) -> Option<SampleId> {
        let oldest = self.ends[usize::from(tier.0)].oldest;
        (oldest != END).then_some(SampleId(oldest))
    }

    /// Appends a sample that stands in no queue.
    pub(super) fn enter(&mut self, sample: SampleId, tier: TierId) {
        let ends = &mut self.ends[usize::from(tier.0)];
        let before = core::mem::replace(&mut ends.youngest, sample.0);
        self.links[sample.0 as usize] = Link { before, after: END };
        match before {
            END => ends.oldest = sample.0,
            before => self.links[before as usize].after = sample.0,
        }
    }

    /// Removes a sample that stands in the queue of `tier`.
    pub(super) fn leave(&mut self, sample: SampleId, tier: TierId) {
        let Link { before, after } = self.links[sample.0 as usize];
        let ends = &mut self.ends[usize::from(tier.0)];
        match before {
            END => ends.oldest = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            END => ends.youngest = before,
            after => self.links[after as usize].before = before,
        }
    }

    /// Puts a sample that lies in no tier into the fastest that can hold it. What must make way goes
    /// down, the oldest first, if `wants` says that it is worth it, else out.
    pub(super) fn admit(
        &mut self,
        sample: SampleId,
        books: &mut Books,
        wants: &mut dyn FnMut(SampleId) -> bool,
    ) {
        if let Some(tier) = fastest(sample, books) {
            self.settle(sample, tier, books, wants);
        }
    }

    fn settle(
        &mut self,
        sample: SampleId,
        tier: TierId,
        books: &mut Books,
        wants: &mut dyn FnMut(SampleId) -> bool,
    ) {
        while books.free(tier) < books.len_of(sample) {
            let Some(oldest) = self.oldest(tier) else { return };
            self.leave(oldest, tier);
            match slower(Some(tier), oldest, books).filter(|_| wants(oldest)) {
                Some(below) => self.settle(oldest, below, books, wants),
                None => books.take_out(oldest),
            }
        }
        if books.put(sample, tier).is_ok() {
            self.enter(sample, tier);
        }
    }

    /// Follows a sample that was moved by something else.
    pub(super) fn displaced(&mut self, sample: SampleId, from: TierId, to: Option<TierId>) {
        self.leave(sample, from);
        if let Some(to) = to {
            self.enter(sample, to);
        }
    }
}
