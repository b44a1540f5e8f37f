//! Checks the keys below `datasets`: the datasets that are read beside the first one, at the end of epochs.

use std::collections::BTreeMap;

use tierfeed_core::order::{FURTHER_MAX, Shuffle};

use super::{Check, order::Order};
use crate::job::{
    FurtherDataset, JobError, KeyConflict, Reason,
    file::{FurtherDatasetFile, FurtherShuffle, Keyed, Whole, is_name},
};

impl Check<'_> {
    pub(super) fn datasets(
        &self,
        typed: BTreeMap<String, FurtherDatasetFile>,
        batch_size: u32,
        order: &Order,
    ) -> Result<Vec<FurtherDataset>, JobError> {
        if typed.len() > FURTHER_MAX {
            return Err(self.conflict(&["datasets"], KeyConflict::TooManyDatasets));
        }
        if !typed.is_empty() && order.shuffle == Shuffle::Published {
            return Err(self.conflict(&["datasets"], KeyConflict::BesidePublished));
        }
        let further = |(name, typed): (String, FurtherDatasetFile)| {
            let above = ["datasets", name.as_str()];
            if !is_name(&name) {
                return Err(self.invalid(&above, &name, Reason::NotAName));
            }
            let Keyed { keys, beside } = typed;
            let below = |key| [above.as_slice(), &[key]].concat();
            let dataset = self.dataset(&above, &keys)?;
            let pipeline = |transform| {
                let above = below("transform");
                self.pipeline(&above, transform, &dataset.format, keys.get("dtype"))
            };
            Ok(FurtherDataset {
                transform: beside.transform.map(pipeline).transpose()?,
                speed: self.speed(&below("emulate"), beside.emulate.as_ref())?,
                index: beside.index.map(|it| it.0.below(self.directory)),
                shuffle: match (beside.shuffle.unwrap_or_default(), order.shuffle) {
                    (FurtherShuffle::Sequential, _) => Shuffle::Sequential,
                    // With the release of PyTorch that the job gives, and the seed of the job.
                    (_, it @ Shuffle::TorchDistributed { .. }) => it,
                    _ => Shuffle::TORCH_DISTRIBUTED,
                },
                batch_size: beside.batch_size.map_or(batch_size, |it| it.0),
                every: self.whole(
                    &below("every"),
                    beside.every.unwrap_or(Whole(1)),
                    1..=order.epochs,
                )?,
                dataset,
                name,
            })
        };
        typed.into_iter().map(further).collect()
    }
}
