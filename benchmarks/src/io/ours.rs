//! A turn of a fetcher of the agent.
//!
//! Each completion starts the next fetch to the same place, so that as many are in flight as with fio.

use std::{
    num::{NonZeroU16, NonZeroUsize},
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use anyhow::Context as _;
use nix::sys::resource::UsageWho;
use tierfeed_core::{id::SampleId, tier::Locality, units::Bytes};
use tierfeed_dataset::read::{FileSource, ReadError};
use tierfeed_numa_memory::{Pages, Region, Request};
use tierfeed_prefetcher::fetcher::{
    Fetch, Fetcher, RingFetcher, RingSettings, Target, ThreadFetcher,
};
use tierfeed_resource_gatherer::probe::clock::{Clock as _, SystemClock};

use super::{Engine, Pattern, Task, Turn, blocks};
use crate::cpu_time::cpu_time;

const FILES_MAX: usize = 64;

pub(super) fn turn(task: &Task<'_>, seed: u64) -> anyhow::Result<Turn> {
    let count = blocks(task)?;
    let places = Bytes(task.block.0 * u64::from(task.depth));
    let request =
        Request { len: places, locality: Locality::Anywhere, name: "bench", pages: Pages::Small };
    let region = Arc::new(Region::allocate(&request)?);
    let fetcher: Arc<dyn Fetcher> = fetcher(task)?.into();
    let mut order = samples(task, seed);
    let rest = order.split_off(count as usize);
    // The warm-up opens files and registers memory, as fio does before it starts its clock.
    let warm_up = if rest.is_empty() { &order } else { &rest };
    let warm_up = warm_up.iter().copied().take(task.depth as usize).collect();
    read(&fetcher, task, &region, warm_up)?;
    let (started, cpu_before) = (SystemClock.wall(), cpu_time(UsageWho::RUSAGE_SELF)?);
    read(&fetcher, task, &region, order)?;
    let (ended, cpu_after) = (SystemClock.wall(), cpu_time(UsageWho::RUSAGE_SELF)?);
    let bytes = to_f64(u64::from(count) * task.block.0);
    Ok(Turn {
        bytes_per_s: bytes * 1e9 / to_f64(ended.0 - started.0),
        cpu_s_per_gb: cpu_after.saturating_sub(cpu_before).as_secs_f64() / (bytes / 1e9),
    })
}

/// Reads all samples, as many at a time as the task says, and waits for them.
fn read(
    fetcher: &Arc<dyn Fetcher>,
    task: &Task<'_>,
    region: &Arc<Region>,
    samples: Vec<SampleId>,
) -> anyhow::Result<()> {
    // One word for each place, when its last read has ended.
    let (ended, failures) = mpsc::sync_channel(task.depth as usize);
    let (of, next) = (Arc::downgrade(fetcher), AtomicUsize::new(0));
    let reading = Arc::new(Reading { fetcher: of, samples, next, ended });
    for slot in 0..u64::from(task.depth) {
        let offset = Bytes(slot * task.block.0);
        let target = Target::new(Arc::clone(region), offset, task.block);
        Reading::read_next(&reading, target);
    }
    for _ in 0..task.depth {
        failures.recv().context("the fetcher dropped a fetch")?.context("a block was not read")?;
    }
    // The callbacks that started the last fetches may still hold the fetcher for the time of a call.
    while Arc::strong_count(fetcher) > 1 {
        thread::yield_now();
    }
    Ok(())
}

struct Reading {
    /// Weak, because a completion must not drop the fetcher: its threads cannot join themselves.
    fetcher: Weak<dyn Fetcher>,
    samples: Vec<SampleId>,
    next: AtomicUsize,
    ended: mpsc::SyncSender<Result<(), ReadError>>,
}

impl Reading {
    /// Reads the next block into `target`, and so on until there is none or one fails.
    fn read_next(reading: &Arc<Self>, target: Target) {
        let next = reading.next.fetch_add(1, Ordering::Relaxed);
        let Some(sample) = reading.samples.get(next) else {
            return drop(reading.ended.send(Ok(())));
        };
        let (again, place) = (Arc::clone(reading), target.clone());
        let fetch = Fetch::new(*sample, target, move |outcome| match outcome {
            Ok(()) => Self::read_next(&again, place),
            Err(error) => drop(again.ended.send(Err(error))),
        });
        if let Some(fetcher) = reading.fetcher.upgrade() {
            fetcher.start(fetch);
        }
    }
}

fn fetcher(task: &Task<'_>) -> anyhow::Result<Box<dyn Fetcher>> {
    let source = FileSource::new(Arc::clone(task.index), FILES_MAX);
    let source = match task.engine {
        Engine::Threads => source,
        Engine::ThreadsDropping | Engine::Ring => source.past_page_cache(),
    };
    let depth = NonZeroUsize::new(task.depth as usize).context("a depth of 0")?;
    Ok(match task.engine {
        Engine::Threads | Engine::ThreadsDropping => {
            Box::new(ThreadFetcher::start(Arc::new(source), depth, depth)?)
        }
        Engine::Ring => {
            let settings = RingSettings {
                threads: NonZeroUsize::MIN,
                cpus: None,
                depth: NonZeroU16::try_from(u16::try_from(task.depth)?)?,
                files_max: FILES_MAX,
                blocking_threads: NonZeroUsize::MIN,
                queued_max: depth,
            };
            Box::new(RingFetcher::start(Arc::new(source), &settings)?)
        }
    })
}

fn samples(task: &Task<'_>, seed: u64) -> Vec<SampleId> {
    let mut samples: Vec<SampleId> = (0..task.index.len()).map(SampleId).collect();
    if task.pattern == Pattern::Random {
        let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for at in (1..samples.len()).rev() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let other = usize::try_from(state % (at as u64 + 1)).unwrap_or(at);
            samples.swap(at, other);
        }
    }
    samples
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn to_f64(value: u64) -> f64 {
    value as f64
}
