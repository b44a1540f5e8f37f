//! Where every sample of a dataset lies: which file, which bytes, how old, which class.
//!
//! Built once by listing and measuring the source, then kept in a file. In memory and in the file an
//! object takes 24 bytes and its name; a sample of an image folder is an object, a record of a raw
//! file takes nothing.
//!
//! 1. Every extent lies within its object.
//! 2. Sample ids are dense from 0, in the order in which the framework's own dataset numbers them.
//! 3. The same source gives the same index, and the same files the same fingerprint.
//! 4. Names are bytes: what the file system has, the index has, UTF-8 or not.

mod build;
mod error;
mod file;
mod image_folder;
mod kind;
mod layout;
mod measure;
mod raw;
mod stale;

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use tierfeed_core::{id::SampleId, units::Bytes};

use crate::job::Dataset;
use layout::Layout;

pub use build::{Progress, Stage};
pub use error::{Damage, IndexError};
pub use kind::Format;
pub use measure::mtime_ns;

/// An index in memory. Built or opened, it holds its invariants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    layout: Layout,
    /// For raw files, the first sample of each object and the number of samples at the end.
    first_samples: Vec<u32>,
    samples: u32,
    class_names: Vec<String>,
    fingerprint: u64,
}

/// Where a sample lies, and what its object was like when it was indexed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// The file that holds it, absolute.
    pub path: PathBuf,
    /// Where it starts in the file.
    pub offset: u64,
    /// How long it is. Zero for an empty image file.
    pub len: u64,
    /// The length of the file.
    pub object_size: u64,
    /// When the file was last written, in nanoseconds since 1970.
    pub object_mtime_ns: i64,
}

impl Index {
    /// Lists and measures a dataset. `progress` is called on this thread, now and then.
    ///
    /// # Errors
    ///
    /// If the source cannot be listed, has no samples or more than 32 bits can number, or is not what
    /// its format says. The message names the file or directory.
    pub fn build(
        dataset: &Dataset,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, IndexError> {
        Self::from_layout(build::layout(dataset, progress)?)
    }

    /// Reads an index file and checks it against its own checksum and length.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is no index, is of another version, or is damaged.
    pub fn open(path: &Path) -> Result<Self, IndexError> {
        Self::from_layout(file::read(path)?)
    }

    /// Writes the index beside `path` and then puts it in its place, so that no reader sees half.
    ///
    /// # Errors
    ///
    /// If the directory of `path` cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), IndexError> {
        file::write(&self.layout, path)
    }

    /// Whether this is the index of `dataset` as it is now, as far as a look at its directories tells.
    ///
    /// A file that was added, removed or renamed is found; one that was written in place is not (the
    /// prefetcher finds it when it reads, and [`Self::verify`] at once). In the root of an image
    /// folder only directories count, so the index itself may be kept there.
    ///
    /// # Errors
    ///
    /// If it is the index of something else, or a directory has changed since.
    pub fn check(&self, dataset: &Dataset) -> Result<(), IndexError> {
        stale::check(&self.layout, dataset)
    }

    /// Whether every file still has the size and the time of the index: one `stat` per file.
    ///
    /// # Errors
    ///
    /// If a directory or a file has changed since.
    pub fn verify(
        &self,
        dataset: &Dataset,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), IndexError> {
        stale::verify(&self.layout, dataset, progress)
    }

    /// Samples in the dataset, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "an index is never empty")]
    pub fn len(&self) -> u32 {
        self.samples
    }

    /// Files of the dataset.
    pub fn objects(&self) -> u64 {
        self.layout.objects.len() as u64
    }

    /// The bytes of one sample.
    ///
    /// # Panics
    ///
    /// If the index has no such sample.
    pub fn size(&self, sample: SampleId) -> Bytes {
        assert!(sample.0 < self.samples, "sample {} of {}", sample.0, self.samples);
        match self.layout.format {
            Format::Raw { record_bytes } => record_bytes,
            Format::ImageFolder => Bytes(self.layout.objects[sample.0 as usize].size),
        }
    }

    /// The bytes of each sample, in the order of their ids.
    pub fn sizes(&self) -> impl Iterator<Item = Bytes> + '_ {
        (0..self.samples).map(|sample| self.size(SampleId(sample)))
    }

    /// The bytes of all samples.
    pub fn total(&self) -> Bytes {
        Bytes(self.layout.objects.iter().map(|object| object.size).sum())
    }

    /// The class of a sample as a position in [`Self::class_names`], or `None` if the format has no
    /// classes.
    pub fn label(&self, sample: SampleId) -> Option<u32> {
        let after = self.layout.classes.partition_point(|class| class.first_object <= sample.0);
        after.checked_sub(1).and_then(|class| u32::try_from(class).ok())
    }

    /// The classes in the order of their labels. What is not UTF-8 in a name is replaced.
    pub fn class_names(&self) -> &[String] {
        &self.class_names
    }

    /// Where a sample lies.
    ///
    /// # Panics
    ///
    /// If the index has no such sample.
    pub fn extent(&self, sample: SampleId) -> Extent {
        assert!(sample.0 < self.samples, "sample {} of {}", sample.0, self.samples);
        let (number, offset) = self.object_of(sample);
        let object = self.layout.objects[number];
        Extent {
            path: self.layout.path_of(number),
            offset,
            len: self.size(sample).0,
            object_size: object.size,
            object_mtime_ns: object.mtime_ns,
        }
    }

    /// What to call a sample in a message: its file below the source, and for a record its place.
    pub fn object_name(&self, sample: SampleId) -> String {
        let (number, offset) = self.object_of(sample);
        let path = self.layout.path_of(number);
        let name = path.strip_prefix(&self.layout.root).unwrap_or(&path);
        let name = if name == Path::new("") { self.layout.root.as_path() } else { name };
        match self.layout.format {
            Format::ImageFolder => name.display().to_string(),
            Format::Raw { .. } => format!("{} at byte {offset}", name.display()),
        }
    }

    /// Tells this index from that of any other content: an xxh3-64 over source, format, classes, names,
    /// sizes and times of the files.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The source that was indexed, absolute.
    pub fn source(&self) -> &Path {
        &self.layout.root
    }

    /// How samples lie in files.
    pub fn format(&self) -> Format {
        self.layout.format
    }

    fn from_layout(layout: Layout) -> Result<Self, IndexError> {
        let first_samples = layout.first_samples()?;
        let samples = layout.samples()?;
        let class_names = layout.classes.iter().map(|class| lossy(&class.name)).collect();
        let fingerprint = file::fingerprint(&layout);
        Ok(Self { layout, first_samples, samples, class_names, fingerprint })
    }

    /// The object that holds `sample`, and where in it.
    fn object_of(&self, sample: SampleId) -> (usize, u64) {
        match self.layout.format {
            Format::ImageFolder => (sample.0 as usize, 0),
            Format::Raw { record_bytes } => {
                let object = self.first_samples.partition_point(|first| *first <= sample.0) - 1;
                let record = sample.0 - self.first_samples[object];
                (object, u64::from(record) * record_bytes.0)
            }
        }
    }
}

fn lossy(name: &[u8]) -> String {
    OsStr::from_bytes(name).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
