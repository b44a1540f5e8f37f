//! The part of an epoch that was read without the agent, for one warning at its end.

use tierfeed_client::direct_reads_warning;
use tierfeed_core::id::{BatchId, Epoch};

#[derive(Debug, Default)]
pub(super) struct EpochReads {
    epoch: u32,
    batches: u64,
    direct: u64,
    skipped: u64,
    /// The reason for the last batch that the agent did not deliver.
    pub(super) why: String,
}

impl EpochReads {
    /// Notes a batch that the pipeline takes; the last one of an epoch ends it. An epoch that was left early
    /// ends with the first batch of another one, without a warning.
    pub(super) fn taken(
        &mut self,
        batch: BatchId,
        is_last: bool,
        (direct, skipped): (bool, u32),
    ) -> Vec<String> {
        let Epoch(epoch) = batch.epoch;
        let why = std::mem::take(&mut self.why);
        if epoch != self.epoch {
            *self = Self { epoch, ..Self::default() };
        }
        self.batches += 1;
        self.direct += u64::from(direct);
        self.skipped += u64::from(skipped);
        if !is_last {
            self.why = why;
            return Vec::new();
        }
        let Self { batches, direct, skipped, .. } = *self;
        let skipped = (skipped > 0)
            .then(|| format!("on_error is skip: {skipped} samples were left out in epoch {epoch}"));
        let said = direct_reads_warning(epoch, batches, direct, &why).into_iter().chain(skipped);
        let said = said.collect();
        *self = Self { epoch, why, ..Self::default() };
        said
    }
}

#[cfg(test)]
mod tests {
    use tierfeed_core::id::{Rank, Step};

    use super::*;

    fn batch(epoch: u32, step: u32) -> BatchId {
        BatchId { epoch: Epoch(epoch), step: Step(step), rank: Rank(0) }
    }

    #[test]
    fn the_last_batch_of_an_epoch_says_how_many_were_read_directly_and_why() {
        let mut reads = EpochReads::default();
        for step in 0..3 {
            assert!(reads.taken(batch(0, step), false, (step > 0, 0)).is_empty());
        }
        reads.why = "the agent is gone".into();
        let said = reads.taken(batch(0, 3), true, (true, 2));
        let [direct, skipped] = &said[..] else { panic!("{said:?}") };
        assert!(direct.contains("3 of 4 batches of epoch 0 (75%)"), "{direct}");
        assert!(direct.ends_with("slower: the agent is gone"), "{direct}");
        assert!(skipped.contains("2 samples were left out in epoch 0"), "{skipped}");
        assert!(reads.taken(batch(1, 0), false, (true, 0)).is_empty());
        let quiet = reads.taken(batch(2, 3), true, (false, 0));
        assert!(quiet.is_empty(), "epoch 1 was left early");
    }
}
