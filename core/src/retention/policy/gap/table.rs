//! The tiers of samples after their uses in one epoch: half a byte for each sample.

use alloc::{vec, vec::Vec};
use core::hint::black_box;

use crate::id::{SampleId, TierId};

const OUT: u8 = 0xf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table(Vec<u8>);

impl Table {
    /// A table that keeps none of `samples` samples.
    pub(super) fn new(samples: usize) -> Self {
        Self(vec![OUT << 4 | OUT; samples.div_ceil(2)])
    }

    pub(super) fn tier_after(&self, sample: SampleId) -> Option<TierId> {
        let pair = self.0[sample.0 as usize / 2];
        let tier = if sample.0.is_multiple_of(2) { pair & 0xf } else { pair >> 4 };
        (tier != OUT).then_some(TierId(tier))
    }

    /// Brings the tiers of samples into the CPU caches, before they are read one by one.
    pub(super) fn touch(&self, samples: &[SampleId]) {
        black_box(samples.iter().fold(0, |sum, sample| sum ^ self.0[sample.0 as usize / 2]));
    }

    pub(super) fn set(&mut self, sample: SampleId, tier: Option<u8>) {
        let pair = &mut self.0[sample.0 as usize / 2];
        let tier = tier.unwrap_or(OUT);
        *pair =
            if sample.0.is_multiple_of(2) { *pair & 0xf0 | tier } else { *pair & 0xf | tier << 4 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_told_apart() {
        let mut table = Table::new(3);
        table.set(SampleId(0), Some(4));
        table.set(SampleId(1), Some(14));
        table.set(SampleId(2), Some(0));
        table.set(SampleId(0), None);
        let tiers = [0, 1, 2].map(|sample| table.tier_after(SampleId(sample)));
        assert_eq!(tiers, [None, Some(TierId(14)), Some(TierId(0))]);
    }
}
