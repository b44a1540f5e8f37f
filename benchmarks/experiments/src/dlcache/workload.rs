//! The patterns: which jobs run one after the other, and what each of them reads.
//!
//! A pattern is one order of the jobs of one configuration: how often the reused dataset is trained on,
//! how many jobs share the shared one, how many old chunks a window of the growing one has. Orders are
//! drawn as the published script draws them: NumPy's `RandomState(12345).shuffle`, one stream over all
//! patterns, storage outermost. So [`Patterns::Published`] is pattern for pattern what was published.

use std::iter::repeat_n;

use clap::ValueEnum;
use tierfeed_core::{order::mt19937::Mt19937, units::Bytes};

use super::chunks::{ChunkId, Chunks};

/// The unit of storage, as in the paper.
pub(super) const GB: u64 = 1_000_000_000;
const SEED: u64 = 12_345;
const REUSES: [usize; 3] = [1, 3, 5];
const SHARES: [usize; 4] = [1, 3, 5, 7];
const WINDOWS: [usize; 4] = [1, 3, 5, 7];

/// Sizes of storage are from 160 to 260 GB, with 50 orders of each list of jobs, or 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Patterns {
    /// The 24,000 of the paper: ten sizes of storage.
    #[value(name = "full")]
    Paper,
    /// The 14,400 that were published: six sizes of storage, and the same orders.
    Published,
    /// 576: six sizes of storage, two orders of each list of jobs.
    Quick,
}

impl Patterns {
    /// The levels of storage.
    ///
    /// # Source
    ///
    /// The paper names both ends and the count; even steps between them are an assumption.
    fn capacities(self) -> Vec<Bytes> {
        let levels = match self {
            Self::Paper => 10,
            Self::Published | Self::Quick => 6,
        };
        (0..levels).map(|level| Bytes(160 * GB + 100 * GB * level / (levels - 1))).collect()
    }

    const fn orders(self) -> usize {
        match self {
            Self::Paper | Self::Published => 50,
            Self::Quick => 2,
        }
    }
}

/// The chunks that a job reads, in turn; a chunk that several jobs share is listed once for each.
pub(super) type Job = Vec<ChunkId>;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pattern {
    pub(super) number: usize,
    pub(super) capacity: Bytes,
    pub(super) jobs: Vec<Job>,
}

#[derive(Debug, Clone, Copy)]
enum Dataset {
    Reused,
    Shared,
    Growing,
    Once,
}

#[derive(Debug, Clone, Copy)]
struct Configuration {
    capacity: Bytes,
    reuses: usize,
    shares: usize,
    /// Chunks of a window that an earlier window had.
    old: usize,
}

/// Every pattern, in the order of the published script.
pub(super) fn patterns(chunks: &Chunks, which: Patterns) -> impl Iterator<Item = Pattern> {
    let mut random = Mt19937::new(SEED);
    let all = configurations(which).into_iter().flat_map(move |it| repeat_n(it, which.orders()));
    all.enumerate().map(move |(number, it)| {
        let jobs = it.jobs(chunks, &mut random);
        Pattern { number, capacity: it.capacity, jobs }
    })
}

pub(super) fn count(which: Patterns) -> usize {
    configurations(which).len() * which.orders()
}

fn configurations(which: Patterns) -> Vec<Configuration> {
    let mut all = Vec::new();
    for capacity in which.capacities() {
        for reuses in REUSES {
            for shares in SHARES {
                all.extend(WINDOWS.map(|old| Configuration { capacity, reuses, shares, old }));
            }
        }
    }
    all
}

impl Configuration {
    /// The jobs in an order drawn from `random`. Windows keep their own order: time goes on.
    fn jobs(&self, chunks: &Chunks, random: &mut Mt19937) -> Vec<Job> {
        let mut windows = chunks.growing.windows(self.old + 1);
        let mut datasets = vec![Dataset::Reused; self.reuses];
        datasets.extend(vec![Dataset::Shared; self.shares]);
        datasets.extend(vec![Dataset::Growing; windows.len()]);
        datasets.push(Dataset::Once);
        shuffle(random, &mut datasets);
        let mut job = |dataset| match dataset {
            Dataset::Reused => chunks.reused.clone(),
            Dataset::Shared => repeated(&chunks.shared, self.shares),
            Dataset::Growing => windows.next().expect("a job for each window").to_vec(),
            Dataset::Once => chunks.once.clone(),
        };
        datasets.into_iter().map(&mut job).collect()
    }
}

fn repeated(chunks: &[ChunkId], times: usize) -> Job {
    chunks.iter().flat_map(|it| repeat_n(*it, times)).collect()
}

/// NumPy's `RandomState.shuffle` of a list.
///
/// # Source
///
/// `numpy/random/mtrand.pyx`, and `random_interval` in `src/distributions/distributions.c`.
pub(super) fn shuffle<T>(random: &mut Mt19937, items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, up_to(random, last));
    }
}

/// Draws a number from 0 to `most`: as many bits as `most` has, until they are at most `most`.
fn up_to(random: &mut Mt19937, most: usize) -> usize {
    let mask = u32::MAX >> u32::try_from(most).expect("few jobs").leading_zeros();
    loop {
        let drawn = (random.word() & mask) as usize;
        if drawn <= most {
            return drawn;
        }
    }
}
