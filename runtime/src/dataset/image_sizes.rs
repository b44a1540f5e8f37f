//! The sizes of all images of a dataset, from which the lengths of prepared samples follow.
//!
//! Only the head of each image is read, of many at a time. What was found is kept in a file beside the cached indexes,
//! under the fingerprint of the index, so that the next job on the dataset reads no head.
//!
//! 1. A file that is damaged, or of another index, counts as none.
//! 2. An image whose head states no size, or cannot be read, has none: no tier keeps it. Sizes are kept in a file only
//!    if every head could be read.
//! 3. At most [`FILES_MAX`] files are kept; the least recently used are removed.

use std::{
    fs, io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::SystemTime,
};

use tierfeed_core::{id::SampleId, units::Bytes};
use tierfeed_dataset::{
    Dataset, Index,
    read::{PartSource, ReadError, sample_sum::sum_of},
};
use tierfeed_images::{SizeReader, SizeSearch};
use tierfeed_transform::{Pipeline, Size};

use crate::whole_file;

pub const FILES_MAX: usize = 16;

/// The first read of an image. Most heads are shorter, and devices read no less.
const FIRST_BYTES: usize = 4 << 10;

/// A further read, behind metadata.
const FURTHER_BYTES: usize = 1 << 10;

/// The reads of one image; one of each segment of metadata suffices for a megabyte of them.
const READS_MAX: usize = 32;

/// The failures in a row, of all threads together, that end a scan: the cold store is down.
pub const FAILURES_MAX: u32 = 16;

/// Images that a thread takes at a time.
const AT_A_TIME: u32 = 64;

const MAGIC: [u8; 8] = *b"TFSIZES1";

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    #[error("{failures} heads of images in a row cannot be read; the last: {last}")]
    Unreadable {
        failures: u32,
        #[source]
        last: ReadError,
    },
    #[error("asked to end")]
    Ended,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSizes {
    sizes: Vec<Option<Size>>,
    unread: u32,
}

impl ImageSizes {
    /// Reads the heads of all images of an index, by `threads` threads. Calls `progress` with the number of
    /// images that were looked at, and ends if it says so.
    pub fn scan_blocking(
        index: &Index,
        source: &dyn PartSource,
        threads: usize,
        progress: &(dyn Fn(u32) -> ControlFlow<()> + Sync),
    ) -> Result<Self, ScanError> {
        let samples: Vec<_> = (0..index.len()).map(SampleId).collect();
        Self::of_samples_blocking(&samples, source, threads, progress)
    }

    /// As [`Self::scan_blocking`], of some images of an index.
    pub(crate) fn of_samples_blocking(
        samples: &[SampleId],
        source: &dyn PartSource,
        threads: usize,
        progress: &(dyn Fn(u32) -> ControlFlow<()> + Sync),
    ) -> Result<Self, ScanError> {
        let sizes: Vec<AtomicU64> = samples.iter().map(|_| AtomicU64::new(0)).collect();
        let [next, done, unread, in_a_row] = [const { AtomicU32::new(0) }; 4];
        let end = OnceLock::new();
        let count = u32::try_from(samples.len()).expect("samples are numbered with 32 bits");
        let failures_max = FAILURES_MAX.min(count);
        let at_a_time = count.div_ceil(u32::try_from(threads).unwrap_or(u32::MAX).max(1));
        let at_a_time = at_a_time.clamp(1, AT_A_TIME);
        let look_at = |at: usize| match size(samples[at], source) {
            Ok(size) => {
                let Size { height, width } = size.unwrap_or(Size { height: 0, width: 0 });
                sizes[at].store(u64::from(height) << 32 | u64::from(width), Ordering::Relaxed);
                in_a_row.store(0, Ordering::Relaxed);
            }
            Err(last) => {
                tracing::debug!(sample = samples[at].0, error = %last, "the head of an image");
                unread.fetch_add(1, Ordering::Relaxed);
                if in_a_row.fetch_add(1, Ordering::Relaxed) + 1 >= failures_max {
                    end.get_or_init(|| ScanError::Unreadable { failures: failures_max, last });
                }
            }
        };
        let work = || {
            loop {
                let from = next.fetch_add(at_a_time, Ordering::Relaxed).min(count);
                let to = (from + at_a_time).min(count);
                if from == to {
                    return;
                }
                for at in from as usize..to as usize {
                    look_at(at);
                    if progress(done.fetch_add(1, Ordering::Relaxed) + 1).is_break() {
                        end.get_or_init(|| ScanError::Ended);
                    }
                    if end.get().is_some() {
                        return;
                    }
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads.min(samples.len()) {
                // Without more threads this one does all.
                let thread = thread::Builder::new().name("image-sizes".to_owned());
                drop(thread.spawn_scoped(scope, work));
            }
            work();
        });
        if let Some(error) = end.into_inner() {
            return Err(error);
        }
        let size = |both: AtomicU64| {
            let bytes = both.into_inner().to_be_bytes();
            let side = |at: usize| {
                bytes[at..at + 4].iter().fold(0_u32, |side, byte| side << 8 | u32::from(*byte))
            };
            let (height, width) = (side(0), side(4));
            Some(Size { height, width }).filter(|size| size.pixels() > 0)
        };
        let sizes = sizes.into_iter().map(size).collect();
        Ok(Self { sizes, unread: unread.into_inner() })
    }

    /// Images whose head could not be read. Without them the sizes are those of the index.
    #[must_use]
    pub fn unread(&self) -> u32 {
        self.unread
    }

    /// The lengths of the samples that have a prepared form.
    pub(crate) fn known<'a>(&'a self, pipeline: &'a Pipeline) -> impl Iterator<Item = Bytes> + 'a {
        self.sizes.iter().flatten().filter_map(|size| pipeline.prepared_bytes(*size)).map(Bytes)
    }

    #[must_use]
    pub fn unknown(&self) -> usize {
        self.sizes.iter().filter(|size| size.is_none()).count()
    }

    /// The length of each sample in prepared form; 0 where it is not known, and no tier holds the sample.
    #[must_use]
    pub fn prepared(&self, pipeline: &Pipeline) -> Arc<[Bytes]> {
        let len = |size: &Option<Size>| {
            Bytes(size.and_then(|it| pipeline.prepared_bytes(it)).unwrap_or(0))
        };
        self.sizes.iter().map(len).collect()
    }

    fn encode(&self, fingerprint: u64) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(fingerprint.to_le_bytes());
        for size in &self.sizes {
            let Size { height, width } = size.unwrap_or(Size { height: 0, width: 0 });
            bytes.extend(height.to_le_bytes());
            bytes.extend(width.to_le_bytes());
        }
        let sum = sum_of(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], fingerprint: u64, samples: u32) -> Option<Self> {
        let (head, sum) = bytes.split_last_chunk::<8>()?;
        let sizes = head.strip_prefix(&MAGIC)?.strip_prefix(&fingerprint.to_le_bytes())?;
        let is_whole = u64::from_le_bytes(*sum) == sum_of(head);
        if !is_whole || sizes.len() as u64 != u64::from(samples) * 8 {
            return None;
        }
        let size = |it: &[u8]| {
            let height = u32::from_le_bytes([it[0], it[1], it[2], it[3]]);
            let width = u32::from_le_bytes([it[4], it[5], it[6], it[7]]);
            Some(Size { height, width }).filter(|size| size.pixels() > 0)
        };
        Some(Self { sizes: sizes.chunks_exact(8).map(size).collect(), unread: 0 })
    }
}

/// The size of an image by its head; `None` if that states none.
fn size(sample: SampleId, source: &dyn PartSource) -> Result<Option<Size>, ReadError> {
    let mut reader = SizeReader::default();
    let mut buffer = [0; FIRST_BYTES];
    for number in 0..READS_MAX {
        let room = if number == 0 { FIRST_BYTES } else { FURTHER_BYTES };
        let read = source.read_part(sample, Bytes(reader.at()), &mut buffer[..room])?;
        match reader.read(&buffer[..read]) {
            SizeSearch::Found(size) => {
                return Ok(Some(Size { height: size.height, width: size.width }));
            }
            SizeSearch::None => return Ok(None),
            SizeSearch::Behind => (),
        }
    }
    Ok(None)
}

/// The folder in which the sizes are kept from run to run.
#[derive(Debug, Clone)]
pub struct ImageSizeCache {
    folder: PathBuf,
}

impl ImageSizeCache {
    /// `folder` need not exist yet.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    #[must_use]
    pub fn get(&self, index: &Index) -> Option<ImageSizes> {
        let path = self.path_of(index);
        let sizes = ImageSizes::decode(&fs::read(&path).ok()?, index.fingerprint(), index.len())?;
        if let Ok(file) = fs::File::options().append(true).open(&path) {
            // Only the order in which files are removed depends on it.
            let _ = file.set_modified(SystemTime::now());
        }
        Some(sizes)
    }

    /// Keeps the sizes of the images of an index, unless the folder is a part of its dataset, or a head could not be
    /// read: the next run tries again.
    ///
    /// # Errors
    ///
    /// If the folder cannot be written; then the next run looks at the images again.
    pub fn keep(&self, dataset: &Dataset, index: &Index, sizes: &ImageSizes) -> io::Result<()> {
        let path = self.path_of(index);
        if sizes.unread > 0 || Index::check_place(dataset, &path).is_err() {
            return Ok(());
        }
        fs::create_dir_all(&self.folder)?;
        whole_file::write(&path, sizes.encode(index.fingerprint()))?;
        super::remove_oldest(&self.folder, "sizes", FILES_MAX)
    }

    fn path_of(&self, index: &Index) -> PathBuf {
        self.folder.join(format!("{:016x}.sizes", index.fingerprint()))
    }
}

#[cfg(test)]
mod tests;
