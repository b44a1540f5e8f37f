//! A job as an agent reads it: its text and the index of its dataset, and what it finds and measures on the node
//! before it registers.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tierfeed_core::{
    fleet::{
        first_schedule::may_depend_on_own_lengths,
        launch::{Identity, JobWorld},
        schedule::{OwnLengths, TransformOffer},
    },
    id::NodeId,
    retention::form::Form,
    units::Bytes,
};
use tierfeed_dataset::{Catalog, Index};
use tierfeed_transform::worker_process::Program;
use tierfeed_workload_analyzer::{
    Job,
    demand::{Demand, Sizes},
    job::{CachedForm, JobError, LocatedError, Transform},
};

use super::{
    Calibration, ImagesError, JoinError, LoadedJob, NoPreparedLengths,
    prepared_sizes::{self, of_own_lengths},
    ram_disk, transform_cost,
};
use crate::{
    dataset::{
        self, DatasetError,
        image_sizes::{ImageSizeCache, ImageSizes},
        measured_transforms::MeasuredTransforms,
    },
    layout::{Found, LayoutError, Measured, Node, Overcommit},
    rpc::call::JobText,
    run_dir::{RunDir, trainer_file::TrainerFile},
    schedule,
    shutdown::Shutdown,
};

/// Where an agent gets its job and the index of the dataset from.
pub(super) enum JobSource {
    /// The process that starts the agent has both.
    Loaded(LoadedJob),
    /// The manager sent the text.
    FromManager(JobText),
}

impl JobSource {
    pub(super) fn text(&self) -> &JobText {
        match self {
            Self::Loaded(LoadedJob { text, .. }) | Self::FromManager(text) => text,
        }
    }

    pub(super) fn job(&self) -> Result<Arc<Job>, JobError> {
        match self {
            Self::Loaded(loaded) => Ok(Arc::clone(&loaded.job)),
            Self::FromManager(JobText { text, file, world, .. }) => {
                Job::parse_with(text, file, *world).map(Arc::new)
            }
        }
    }

    /// The indexes of the datasets of `job`, the first of which is at `path`.
    fn catalog(&self, job: &Job, path: &Path) -> Result<Catalog, DatasetError> {
        let JobText { index_fingerprint, further_fingerprints, .. } = match self {
            Self::Loaded(loaded) => return Ok(loaded.catalog.clone()),
            Self::FromManager(text) => text,
        };
        let (expected, found) = (job.further.len(), further_fingerprints.len());
        if expected != found {
            return Err(DatasetError::OtherNumber { expected, found });
        }
        let open = |dataset, path: &Path, expected: u64| {
            dataset::open_or_build_same(dataset, path, expected).map(Arc::new)
        };
        let first = open(&job.dataset, path, *index_fingerprint)?;
        let further =
            job.further.iter().zip(further_fingerprints).map(|(it, expected)| {
                open(&it.dataset, &dataset::further_index(it, path), *expected)
            });
        Ok(Catalog::new(first, further.collect::<Result<Vec<Arc<Index>>, _>>()?))
    }
}

pub(super) fn index_path(job: &Job, run_dir: &RunDir) -> PathBuf {
    let path = job.index.clone().unwrap_or_else(|| run_dir.index());
    std::path::absolute(&path).unwrap_or(path)
}

pub(super) struct LocalJob {
    pub(super) job: Arc<Job>,
    pub(super) post: JobWorld,
    pub(super) number: NodeId,
    pub(super) catalog: Catalog,
    pub(super) index_path: PathBuf,
    pub(super) demand: Demand,
    pub(super) node: Node,
    pub(super) found: Found,
    /// The sizes of all images, if prepared samples have lengths of their own and these are known.
    pub(super) images: Option<ImageSizes>,
}

impl LocalJob {
    /// With the time of a thread for a sample, if the form in which tiers hold samples depends on it.
    pub(super) fn with_sample_time(self, program: &Program) -> Self {
        match transform_cost::measure_blocking(&self.job, self.catalog.first(), program) {
            Some((each, from)) => {
                self.with_transform(|offer| (offer.each, offer.from) = (Some(each), from))
            }
            None => self,
        }
    }

    fn with_transform(self, measured: impl FnOnce(&mut TransformOffer)) -> Self {
        Self { found: self.found.with_transform(measured), ..self }
    }

    /// With the lengths of prepared samples, if each has its own. All images are scanned for them if the tiers of this
    /// node are going to hold prepared samples, as far as it can tell. Where the job leaves the choice, tiers hold
    /// stored samples if the lengths cannot be known.
    pub(super) fn with_images(
        self,
        known: &ImageSizeCache,
        end: &Shutdown,
    ) -> Result<Self, ImagesError> {
        let Some(transform) = of_own_lengths(&self.job) else { return Ok(self) };
        let inputs = schedule::inputs(&self.job, &self.demand);
        if !may_depend_on_own_lengths(&inputs, self.job.world.nodes, &self.found.offer()) {
            return Ok(self);
        }
        match self.images(transform, known, end) {
            Ok((images, own)) => {
                let with_images = Self { images, ..self };
                Ok(with_images.with_transform(|offer| offer.own = Some(own)))
            }
            Err(error) if transform.cache == CachedForm::Auto => {
                tracing::warn!(%error, "the sizes of images are not known; tiers hold stored samples");
                Ok(self.with_transform(|offer| offer.own_unknown = error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    fn images(
        &self,
        transform: &Transform,
        known: &ImageSizeCache,
        end: &Shutdown,
    ) -> Result<(Option<ImageSizes>, OwnLengths), ImagesError> {
        let (job, index) = (&self.job, self.catalog.first());
        let all = |sizes: ImageSizes| {
            let own = prepared_sizes::own_lengths(&sizes, transform, index)?;
            Ok((Some(sizes), own))
        };
        if let Some(sizes) = known.get(index) {
            return all(sizes);
        }
        let own = prepared_sizes::estimate_blocking(job, transform, index, end)?;
        let mut offer = self.found.offer();
        offer.transform.iter_mut().for_each(|it| it.own = Some(own));
        let schedule = schedule::of(job, &self.demand, &offer);
        let form = schedule.ok().and_then(|it| it.transform).map(|transform| transform.form);
        match form {
            Some(Form::Prepared) => all(prepared_sizes::scan_blocking(job, index, known, end)?),
            _ => Ok((None, own)),
        }
    }

    /// Keeps the measurements, for plans.
    pub(super) fn record(&self, records: &MeasuredTransforms) {
        let Self { job, catalog, node, found, .. } = self;
        let offer = found.offer().transform.filter(|it| it.each.is_some() || it.own.is_some());
        let Some((transform, offer)) = job.transform.as_ref().zip(offer) else { return };
        let of = (&job.dataset, &**catalog.first());
        if let Err(error) = records.keep(&offer, node.host(), of, &transform.pipeline) {
            tracing::debug!(%error, "plans do not know what was measured of the transform");
        }
    }
}

/// Reads the job and the index, and looks for its tiers on this node, of whose memory a batch system gave the
/// job `memory`.
pub(super) fn read_job(
    source: &JobSource,
    identity: &Identity,
    run_dir: &RunDir,
    (tiers_report, memory): (Option<&Path>, Option<Bytes>),
    calibration: Option<Calibration>,
) -> Result<LocalJob, JoinError> {
    let (text, job) = (source.text(), source.job()?);
    let calibration = calibration.unwrap_or_else(|| Calibration::begin(&job, tiers_report));
    let post = job.post(&text.text, &text.file);
    let number = identity.node_in(&post)?;
    let index_path = index_path(&job, run_dir);
    let catalog = source.catalog(&job, &index_path)?;
    let job = Arc::new(Job::clone(&job).with_columns_of(&catalog)?);
    let further: Vec<_> = catalog.further().iter().map(|index| Sizes::from(&**index)).collect();
    let demand = Demand::of(&job, &Sizes::from(&**catalog.first()))?.beside(&job, &further);
    let placed = |error: LayoutError| {
        let keys = error.keys();
        JoinError::from(LocatedError::in_text(&text.text, &text.file, &keys, error))
    };
    ram_disk::remove_leftovers();
    // Before free memory is looked at, of which the calibration takes some.
    let measured = calibration.finish(catalog.first(), run_dir.path());
    let node = Node::read(&job, memory).map_err(LayoutError::from).map_err(placed)?;
    let ram_disk = run_dir.path().join("scratch");
    let room = if job.has_own_ram_disk() { ram_disk::room_without_mount(&ram_disk) } else { None };
    let node = node.with_ram_disk(ram_disk, room);
    let kind = start_kind(run_dir, &text.file);
    let found = found(&job, &demand, &node, kind, &measured).map_err(placed)?;
    let images = None;
    Ok(LocalJob { job, post, number, catalog, index_path, demand, node, found, images })
}

/// Whether an agent of this job has served in this run directory before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartKind {
    First,
    Restart,
}

/// An agent writes the trainer file only after it got all its memory.
fn start_kind(run_dir: &RunDir, job_file: &Path) -> StartKind {
    let left = TrainerFile::read(&run_dir.trainer_file());
    if left.is_ok_and(|it| it.job == job_file) { StartKind::Restart } else { StartKind::First }
}

/// The first agent of a job refuses sizes that the node does not have. A restarted agent had them before:
/// if other processes have taken the memory meanwhile, it starts with less. What cannot be scheduled is
/// refused here, where the line of the job file is known.
fn found(
    job: &Job,
    demand: &Demand,
    node: &Node,
    kind: StartKind,
    measured: &Measured,
) -> Result<Found, LayoutError> {
    let found = |overcommit| -> Result<Found, LayoutError> {
        let found = Found::on(job, demand, node, overcommit, measured)?;
        schedule::of(job, demand, &found.offer())?;
        Ok(found)
    };
    match found(Overcommit::Refused) {
        Err(error) if kind == StartKind::Restart && error.is_shortage() => {
            tracing::warn!(%error, "an agent of this job worked here before; it starts with less");
            found(Overcommit::Allowed)
        }
        found => found,
    }
}

pub(super) fn no_prepared_lengths(
    JobText { text, file, .. }: &JobText,
    error: ImagesError,
) -> JoinError {
    let keys = ["transform", "cache"];
    Box::new(LocatedError::in_text(text, file, &keys, NoPreparedLengths(error))).into()
}
