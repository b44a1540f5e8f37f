//! Chooses how files are read: by rings past the page cache, or by threads through it.
//!
//! Rings cost less of the processor wherever a file system can bypass the page cache, but file servers
//! are slower that way more often than not, so both read a few cold samples of the dataset in turn, and
//! threads are taken if they are clearly faster. Samples that are files of their own are for threads in
//! any case: most of the work is to open them, which a ring hands to threads of the kernel.

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

/// Threads that read files at most. How many do is up to the session, which gives out no more reads than
/// it gains by.
pub const FILE_THREADS: NonZeroUsize = NonZeroUsize::new(32).expect("32 is not 0");

/// Threads with a ring: one for so many CPUs, and at most so many.
const CPUS_PER_RING: usize = 4;
const RINGS_MAX: usize = 4;

/// Files of the dataset that stay open, for each way to read.
const OPEN_FILES_MAX: usize = 256;

/// What one engine reads in a turn of the trial: at most this, and this part of the dataset.
const TURN_MAX: Bytes = Bytes(8 << 20);
const TURN_PART: u64 = 400;
/// Samples of a turn: fewer say nothing.
const SAMPLES_MIN: usize = 4;
const SAMPLES_MAX: usize = 64;
/// Turns of each engine.
const TURNS: usize = 2;
/// How long one turn is waited for.
const TURN_PATIENCE: Duration = Duration::from_secs(1);
/// Threads are taken if they are faster by more than this, in hundredths.
const CLEARLY: u64 = 115;
/// Samples start on multiples of this in staging.
const GRAIN: u64 = 64;

/// How files are read, and why.
#[derive(Debug)]
pub enum Choice {
    /// By rings, past the page cache.
    Rings(Trial),
    /// By threads.
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

/// Starts the better way to read the files of `source`, after a short trial that only reads. At most
/// `queued_max` fetches are given at a time.
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
            let trial = try_out(source, &rings, &threads);
            (rings, trial)
        }
        Err(reason) => return Ok((Box::new(threads), Choice::Threads(reason))),
    };
    match trial.rates {
        Some((ours, theirs)) if ours.0 / 100 * CLEARLY < theirs.0 => {
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

/// Lets both read other samples in turn.
fn try_out(source: &FileSource, rings: &RingFetcher, threads: &ThreadFetcher) -> Trial {
    let index = source.index();
    let turn = TURN_MAX.min(Bytes(index.total().0 / TURN_PART));
    let usual = (index.total().0 / u64::from(index.len())).max(1);
    let count = usize::try_from(turn.0 / usual).unwrap_or(usize::MAX).min(SAMPLES_MAX);
    let mut samples = rings.cold_samples(count * TURNS * 2).into_iter();
    let mut moved = [(0, 0); 2];
    for turn in 0..TURNS * 2 {
        let samples: Vec<_> = samples.by_ref().take(count).collect();
        let is_ring = turn % 2 == 0;
        let fetcher: &dyn Fetcher = if is_ring { rings } else { threads };
        let Some((bytes, ns)) = turn_of(source, fetcher, &samples) else {
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
/// few or they do not come.
fn turn_of(source: &FileSource, fetcher: &dyn Fetcher, samples: &[SampleId]) -> Option<(u64, u64)> {
    if samples.len() < SAMPLES_MIN {
        return None;
    }
    let sizes = samples.iter().map(|sample| source.index().size(*sample).0);
    let room: u64 = sizes.clone().map(|len| len.next_multiple_of(GRAIN)).sum();
    if room > 2 * TURN_MAX.0 {
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
        offset += len.next_multiple_of(GRAIN);
        let ended = ended.clone();
        let answer = move |outcome: Result<(), ReadError>| {
            // Nobody listens any more if the turn was given up.
            let _ = ended.send(outcome.is_ok());
        };
        fetcher.start(Fetch::new(*sample, to, answer));
    }
    drop(ended);
    for _ in samples {
        let left = TURN_PATIENCE.saturating_sub(Duration::from_nanos(pace.now().0));
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
        // Large enough that a turn, which is a small part of it, has samples enough.
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
            try_out(&records.source, &rings, &threads)
        });
        let trial =
            trial.into_iter().find(|it| it.rates.is_some()).expect("a trial of a cold file");
        assert!(trial.rates.is_some_and(|(rings, threads)| rings.0 > 0 && threads.0 > 0));
        assert!(trial.to_string().contains("tried: io_uring"), "{trial}");
    }

    #[test]
    fn what_does_not_come_in_time_or_fails_ends_the_trial() {
        let records = records(1000, 50);
        let threads = ThreadFetcher::start(Arc::clone(&records.source) as _, count(1), count(64));
        let threads = threads.unwrap();
        let samples: Vec<_> = (0..8).map(SampleId).collect();
        assert!(turn_of(&records.source, &threads, &samples).is_some());
        assert_eq!(turn_of(&records.source, &threads, &samples[..3]), None, "too few");
        threads.stop();
        assert_eq!(turn_of(&records.source, &threads, &samples), None);
    }
}
