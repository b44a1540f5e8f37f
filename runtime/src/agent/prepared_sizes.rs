//! The lengths of prepared samples where each has its own: those of decoded images, by the heads of their files.
//!
//! Before an agent offers what it has, it looks at a few hundred images: that gives the mean, and how long a scan of
//! all would take. It scans all only if its tiers are going to hold prepared samples, once for an index.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tierfeed_core::{
    fleet::schedule::OwnLengths,
    id::SampleId,
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::{
    Index,
    read::{FileSource, PartSource, ThrottledSource, sample_sum::sum_of},
    source::Location,
};
use tierfeed_transform::output::{Prepared, PreparedShape};
use tierfeed_workload_analyzer::{
    Job,
    job::{CachedForm, Transform},
};

use super::ImagesError;
use crate::{
    clock::Clock,
    dataset::{
        image_sizes::{ImageSizeCache, ImageSizes},
        reader::{self, BucketError},
    },
    schedule,
    shutdown::Shutdown,
};

/// Images that are looked at for an estimate, at even distances in the dataset.
const LOOKED_AT: u32 = 256;

/// How often a scan says how far it is.
const TOLD_EVERY: Nanoseconds = Nanoseconds(5_000_000_000);

/// Files that stay open between reads: heads are in files of their own.
const OPEN_FILES_MAX: usize = 4;

/// The transform of a job whose prepared samples have lengths of their own and whose tiers may hold them.
pub(super) fn of_own_lengths(job: &Job) -> Option<&Transform> {
    let transform = job.transform.as_ref().filter(|it| it.cache != CachedForm::Stored)?;
    let prepared = transform.pipeline.prepared()?;
    let has_own = matches!(prepared, Prepared { shape: PreparedShape::Own { .. }, .. });
    (has_own && job.further.is_empty()).then_some(transform)
}

/// An estimate of the lengths, by some of the images.
pub(super) fn estimate_blocking(
    job: &Job,
    transform: &Transform,
    index: &Arc<Index>,
    end: &Shutdown,
) -> Result<OwnLengths, ImagesError> {
    let source = source(job, index)?;
    let step = index.len().div_ceil(LOOKED_AT).max(1);
    let samples: Vec<_> = (0..index.len()).step_by(step as usize).map(SampleId).collect();
    let clock = Clock::start();
    let go_on = |_| go_on_until(end);
    let sizes = ImageSizes::of_samples_blocking(&samples, &*source, threads(job), &go_on)?;
    let took = clock.now();
    let no_sizes = ImagesError::NoSizes { looked_at: samples.len() };
    let (mean, deviation) = spread(sizes.known(&transform.pipeline)).ok_or(no_sizes)?;
    let all = u128::from(took.0) * u128::from(index.len()) / samples.len().max(1) as u128;
    let scan = Some(Nanoseconds(u64::try_from(all).unwrap_or(u64::MAX)));
    Ok(OwnLengths { fingerprint: None, mean, deviation, scan })
}

/// All sizes, which are kept for later runs.
pub(super) fn scan_blocking(
    job: &Job,
    index: &Arc<Index>,
    known: &ImageSizeCache,
    end: &Shutdown,
) -> Result<ImageSizes, ImagesError> {
    let source = source(job, index)?;
    let (clock, images) = (Clock::start(), index.len());
    tracing::info!(images, "scanning the heads of images for the sizes of prepared samples");
    let tell_at = AtomicU64::new(TOLD_EVERY.0);
    let progress = |done: u32| {
        let now = clock.now().0;
        let due = tell_at.load(Ordering::Relaxed);
        let next = now.saturating_add(TOLD_EVERY.0);
        let is_mine =
            || tell_at.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if now >= due && is_mine() {
            tracing::info!(done, images, "scanning the heads of images");
        }
        go_on_until(end)
    };
    let sizes = ImageSizes::scan_blocking(index, &*source, threads(job), &progress)?;
    let (took, unread) = (clock.now(), sizes.unread());
    let unknown = sizes.unknown() - unread as usize;
    tracing::info!(images, unknown, unread, %took, "the sizes of images are known");
    if unread > 0 {
        tracing::warn!(
            unread,
            "images whose head cannot be read; no tier keeps them, and the next run scans again"
        );
    }
    if let Err(error) = known.keep(&job.dataset, index, &sizes) {
        tracing::warn!(%error, "the sizes of images are not kept for later runs");
    }
    Ok(sizes)
}

/// The lengths by the sizes of all images.
pub(super) fn own_lengths(
    sizes: &ImageSizes,
    transform: &Transform,
    index: &Index,
) -> Result<OwnLengths, ImagesError> {
    let (mean, deviation) =
        spread(sizes.known(&transform.pipeline)).ok_or_else(|| no_sizes(index))?;
    let fingerprint = Some(fingerprint(&sizes.prepared(&transform.pipeline)));
    Ok(OwnLengths { fingerprint, mean, deviation, scan: None })
}

/// The length of each prepared sample, 0 where it is not known; an error if none is known.
pub(super) fn lengths(
    sizes: &ImageSizes,
    transform: &Transform,
    index: &Index,
) -> Result<Arc<[Bytes]>, ImagesError> {
    let known = sizes.known(&transform.pipeline).count();
    let unknown = index.len() as usize - known;
    match (known, unknown) {
        (0, _) => return Err(no_sizes(index)),
        (_, 0) => (),
        _ => tracing::warn!(unknown, "images without a known size; no tier keeps them"),
    }
    Ok(sizes.prepared(&transform.pipeline))
}

fn no_sizes(index: &Index) -> ImagesError {
    ImagesError::NoSizes { looked_at: index.len() as usize }
}

/// A number by which nodes see whether they found the same lengths.
pub(super) fn fingerprint(lens: &[Bytes]) -> u64 {
    let bytes: Vec<u8> = lens.iter().flat_map(|len| len.0.to_le_bytes()).collect();
    sum_of(&bytes)
}

fn go_on_until(end: &Shutdown) -> ControlFlow<()> {
    if end.is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// The cold store of a job, at the speed that the job imposes.
fn source(job: &Job, index: &Arc<Index>) -> Result<Box<dyn PartSource>, BucketError> {
    let throttled = |source| -> Box<dyn PartSource> {
        match job.cold.speed {
            Some(speed) => Box::new(ThrottledSource::new(source, speed)),
            None => source,
        }
    };
    Ok(throttled(match &job.dataset.source {
        Location::Path(_) => {
            Box::new(FileSource::new(Arc::clone(index), OPEN_FILES_MAX).past_page_cache())
        }
        Location::Bucket(bucket) => Box::new(reader::objects(bucket, index)?),
    }))
}

/// As many images are read at a time as the cold store is asked for samples.
fn threads(job: &Job) -> usize {
    schedule::cold_threads(job).get() as usize
}

/// The mean length of prepared samples, and how far they are from it.
fn spread(lens: impl Iterator<Item = Bytes>) -> Option<(Bytes, Bytes)> {
    let (mut count, mut sum, mut squares) = (0_u128, 0_u128, 0_u128);
    for Bytes(len) in lens {
        let len = u128::from(len);
        (count, sum, squares) = (count + 1, sum + len, squares.saturating_add(len.pow(2)));
    }
    let mean = sum.checked_div(count)?;
    let variance = (squares / count).saturating_sub(mean * mean);
    let bytes = |len: u128| Bytes(u64::try_from(len).unwrap_or(u64::MAX));
    Some((bytes(mean), bytes(variance.isqrt())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation_are_those_of_the_lengths() {
        let spread =
            |lens: &[u64]| spread(lens.iter().copied().map(Bytes)).map(|(a, b)| (a.0, b.0));
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[7]), Some((7, 0)));
        assert_eq!(spread(&[100, 300]), Some((200, 100)));
        assert_eq!(spread(&[1 << 40, 1 << 40]), Some((1 << 40, 0)));
        assert!(spread(&[u64::MAX, u64::MAX]).is_some(), "no length makes it panic");
    }
}
