//! Checks the keys below `datasets`: the datasets that are read beside the first one, at the end of epochs.

use std::collections::BTreeMap;

use tierfeed_core::order::{FURTHER_MAX, Shuffle};

use super::{Check, order::Order};
use crate::job::{
    BATCH_SIZE_MAX, FurtherDataset, JobError, KeyConflict, Reason,
    file::{FurtherDatasetFile, Text, Whole, is_name},
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
            let (dataset, keys) = typed.into_parts();
            let below = |key| [above.as_slice(), &[key]].concat();
            let checked = self.dataset(&above, &dataset)?;
            let pipeline = |transform| {
                self.pipeline(
                    &below("transform"),
                    transform,
                    &checked.format,
                    dataset.dtype.as_ref(),
                )
            };
            let transform = keys.transform.map(pipeline).transpose()?;
            Ok(FurtherDataset {
                transform,
                dataset: checked,
                speed: self.speed(&below("emulate"), dataset.emulate.as_ref())?,
                index: self.index(&above, &dataset)?,
                shuffle: self.further_shuffle(&below("shuffle"), keys.shuffle.as_ref(), order)?,
                batch_size: match keys.batch_size {
                    Some(typed) => self.whole(&below("batch_size"), typed, 1..=BATCH_SIZE_MAX)?,
                    None => batch_size,
                },
                every: self.whole(
                    &below("every"),
                    keys.every.unwrap_or(Whole(1)),
                    1..=order.epochs,
                )?,
                name,
            })
        };
        typed.into_iter().map(further).collect()
    }

    /// Each epoch in its own order by the seed of the job; by default in dataset order, as validation sets
    /// are read.
    fn further_shuffle(
        &self,
        keys: &[&str],
        typed: Option<&Text>,
        order: &Order,
    ) -> Result<Shuffle, JobError> {
        match typed.map(|text| text.0.as_str()) {
            None | Some("sequential") => Ok(Shuffle::Sequential),
            Some("torch-distributed") => Ok(match order.shuffle {
                // With the release of PyTorch that the job gives.
                it @ Shuffle::TorchDistributed { .. } => it,
                _ => Shuffle::TORCH_DISTRIBUTED,
            }),
            Some(other) => {
                let reason = Reason::NotOneOf { allowed: "sequential, torch-distributed" };
                Err(self.invalid(keys, other, reason))
            }
        }
    }
}
