//! The byte ranges of a window that are buffered.

/// Ranges that neither overlap nor touch, in order.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Ranges(Vec<(u64, u64)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overlap {
    None,
    Part,
    Whole,
}

impl Ranges {
    pub(super) fn insert(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        self.0.retain(|&(from, to)| {
            let is_apart = to < start || end < from;
            if !is_apart {
                start = start.min(from);
                end = end.max(to);
            }
            is_apart
        });
        let at = self.0.partition_point(|(from, _)| *from < start);
        self.0.insert(at, (start, end));
    }

    pub(super) fn is_whole(&self, len: u64) -> bool {
        self.overlap(0, len) == Overlap::Whole
    }

    pub(super) fn overlap(&self, start: u64, end: u64) -> Overlap {
        let mut inside = self.0.iter().filter(|(from, to)| *from < end && start < *to);
        match inside.next() {
            None => Overlap::None,
            Some((from, to)) if *from <= start && end <= *to => Overlap::Whole,
            Some(_) => Overlap::Part,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// The ranges, extended to whole blocks.
    pub(super) fn aligned_to(&self, block: u64) -> Vec<(u64, u64)> {
        let mut aligned = Self::default();
        for (start, end) in self.iter() {
            aligned.insert(start - start % block, end.next_multiple_of(block));
        }
        aligned.0
    }

    pub(super) fn gaps_in(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = start;
        for (from, to) in self.iter().filter(|(from, to)| *from < end && start < *to) {
            if at < from {
                gaps.push((at, from));
            }
            at = at.max(to);
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_are_the_bytes_that_were_put_in(
            inserted in prop::collection::vec((0_u64..200, 1_u64..60), 0..20),
            asked in (0_u64..220, 1_u64..80),
        ) {
            let (mut ranges, mut bytes) = (Ranges::default(), BTreeSet::new());
            for (start, len) in inserted {
                ranges.insert(start, start + len);
                bytes.extend(start..start + len);
            }
            let listed: BTreeSet<u64> = ranges.iter().flat_map(|(start, end)| start..end).collect();
            prop_assert_eq!(&listed, &bytes);
            prop_assert!(ranges.0.is_sorted_by(|a, b| a.1 < b.0), "apart and in order");
            prop_assert_eq!(ranges.bytes(), bytes.len() as u64);

            let (start, end) = (asked.0, asked.0 + asked.1);
            let there = (start..end).filter(|at| bytes.contains(at)).count() as u64;
            let expected = match there {
                0 => Overlap::None,
                all if all == end - start => Overlap::Whole,
                _ => Overlap::Part,
            };
            prop_assert_eq!(ranges.overlap(start, end), expected);
            let gaps: Vec<u64> =
                ranges.gaps_in(start, end).into_iter().flat_map(|(from, to)| from..to).collect();
            let missing: Vec<u64> = (start..end).filter(|at| !bytes.contains(at)).collect();
            prop_assert_eq!(gaps, missing);

            let blocks: BTreeSet<u64> = bytes.iter().map(|at| at / 16).collect();
            let aligned = ranges.aligned_to(16);
            let listed = aligned.iter().flat_map(|(start, end)| start / 16..end / 16).collect();
            prop_assert_eq!(blocks, listed);
            prop_assert!(aligned.iter().all(|(start, end)| start % 16 == 0 && end % 16 == 0));
        }
    }
}
