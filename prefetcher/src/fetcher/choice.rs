//! Chooses how files are read: by rings with direct I/O, or by threads through the page cache.
//!
//! Rings need less CPU time wherever a file system has direct I/O, but file servers are often slower with it.
//! So both engines read a few cold samples of the dataset in turn, and threads are used if they are clearly
//! faster. Samples that are files of their own are always read by threads: most of the work is to open them,
//! which a ring hands to threads of the kernel.

use std::{
    fmt, io,
    num::NonZeroUsize,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use tierfeed_core::{
    id::SampleId,
    tier::Locality,
    units::{Bytes, BytesPerSecond},
};
use tierfeed_file_io::io_uring_available;
use tierfeed_numa_memory::{Pages, Region, Request};

use crate::fetcher::{
    Fetch, Fetcher, RING_DEPTH_MAX, Reason, RingFetcher, RingSettings, Target, ThreadFetcher,
    Trial, ring::is_for_rings,
};
use tierfeed_dataset::{
    pace::Pace,
    read::{FileSource, ReadError},
};

/// The most threads that read files. The session decides how many of them work: it issues no more reads
/// than increase the rate.
pub const FILE_THREADS: NonZeroUsize = NonZeroUsize::new(32).expect("32 is not 0");

/// One thread with a ring for this many CPUs, and at most [`RINGS_MAX`] threads.
const CPUS_PER_RING: usize = 4;
const RINGS_MAX: usize = 4;

/// Files of the dataset that stay open, for each engine.
const OPEN_FILES_MAX: usize = 256;

/// One engine reads at most this many bytes in a round of the trial, and this fraction of the dataset.
const ROUND_MAX: Bytes = Bytes(8 << 20);
const ROUND_PART: u64 = 400;
/// The number of samples in a round; with fewer the rate is noise.
const SAMPLES_MIN: usize = 4;
const SAMPLES_MAX: usize = 64;
/// Rounds of the trial for each engine.
const ROUNDS: usize = 2;
/// A round that takes longer ends the trial.
const ROUND_TIMEOUT: Duration = Duration::from_secs(1);
/// Threads are chosen if their rate is above this many percent of the rate of rings.
const MARGIN_PERCENT: u64 = 115;
/// Samples start at multiples of this in staging, in bytes.
const SAMPLE_ALIGNMENT: u64 = 64;

#[derive(Debug)]
pub enum Choice {
    Rings(Trial),
    Threads(Reason),
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = "threads, through the page cache";
        match self {
            Self::Rings(trial) => write!(f, "io_uring, past the page cache{trial}"),
            Self::Threads(Reason::NoRings(why)) => write!(f, "{threads}: {why}"),
            Self::Threads(Reason::Failed(why)) => write!(f, "{threads}: no ring: {why}"),
            Self::Threads(Reason::WholeFiles) => {
                write!(f, "{threads}: samples are files of their own or compressed")
            }
            Self::Threads(Reason::NoDirect(why)) => {
                write!(f, "{threads}: the file system has no direct I/O: {why}")
            }
            Self::Threads(Reason::NoView(why)) => {
                write!(f, "{threads}: Linux 6.5 or later tells what that holds: {why}")
            }
            Self::Threads(Reason::Faster(trial)) => write!(f, "{threads}{trial}"),
        }
    }
}

/// Starts the faster engine for the files of `source`, after a short trial that only reads. At most
/// `queued_max` fetches are in flight at a time.
///
/// # Errors
///
/// If threads cannot be started.
pub fn choose(
    source: &Arc<FileSource>,
    queued_max: NonZeroUsize,
) -> io::Result<(Box<dyn Fetcher>, Choice)> {
    let threads = ThreadFetcher::start(Arc::clone(source) as _, FILE_THREADS, queued_max)?;
    let (rings, trial) = match rings(source, queued_max) {
        Ok(rings) => {
            let trial = run_trial(source, &rings, &threads);
            (rings, trial)
        }
        Err(reason) => return Ok((Box::new(threads), Choice::Threads(reason))),
    };
    match trial.rates {
        Some((by_rings, by_threads)) if by_rings.0 / 100 * MARGIN_PERCENT < by_threads.0 => {
            Ok((Box::new(threads), Choice::Threads(Reason::Faster(trial))))
        }
        _ => Ok((Box::new(rings), Choice::Rings(trial))),
    }
}

fn rings(source: &Arc<FileSource>, queued_max: NonZeroUsize) -> Result<RingFetcher, Reason> {
    io_uring_available().map_err(Reason::NoRings)?;
    is_for_rings(source)?.then_some(()).ok_or(Reason::WholeFiles)?;
    let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let count = (cpus / CPUS_PER_RING).clamp(1, RINGS_MAX);
    let settings = RingSettings {
        threads: NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN),
        cpus: None,
        depth: RING_DEPTH_MAX,
        files_max: OPEN_FILES_MAX,
        blocking_threads: FILE_THREADS,
        queued_max,
    };
    RingFetcher::start(Arc::clone(source), &settings).map_err(Reason::Failed)
}

/// Lets both engines read different samples in turn.
fn run_trial(source: &FileSource, rings: &RingFetcher, threads: &ThreadFetcher) -> Trial {
    let index = source.index();
    let round = ROUND_MAX.min(Bytes(index.total().0 / ROUND_PART));
    let mean_len = (index.total().0 / u64::from(index.len())).max(1);
    let count = usize::try_from(round.0 / mean_len).unwrap_or(usize::MAX).min(SAMPLES_MAX);
    let mut samples = rings.cold_samples(count * ROUNDS * 2).into_iter();
    let mut moved = [(0, 0); 2];
    for round in 0..ROUNDS * 2 {
        let samples: Vec<_> = samples.by_ref().take(count).collect();
        let is_ring = round % 2 == 0;
        let fetcher: &dyn Fetcher = if is_ring { rings } else { threads };
        let Some((bytes, ns)) = run_round(source, fetcher, &samples) else {
            return Trial { rates: None };
        };
        let (all_bytes, all_ns) = &mut moved[usize::from(!is_ring)];
        (*all_bytes, *all_ns) = (*all_bytes + bytes, *all_ns + ns);
    }
    let [rings, threads] = moved.map(|(bytes, ns)| {
        let rate = u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1));
        BytesPerSecond(u64::try_from(rate).unwrap_or(u64::MAX))
    });
    Trial { rates: Some((rings, threads)) }
}

/// Reads all samples at once; returns their bytes and the time in nanoseconds, or `None` if there are too
/// few, a read fails or it takes too long.
fn run_round(
    source: &FileSource,
    fetcher: &dyn Fetcher,
    samples: &[SampleId],
) -> Option<(u64, u64)> {
    if samples.len() < SAMPLES_MIN {
        return None;
    }
    let sizes = samples.iter().map(|sample| source.index().size(*sample).0);
    let room: u64 = sizes.clone().map(|len| len.next_multiple_of(SAMPLE_ALIGNMENT)).sum();
    if room > 2 * ROUND_MAX.0 {
        return None;
    }
    let (locality, pages) = (Locality::Anywhere, Pages::Small);
    let request = Request { len: Bytes(room), locality, name: "tierfeed-trial", pages };
    let region = Arc::new(Region::allocate(&request).ok()?);
    // One answer for each sample, so that no thread of a fetcher waits here.
    let (ended, outcomes) = mpsc::sync_channel(samples.len());
    let pace = Pace::start();
    let mut offset = 0;
    for (sample, len) in samples.iter().zip(sizes.clone()) {
        let to = Target::new(Arc::clone(&region), Bytes(offset), Bytes(len));
        offset += len.next_multiple_of(SAMPLE_ALIGNMENT);
        let ended = ended.clone();
        let answer = move |outcome: Result<(), ReadError>| {
            // The receiver is gone if the round was given up.
            let _ = ended.send(outcome.is_ok());
        };
        fetcher.start(Fetch::new(*sample, to, answer));
    }
    drop(ended);
    for _ in samples {
        let left = ROUND_TIMEOUT.saturating_sub(Duration::from_nanos(pace.now().0));
        outcomes.recv_timeout(left).ok().filter(|is_there| *is_there)?;
    }
    Some((sizes.sum(), pace.now().0))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tierfeed_dataset::Format;
    use tierfeed_test_needs::{Need, skip};

    use super::*;
    use crate::fetcher::tests::{index_of, records};

    fn count(number: usize) -> NonZeroUsize {
        NonZeroUsize::new(number).unwrap()
    }

    #[test]
    fn files_of_their_own_are_for_threads() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("cat")).unwrap();
        fs::write(root.path().join("cat/1.jpg"), [7; 100]).unwrap();
        let source = FileSource::new(index_of(root.path(), Format::ImageFolder), 4);
        let (_, choice) = choose(&Arc::new(source), count(8)).unwrap();
        let is_expected = match io_uring_available() {
            Ok(()) => matches!(choice, Choice::Threads(Reason::WholeFiles)),
            Err(_) => matches!(choice, Choice::Threads(Reason::NoRings(_))),
        };
        assert!(is_expected, "{choice}");
    }

    #[test]
    fn what_lies_in_the_page_cache_is_not_tried_and_neither_is_a_small_dataset() {
        let records = records(1000, 5);
        let (_, choice) = choose(&records.source, count(8)).unwrap();
        match choice {
            Choice::Rings(Trial { rates }) => assert_eq!(rates, None),
            Choice::Threads(Reason::NoRings(why)) => skip(Need::IoUring, why),
            Choice::Threads(Reason::NoDirect(why)) => skip(Need::DirectIo, why),
            choice @ Choice::Threads(_) => panic!("{choice}"),
        }
    }

    #[test]
    fn a_trial_names_both_rates() {
        // Large enough that a round, which reads a small fraction of it, has enough samples.
        let records = records(16 << 10, 4000);
        records.make_cold();
        let rings = match rings(&records.source, count(64)) {
            Ok(rings) => rings,
            Err(Reason::NoDirect(why)) => return skip(Need::DirectIo, why),
            Err(reason) => return skip(Need::IoUring, Choice::Threads(reason)),
        };
        let threads = ThreadFetcher::start(Arc::clone(&records.source) as _, count(4), count(64));
        let threads = threads.unwrap();
        // Another process may read the file into the page cache again, but not every time.
        let trial = (0..10).map(|_| {
            records.make_cold();
            run_trial(&records.source, &rings, &threads)
        });
        let trial =
            trial.into_iter().find(|it| it.rates.is_some()).expect("a trial of a cold file");
        assert!(trial.rates.is_some_and(|(rings, threads)| rings.0 > 0 && threads.0 > 0));
        assert!(trial.to_string().contains("tried: io_uring"), "{trial}");
    }

    #[test]
    fn a_read_that_is_late_or_fails_ends_the_trial() {
        let records = records(1000, 50);
        let threads = ThreadFetcher::start(Arc::clone(&records.source) as _, count(1), count(64));
        let threads = threads.unwrap();
        let samples: Vec<_> = (0..8).map(SampleId).collect();
        assert!(run_round(&records.source, &threads, &samples).is_some());
        assert_eq!(run_round(&records.source, &threads, &samples[..3]), None, "too few");
        threads.stop();
        assert_eq!(run_round(&records.source, &threads, &samples), None);
    }
}
