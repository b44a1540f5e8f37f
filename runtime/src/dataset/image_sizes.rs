//! The sizes of all images of a dataset, from which the lengths of prepared samples follow.
//!
//! Only the head of each image is read, of many at a time. What was found is kept in a file beside the cached indexes,
//! under the fingerprint of the index, so that the next job on the dataset reads no head.
//!
//! 1. A file that is damaged, or of another index, counts as none.
//! 2. An image whose head cannot be read, or states no size, has none: no tier keeps it.
//! 3. At most [`FILES_MAX`] files are kept; the least recently used are removed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::SystemTime,
};

use tierfeed_core::{id::SampleId, units::Bytes};
use tierfeed_dataset::{
    Dataset, Index,
    read::{PartSource, sample_sum::sum_of},
};
use tierfeed_images::{SizeReader, SizeSearch};
use tierfeed_transform::{Pipeline, Size};

use crate::transport::token;

/// The most files that are kept.
pub const FILES_MAX: usize = 16;

/// The first read of an image. Most heads are shorter, and devices read no less.
const FIRST_BYTES: usize = 4 << 10;

/// A further read, behind metadata.
const FURTHER_BYTES: usize = 1 << 10;

/// The reads of one image; one of each segment of metadata suffices for a megabyte of them.
const READS_MAX: usize = 32;

/// Images that a thread takes at a time.
const AT_A_TIME: u32 = 64;

/// The format of the file.
const MAGIC: [u8; 8] = *b"TFSIZES1";

/// The sizes of the images of an index, by their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSizes(Vec<Option<Size>>);

impl ImageSizes {
    /// Reads the heads of all images of an index, by so many threads. Calls `progress` with the images that were
    /// looked at.
    pub fn scan_blocking(
        index: &Index,
        source: &dyn PartSource,
        threads: usize,
        progress: &(dyn Fn(u32) + Sync),
    ) -> Self {
        let samples: Vec<_> = (0..index.len()).map(SampleId).collect();
        Self(of_samples_blocking(&samples, index, source, threads, progress))
    }

    /// Images whose size is not known.
    #[must_use]
    pub fn unknown(&self) -> usize {
        self.0.iter().filter(|size| size.is_none()).count()
    }

    /// The length of each sample in prepared form; that of the stored one where there is none.
    #[must_use]
    pub fn prepared(&self, pipeline: &Pipeline, stored: &[Bytes]) -> Arc<[Bytes]> {
        let bytes = self.0.iter().map(|size| pipeline.prepared_bytes((*size)?).map(Bytes));
        bytes.zip(stored).map(|(prepared, stored)| prepared.unwrap_or(*stored)).collect()
    }

    fn encode(&self, fingerprint: u64) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(fingerprint.to_le_bytes());
        for size in &self.0 {
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
        Some(Self(sizes.chunks_exact(8).map(size).collect()))
    }
}

/// The sizes of some images of an index, read by so many threads.
pub(crate) fn of_samples_blocking(
    samples: &[SampleId],
    index: &Index,
    source: &dyn PartSource,
    threads: usize,
    progress: &(dyn Fn(u32) + Sync),
) -> Vec<Option<Size>> {
    let sizes: Vec<AtomicU64> = samples.iter().map(|_| AtomicU64::new(0)).collect();
    let (next, done) = (AtomicU32::new(0), AtomicU32::new(0));
    let count = u32::try_from(samples.len()).expect("samples are numbered with 32 bits");
    let at_a_time = count.div_ceil(u32::try_from(threads).unwrap_or(u32::MAX).max(1));
    let at_a_time = at_a_time.clamp(1, AT_A_TIME);
    let work = || {
        loop {
            let from = next.fetch_add(at_a_time, Ordering::Relaxed).min(count);
            let to = (from + at_a_time).min(count);
            if from == to {
                return;
            }
            for at in from as usize..to as usize {
                if let Some(Size { height, width }) = size(samples[at], index, source) {
                    let both = u64::from(height) << 32 | u64::from(width);
                    sizes[at].store(both, Ordering::Relaxed);
                }
            }
            progress(done.fetch_add(to - from, Ordering::Relaxed) + (to - from));
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
    let size = |both: AtomicU64| {
        let bytes = both.into_inner().to_be_bytes();
        let side = |at: usize| {
            bytes[at..at + 4].iter().fold(0_u32, |side, byte| side << 8 | u32::from(*byte))
        };
        let (height, width) = (side(0), side(4));
        Some(Size { height, width }).filter(|size| size.pixels() > 0)
    };
    sizes.into_iter().map(size).collect()
}

/// The size of an image by its head; `None` if it cannot be read, or states none.
fn size(sample: SampleId, index: &Index, source: &dyn PartSource) -> Option<Size> {
    let mut reader = SizeReader::default();
    let mut buffer = [0; FIRST_BYTES];
    for number in 0..READS_MAX {
        let room = if number == 0 { FIRST_BYTES } else { FURTHER_BYTES };
        let read = match source.read_part(sample, Bytes(reader.at()), &mut buffer[..room]) {
            Ok(read) => read,
            Err(error) => {
                let object = index.object_name(sample);
                tracing::debug!(sample = sample.0, object, %error, "the head of an image");
                return None;
            }
        };
        match reader.read(&buffer[..read]) {
            SizeSearch::Found(size) => {
                return Some(Size { height: size.height, width: size.width });
            }
            SizeSearch::None => return None,
            SizeSearch::Behind => (),
        }
    }
    None
}

/// The folder in which the sizes are kept from run to run.
#[derive(Debug, Clone)]
pub struct ImageSizeCache {
    folder: PathBuf,
}

impl ImageSizeCache {
    /// The sizes in `folder`, which need not exist yet.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The sizes of the images of an index, if they are known.
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

    /// Keeps the sizes of the images of an index, unless the folder is a part of its dataset.
    ///
    /// # Errors
    ///
    /// If the folder cannot be written; then the next run looks at the images again.
    pub fn keep(&self, dataset: &Dataset, index: &Index, sizes: &ImageSizes) -> io::Result<()> {
        let path = self.path_of(index);
        if Index::check_place(dataset, &path).is_err() {
            return Ok(());
        }
        fs::create_dir_all(&self.folder)?;
        let random = token::incarnation().map_err(io::Error::other)?;
        let beside = path.with_extension(format!("new-{random:016x}"));
        let kept = fs::write(&beside, sizes.encode(index.fingerprint()))
            .and_then(|()| fs::rename(&beside, &path));
        if kept.is_err() {
            // It may never have been there.
            let _ = fs::remove_file(&beside);
        }
        kept.and_then(|()| super::remove_oldest(&self.folder, "sizes", FILES_MAX))
    }

    fn path_of(&self, index: &Index) -> PathBuf {
        self.folder.join(format!("{:016x}.sizes", index.fingerprint()))
    }
}

#[cfg(test)]
mod tests;
