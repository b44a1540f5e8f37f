//! What stays if the cold store is limited by requests, not by bytes.
//!
//! Then every saved read is worth the same, and its cost is the sample's bytes times the boundaries
//! until its next use: a fractional knapsack, filled with the cheapest. So a sample stays if gap
//! times length is at most a threshold, the same for all epochs of a long run. On one node that
//! means pinning the smallest samples. Batches are not balanced: small samples are spread evenly
//! anyway.

use alloc::vec::Vec;

use super::quota;
use crate::{id::SampleId, space::Space, units::Bytes};

/// The lengths of all samples, to look up what a threshold keeps.
#[derive(Debug)]
pub(super) struct Lengths {
    ascending: Vec<u64>,
    /// Cumulative bytes of the samples in ascending order of length.
    sums: Vec<u64>,
    nodes: u32,
    gap_max: u32,
}

/// The limit of what is kept: all samples of lower cost, and a part of those of this cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Threshold {
    /// Gap times length, in bytes.
    pub(super) at: u64,
    /// Bytes of the samples at the threshold that are kept, of `of` bytes.
    pub(super) part: u64,
    pub(super) of: u64,
}

impl Threshold {
    /// Whether a sample of this cost stays. At the threshold it is the same part of the samples in
    /// every epoch, and the part of fewer tiers is contained in that of more tiers.
    pub(super) fn keeps(&self, sample: SampleId, cost: u64) -> bool {
        let of_all = u128::from(self.part) << 32;
        let is_in_part = u128::from(hash(sample)) * u128::from(self.of) < of_all;
        cost < self.at || cost == self.at && is_in_part
    }
}

/// A hash below 2^32 of a sample's id, independent of its order.
///
/// # Source
///
/// The finaliser of `SplitMix64`.
fn hash(sample: SampleId) -> u32 {
    let mut bits = u64::from(sample.0).wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    u32::try_from((bits ^ (bits >> 31)) >> 32).expect("32 bits")
}

impl Lengths {
    pub(super) fn new(sizes: &[Bytes], nodes: u32, gap_max: u32) -> Self {
        let mut ascending: Vec<u64> = sizes.iter().map(|len| Space::rounded(*len).0).collect();
        ascending.sort_unstable();
        let sums = ascending.iter().scan(0_u64, |sum, len| {
            *sum = sum.saturating_add(*len);
            Some(*sum)
        });
        Self { sums: sums.collect(), ascending, nodes, gap_max }
    }

    /// The threshold that fills `capacity`.
    pub(super) fn threshold(&self, capacity: u64) -> Threshold {
        let longest = self.ascending.last().copied().unwrap_or(0);
        let (mut low, mut high) = (0, longest.saturating_mul(u64::from(self.gap_max)));
        // The least threshold that keeps as much as fits, or all.
        while low < high {
            let middle = low + (high - low) / 2;
            if self.held(middle) >= capacity { high = middle } else { low = middle + 1 }
        }
        let below = low.checked_sub(1).map_or(0, |below| self.held(below));
        let of = self.held(low) - below;
        Threshold { at: low, part: capacity.saturating_sub(below).min(of), of }
    }

    /// Bytes in the tiers at any time if every sample of at most `cost` is kept.
    fn held(&self, cost: u64) -> u64 {
        let gaps = (1..=u64::from(self.gap_max)).zip(quota::shares(self.nodes));
        let of_gap = |(gap, share): (u64, f64)| {
            let count = self.ascending.partition_point(|len| *len <= cost / gap);
            let bytes = count.checked_sub(1).map_or(0, |last| self.sums[last]);
            gap.saturating_mul(quota::part(bytes, share))
        };
        gaps.map(of_gap).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(lengths: &[u64], nodes: u32) -> Lengths {
        let sizes: Vec<_> = lengths.iter().map(|len| Bytes(*len)).collect();
        Lengths::new(&sizes, nodes, 4)
    }

    #[test]
    fn on_one_node_the_smallest_stay() {
        let lengths = lengths(&[256, 64, 640, 128], 1);
        assert_eq!(lengths.threshold(192), Threshold { at: 128, part: 128, of: 128 });
        assert_eq!(lengths.threshold(320), Threshold { at: 256, part: 128, of: 256 });
        assert!(lengths.threshold(9_999).at >= 640, "all");
    }

    #[test]
    fn of_equal_samples_a_part_stays() {
        let lengths = Lengths::new(&[Bytes(64); 10], 1, 1);
        assert_eq!(lengths.threshold(320), Threshold { at: 64, part: 320, of: 640 });
    }

    #[test]
    fn on_several_nodes_a_small_sample_may_wait_longer() {
        // Two nodes: a quarter of the bytes at gap 1, an eighth at gap 2.
        let lengths = lengths(&[64, 128], 2);
        // 64 at gap 1 takes 16, at gap 2 another 16; 128 at gap 1 takes 32.
        assert_eq!(lengths.held(64), 16);
        assert_eq!(lengths.held(128), 64);
    }
}
