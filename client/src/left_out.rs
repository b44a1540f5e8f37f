//! The samples that training goes on without (`on_error: skip`), as one trainer counts them.

use tierfeed_core::{
    id::{DatasetId, Epoch, Rank, SampleId},
    session::Skipped,
};

/// The numbers of left-out samples of which the user is warned, with what is said of the number.
const WARNED_AT: [(u64, &str); 4] =
    [(1, ""), (10, ", the 10th"), (100, ", the 100th"), (1_000, ", the 1,000th")];

/// They are counted for one dataset and one rank, so that others are not told apart.
const OF_TRAINER: (Rank, DatasetId) = (Rank(0), DatasetId(0));

#[derive(Debug)]
pub(crate) struct LeftOut {
    /// How many samples the rank may go without in an epoch.
    most: u32,
    count: u64,
    of_epochs: Skipped,
}

/// One more sample is left out than the job says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{skipped} samples of this rank's epoch {} cannot be used, and on_error: skip leaves out {most} at most; of the \
     last one: {reason}",
    .epoch.0
)]
pub struct TooManyLeftOut {
    pub skipped: u32,
    pub epoch: Epoch,
    pub most: u32,
    pub reason: String,
}

impl LeftOut {
    pub(crate) fn with_most(most: u32) -> Self {
        Self { most, count: 0, of_epochs: Skipped::default() }
    }

    /// Counts a sample, each once in an epoch whether the agent or the trainer could not read it. Returns what is
    /// said of its number, if the user is warned.
    pub(crate) fn add(
        &mut self,
        epoch: Epoch,
        sample: SampleId,
        reason: impl FnOnce() -> String,
    ) -> Result<Option<&'static str>, TooManyLeftOut> {
        self.count += 1;
        let Self { most, count, .. } = *self;
        let skipped = self.of_epochs.note(epoch, OF_TRAINER, sample, most);
        if skipped > most {
            return Err(TooManyLeftOut { skipped, epoch, most, reason: reason() });
        }
        Ok(WARNED_AT.iter().find(|(number, _)| *number == count).map(|(_, said)| *said))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(left_out: &mut LeftOut, epoch: u32, sample: u32) -> Result<&'static str, String> {
        let said = left_out.add(Epoch(epoch), SampleId(sample), || "it is gone".into());
        said.map(|said| said.unwrap_or("nothing")).map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_the_tenth_and_so_on_are_worth_a_warning() {
        let mut left_out = LeftOut::with_most(u32::MAX);
        let said =
            (1..=1_001).map(|sample| (sample.into(), add(&mut left_out, 0, sample).unwrap()));
        let said: Vec<(u64, _)> = said.filter(|(_, said)| *said != "nothing").collect();
        assert_eq!(said, WARNED_AT);
    }

    #[test]
    fn a_sample_counts_once_in_an_epoch_and_one_more_than_the_job_says_is_an_error() {
        let mut left_out = LeftOut::with_most(2);
        for (epoch, sample) in [(0, 7), (1, 7), (0, 7), (0, 8), (1, 9), (0, 8)] {
            assert!(add(&mut left_out, epoch, sample).is_ok(), "epochs are read by turns");
        }
        let said = "3 samples of this rank's epoch 0 cannot be used, and on_error: skip leaves out 2 at most; \
                    of the last one: it is gone";
        assert_eq!(add(&mut left_out, 0, 9), Err(said.to_owned()));
    }
}
