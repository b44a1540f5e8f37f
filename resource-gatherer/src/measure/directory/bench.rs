//! The jobs that are run on the file of a directory, one after another.
//!
//! The file is filled first, so that everything read was written.

use std::{cell::Cell, collections::VecDeque, ops::ControlFlow};

use fastrand::Rng;
use tierfeed_core::units::{Bytes, Nanoseconds};
use tierfeed_file_io::{AlignedBuffer, Engine, Kind};

use super::{
    BLOCK, DirectoryError, FILE_MIN,
    stream::{Abort, Arrival, Job, RANDOM_BLOCK, Stream, random_blocks, random_offset, stamp},
};
use crate::{
    figures::{
        RandomAccess,
        estimate::{Estimate, to_f64},
    },
    measure::{
        cell::{Cell as Samples, Occupation, Sample, StopRule},
        clock::{Clock, SystemClock},
        direct_file::DirectFile,
        laps::{LapEnd, Laps},
    },
};

const SEQUENTIAL_DEPTH: u32 = 8;
/// Blocks in a sample of a sequential rate: so many that the burst in which the blocks in flight arrive
/// matters little.
const BLOCKS_PER_LAP_MAX: u64 = 16;
/// Blocks in the buffers together: more than a last-level cache on most machines.
pub(super) const BUFFER_COUNT: usize = 64;

pub(super) struct Bench {
    pub(super) file: DirectFile,
    pub(super) engine: Engine,
    /// The length of the file that is written.
    pub(super) len: u64,
    pub(super) time: Nanoseconds,
    buffers: VecDeque<AlignedBuffer>,
    random: Rng,
    abort: Abort,
}

impl Bench {
    pub(super) fn new(
        file: DirectFile,
        (engine, buffers): (Engine, usize),
        time: Nanoseconds,
        abort: Abort,
    ) -> Result<Self, DirectoryError> {
        // The same in every run, so that two probes read the same blocks.
        let mut random = Rng::with_seed(1);
        let buffers = random_blocks(buffers, BLOCK, &mut random, &abort)?;
        Ok(Self { file, engine, len: 0, time, buffers, random, abort })
    }

    /// Writes the file once, block by block, until it has `len` or the time is over; at least [`FILE_MIN`].
    pub(super) fn fill_file(&mut self, len: Bytes) -> Result<Option<Estimate>, DirectoryError> {
        self.len = len.0;
        let job = Job { kind: Kind::Write, block: BLOCK, depth: SEQUENTIAL_DEPTH };
        let mut laps = self.laps();
        let Self { file, engine, buffers, random, abort, .. } = self;
        let mut stream = Stream::new(job, *engine, file, buffers, abort)?;
        let is_over = Cell::new(false);
        let mut offset = 0;
        stream.run(
            &mut |block| {
                if offset == len.0 || (is_over.get() && offset >= FILE_MIN.0) {
                    return Ok(None);
                }
                stamp(block, random);
                offset += BLOCK as u64;
                Ok(Some(offset - BLOCK as u64))
            },
            &mut |Arrival { at, latency }| {
                if laps.counts_last_of_lap(at, Some(latency), BLOCK as u64) {
                    file.write_through()?;
                    laps.close(SystemClock.wall());
                    is_over.set(laps.cell.is_out_of_time());
                }
                Ok(ControlFlow::Continue(()))
            },
        )?;
        self.len = offset;
        Ok(laps.rate())
    }

    /// Reads the file from start to end, again and again.
    pub(super) fn read_in_order(&mut self) -> Result<Option<Estimate>, DirectoryError> {
        let job = Job { kind: Kind::Read, block: BLOCK, depth: SEQUENTIAL_DEPTH };
        let mut laps = self.laps();
        let (file, len) = (&self.file, self.len);
        let mut stream = Stream::new(job, self.engine, file, &mut self.buffers, &self.abort)?;
        let mut offset = len;
        stream.run(
            &mut |_| {
                if offset == len {
                    file.forget_cache()?;
                    offset = 0;
                }
                offset += BLOCK as u64;
                Ok(Some(offset - BLOCK as u64))
            },
            &mut |Arrival { at, latency }| {
                if laps.counts_last_of_lap(at, Some(latency), BLOCK as u64) {
                    laps.close(at);
                }
                Ok(until_enough(&laps))
            },
        )?;
        Ok(laps.rate())
    }

    /// Reads chunks of `len` into memory of that size, each from the first request to the last byte, as
    /// a promotion does.
    pub(super) fn read_chunks(&mut self, len: Bytes) -> Result<Option<Estimate>, DirectoryError> {
        let (file, file_len) = (&self.file, self.len);
        let count = usize::try_from(len.0).expect("a chunk is memory") / BLOCK;
        let depth = u32::try_from(count).unwrap_or(u32::MAX).clamp(1, SEQUENTIAL_DEPTH);
        let job = Job { kind: Kind::Read, block: BLOCK, depth };
        // Written once, so that no page is missing when the chunk arrives.
        let mut chunk = random_blocks(count, BLOCK, &mut self.random, &self.abort)?;
        let mut stream = Stream::new(job, self.engine, file, &mut chunk, &self.abort)?;
        let mut samples = Samples::new(rule(self.time), Occupation::Waits);
        let mut chunk_start = 0;
        while samples.wants_more() {
            file.forget_cache()?;
            let start = SystemClock.wall();
            let mut blocks = (0..count as u64).map(|index| chunk_start + index * BLOCK as u64);
            stream.run(&mut |_| Ok(blocks.next()), &mut |_| Ok(ControlFlow::Continue(())))?;
            let wall = Nanoseconds(SystemClock.wall().0.saturating_sub(start.0));
            samples.record(Sample { wall, ..Sample::default() });
            chunk_start += len.0;
            if chunk_start + len.0 > file_len {
                chunk_start = 0;
            }
        }
        Ok(samples.estimate().map(|time| time.per_second(to_f64(len.0))))
    }

    /// Reads blocks of 4 KiB at random places until the rate is steady or the time is over; `None` if that
    /// was too early for a rate.
    pub(super) fn read_randomly(
        &mut self,
        depth: u32,
    ) -> Result<Option<RandomRate>, DirectoryError> {
        let job = Job { kind: Kind::Read, block: RANDOM_BLOCK, depth };
        let Self { file, engine, len, time, random, abort, .. } = self;
        let mut blocks = random_blocks(depth as usize, RANDOM_BLOCK, random, abort)?;
        let mut stream = Stream::new(job, *engine, file, &mut blocks, abort)?;
        file.forget_cache()?;
        let window = LapEnd::Time(Nanoseconds((time.0 / 20).clamp(1, WINDOW_MAX.0)));
        let rule = StopRule { half_width: HALF_WIDTH, samples_max: 1_000, ..rule(*time) };
        let mut laps = Laps::new(SystemClock.wall(), window, rule, Occupation::Settles);
        stream.run(
            &mut |_| Ok(Some(random_offset(random, *len))),
            &mut |Arrival { at, latency }| {
                if laps.counts_last_of_lap(at, Some(latency), 1) {
                    laps.close(at);
                    file.forget_cache()?;
                }
                Ok(until_enough(&laps))
            },
        )?;
        Ok(RandomRate::of(&laps, depth))
    }

    /// Laps of the whole file. A short one has short laps, so that it still has some.
    fn laps(&self) -> Laps {
        let blocks = (self.len / BLOCK as u64 / 8).clamp(1, BLOCKS_PER_LAP_MAX);
        let lap_end = LapEnd::Operations(blocks);
        Laps::new(SystemClock.wall(), lap_end, rule(self.time), Occupation::Waits)
    }
}

fn rule(time: Nanoseconds) -> StopRule {
    StopRule { half_width: 0.02, samples_min: 10, samples_max: 100, time }
}

fn until_enough(laps: &Laps) -> ControlFlow<()> {
    if laps.cell.wants_more() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

const HALF_WIDTH: f64 = 0.03;
const WINDOW_MAX: Nanoseconds = Nanoseconds(1_000_000_000);

#[derive(Debug, Clone, Copy)]
pub(super) struct RandomRate {
    pub(super) access: RandomAccess,
    /// The median latency with its interval, also where there are too few samples to publish it.
    pub(super) median_latency: Estimate,
}

impl RandomRate {
    fn of(laps: &Laps, depth: u32) -> Option<Self> {
        let latencies = laps.latencies();
        let access = RandomAccess {
            depth,
            iops: laps.rate()?,
            latency: latencies.percentiles(),
            is_steady: laps.cell.settled().is_some(),
        };
        Some(Self { access, median_latency: latencies.median(HALF_WIDTH)? })
    }
}
