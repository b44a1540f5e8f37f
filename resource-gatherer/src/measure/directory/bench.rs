//! The jobs that are run on the file of a directory, one after another.
//!
//! The order matters: the file is filled first, so that everything read was written. Random writes come
//! last, because flash needs a while after them.

use std::{cell::Cell, collections::VecDeque, io, ops::ControlFlow};

use tierfeed_core::units::{Bytes, Nanoseconds};
use tierfeed_file_io::{AlignedBuffer, Engine, Kind};

use super::{
    BLOCK, DirectoryError, FILE_MIN,
    steady::{Settled, Windows},
    stream::{Abort, Arrival, Job, RANDOM_BLOCK, Stream, random_blocks, random_offset, stamp},
};
use crate::{
    figures::estimate::{Estimate, to_f64},
    measure::{
        cell::{Cell as Samples, Occupation, Sample, StopRule},
        clock::{Clock, SystemClock},
        direct_file::DirectFile,
        random::SplitMix64,
    },
};

/// How many blocks of 1 MiB are in flight.
const SEQUENTIAL_DEPTH: u32 = 8;
/// How many blocks make a sample of a sequential rate: so many that the burst in which the blocks in
/// flight arrive matters little.
const BLOCKS_PER_LAP_MAX: u64 = 16;
/// How many blocks the buffers hold together: more than a last-level cache on most machines.
const BUFFER_COUNT: usize = 64;

/// A file in the directory and what is needed to run jobs on it.
pub(super) struct Bench {
    pub(super) file: DirectFile,
    pub(super) engine: Engine,
    /// What of the file is written.
    pub(super) len: u64,
    /// Everything that was written.
    pub(super) written: u64,
    /// How long a job may take.
    pub(super) time: Nanoseconds,
    buffers: VecDeque<AlignedBuffer>,
    random: SplitMix64,
    abort: Abort,
}

impl Bench {
    pub(super) fn new(file: DirectFile, engine: Engine, time: Nanoseconds, abort: Abort) -> Self {
        let mut random = SplitMix64(1);
        let buffers = random_blocks(BUFFER_COUNT, BLOCK, &mut random);
        Self { file, engine, len: 0, written: 0, time, buffers, random, abort }
    }

    /// Writes the file once, block by block, until it has `len` or the time is over.
    pub(super) fn fill_file(&mut self, len: Bytes) -> Result<Option<Estimate>, DirectoryError> {
        self.len = len.0;
        let (rate, written) = self.write_in_order(FILE_MIN)?;
        self.len = written;
        self.file.sync()?;
        Ok(rate)
    }

    /// Writes the file again.
    pub(super) fn rewrite(&mut self) -> Result<Option<Estimate>, DirectoryError> {
        Ok(self.write_in_order(Bytes(0))?.0)
    }

    /// The rate, and how much was written: up to the length of the file, at least `min`.
    fn write_in_order(&mut self, min: Bytes) -> Result<(Option<Estimate>, u64), DirectoryError> {
        let job = Job { kind: Kind::Write, block: BLOCK, depth: SEQUENTIAL_DEPTH };
        let Self { file, engine, len, written, time, buffers, random, abort } = self;
        let mut stream = Stream::new(job, *engine, file, buffers, abort)?;
        let mut laps = Laps::new(*time, *len);
        let is_over = Cell::new(false);
        let mut offset = 0;
        stream.run(
            &mut |block| {
                if offset == *len || (is_over.get() && offset >= min.0) {
                    return Ok(None);
                }
                stamp(block, random);
                offset += BLOCK as u64;
                Ok(Some(offset - BLOCK as u64))
            },
            &mut |_| {
                if laps.counts_last_of_lap() {
                    file.write_through()?;
                    laps.close();
                    is_over.set(laps.samples.is_out_of_time());
                }
                Ok(ControlFlow::Continue(()))
            },
        )?;
        *written += offset;
        Ok((laps.rate(), offset))
    }

    /// Reads the file from start to end, again and again.
    pub(super) fn read_in_order(&mut self) -> Result<Option<Estimate>, DirectoryError> {
        let job = Job { kind: Kind::Read, block: BLOCK, depth: SEQUENTIAL_DEPTH };
        let (file, len) = (&self.file, self.len);
        let mut stream = Stream::new(job, self.engine, file, &mut self.buffers, &self.abort)?;
        let mut laps = Laps::new(self.time, len);
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
            &mut |_| {
                if laps.counts_last_of_lap() {
                    laps.close();
                }
                let wants_more = laps.samples.wants_more();
                Ok(if wants_more { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
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
        let mut chunk = random_blocks(count, BLOCK, &mut self.random);
        let mut stream = Stream::new(job, self.engine, file, &mut chunk, &self.abort)?;
        let mut samples = samples(self.time);
        let mut chunk_start = 0;
        while samples.wants_more() {
            file.forget_cache()?;
            let start = SystemClock.wall();
            let mut blocks = (0..count as u64).map(|index| chunk_start + index * BLOCK as u64);
            stream.run(&mut |_| Ok(blocks.next()), &mut |_| Ok(ControlFlow::Continue(())))?;
            samples.record(waited_since(start));
            chunk_start += len.0;
            if chunk_start + len.0 > file_len {
                chunk_start = 0;
            }
        }
        Ok(samples.estimate().map(|time| time.per_second(to_f64(len.0))))
    }

    /// Accesses blocks of 4 KiB at random places until the rate is steady.
    pub(super) fn access_randomly(
        &mut self,
        kind: Kind,
        depth: u32,
        bytes_max: Bytes,
    ) -> Result<Option<Settled>, DirectoryError> {
        let job = Job { kind, block: RANDOM_BLOCK, depth };
        let Self { file, engine, len, written, time, random, abort, .. } = self;
        let mut blocks = random_blocks(depth as usize, RANDOM_BLOCK, random);
        let mut stream = Stream::new(job, *engine, file, &mut blocks, abort)?;
        let mut bytes = 0;
        file.forget_cache()?;
        let mut windows = Windows::new(SystemClock.wall(), *time);
        stream.run(
            &mut |block| {
                bytes += RANDOM_BLOCK as u64;
                if bytes > bytes_max.0 {
                    bytes -= RANDOM_BLOCK as u64;
                    return Ok(None);
                }
                if kind == Kind::Write {
                    stamp(block, random);
                }
                Ok(Some(random_offset(random, *len)))
            },
            &mut |Arrival { at, latency }| {
                let next = windows.record(at, latency);
                if windows.is_at_start() {
                    refresh(kind, file)?;
                }
                Ok(next)
            },
        )?;
        if kind == Kind::Write {
            *written += bytes;
            file.sync()?;
        }
        Ok(windows.settle())
    }
}

/// What has to happen between two windows where the page cache takes part.
fn refresh(kind: Kind, file: &DirectFile) -> io::Result<()> {
    match kind {
        Kind::Read => file.forget_cache(),
        Kind::Write => file.write_through(),
    }
}

fn samples(time: Nanoseconds) -> Samples {
    let rule = StopRule { half_width: 0.02, samples_min: 10, samples_max: 100, time };
    Samples::new(rule, Occupation::Waits)
}

fn waited_since(start: Nanoseconds) -> Sample {
    let wall = Nanoseconds(SystemClock.wall().0.saturating_sub(start.0));
    Sample { wall, ..Sample::default() }
}

/// Takes the time of every so many blocks of a stream that does not pause.
struct Laps {
    samples: Samples,
    blocks_per_lap: u64,
    count: u64,
    start: Nanoseconds,
}

impl Laps {
    /// For a file of `len`. A short one has short laps, so that it still has some.
    fn new(time: Nanoseconds, len: u64) -> Self {
        let blocks_per_lap = (len / BLOCK as u64 / 8).clamp(1, BLOCKS_PER_LAP_MAX);
        Self { samples: samples(time), blocks_per_lap, count: 0, start: SystemClock.wall() }
    }

    /// Counts a block and says whether it was the last of its lap.
    fn counts_last_of_lap(&mut self) -> bool {
        self.count += 1;
        self.count.is_multiple_of(self.blocks_per_lap)
    }

    fn close(&mut self) {
        let lap = waited_since(self.start);
        self.start = Nanoseconds(self.start.0 + lap.wall.0);
        self.samples.record(lap);
    }

    fn rate(&self) -> Option<Estimate> {
        let bytes = to_f64(self.blocks_per_lap) * to_f64(BLOCK as u64);
        self.samples.estimate().map(|time| time.per_second(bytes))
    }
}
