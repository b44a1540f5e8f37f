//! Divides a range of an object into parts, so that its rate is not limited to that of one stream.
//!
//! 1. The parts are consecutive and cover the whole range.
//! 2. No part is longer than [`Split::part_max`]; none is empty unless the range is.
//! 3. A range that is not longer than [`Split::above`] is one part.

use std::ops::Range;

use tierfeed_core::units::Bytes;

/// Parts end at multiples of this, counted from the first byte: stores keep objects in stripes.
const STEP: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split {
    /// A sample that is not longer is read by one request.
    pub above: Bytes,
    pub part_max: Bytes,
}

impl Default for Split {
    /// One stream of a store has some 50 to 100 MB/s and a first byte after some 20 ms: parts of 8 to
    /// 16 MiB lose little to either.
    fn default() -> Self {
        Self { above: Bytes(32 << 20), part_max: Bytes(16 << 20) }
    }
}

impl Split {
    pub(crate) fn parts(self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + Send {
        let len = range.end.saturating_sub(range.start);
        let part = if len > self.above.0 { self.part(len) } else { len };
        let after = move |part: &Range<u64>, len: u64| {
            let next = part.end..part.end.saturating_add(len).min(range.end);
            (!next.is_empty()).then_some(next)
        };
        let first = range.start..range.start.saturating_add(part).min(range.end.max(range.start));
        std::iter::successors(Some(first), move |last| after(last, part))
    }

    /// The length of all parts but the last one: as equal as multiples of [`STEP`] allow.
    fn part(self, len: u64) -> u64 {
        let part_max = self.part_max.0.max(1);
        let even = len.div_ceil(len.div_ceil(part_max));
        even.checked_next_multiple_of(STEP).unwrap_or(even).min(part_max)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn lengths(len: u64) -> Vec<u64> {
        Split::default().parts(5..5 + len).map(|part| part.end - part.start).collect()
    }

    #[test]
    fn large_ranges_are_split_into_8_to_16_mebibytes() {
        assert_eq!(lengths(32 * MIB), [32 * MIB]);
        assert_eq!(lengths(32 * MIB + 1), [11 * MIB, 11 * MIB, 10 * MIB + 1]);
        assert_eq!(lengths(64 * MIB), [16 * MIB; 4]);
        assert_eq!(lengths(65 * MIB), [13 * MIB; 5]);
        assert_eq!(lengths(0), [0]);
    }

    proptest! {
        #[test]
        fn parts_are_the_whole_and_none_is_too_long(
            start in 0_u64..1 << 40,
            len in 0_u64..1 << 36,
            above in 0_u64..1 << 34,
            part_max in 1_u64 << 16..1 << 30,
        ) {
            let split = Split { above: Bytes(above), part_max: Bytes(part_max) };
            // A part for each 64 KiB of 64 GiB would be a million.
            prop_assume!(len / part_max < 20_000);
            let parts: Vec<_> = split.parts(start..start + len).collect();
            prop_assert_eq!(parts[0].start, start);
            prop_assert_eq!(parts[parts.len() - 1].end, start + len);
            prop_assert!(parts.windows(2).all(|two| two[0].end == two[1].start), "invariant 1");
            let lengths = || parts.iter().map(|part| part.end - part.start);
            if len > above {
                prop_assert!(lengths().all(|part| (1..=part_max).contains(&part)), "invariant 2");
            } else {
                prop_assert_eq!(parts.len(), 1, "invariant 3");
            }
        }
    }
}
