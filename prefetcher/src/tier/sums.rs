//! The checksums of the samples in one store.
//!
//! A sum belongs to an address: it is kept with the chunk or arena in which its sample starts and is freed
//! with it, so the number of sums is bounded. Overwriting a range removes the sums of all samples that start
//! in it.
//!
//! Sums are looked up at every copy, so those that start in one page of the store lie together: finding one
//! costs two accesses to memory, however many there are.

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

/// Bytes of a store whose sums lie together, as a power of two.
const PAGE_BITS: u32 = 14;

/// By page, each by the offset at which its sample starts.
#[derive(Debug, Default)]
pub(crate) struct Sums(Vec<Vec<(u64, Sum)>>);

fn page_of(offset: u64) -> usize {
    usize::try_from(offset >> PAGE_BITS).unwrap_or(usize::MAX)
}

impl Sums {
    /// The offset must lie in the store.
    pub(crate) fn insert(&mut self, offset: Bytes, sum: Sum) {
        let page = page_of(offset.0);
        if page >= self.0.len() {
            self.0.resize_with(page + 1, Vec::new);
        }
        let page = &mut self.0[page];
        match page.binary_search_by_key(&offset.0, |(start, _)| *start) {
            Ok(at) => page[at].1 = sum,
            Err(at) => page.insert(at, (offset.0, sum)),
        }
    }

    /// The sum of `sample`; `None` if another sample or none starts at `offset`.
    pub(crate) fn get(&self, offset: Bytes, sample: SampleId) -> Option<Sum> {
        let page = self.0.get(page_of(offset.0))?;
        let at = page.binary_search_by_key(&offset.0, |(start, _)| *start).ok()?;
        Some(page[at].1).filter(|sum| sum.sample == sample)
    }

    pub(crate) fn forget(&mut self, offset: Bytes, len: Bytes) {
        let range = offset.0..offset.0.saturating_add(len.0);
        let first = page_of(range.start);
        let behind = page_of(range.end).saturating_add(1).min(self.0.len());
        for page in self.0.get_mut(first..behind).unwrap_or_default() {
            page.retain(|(start, _)| !range.contains(start));
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
    fn writing_over_pages_forgets_what_started_in_any_of_them() {
        let mut sums = Sums::default();
        let starts = [0, 1 << PAGE_BITS, (1 << PAGE_BITS) + 1, 5 << PAGE_BITS, 9 << PAGE_BITS];
        for offset in starts {
            sums.insert(Bytes(offset), sum_of(b""));
        }
        sums.forget(Bytes(1 << PAGE_BITS), Bytes(4 << PAGE_BITS));
        sums.forget(Bytes(9 << PAGE_BITS), Bytes(u64::MAX));
        sums.forget(Bytes(u64::MAX - 1), Bytes(1));
        let left = starts.map(|offset| sums.get(Bytes(offset), SAMPLE).is_some());
        assert_eq!(left, [true, false, false, true, false]);
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
