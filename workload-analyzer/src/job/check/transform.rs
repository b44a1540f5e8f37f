//! Checks the keys below `transform`.

use tierfeed_core::retention::in_place::InPlaceMode;
use tierfeed_dataset::{
    Format,
    format::{Compression, LitData},
    keys::DatasetKeys,
};
use tierfeed_transform::{Container, Dtype, Pipeline, PipelineError, PipelineFile, Work};

use super::Check;
use crate::job::{
    CachedForm, FurtherDataset, JobError, KeyConflict, Reason, TierRequest, Transform,
    file::{FurtherTransformFile, TransformFile},
};

impl Check<'_> {
    pub(super) fn transform(
        &self,
        typed: Option<TransformFile>,
        dataset: &DatasetKeys,
        tiers: &[TierRequest],
        further: &[FurtherDataset],
    ) -> Result<Option<Transform>, JobError> {
        let Some(transform) = typed else {
            return match further.iter().find(|it| it.transform.is_some()) {
                None => Ok(None),
                Some(it) => {
                    let keys = ["datasets", &it.name, "transform"];
                    Err(self.conflict(&keys, KeyConflict::FirstUntransformed))
                }
            };
        };
        let TransformFile { steps, cache, limits, field } = transform;
        let format = self.dataset(&["dataset"], dataset)?.format;
        let typed = FurtherTransformFile { steps, limits, field };
        let pipeline = self.pipeline(&["transform"], typed, &format, dataset.get("dtype"))?;
        if tiers.iter().any(|tier| tier.direct == InPlaceMode::Always) {
            return Err(self.conflict(&["transform"], KeyConflict::TransformedInPlace));
        }
        let cache = cache.unwrap_or_default();
        if cache == CachedForm::Prepared && !further.is_empty() {
            let conflict = KeyConflict::PreparedOfSeveral;
            return Err(self.conflict(&["transform", "cache"], conflict));
        }
        if cache == CachedForm::Prepared && pipeline.prepared().is_none() {
            let conflict = match pipeline.container() {
                None => KeyConflict::NothingPrepared,
                Some(_) => KeyConflict::PreparedField { format: format.name() },
            };
            return Err(self.conflict(&["transform", "cache"], conflict));
        }
        Ok(Some(Transform { pipeline, cache }))
    }

    /// The steps for the samples of a dataset, below `above`. The keys of the dataset may state a `dtype`.
    pub(super) fn pipeline(
        &self,
        above: &[&str],
        typed: FurtherTransformFile,
        format: &Format,
        dtype: Option<&str>,
    ) -> Result<Pipeline, JobError> {
        let FurtherTransformFile { steps, limits, field } = typed;
        let field = field.map(|field| field.0);
        let file = PipelineFile { steps, limits, field, container: None };
        let pipeline = Pipeline::try_new(&file).map_err(|error| self.wrong_step(above, error))?;
        self.refuse_other_elements(above, &pipeline, dtype)?;
        let container = container_of(format);
        let conflict = match container {
            None => of_other_samples(pipeline.work(), format),
            Some(_) => unnamed_field(&pipeline, format.name()),
        };
        if let Some(conflict) = conflict {
            return Err(self.conflict(above, conflict));
        }
        match container {
            None if pipeline.field().is_some() => {
                let conflict = match format {
                    Format::Hdf5 { .. } => KeyConflict::FieldOfHdf5,
                    _ => KeyConflict::NoFields,
                };
                Err(self.conflict(&[above, &["field"]].concat(), conflict))
            }
            None => Ok(pipeline),
            Some(container) => Ok(pipeline.inside(container)),
        }
    }

    /// Refuses steps for elements of another type than `dtype`, which the keys of the dataset state.
    fn refuse_other_elements(
        &self,
        above: &[&str],
        pipeline: &Pipeline,
        dtype: Option<&str>,
    ) -> Result<(), JobError> {
        let (step, stored) = match pipeline.work() {
            Work::Images(_) => return Ok(()),
            Work::Arrays(arrays) => ("array", arrays.dtype),
            Work::Tokens(tokens) => ("tokens", tokens.stored),
        };
        let stated = dtype.and_then(|it| Dtype::ALL.iter().find(|known| known.name() == it));
        match stated {
            Some(stated) if *stated != stored => {
                let keys = [above, &["steps", "0", step, "dtype"]].concat();
                let reason = Reason::OtherElements { stated: stated.name() };
                Err(self.invalid(&keys, stored.name(), reason))
            }
            _ => Ok(()),
        }
    }

    fn wrong_step(&self, above: &[&str], error: PipelineError) -> JobError {
        let keys: Vec<_> =
            above.iter().copied().chain(error.path.iter().map(String::as_str)).collect();
        JobError::Invalid {
            file: self.file.to_owned(),
            line: crate::yaml::location::line_of(self.text, &keys),
            key: format!("{}.{}", above.join("."), error.key()),
            value: error.value,
            reason: Reason::WrongStep(error.reason),
        }
    }
}

/// The container of the fields of samples that have several. Its columns are known when the index is.
fn container_of(format: &Format) -> Option<Container> {
    match format {
        Format::WebDataset => Some(Container::WebDataset),
        Format::TfRecord(Compression::None) => Some(Container::TfRecord),
        Format::Mds | Format::LitData(LitData { sequence_length: None }) => {
            Some(Container::Columns { columns: Vec::new() })
        }
        _ => None,
    }
}

/// An image is found among the fields of a sample; anything else has to be named.
fn unnamed_field(pipeline: &Pipeline, format: &'static str) -> Option<KeyConflict> {
    let steps = match pipeline.work() {
        Work::Images(_) => return None,
        Work::Arrays(_) => "arrays",
        Work::Tokens(_) => "tokens",
    };
    pipeline.field().is_none().then_some(KeyConflict::UnnamedField { steps, format })
}

/// The reason why a transform does not fit samples of this format, if there is one.
fn of_other_samples(work: &Work, format: &Format) -> Option<KeyConflict> {
    match (format, work) {
        (Format::Parquet(_), _) => {
            return Some(KeyConflict::ManyRows { format: "parquet", sample: "row group" });
        }
        (Format::Arrow, _) => {
            return Some(KeyConflict::ManyRows { format: "arrow", sample: "record batch" });
        }
        (Format::Hdf5 { .. }, Work::Images(_)) => return Some(KeyConflict::ImagesInHdf5),
        _ => (),
    }
    let (steps, formats) = match work {
        Work::Images(_) => ("images", "image-folder, files, webdataset, tfrecord, mds, litdata"),
        Work::Arrays(_) => {
            ("arrays", "files, npy, npz, raw, hdf5, webdataset, tfrecord, mds, litdata")
        }
        Work::Tokens(_) => {
            ("tokens", "raw, megatron, npy, files, webdataset, tfrecord, mds, litdata")
        }
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
