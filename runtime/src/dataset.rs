//! The dataset's index: opened if a stored one is still right, else built and stored.

pub mod image_sizes;
pub mod index_cache;
pub mod measured_transforms;
pub mod reader;

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use tierfeed_dataset::{
    Dataset, Format, Index,
    index::{IndexError, Progress},
    source::Location,
};
use tierfeed_transform_worker::has_landlock;
use tierfeed_workload_analyzer::job::FurtherDataset;

use crate::whole_file::is_unfinished;

/// No process takes longer to write a file that is kept for later runs.
const UNFINISHED_FOR_MAX: Duration = Duration::from_secs(3600);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error(
        "the manager knows {found} datasets beside the first, the job has {expected}; every node must run \
         the same version of tierfeed"
    )]
    OtherNumber { expected: usize, found: usize },
    #[error(
        "{place}: index {found:016x}, but the manager works with {expected:016x}; \
         every node must see the same files with the same sizes and times"
    )]
    Differs { place: Location, expected: u64, found: u64 },
}

impl DatasetError {
    /// Whether the input must change; else another attempt may succeed.
    #[must_use]
    pub fn is_input(&self) -> bool {
        match self {
            Self::Index(error) => error.is_input(),
            Self::Differs { .. } | Self::OtherNumber { .. } => true,
        }
    }
}

/// The path of the index of a further dataset, for a job whose first dataset has its index at `first`: beside
/// that, unless the job names another path.
#[must_use]
pub fn further_index(dataset: &FurtherDataset, first: &Path) -> PathBuf {
    let path = dataset.index.clone().unwrap_or_else(|| {
        let stem = first.file_stem().unwrap_or_default().to_string_lossy();
        first.with_file_name(format!("{stem}-{}.index", dataset.name))
    });
    std::path::absolute(&path).unwrap_or(path)
}

/// Removes the least recently used files of a folder with this extension, so that `files_max` stay. Another
/// process may do so at the same time.
fn remove_oldest(folder: &Path, extension: &str, files_max: usize) -> io::Result<()> {
    remove_unfinished(folder, SystemTime::now())?;
    let mut kept = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == extension)
            && let Some(metadata) = if_there(fs::metadata(&path))?
        {
            kept.push((metadata.modified()?, path));
        }
    }
    kept.sort();
    let surplus = kept.len().saturating_sub(files_max);
    kept.iter().take(surplus).try_for_each(|(_, path)| if_there(fs::remove_file(path)).map(drop))
}

/// Removes the files of processes that ended before they gave a new file its name.
fn remove_unfinished(folder: &Path, now: SystemTime) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if is_unfinished(&path)
            && let Some(metadata) = if_there(fs::symlink_metadata(&path))?
        {
            // A link has the modification time of its file, but changes when it is made.
            let changed = Duration::from_secs(metadata.ctime().max(0).cast_unsigned());
            let age = now.duration_since(SystemTime::UNIX_EPOCH + changed);
            if age.is_ok_and(|age| age > UNFINISHED_FOR_MAX) {
                if_there(fs::remove_file(&path))?;
            }
        }
    }
    Ok(())
}

/// `None` if another process removed the file.
fn if_there<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// [`Index::build`], with its warnings, and one if the kernel does not confine the indexer of HDF5, whose
/// files may be hostile.
pub fn build(
    dataset: &Dataset,
    previous: Option<&Index>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Index, IndexError> {
    if matches!(dataset.format, Format::Hdf5 { .. }) && !has_landlock() {
        tracing::warn!(
            "this kernel has no Landlock: the indexer of HDF5 can open other files and connections"
        );
    }
    let index = Index::build(dataset, previous, progress)?;
    for warning in index.warnings() {
        tracing::warn!("{warning}");
    }
    Ok(index)
}

/// A warning if a rank has not enough samples for a batch: most often a sample is more than its user thinks.
#[must_use]
pub fn few_samples(format: &Format, samples: u32, ranks: u32, batch_size: u32) -> Option<String> {
    let what = match format {
        Format::Files(_) => "a sample is a whole file, whose lines or rows are none",
        Format::Parquet(_) => "a sample is a row group",
        Format::Arrow => "a sample is a record batch",
        _ => "docs/formats.md says what a sample is",
    };
    (samples / ranks.max(1) < batch_size).then(|| {
        format!(
            "{samples} samples for {ranks} ranks are fewer than a batch of {batch_size}: {what}"
        )
    })
}

/// Opens the index at `path` if it is that of `dataset` as it is now, else builds it and stores it there.
/// Calls `progress` while it builds.
pub fn open_or_build(
    dataset: &Dataset,
    path: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Index, DatasetError> {
    Index::check_place(dataset, path)?;
    let kept = Index::open(path).ok();
    let kept = match kept {
        Some(index) if is_fresh(&index, dataset, progress) => return Ok(index),
        other => other,
    };
    let index = build(dataset, kept.as_ref(), progress)?;
    index.save(path)?;
    Ok(index)
}

/// The times of directories show added and removed files; a bucket must be listed.
fn is_fresh(index: &Index, dataset: &Dataset, progress: &mut dyn FnMut(Progress)) -> bool {
    match dataset.source {
        Location::Path(_) => index.check(dataset).is_ok(),
        Location::Bucket(_) => index.verify(dataset, progress).is_ok(),
    }
}

/// Opens the index at `path` if it is that of `dataset` with the fingerprint `expected`, even if the dataset
/// has changed since: a restarted process continues beside damaged objects, and each read checks whether its
/// object is whole.
#[must_use]
pub fn reopen(dataset: &Dataset, path: &Path, expected: u64) -> Option<Index> {
    let kept = Index::open(path).ok()?;
    (kept.fingerprint() == expected && kept.is_of(dataset)).then_some(kept)
}

/// As [`reopen`], else as [`open_or_build`]. The index must have the fingerprint `expected`, which is the
/// manager's.
///
/// # Errors
///
/// [`DatasetError::Differs`] if the dataset on this host is another one.
pub fn open_or_build_same(
    dataset: &Dataset,
    path: &Path,
    expected: u64,
) -> Result<Index, DatasetError> {
    let differs = |found| DatasetError::Differs { place: dataset.source.clone(), expected, found };
    if let Some(kept) = reopen(dataset, path, expected) {
        return Ok(kept);
    }
    let index = open_or_build(dataset, path, &mut |_| ())?;
    if index.fingerprint() == expected {
        return Ok(index);
    }
    // The quick check of a stored index misses files that were rewritten in place.
    let index = build(dataset, None, &mut |_| ())?;
    if index.fingerprint() != expected {
        return Err(differs(index.fingerprint()));
    }
    index.save(path)?;
    Ok(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_managers_index_is_used_again_whatever_became_of_the_dataset() {
        let folder = tempfile::tempdir().unwrap();
        let (data, path) = (folder.path().join("data"), folder.path().join("dataset.tfi"));
        let class = data.join("cat");
        fs::create_dir_all(&class).unwrap();
        for name in ["a.jpg", "b.jpg"] {
            fs::write(class.join(name), name).unwrap();
        }
        let dataset = Dataset::new(Location::Path(data), Format::ImageFolder);
        let expected = open_or_build(&dataset, &path, &mut |_| ()).unwrap().fingerprint();
        fs::remove_file(class.join("b.jpg")).unwrap();
        let kept = open_or_build_same(&dataset, &path, expected).unwrap();
        assert_eq!((kept.len(), kept.fingerprint()), (2, expected));
        let error = open_or_build_same(&dataset, &path, expected + 1).unwrap_err();
        assert!(matches!(error, DatasetError::Differs { .. }), "{error}");
    }

    #[test]
    fn samples_that_fill_no_batch_are_told_with_what_a_sample_is() {
        let few = |samples, ranks| few_samples(&Format::Arrow, samples, ranks, 16);
        let warning = few(31, 2).unwrap();
        assert_eq!(
            warning,
            "31 samples for 2 ranks are fewer than a batch of 16: a sample is a record batch"
        );
        assert_eq!([few(32, 2), few(16, 1)], [None, None]);
    }

    #[test]
    fn processes_may_remove_the_oldest_files_at_the_same_time() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..500 {
            fs::write(folder.path().join(format!("{number}.sizes")), "").unwrap();
        }
        let remove = || remove_oldest(folder.path(), "sizes", 7);
        let outcomes = std::thread::scope(|scope| {
            [(); 4].map(|()| scope.spawn(remove)).map(|it| it.join().unwrap())
        });
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        assert!(fs::read_dir(folder.path()).unwrap().count() <= 7);
    }

    #[test]
    fn what_was_not_finished_is_removed_after_an_hour() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.sizes", "a.new-0123456789abcdef", "b.new-17"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let files_after = |seconds| {
            let now = SystemTime::now() + Duration::from_secs(seconds);
            remove_unfinished(folder.path(), now).unwrap();
            fs::read_dir(folder.path()).unwrap().count()
        };
        assert_eq!(files_after(3500), 3);
        assert_eq!(files_after(3700), 1);
        assert!(folder.path().join("a.sizes").exists());
    }
}
