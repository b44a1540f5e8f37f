//! Checks the keys below `transform`, and the threads for it.

use std::{mem, num::NonZeroU32};

use tierfeed_core::retention::in_place::Wish;
use tierfeed_dataset::Format;
use tierfeed_transform::{Pipeline, PipelineError, PipelineFile, Work};

use super::Check;
use crate::{
    job::{CachedForm, JobError, KeyConflict, Reason, Threads, TierRequest, Transform, location},
    job_file::{JobFile, Text},
};

const THREADS_MAX: u32 = 1_024;

impl Check<'_> {
    pub(super) fn transform(
        &self,
        typed: &mut JobFile,
        tiers: &[TierRequest],
    ) -> Result<Option<Transform>, JobError> {
        let Some(transform) = &mut typed.transform else { return Ok(None) };
        let steps = mem::take(&mut transform.steps);
        let pipeline = Pipeline::try_new(&PipelineFile { steps, limits: transform.limits })
            .map_err(|error| self.wrong_step(error))?;
        let format = self.dataset(&["dataset"], &typed.dataset)?.format;
        if let Some(conflict) = of_other_samples(pipeline.work(), &format) {
            return Err(self.conflict(&["transform"], conflict));
        }
        if tiers.iter().any(|tier| tier.direct == Wish::Always) {
            return Err(self.conflict(&["transform"], KeyConflict::TransformedInPlace));
        }
        let cache = match &transform.cache {
            None => CachedForm::Auto,
            Some(cache) => {
                let known = [CachedForm::Auto, CachedForm::Stored, CachedForm::Prepared];
                let allowed = "auto, stored, prepared";
                self.one_of(&["transform", "cache"], cache, &known, CachedForm::name, allowed)?
            }
        };
        if cache == CachedForm::Prepared && pipeline.prepared().is_none() {
            return Err(self.conflict(&["transform", "cache"], KeyConflict::NothingPrepared));
        }
        Ok(Some(Transform { pipeline, cache }))
    }

    pub(super) fn threads(&self, typed: Option<&Text>) -> Result<Threads, JobError> {
        let Some(typed) = typed else { return Ok(Threads::Auto) };
        if typed.0 == "auto" {
            return Ok(Threads::Auto);
        }
        let count = typed.0.parse().ok().filter(|count| *count <= THREADS_MAX);
        let count = count.and_then(NonZeroU32::new).map(Threads::Count);
        let reason = Reason::NotAThreadCount { max: THREADS_MAX };
        count.ok_or_else(|| self.invalid(&["threads"], &typed.0, reason))
    }

    fn wrong_step(&self, error: PipelineError) -> JobError {
        let keys: Vec<_> =
            ["transform"].into_iter().chain(error.path.iter().map(String::as_str)).collect();
        JobError::Invalid {
            file: self.file.to_owned(),
            line: location::line_of(self.text, &keys),
            key: format!("transform.{}", error.key()),
            value: error.value,
            reason: Reason::WrongStep(error.reason),
        }
    }
}

/// What is wrong about a transform for samples of this format, if something is.
fn of_other_samples(work: &Work, format: &Format) -> Option<KeyConflict> {
    let (steps, formats) = match work {
        Work::Images(_) => ("images", "image-folder, files"),
        Work::Arrays(_) => ("arrays", "files, npy, npz, raw, hdf5"),
        Work::Tokens(_) => ("tokens", "raw, megatron, npy, litdata, files"),
    };
    let is_right = match work {
        Work::Images(_) => matches!(format, Format::ImageFolder | Format::Files(_)),
        Work::Arrays(_) => matches!(
            format,
            Format::Files(_)
                | Format::Npy
                | Format::Npz { .. }
                | Format::Raw(_)
                | Format::Hdf5 { .. }
        ),
        Work::Tokens(_) => matches!(
            format,
            Format::Files(_)
                | Format::Npy
                | Format::Raw(_)
                | Format::Megatron
                | Format::LitData { .. }
        ),
    };
    (!is_right).then_some(KeyConflict::OfOtherSamples { steps, formats })
}
