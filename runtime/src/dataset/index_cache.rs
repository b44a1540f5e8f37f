//! Caches the indexes of datasets from run to run, named by source and format.
//!
//! A run gets the index by a hard link into its run directory, so that removing or rebuilding it here does
//! not change a running job. Each run still lists the dataset, because only a listing shows objects that were
//! rewritten in place. Only the extents of unchanged objects come from the cached index.
//!
//! 1. At most [`INDEXES_MAX`] indexes are kept; the least recently used are removed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use tierfeed_dataset::{
    Dataset, Index,
    index::{IndexError, Progress},
};
use xxhash_rust::xxh3::xxh3_64;

use super::DatasetError;
use crate::whole_file::UNFINISHED;

pub const INDEXES_MAX: usize = 16;

#[derive(Debug, Clone)]
pub struct IndexCache {
    folder: PathBuf,
}

impl IndexCache {
    /// `folder` need not exist yet.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The index of `dataset` as it is now; reuses what is still right of the cached one. It is cached for
    /// later runs, and written to `place`.
    pub fn index(
        &self,
        dataset: &Dataset,
        place: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Index, DatasetError> {
        Index::check_place(dataset, place)?;
        let path = self.path_of(dataset);
        let kept = Index::open(&path).ok();
        let index = super::build(dataset, kept.as_ref(), progress)?;
        let is_kept = kept.is_some_and(|kept| kept.fingerprint() == index.fingerprint());
        if is_kept && link(&path, place).is_ok() {
            touch(&path);
            return Ok(index);
        }
        index.save(place)?;
        if let Err(error) = self.keep(dataset, place, &path) {
            tracing::debug!(%error, "the index is not kept for later runs");
        }
        Ok(index)
    }

    /// The index of `dataset` as it is now; reuses what is still right of the cached one and writes nothing.
    pub fn peek(
        &self,
        dataset: &Dataset,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Index, IndexError> {
        super::build(dataset, Index::open(&self.path_of(dataset)).ok().as_ref(), progress)
    }

    /// The name is a hash of source and format.
    fn path_of(&self, dataset: &Dataset) -> PathBuf {
        let what = format!("{:?} {:?}", dataset.source, dataset.format);
        self.folder.join(format!("{:016x}.index", xxh3_64(what.as_bytes())))
    }

    fn keep(&self, dataset: &Dataset, place: &Path, path: &Path) -> io::Result<()> {
        if Index::check_place(dataset, path).is_err() {
            // A folder in the dataset would count as a part of it.
            return Ok(());
        }
        fs::create_dir_all(&self.folder)?;
        link(place, path)?;
        super::remove_oldest(&self.folder, "index", INDEXES_MAX)
    }
}

/// Links a file to another name and replaces what is there; copies it to another file system.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    let beside = to.with_extension(format!("{UNFINISHED}{}", std::process::id()));
    let made = fs::hard_link(from, &beside).or_else(|_| fs::copy(from, &beside).map(drop));
    let moved = made.and_then(|()| fs::rename(&beside, to));
    // A rename between two links of the same file removes neither.
    drop(fs::remove_file(&beside));
    moved
}

/// Sets the time of the last use to now.
fn touch(path: &Path) {
    let touched = fs::File::options().append(true).open(path);
    if let Err(error) = touched.and_then(|file| file.set_modified(SystemTime::now())) {
        tracing::debug!(%error, "the time of an index stays as it is");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use tierfeed_dataset::{Format, source::Location};

    use super::*;

    fn fixture(files: &[&str]) -> (tempfile::TempDir, Dataset, IndexCache) {
        let folder = tempfile::tempdir().unwrap();
        let class = folder.path().join("data/cat");
        fs::create_dir_all(&class).unwrap();
        for name in files {
            fs::write(class.join(name), name).unwrap();
        }
        let source = Location::Path(folder.path().join("data"));
        let cache = IndexCache::new(&folder.path().join("indexes"));
        (folder, Dataset::new(source, Format::ImageFolder), cache)
    }

    fn inode(path: &Path) -> u64 {
        fs::metadata(path).unwrap().ino()
    }

    #[test]
    fn a_second_run_has_the_same_file_as_the_first() {
        let (folder, dataset, cache) = fixture(&["a.jpg", "b.jpg"]);
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        let first = cache.index(&dataset, &one, &mut |_| ()).unwrap();
        let second = cache.index(&dataset, &two, &mut |_| ()).unwrap();
        assert_eq!((first.len(), first.fingerprint()), (2, second.fingerprint()));
        assert_eq!(inode(&one), inode(&two));
        assert_eq!(fs::read_dir(folder.path().join("indexes")).unwrap().count(), 1);
        assert_eq!(cache.peek(&dataset, &mut |_| ()).unwrap().fingerprint(), first.fingerprint());
    }

    #[test]
    fn what_was_written_in_place_is_found_and_changes_no_earlier_run() {
        let (folder, dataset, cache) = fixture(&["a.jpg", "b.jpg"]);
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        let first = cache.index(&dataset, &one, &mut |_| ()).unwrap();
        fs::write(folder.path().join("data/cat/a.jpg"), "longer than before").unwrap();
        let second = cache.index(&dataset, &two, &mut |_| ()).unwrap();
        assert_ne!(first.fingerprint(), second.fingerprint());
        assert_eq!(Index::open(&one).unwrap().fingerprint(), first.fingerprint());
        assert_eq!(Index::open(&two).unwrap().fingerprint(), second.fingerprint());
    }

    #[test]
    fn the_indexes_that_were_used_last_stay() {
        let (folder, mut dataset, cache) = fixture(&["a.jpg"]);
        let place = folder.path().join("place");
        for number in 0..INDEXES_MAX + 3 {
            let data = folder.path().join(format!("data{number}"));
            std::os::unix::fs::symlink(folder.path().join("data"), &data).unwrap();
            dataset.source = Location::Path(data);
            cache.index(&dataset, &place, &mut |_| ()).unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number as u64);
            let file = fs::File::options().append(true).open(cache.path_of(&dataset)).unwrap();
            file.set_modified(time).unwrap();
        }
        assert!(cache.path_of(&dataset).exists());
        assert_eq!(fs::read_dir(folder.path().join("indexes")).unwrap().count(), INDEXES_MAX);
    }
}
