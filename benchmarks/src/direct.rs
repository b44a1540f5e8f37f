//! `tierfeed-bench direct`: samples of a tier read in place, beside a copy of them in main memory, turn by
//! turn.
//!
//! One side is what an agent and its trainer do with a copy: as many threads as copy take the samples of
//! a chunk to staging memory, then one thread reads them there. The other is what a trainer does in place:
//! one thread reads them through a read-only mapping of the shared tier. Both sides read by the same loop, the
//! checksum, which touches every byte once. The chunk is longer than any cache.
//!
//! Where the host has no memory behind CXL the tier is main memory too, and the outcome says so.

use std::{num::NonZeroUsize, sync::Arc, thread, time::Duration};

use anyhow::{Context as _, ensure};
use clap::{Args, builder::RangedU64ValueParser};
use serde::Serialize;
use tierfeed_core::{id::NumaNode, tier::Locality, units::Bytes};
use tierfeed_harness::{
    bench::Bench,
    clock::now,
    failure::Failure,
    judgement::{Judged, Judgement},
    output::step,
    statistics::percentile,
};
use tierfeed_numa_memory::{
    Checksum, Mapping, Pages, ReadView, Region, Request, SharedPool, SharedPoolRequest, Span,
    kernels,
};

/// The largest interquartile range, as a share of the median, that allows a verdict.
const SPREAD_MAX: f64 = 0.25;

/// With a lower ratio, copies were cheaper even in the turns that favoured reading in place.
const RATIO_MIN: f64 = 1.0;

#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// The NUMA node that the tier lies on [default: main memory stands for it].
    #[arg(long, value_name = "N")]
    pub numa_node: Option<u32>,
    /// What each turn reads; twice as much memory is taken.
    #[arg(long, value_name = "SIZE", default_value = "256 MiB")]
    pub chunk: Bytes,
    /// The length of a sample.
    #[arg(long, value_name = "SIZE", default_value = "112 KiB")]
    pub sample: Bytes,
    /// The number of threads that copy.
    #[arg(long, value_name = "NUMBER", default_value = "2")]
    pub threads: NonZeroUsize,
    /// Turns of each side, at least 3.
    #[arg(long, value_name = "NUMBER", default_value_t = 15,
          value_parser = RangedU64ValueParser::<usize>::new().range(3..=1000))]
    pub rounds: usize,
}

#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub numa_node: Option<u32>,
    pub chunk_bytes: u64,
    pub sample_bytes: u64,
    pub threads: usize,
    pub rounds: usize,
    /// Median.
    pub copy_ns_per_mib: f64,
    /// Median.
    pub read_copy_ns_per_mib: f64,
    /// Median.
    pub direct_ns_per_mib: f64,
    /// Copying and reading the copy over reading in place, median of the turns: above 1 in place is cheaper.
    pub ratio: f64,
    pub ratio_low: f64,
    pub ratio_high: f64,
    /// `in-place`, `copied` or `inconclusive`.
    pub cheaper: &'static str,
}

impl Judged for Outcome {
    /// Reading in place must not cost clearly more than a copy and reading that.
    fn judged(&self) -> Judgement {
        let judged = Judgement::default();
        let judged = judged.at_least("a copy over reading in place", self.ratio_high, RATIO_MIN);
        let what = "which of both is cheaper".to_owned();
        judged.verdict(what, self.cheaper)
    }
}

impl Bench for Settings {
    type Outcome = Outcome;

    fn run(self) -> Result<Outcome, Failure> {
        Ok(measure(&self)?)
    }
}

fn measure(settings: &Settings) -> anyhow::Result<Outcome> {
    ensure!(settings.sample.0 > 0, "samples of no bytes; at least one byte is needed");
    let memory = Memory::take(settings)?;
    let (mut copies, mut reads, mut directs) = (Vec::new(), Vec::new(), Vec::new());
    // The first turn of each side is left out: its memory is not in the caches and the TLB.
    for round in 0..=settings.rounds {
        step(&format!("turn {round} of {}", settings.rounds));
        let copy = memory.copy(settings)?;
        let read = timed(|| memory.read_copy(settings))?;
        let direct = timed(|| memory.read_in_place(settings))?;
        if round > 0 {
            copies.push(per_mib(copy, settings));
            reads.push(per_mib(read, settings));
            directs.push(per_mib(direct, settings));
        }
    }
    outcome(settings, &copies, &reads, &directs)
}

fn outcome(
    settings: &Settings,
    copies: &[f64],
    reads: &[f64],
    in_place: &[f64],
) -> anyhow::Result<Outcome> {
    let sums = copies.iter().zip(reads).map(|(copy, read)| copy + read);
    let ratios: Vec<f64> = sums.zip(in_place).map(|(copied, direct)| copied / direct).collect();
    let at = |values: &[f64], percent| percentile(values, percent).context("no round was run");
    let (ratio, ratio_low, ratio_high) = (at(&ratios, 50)?, at(&ratios, 25)?, at(&ratios, 75)?);
    Ok(Outcome {
        numa_node: settings.numa_node,
        chunk_bytes: settings.chunk.0,
        sample_bytes: settings.sample.0,
        threads: settings.threads.get(),
        rounds: settings.rounds,
        copy_ns_per_mib: at(copies, 50)?,
        read_copy_ns_per_mib: at(reads, 50)?,
        direct_ns_per_mib: at(in_place, 50)?,
        ratio,
        ratio_low,
        ratio_high,
        cheaper: cheaper(ratio, ratio_low, ratio_high),
    })
}

fn cheaper(ratio: f64, low: f64, high: f64) -> &'static str {
    match () {
        // All but a quarter of the turns are on one side, however far they lie apart.
        () if low > 1.0 => "in-place",
        () if high < 1.0 => "copied",
        () if high - low > SPREAD_MAX * ratio => "inconclusive",
        () if ratio > 1.0 => "in-place",
        () => "copied",
    }
}

fn timed(act: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let start = now();
    act()?;
    Ok(start.elapsed())
}

#[expect(clippy::cast_precision_loss, reason = "a figure needs no more than 53 bits")]
fn per_mib(time: Duration, settings: &Settings) -> f64 {
    time.as_nanos() as f64 * Bytes::mib(1).0 as f64 / settings.chunk.0 as f64
}

/// A chunk of the tier, as mapped by the agent and by a trainer, and staging memory.
struct Memory {
    tier: Span,
    seen: ReadView,
    staging: Region,
}

impl Memory {
    fn take(settings: &Settings) -> anyhow::Result<Self> {
        let locality =
            settings.numa_node.map_or(Locality::Anywhere, |node| Locality::Numa(NumaNode(node)));
        let request = SharedPoolRequest {
            piece: settings.chunk,
            pieces_max: 1,
            locality,
            name: "tierfeed-bench-tier",
        };
        let pool = Arc::new(SharedPool::reserve(&request)?);
        let tier = pool.take()?;
        let seen = ReadView::map(pool.fd().try_clone_to_owned()?, pool.len())?;
        let staging = Region::allocate(&Request {
            len: settings.chunk,
            locality: Locality::Anywhere,
            name: "tierfeed-bench-staging",
            pages: Pages::Huge,
        })?;
        // Not zeros: pages that were never written may all be the kernel's zero page.
        tier.fill(Bytes(0), settings.chunk, 0x5a)?;
        Ok(Self { tier, seen, staging })
    }

    /// Copies every sample, divided over all threads, and returns the time.
    fn copy(&self, settings: &Settings) -> anyhow::Result<Duration> {
        let threads = settings.threads.get() as u64;
        let start = now();
        thread::scope(|scope| {
            let part = |of: u64| {
                let samples = samples(settings).skip(usize::try_from(of).unwrap_or(usize::MAX));
                let own = samples.step_by(settings.threads.get());
                scope.spawn(move || {
                    own.map(|(at, len)| self.copy_one(at, len)).try_for_each(|it| it)
                })
            };
            let started: Vec<_> = (0..threads).map(part).collect();
            started.into_iter().try_for_each(|it| it.join().expect("copies do not panic"))
        })?;
        Ok(start.elapsed())
    }

    fn copy_one(&self, at: Bytes, len: Bytes) -> anyhow::Result<()> {
        let (staging, tier): (&Mapping, &Mapping) = (&self.staging, &self.tier);
        if kernels::has_non_temporal_stores() {
            staging.copy_from_non_temporal(at, tier, at, len)?;
        } else {
            staging.copy_from(at, tier, at, len)?;
        }
        Ok(())
    }

    fn read_copy(&self, settings: &Settings) -> anyhow::Result<()> {
        for (at, len) in samples(settings) {
            self.staging.sum_into(at, len, &mut Checksum::of_len(len.0))?;
        }
        Ok(())
    }

    fn read_in_place(&self, settings: &Settings) -> anyhow::Result<()> {
        for (at, len) in samples(settings) {
            self.seen.sum_into(at, len, &mut Checksum::of_len(len.0))?;
        }
        Ok(())
    }
}

/// The start and the length of each sample.
fn samples(settings: &Settings) -> impl Iterator<Item = (Bytes, Bytes)> {
    let (chunk, sample) = (settings.chunk.0, settings.sample.0);
    let starts = (0..chunk.div_ceil(sample)).map(move |index| index * sample);
    starts.map(move |start| (Bytes(start), Bytes(sample.min(chunk - start))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_are_run_and_give_figures() {
        let settings = Settings {
            numa_node: None,
            chunk: Bytes::mib(4),
            sample: Bytes(100_000),
            threads: NonZeroUsize::new(2).unwrap(),
            rounds: 3,
        };
        let outcome = measure(&settings).unwrap();
        let figures = [
            outcome.copy_ns_per_mib,
            outcome.read_copy_ns_per_mib,
            outcome.direct_ns_per_mib,
            outcome.ratio,
        ];
        assert!(figures.iter().all(|it| it.is_finite() && *it > 0.0), "{outcome:?}");
        let covered: u64 = samples(&settings).map(|(_, len)| len.0).sum();
        assert_eq!(covered, settings.chunk.0);
    }

    #[test]
    fn every_sample_is_copied() {
        let settings = Settings {
            numa_node: None,
            chunk: Bytes::mib(1),
            sample: Bytes(70_000),
            threads: NonZeroUsize::new(3).unwrap(),
            rounds: 3,
        };
        let memory = Memory::take(&settings).unwrap();
        memory.copy(&settings).unwrap();
        let mut bytes = vec![0; 1 << 20];
        memory.staging.read(Bytes(0), &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0x5a));
    }

    #[test]
    fn what_lies_on_both_sides_by_far_says_nothing() {
        assert_eq!(cheaper(2.0, 1.1, 4.0), "in-place");
        assert_eq!(cheaper(0.5, 0.1, 0.9), "copied");
        assert_eq!(cheaper(1.1, 0.7, 1.5), "inconclusive");
        assert_eq!(cheaper(1.1, 0.98, 1.2), "in-place");
    }
}
