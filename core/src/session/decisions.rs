//! A number for what a session decided in each epoch, independent of time: from where each sample was
//! read, and where it stays.
//!
//! What is fetched ahead counts as read from the cold store, because time decides only whether it comes
//! through a tier. The numbers of the reads of an epoch are added up, so the order in which ranks are
//! staged does not matter.

use alloc::{vec, vec::Vec};

use super::entry::EntryRef;
use crate::id::{SampleId, TierId};

/// A digest of the decisions of each epoch.
#[derive(Debug, Clone, Default)]
pub(super) struct Decisions(Vec<u64>);

impl Decisions {
    pub(super) fn new(epochs: u32) -> Self {
        Self(vec![0; epochs as usize])
    }

    /// `from` is the tier that retained the sample, or `None` for a cold read; `stays` is the tier where it
    /// stays.
    pub(super) fn note(
        &mut self,
        entry: EntryRef,
        sample: SampleId,
        from: Option<TierId>,
        stays: Option<TierId>,
    ) {
        let EntryRef { batch, index } = entry;
        let tier = |tier: Option<TierId>| tier.map_or(0, |tier| u64::from(tier.0) + 1);
        let words = [
            u64::from(batch.epoch.0) << 32 | u64::from(batch.step.0),
            u64::from(batch.rank.0) << 32 | u64::from(sample.0),
            index as u64,
            tier(from) << 8 | tier(stays),
        ];
        if let Some(sum) = self.0.get_mut(batch.epoch.0 as usize) {
            *sum = sum.wrapping_add(words.into_iter().fold(0, mixed));
        }
    }

    pub(super) fn digest(&self) -> u64 {
        self.0.iter().copied().fold(0, mixed)
    }
}

/// `word` mixed into `seed`.
///
/// # Source
///
/// The finalizer of `SplitMix64`: Steele, Lea and Flood, Fast splittable pseudorandom number generators,
/// OOPSLA 2014, doi 10.1145/2660193.2660195.
fn mixed(seed: u64, word: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(word);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{BatchId, Epoch, Rank, Step};

    type Read = (u32, u32, Option<u8>, Option<u8>);

    fn digest(reads: &[Read]) -> u64 {
        let mut decisions = Decisions::new(2);
        for (epoch, sample, from, stays) in reads {
            let batch = BatchId { epoch: Epoch(*epoch), step: Step(sample / 4), rank: Rank(0) };
            let entry = EntryRef { batch, index: 1 };
            let tier = |tier: &Option<u8>| tier.map(TierId);
            decisions.note(entry, SampleId(*sample), tier(from), tier(stays));
        }
        decisions.digest()
    }

    #[test]
    fn the_order_of_reads_does_not_matter_and_every_decision_does() {
        let reads = [(0, 3, None, Some(1)), (0, 9, Some(0), None), (1, 3, Some(1), Some(1))];
        let mut turned = reads;
        turned.swap(0, 2);
        assert_eq!(digest(&reads), digest(&turned));
        let others: [Read; 5] = [
            (0, 3, None, None),
            (0, 3, Some(1), Some(1)),
            (0, 4, None, Some(1)),
            (1, 3, None, Some(1)),
            (0, 3, None, Some(0)),
        ];
        for other in others {
            assert_ne!(digest(&[other, reads[1], reads[2]]), digest(&reads), "{other:?}");
        }
    }
}
