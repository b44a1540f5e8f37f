//! Samples in the order in which they entered one of several lists.
//!
//! All lists are linked through one array, 8 bytes a sample, so that entering, leaving and finding
//! the oldest take constant time. A sample is in at most one list.

use alloc::{vec, vec::Vec};

use crate::id::SampleId;

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

/// Lists of samples, with access to the oldest of each.
#[derive(Debug)]
pub(super) struct Lists {
    links: Vec<Link>,
    ends: Vec<Ends>,
}

impl Lists {
    pub(super) fn new(samples: usize, lists: usize) -> Self {
        let link = Link { before: END, after: END };
        let ends = Ends { oldest: END, youngest: END };
        Self { links: vec![link; samples], ends: vec![ends; lists] }
    }

    /// The sample in the list that entered first.
    pub(super) fn oldest(&self, list: usize) -> Option<SampleId> {
        let oldest = self.ends[list].oldest;
        (oldest != END).then_some(SampleId(oldest))
    }

    /// The sample must be in no list.
    pub(super) fn enter(&mut self, sample: SampleId, list: usize) {
        let ends = &mut self.ends[list];
        let before = core::mem::replace(&mut ends.youngest, sample.0);
        self.links[sample.0 as usize] = Link { before, after: END };
        match before {
            END => ends.oldest = sample.0,
            before => self.links[before as usize].after = sample.0,
        }
    }

    pub(super) fn leave(&mut self, sample: SampleId, list: usize) {
        let Link { before, after } = self.links[sample.0 as usize];
        let ends = &mut self.ends[list];
        match before {
            END => ends.oldest = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            END => ends.youngest = before,
            after => self.links[after as usize].before = before,
        }
    }
}
