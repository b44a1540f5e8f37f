//! The index of a dataset: for each sample its object, bytes, version and class.
//!
//! It is built once by listing the source and reading the positions of the samples from its
//! objects, then kept in a file, which is mapped: it is checked when it is opened, and read when a
//! sample is requested. An object takes 24 bytes and its name, 12 more if it has records. A sample
//! that is an object or a record takes nothing more, a sample with a position of its own 16 bytes,
//! 16 more if it is compressed, and 4 for a label (8 if one of the dataset needs them).
//!
//! 1. Every extent lies within its object.
//! 2. Sample ids are dense from 0, in the order in which the framework's own dataset numbers them.
//! 3. The same source gives the same index, and the same objects the same fingerprint.
//! 4. Names are bytes, as the file system has them, UTF-8 or not.

mod build;
mod choose;
mod differences;
mod draft;
mod error;
mod image;
mod parallel;
mod parse;
mod progress;
mod stale;

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use tierfeed_core::{id::SampleId, units::Bytes};
use tierfeed_transform::container::Column;

use crate::{
    Dataset,
    format::{
        Encoding, Range, Stated, Taken,
        image_folder::class_of,
        objects::{Classes, Objects, Sidecars},
    },
    source::{
        self, Location,
        names::{below, lossy},
    },
};
use draft::SourceKind;
use image::{Access, Image, Kind};

pub use crate::format::Checksums;
pub use differences::{Difference, DifferenceKind, Differences};
pub use error::{Damage, FileFault, IndexError};
pub use progress::{Progress, Stage};

/// An index in memory or in a file. Its invariants are checked when it is built or opened.
#[derive(Debug)]
pub struct Index {
    image: Image,
    samples: u32,
    /// First sample of each object, and at the end their number; empty if samples are objects.
    first_samples: Vec<u32>,
    /// First object of each class.
    first_objects: Vec<usize>,
    class_names: Vec<OsString>,
    total: Bytes,
    warnings: Vec<String>,
}

impl PartialEq for Index {
    fn eq(&self, other: &Self) -> bool {
        self.image == other.image
    }
}

impl Eq for Index {}

/// The position of a sample, and the state of its object when it was indexed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// The absolute path of the file that holds it; in a bucket the key below the source.
    pub path: PathBuf,
    pub offset: u64,
    /// Number of stored bytes.
    pub stored_len: u64,
    /// Length of the decoded sample.
    pub len: u64,
    pub encoding: Encoding,
    pub object_size: u64,
    /// Time of the last write of the object, in nanoseconds since 1970.
    pub object_mtime_ns: i64,
    /// The store's identifier of the version; `None` for files.
    pub etag: Option<String>,
}

pub fn mtime_ns(metadata: &fs::Metadata) -> i64 {
    metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec())
}

impl Index {
    /// Lists a dataset and finds its samples. Objects that `previous` has in their present version
    /// are not read again. `progress` is called on this thread, at intervals.
    ///
    /// # Errors
    ///
    /// If the source cannot be listed, has no samples or more than 32 bits can number, or does not
    /// conform to its format. The message names the object.
    pub fn build(
        dataset: &Dataset,
        previous: Option<&Self>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, IndexError> {
        let (draft, mut warnings) = build::draft(dataset, previous, progress)?;
        let image = image::encode(draft);
        if image.header.samples == 0 {
            return Err(choose::no_samples(dataset, &choose::PassedOver::default()));
        }
        let samples = image.header.samples;
        let too_many = |_| IndexError::TooManySamples { root: dataset.source.to_string(), samples };
        u32::try_from(samples).map_err(too_many)?;
        let impossible =
            |damage| IndexError::Impossible { root: dataset.source.to_string(), damage };
        image::check_invariants(&image).map_err(impossible)?;
        let index = Self::from_image(image);
        warnings.extend(index.missing_labels());
        Ok(Self { warnings, ..index })
    }

    /// Checks whether the index of `dataset` may be kept at `path`: not in the dataset itself,
    /// where it would change the time of a directory and might be taken for data. Beside the
    /// classes of an image folder it is harmless.
    ///
    /// # Errors
    ///
    /// [`IndexError::Inside`] if it may not.
    pub fn check_place(dataset: &Dataset, path: &Path) -> Result<(), IndexError> {
        let inside = || IndexError::Inside { path: path.to_owned() };
        let (Location::Path(source), Ok(path)) = (&dataset.source, std::path::absolute(path))
        else {
            return Ok(());
        };
        let parent = path.parent().unwrap_or(&path);
        let (parent, source) = (fs::canonicalize(parent), fs::canonicalize(source));
        let (Ok(parent), Ok(source)) = (parent, source) else { return Ok(()) };
        let is_beside_classes =
            dataset.format.kind().taken == Taken::InDirectories && parent == source;
        let harms = parent.starts_with(&source) && !is_beside_classes;
        if harms { Err(inside()) } else { Ok(()) }
    }

    /// Opens an index file and checks it against its own checksum and length. On a local file
    /// system it stays mapped; then truncating it in place ends the process.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is no index, is of another version, or is damaged.
    pub fn open(path: &Path) -> Result<Self, IndexError> {
        Ok(Self::from_image(image::open(path, Access::MappedIfLocal)?))
    }

    /// As [`Self::open`], but reads the whole file into memory, so that no later change of the file
    /// can end the process: for processes of the user, such as trainers.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn read(path: &Path) -> Result<Self, IndexError> {
        Ok(Self::from_image(image::open(path, Access::Read)?))
    }

    /// Checks the bytes of an index file against their own checksum and length. Errors name
    /// `file_name`.
    ///
    /// # Errors
    ///
    /// If the bytes are no index, of another version, or damaged.
    pub fn parse(bytes: Vec<u8>, file_name: &Path) -> Result<Self, IndexError> {
        Ok(Self::from_image(image::parse(bytes, file_name)?))
    }

    /// Writes the index to a file beside `path` and renames it, so that no reader sees a part.
    ///
    /// # Errors
    ///
    /// If the directory of `path` cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), IndexError> {
        image::save(&self.image, path)
    }

    /// Checks whether this is the index of `dataset` in its present state, as far as its directories and a
    /// sample of 200 objects show.
    ///
    /// A file that was added, removed or renamed is detected. A single file that was written in place is not:
    /// the prefetcher detects it when it reads the file, and [`Self::verify`] at once. In the root of an
    /// image folder only directories count, so the index itself may be kept there. A bucket has no
    /// directories: only another source or format is detected there.
    ///
    /// # Errors
    ///
    /// If it is the index of another dataset, or a directory has changed since.
    pub fn check(&self, dataset: &Dataset) -> Result<(), IndexError> {
        stale::check(self, dataset)
    }

    /// Checks whether the source still has the objects of the index, with their sizes, times and
    /// `ETag`s; costs as much as a new listing.
    ///
    /// # Errors
    ///
    /// If an object was changed, added or removed since.
    pub fn verify(
        &self,
        dataset: &Dataset,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), IndexError> {
        let store = source::open(&dataset.source)?;
        stale::verify(self, dataset, &*store, progress).map(|_| ())
    }

    /// Returns the objects that differ from the index, for a job that continues with it nevertheless. In
    /// directories that changed since, at most 10,000 objects are checked. A bucket is not queried.
    pub fn differences(&self) -> Differences {
        differences::of(self)
    }

    /// Reads the whole dataset and compares it with the checksums of its format: the CRCs of
    /// `TFRecord` and npz, the hashes of MDS, the headers of tar.
    ///
    /// # Errors
    ///
    /// If the source is no longer that of the index, or an object is damaged; the error names it
    /// with the position.
    pub fn check_contents(
        &self,
        dataset: &Dataset,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Checksums, IndexError> {
        let store = source::open(&dataset.source)?;
        let chosen = stale::verify(self, dataset, &*store, progress)?;
        let rules = dataset.format.rules();
        let mut found = Checksums::None;
        if !rules.has_checksums() {
            return Ok(found);
        }
        let Objects { listing, sidecars, .. } = &chosen.objects;
        let check = |number: usize| {
            let opened = store.open(&listing.listed(number))?;
            let checked = match sidecars {
                Sidecars::Shards(shards) => shards.check(&*opened, number),
                _ => rules.check(&*opened, &self.ranges_of(number)),
            };
            opened.verify()?;
            checked.map_err(|source| chosen.broken(number, source))
        };
        let take = |_, checksums| {
            if checksums == Checksums::Hold {
                found = checksums;
            }
            Ok(())
        };
        parallel::in_order(listing.objects.len(), Stage::Checking, check, take, progress)?;
        Ok(found)
    }

    /// Findings for the user from building the index; empty for an index that was opened.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    #[expect(clippy::len_without_is_empty, reason = "an index is never empty")]
    pub fn len(&self) -> u32 {
        self.samples
    }

    /// Bytes of one sample, decoded.
    ///
    /// # Panics
    ///
    /// If the index has no such sample.
    pub fn size(&self, sample: SampleId) -> Bytes {
        assert!(sample.0 < self.samples, "sample {} of {}", sample.0, self.samples);
        Bytes(match self.image.header.kind {
            Kind::Objects => self.image.object(sample.0 as usize).size,
            Kind::Records => self.image.header.record_bytes,
            Kind::Ranges => match self.image.encoding(sample.0) {
                Encoding::Plain => self.image.place(sample.0).1,
                Encoding::Deflate { len, .. } => len,
            },
        })
    }

    pub fn sizes(&self) -> impl Iterator<Item = Bytes> + '_ {
        (0..self.samples).map(|sample| self.size(SampleId(sample)))
    }

    /// Bytes of all samples, decoded.
    pub fn total(&self) -> Bytes {
        self.total
    }

    pub fn objects(&self) -> usize {
        self.image.objects()
    }

    /// The class of a sample: a position in [`Self::class_names`] if directories are classes, else
    /// the label in the format, or `None` if it has none.
    ///
    /// # Panics
    ///
    /// If the index has no such sample.
    pub fn label(&self, sample: SampleId) -> Option<i64> {
        assert!(sample.0 < self.samples, "sample {} of {}", sample.0, self.samples);
        match self.image.header.classes() {
            Classes::None => self.image.label(sample.0),
            Classes::Directories => {
                let object = sample.0 as usize;
                let after = self.first_objects.partition_point(|first| *first <= object);
                after.checked_sub(1).and_then(|class| i64::try_from(class).ok())
            }
        }
    }

    /// Whether at least one sample has a label.
    pub fn has_labels(&self) -> bool {
        let header = &self.image.header;
        header.has_labels() || header.classes() == Classes::Directories
    }

    /// The columns of each sample; `None` if the format has none or no index beside the objects names them.
    pub fn columns(&self) -> Option<Vec<Column>> {
        self.image.contents().columns
    }

    /// The objects' statement about samples whose bytes do not say it, such as the type of their elements.
    pub fn stated(&self) -> Option<Stated> {
        self.image.contents().stated
    }

    /// The classes in the order of their labels, as the file system has their names.
    pub fn class_names(&self) -> &[OsString] {
        &self.class_names
    }

    /// The position of a sample.
    ///
    /// # Panics
    ///
    /// If the index has no such sample.
    pub fn extent(&self, sample: SampleId) -> Extent {
        let len = self.size(sample).0;
        let number = self.object_of(sample);
        let (offset, stored_len) = self.place(sample, number);
        let object = self.image.object(number);
        Extent {
            path: self.path_of(number),
            offset,
            stored_len,
            len,
            encoding: match self.image.header.kind {
                Kind::Ranges => self.image.encoding(sample.0),
                Kind::Objects | Kind::Records => Encoding::Plain,
            },
            object_size: object.size,
            object_mtime_ns: object.mtime_ns,
            etag: self.image.object_name(number).1.map(str::to_owned),
        }
    }

    /// The name of a sample in messages: its object below the source and, if it is only a part of
    /// it, its offset.
    pub fn object_name(&self, sample: SampleId) -> String {
        let number = self.object_of(sample);
        let path = self.image.object_path(number);
        let name = if path.is_empty() { self.source() } else { lossy(&path) };
        match self.image.header.kind {
            Kind::Objects => name,
            _ => format!("{name} at byte {}", self.place(sample, number).0),
        }
    }

    /// Distinguishes this index from any other content: an xxh3-64 over source, format, names,
    /// sizes, times and positions.
    pub fn fingerprint(&self) -> u64 {
        self.image.fingerprint()
    }

    /// The source that was indexed: an absolute path or a URL. Invalid UTF-8 is replaced.
    pub fn source(&self) -> String {
        lossy(self.image.source())
    }

    /// The directory or file that the dataset was indexed from; of a bucket its URL, which is no path.
    pub(crate) fn root(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.image.source()))
    }

    /// The format of the dataset, as [`crate::Format`] prints it.
    pub fn format(&self) -> &str {
        self.image.format()
    }

    fn from_image(image: Image) -> Self {
        let samples = u32::try_from(image.header.samples).expect("the number was checked");
        let mut index = Self {
            samples,
            first_samples: first_samples(&image),
            first_objects: Vec::new(),
            class_names: Vec::new(),
            total: Bytes(0),
            warnings: Vec::new(),
            image,
        };
        if index.image.header.classes() == Classes::Directories {
            index.find_classes();
        }
        index.total = Bytes(match index.image.header.kind {
            Kind::Records => index.image.header.record_bytes * u64::from(samples),
            Kind::Objects | Kind::Ranges => index.sizes().map(|size| size.0).sum(),
        });
        index
    }

    /// A note for the user if some samples have a label and others do not.
    fn missing_labels(&self) -> Option<String> {
        let is_without = |sample: &u32| self.image.label(*sample).is_none();
        let mut without = (0..self.samples).filter(is_without);
        let first = without.next().filter(|_| self.image.header.has_labels())?;
        let count = 1 + without.count();
        Some(format!(
            "{count} of {} samples have no label, the first in {}: the class of a sample is missing, or is no whole \
             number of 64 bits; trainers get -1 for them",
            self.samples,
            self.object_name(SampleId(first))
        ))
    }

    fn find_classes(&mut self) {
        let mut last: Option<&[u8]> = None;
        for number in 0..self.image.directories() {
            let objects = self.image.objects_of(number);
            let class = class_of(self.image.directory_name(number));
            if !objects.is_empty() && last != Some(class) {
                self.first_objects.push(objects.start);
                self.class_names.push(OsStr::from_bytes(class).to_owned());
                last = Some(class);
            }
        }
    }

    /// Whether this is the index of the source and format of `dataset`, of the present or an
    /// earlier state.
    #[must_use]
    pub fn is_of(&self, dataset: &Dataset) -> bool {
        let source = (self.image.header.source_kind(), self.image.source().to_vec());
        build::root_of(&dataset.source).is_ok_and(|root| root == source)
            && build::format_of(dataset).is_ok_and(|format| format == self.format())
    }

    /// Whether `count` objects on this host, spread over the index, are those that were indexed; for a node
    /// that got the index from another one. A bucket is not queried, and true is returned.
    #[must_use]
    pub fn has_objects_as_indexed(&self, count: usize) -> bool {
        differences::first_among(self, count).is_none()
    }

    /// The samples of an object; empty unless they lie at arbitrary positions.
    fn ranges_of(&self, object: usize) -> Vec<Range> {
        if self.image.header.kind != Kind::Ranges {
            return Vec::new();
        }
        let samples = self.first_samples[object]..self.first_samples[object + 1];
        let range = |sample| {
            let (offset, len) = self.image.place(sample);
            let (encoding, label) = (self.image.encoding(sample), self.image.label(sample));
            Range { offset, len, encoding, label }
        };
        samples.map(range).collect()
    }

    /// The number of a sample among those of its object, from 0, and how many these are.
    ///
    /// # Panics
    ///
    /// If the index has no such sample.
    pub fn place_in_object(&self, sample: SampleId) -> (u32, u32) {
        let object = self.object_of(sample);
        match self.image.header.kind {
            Kind::Objects => (0, 1),
            Kind::Records | Kind::Ranges => {
                let first = self.first_samples[object];
                (sample.0 - first, self.first_samples[object + 1] - first)
            }
        }
    }

    fn object_of(&self, sample: SampleId) -> usize {
        assert!(sample.0 < self.samples, "sample {} of {}", sample.0, self.samples);
        match self.image.header.kind {
            Kind::Objects => sample.0 as usize,
            Kind::Records | Kind::Ranges => {
                self.first_samples.partition_point(|first| *first <= sample.0) - 1
            }
        }
    }

    /// Start of a sample in its object, and its stored bytes.
    fn place(&self, sample: SampleId, object: usize) -> (u64, u64) {
        match self.image.header.kind {
            Kind::Objects => (0, self.image.object(object).size),
            Kind::Ranges => self.image.place(sample.0),
            Kind::Records => {
                let record_bytes = self.image.header.record_bytes;
                let record = u64::from(sample.0 - self.first_samples[object]);
                (self.image.start(object) + record * record_bytes, record_bytes)
            }
        }
    }

    fn path_of(&self, object: usize) -> PathBuf {
        let path = self.image.object_path(object);
        match self.image.header.source_kind() {
            SourceKind::Bucket => PathBuf::from(OsStr::from_bytes(&path)),
            SourceKind::FileSystem => {
                below(Path::new(OsStr::from_bytes(self.image.source())), &path)
            }
        }
    }
}

fn first_samples(image: &Image) -> Vec<u32> {
    if image.header.kind == Kind::Objects {
        return Vec::new();
    }
    let mut next = 0;
    let counts = (0..image.objects()).map(|object| image.count(object));
    let firsts = counts.map(|count| {
        next += count;
        next
    });
    std::iter::once(0).chain(firsts).collect()
}

#[cfg(test)]
mod tests;
