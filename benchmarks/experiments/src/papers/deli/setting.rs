//! The samples and loaders of a node, and their scale beside the paper's.

use tierfeed_core::units::{Bytes, BytesPerSecond};

/// The nodes of the paper; one of them runs here, and reads its part of the bucket.
pub(super) const NODES: u32 = 3;
/// Samples that a node reads in an epoch.
pub(super) const SAMPLES: u32 = 560;
/// The same in the paper, with MNIST.
const SAMPLES_PUBLISHED: u32 = 14_000;
/// The samples of the paper that one sample here stands for.
pub(super) const SCALE: u32 = SAMPLES_PUBLISHED / SAMPLES;
/// Bytes of a sample: 28 by 28 pixels.
pub(super) const SAMPLE: u64 = 784;
pub(super) const BATCH_PUBLISHED: u32 = 512;
pub(super) const EPOCHS: u32 = 2;
/// Threads of the parallel reader of Table I.
pub(super) const THREADS: u32 = 16;
pub(super) const CHUNK: Bytes = Bytes(64 << 10);
/// The limit of the disk below the cache and the files of the baseline: the published 18.63 MB/s of samples,
/// each of which takes a block of 4 KiB.
pub(super) const DISK: BytesPerSecond = BytesPerSecond(97_300_000);

/// The read rates of Table I, in bytes per second.
///
/// # Source
///
/// DELI, Table I.
pub(super) const PUBLISHED: Rates =
    Rates { disk: 18_630_000.0, sequential: 49_800.0, parallel: 281_730.0 };

/// Bytes per second of samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    pub(super) disk: f64,
    pub(super) sequential: f64,
    pub(super) parallel: f64,
}

/// A model that is trained, by how long it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Workload {
    Mnist,
    Cifar,
}

impl Workload {
    pub(super) const ALL: [Self; 2] = [Self::Mnist, Self::Cifar];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Mnist => "MNIST",
            Self::Cifar => "CIFAR-10",
        }
    }

    /// Seconds of computing over seconds of loading from the bucket, in an epoch.
    ///
    /// # Source
    ///
    /// DELI, section V-B, and the mean of the loading times that it published.
    fn computing(self) -> f64 {
        match self {
            Self::Mnist => 14.7 / self.published_bucket_s(),
            Self::Cifar => 147.2 / self.published_bucket_s(),
        }
    }

    pub(super) fn computing_s(self) -> f64 {
        step_s(self) * f64::from(steps())
    }

    /// Mean seconds that an epoch took to load sample by sample from the bucket.
    ///
    /// # Source
    ///
    /// The measurements that the authors of DELI published.
    pub(super) const fn published_bucket_s(self) -> f64 {
        match self {
            Self::Mnist => 752.5,
            Self::Cifar => 640.9,
        }
    }
}

/// The loader. Sizes are in samples of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reader {
    /// `DataLoader`, file by file from the disk.
    Disk,
    /// `DataLoader`, object by object from the bucket.
    Bucket,
    /// tierfeed with the cache and prefetching of DELI.
    Deli { cache: u32, fetch: u32, threshold: u32 },
    /// tierfeed with a cache of what was read last, without fetching ahead into it.
    Fifo { cache: u32 },
    /// tierfeed with its own policy.
    Gap { cache: u32 },
}

/// A cache that holds more than a node reads.
pub(super) const UNLIMITED: u32 = NODES * SAMPLES_PUBLISHED;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    pub(super) workload: Workload,
    pub(super) reader: Reader,
}

impl Run {
    pub(super) const fn new(workload: Workload, reader: Reader) -> Self {
        Self { workload, reader }
    }

    /// The same over files or objects one by one: it loads nothing while it computes, so the time to compute
    /// makes no difference, and one workload stands for both.
    pub(super) const fn baseline(reader: Reader) -> Self {
        Self { workload: Workload::Mnist, reader }
    }

    pub(super) fn name(self) -> String {
        let name = match self.reader {
            Reader::Disk => return "files from the disk".to_owned(),
            Reader::Bucket => return "objects from the bucket".to_owned(),
            Reader::Deli { cache, fetch, threshold } => {
                format!("deli, cache {cache}, fetch {fetch}, threshold {threshold}")
            }
            Reader::Fifo { cache } => format!("fifo, cache {cache}"),
            Reader::Gap { cache } => format!("gap, cache {cache}"),
        };
        format!("{}, {name}", self.workload.name())
    }
}

/// The number of samples here for a number of samples of the paper.
pub(super) const fn scaled(samples: u32) -> u32 {
    (samples * SAMPLES + SAMPLES_PUBLISHED / 2) / SAMPLES_PUBLISHED
}

/// Chunks of a cache for so many samples of the paper: the closest number, at least one.
pub(super) fn chunks(samples: u32) -> u64 {
    let bytes = u64::from(scaled(samples)) * SAMPLE;
    ((bytes + CHUNK.0 / 2) / CHUNK.0).max(1)
}

/// Samples here that fit into a cache for so many samples of the paper.
#[expect(clippy::cast_possible_truncation, reason = "fewer than an epoch has")]
pub(super) fn cached(samples: u32) -> u32 {
    (chunks(samples) * (CHUNK.0 / SAMPLE)) as u32
}

pub(super) fn steps() -> u32 {
    SAMPLES.div_ceil(scaled(BATCH_PUBLISHED))
}

/// Seconds that one thread needs for the samples of an epoch.
fn sequential_s() -> f64 {
    bytes_of(SAMPLES) / PUBLISHED.sequential
}

pub(super) fn step_s(workload: Workload) -> f64 {
    sequential_s() * workload.computing() / f64::from(steps())
}

#[expect(clippy::cast_precision_loss, reason = "few bytes")]
pub(super) fn bytes_of(samples: u32) -> f64 {
    (u64::from(samples) * SAMPLE) as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive rate")]
pub(super) fn together() -> BytesPerSecond {
    BytesPerSecond(PUBLISHED.parallel as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_the_paper_are_a_twenty_fifth_here() {
        assert_eq!([512, 1024, 2048].map(scaled), [20, 41, 82]);
        assert_eq!(SCALE, 25);
    }

    #[test]
    fn a_cache_has_as_many_chunks_as_come_closest_to_it() {
        // 83 samples fill a chunk; 82 are the cache of 2,048, 140 and 420 those of a quarter and three.
        assert_eq!([2_048, 3_500, 10_500].map(chunks), [1, 2, 5]);
        assert_eq!(chunks(1), 1, "a cache has a chunk at least");
    }
}
