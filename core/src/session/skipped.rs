//! What ranks go without, by epoch and dataset: the count that a limit ends ([`SkipShare`]).
//!
//! [`SkipShare`]: super::SkipShare

use alloc::collections::{BTreeMap, BTreeSet};

use crate::id::{DatasetId, Epoch, Rank, SampleId};

/// The number of epochs that are counted at a time. Ranks work on two; one that jumps back is counted anew.
const EPOCHS_KEPT: usize = 4;

/// Samples that were left out, each once however often its batch was staged or read. The agent counts those
/// of its ranks; a trainer that reads by itself counts its own.
#[derive(Debug, Default)]
pub struct Skipped(BTreeMap<Epoch, BTreeMap<(Rank, DatasetId), BTreeSet<SampleId>>>);

impl Skipped {
    /// Returns the number of samples that the rank has gone without in the epoch; beyond `most` no more are
    /// told apart.
    pub fn note(
        &mut self,
        epoch: Epoch,
        of: (Rank, DatasetId),
        sample: SampleId,
        most: u32,
    ) -> u32 {
        if !self.0.contains_key(&epoch) && self.0.len() == EPOCHS_KEPT {
            self.0.pop_first();
        }
        let samples = self.0.entry(epoch).or_default().entry(of).or_default();
        if samples.len() <= most as usize {
            samples.insert(sample);
        }
        u32::try_from(samples.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::session::SkipShare;

    const OF: (Rank, DatasetId) = (Rank(0), DatasetId(0));

    #[test]
    fn a_sample_counts_once_in_an_epoch_and_apart_in_others() {
        let mut skipped = Skipped::default();
        let mut note = |epoch, of, sample| skipped.note(Epoch(epoch), of, SampleId(sample), 2);
        assert_eq!([7, 7, 8, 7].map(|sample| note(0, OF, sample)), [1, 1, 2, 2]);
        assert_eq!([note(1, OF, 7), note(0, (Rank(1), DatasetId(0)), 7)], [1, 1]);
        assert_eq!(note(0, (Rank(0), DatasetId(1)), 7), 1);
        assert_eq!([9, 10, 11].map(|sample| note(0, OF, sample)), [3; 3], "one is too many");
        (2..9).for_each(|epoch| assert_eq!(note(epoch, OF, 7), 1));
        assert_eq!(note(8, OF, 8), 2);
    }

    #[test]
    fn the_limit_is_a_share_of_what_a_rank_reads() {
        let most = |parts, samples, ranks| SkipShare(parts).most(samples, ranks);
        assert_eq!(most(10_000, 1_281_167, 8), 1_601);
        assert_eq!(most(10_000, 50, 1), 1, "a small dataset may have a bad sample");
        assert_eq!(most(1_000_000, 50, 1), 49, "an epoch has a sample");
        assert_eq!(most(1_000_000, 1, 1), 0);
        assert_eq!(most(10_000, 7, 8), 0);
    }

    proptest! {
        #[test]
        fn no_limit_lets_a_rank_go_without_all_samples(parts: u32, samples: u32, ranks: u32) {
            let most = SkipShare(parts % 1_000_001).most(samples, ranks);
            prop_assert!(most < (samples / ranks.max(1)).max(1));
        }
    }
}
