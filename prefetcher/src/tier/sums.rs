//! The checksums of the samples in one store.
//!
//! A sum belongs to an address: it is kept with the chunk or arena in which its sample starts and is freed
//! with it, so the number of sums is bounded. Overwriting a range removes the sums of all samples that start
//! in it.

use std::collections::BTreeMap;

use tierfeed_core::{id::SampleId, units::Bytes};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sum {
    sample: SampleId,
    xxh3: u64,
}

impl Sum {
    /// The sum `xxh3` of `sample`, as [`tierfeed_dataset::read::sample_sum`] computes it.
    pub(crate) fn of(sample: SampleId, xxh3: u64) -> Self {
        Self { sample, xxh3 }
    }

    pub(crate) fn xxh3(self) -> u64 {
        self.xxh3
    }
}

/// Sums by the offset at which their sample starts.
#[derive(Debug, Default)]
pub(crate) struct Sums(BTreeMap<u64, Sum>);

impl Sums {
    pub(crate) fn insert(&mut self, offset: Bytes, sum: Sum) {
        self.0.insert(offset.0, sum);
    }

    /// The sum of `sample`; `None` if another sample or none starts at `offset`.
    pub(crate) fn get(&self, offset: Bytes, sample: SampleId) -> Option<Sum> {
        self.0.get(&offset.0).copied().filter(|sum| sum.sample == sample)
    }

    pub(crate) fn forget(&mut self, offset: Bytes, len: Bytes) {
        let end = offset.0.saturating_add(len.0);
        while let Some((&start, _)) = self.0.range(offset.0..end).next() {
            self.0.remove(&start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: SampleId = SampleId(7);

    fn sum_of(bytes: &[u8]) -> Sum {
        Sum::of(SAMPLE, tierfeed_dataset::read::sample_sum::sum_of(bytes))
    }

    #[test]
    fn a_place_answers_for_the_sample_that_was_put_there_only() {
        let mut sums = Sums::default();
        sums.insert(Bytes(64), sum_of(b"abc"));
        assert_eq!(sums.get(Bytes(64), SAMPLE), Some(sum_of(b"abc")));
        assert_eq!(sums.get(Bytes(64), SampleId(8)), None);
        assert_eq!(sums.get(Bytes(0), SAMPLE), None);
    }

    #[test]
    fn writing_over_a_place_forgets_what_started_there() {
        let mut sums = Sums::default();
        for offset in [0, 64, 128, 192] {
            sums.insert(Bytes(offset), sum_of(b""));
        }
        sums.forget(Bytes(64), Bytes(128));
        let left = [0, 64, 128, 192].map(|offset| sums.get(Bytes(offset), SAMPLE).is_some());
        assert_eq!(left, [true, false, false, true]);
    }
}
