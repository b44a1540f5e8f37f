//! Measures a directory: sequential write and read in blocks of 1 MiB, random reads of 4 KiB.
//!
//! 1. At most [`Limits::file`] is written, each block once, into a file without a name; at most a
//!    quarter of what is free there, and of the memory where the directory lies in memory.
//! 2. The blocks hold random bytes with a stamp in each 4 KiB, so that a device that compresses or
//!    deduplicates gains nothing, and everything read was written: unwritten extents read as zeros
//!    without I/O.
//! 3. Reads go past the page cache, or drop it first and say so.
//! 4. Sequential reads land in turn all over a buffer that no cache holds, as a chunk's would.
//! 5. What waits for a device is timed by the wall clock; a directory in memory keeps the CPU busy and
//!    is treated like memory, except where several threads read.
//!
//! Left for the full methodology: depths above one for sequential reads, `io_uring`, random writes,
//! steady state, percentiles of the latency.

mod crew;
#[cfg(test)]
mod tests;

use std::{io, path::Path, thread};

use tierfeed_core::{
    tier::Locality,
    units::{Bytes, Nanoseconds},
};
use tierfeed_numa_memory::capacity;

use self::crew::{Crew, RANDOM_BLOCK};
use super::{
    cell::{Cell, Occupation, StopRule},
    clock::{Clock, SystemClock},
    direct_file::{ALIGNMENT, AlignedBuffer, DirectFile, room},
    estimate::{Estimate, to_f64},
    place::Unmeasured,
    random::SplitMix64,
    sampler::{Sampler, Workload},
    settings::Limits,
};
use crate::{
    inventory::{Inventory, mount, mount::Medium},
    report::{Access, Figures, whole},
};

/// How many threads read for [`crate::report::Tier::random_read_iops`].
pub const RANDOM_READ_THREADS: u32 = 8;

/// The figures of a directory.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// What was measured.
    pub figures: Figures,
    /// All bytes of the file system.
    pub capacity_bytes: u64,
    /// What this process may still write there.
    pub free_bytes: u64,
    /// Whether the page cache was bypassed.
    pub access: Access,
}

/// Why a directory could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// The file system is too full.
    #[error("{free} are free, at least {} are needed", Bytes(4 * FILE_MIN.0))]
    TooFull {
        /// What may still be written.
        free: Bytes,
    },
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

const BLOCK: usize = 1 << 20;
const BLOCKS_PER_SAMPLE: usize = 4;
const SAMPLE: u64 = (BLOCK * BLOCKS_PER_SAMPLE) as u64;
/// Two samples, of which the first is dropped.
const FILE_MIN: Bytes = Bytes(2 * SAMPLE);
/// More than a last-level cache holds on most machines; a multiple of a sample.
const BUFFER: usize = 64 << 20;

/// Measures `path`.
///
/// # Errors
///
/// The file system is too full, or reading or writing failed.
pub fn measure(
    inventory: &Inventory,
    path: &Path,
    limits: &Limits,
) -> Result<Measured, Unmeasured> {
    let medium = mount::holding(&inventory.mounts, path).map_or(Medium::Other, |it| it.medium);
    Ok(measure_by(path, medium, limits, &mut SystemClock)?)
}

fn measure_by<C: Clock>(
    path: &Path,
    medium: Medium,
    limits: &Limits,
    clock: &mut C,
) -> Result<Measured, DirectoryError> {
    let room = room(path)?;
    let len = file_len(room.free, medium, limits)?;
    let mut bench = Bench::new(DirectFile::create_in(path)?);
    let mut sampler = Sampler::new(clock);
    let occupation =
        if medium == Medium::Memory { Occupation::Computes } else { Occupation::Waits };
    let cell = |half_width, samples_max| {
        let rule = StopRule { half_width, samples_min: 10, samples_max, time: limits.cell };
        Cell::new(rule, occupation)
    };

    let write = bench.fill_file(&mut sampler, cell(0.02, usize::MAX), len)?;
    let mut cells =
        [(Kernel::Read, cell(0.02, 100)), (Kernel::RandomRead, cell(0.03, SAMPLES_MAX))];
    sampler.fill(&mut bench, &mut cells)?;
    let [read, random_read] = cells.map(|(_, cell)| cell.estimate());
    let reads = random_read.map_or(1, |latency| reads_per_thread(latency, limits.sample));
    let rule = StopRule { half_width: 0.03, samples_min: 10, samples_max: 100, time: limits.cell };
    let mut iops = [((), Cell::new(rule, Occupation::Waits))];
    thread::scope(|scope| {
        let mut crew = Crew::start(scope, &bench.file, Bytes(bench.len), reads)?;
        sampler.fill(&mut crew, &mut iops)
    })?;
    let reads_per_sample = f64::from(reads * RANDOM_READ_THREADS);
    let [((), iops)] = iops;
    Ok(Measured {
        figures: Figures {
            read_bytes_per_s: read.map(|time| time.per_second(to_f64(SAMPLE))),
            write_bytes_per_s: write.map(|time| time.per_second(to_f64(SAMPLE))),
            idle_latency_ns: random_read,
            random_read_iops: iops.estimate().map(|time| time.per_second(reads_per_sample)),
            ..Figures::default()
        },
        capacity_bytes: room.total.0,
        free_bytes: room.free.0,
        access: bench.file.access(),
    })
}

/// Enough single reads for a median with a narrow interval on a device with long tails.
const SAMPLES_MAX: usize = 4096;

/// Invariant 1.
fn file_len(free: Bytes, medium: Medium, limits: &Limits) -> Result<Bytes, DirectoryError> {
    let free = match medium {
        Medium::Memory => {
            free.min(capacity::allocatable_bytes(Path::new("/"), Locality::Anywhere)?)
        }
        _ => free,
    };
    let allowed = Bytes(free.0 / 4);
    if allowed < FILE_MIN {
        return Err(DirectoryError::TooFull { free });
    }
    Ok(Bytes(limits.file.0.clamp(FILE_MIN.0, allowed.0) / SAMPLE * SAMPLE))
}

/// What is run on a directory by one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kernel {
    Write,
    Read,
    RandomRead,
}

struct Bench {
    file: DirectFile,
    /// What of the file is written.
    len: u64,
    buffer: AlignedBuffer,
    /// Where in the buffer the next sample is.
    buffer_offset: usize,
    /// Where in the file the next sequential sample is.
    file_offset: u64,
    random: SplitMix64,
}

impl Bench {
    fn new(file: DirectFile) -> Self {
        let mut buffer = AlignedBuffer::new(BUFFER);
        let mut random = SplitMix64(1);
        for word in buffer.as_mut_slice().chunks_exact_mut(size_of::<u64>()) {
            word.copy_from_slice(&random.next().to_ne_bytes());
        }
        Self { file, len: 0, buffer, buffer_offset: 0, file_offset: 0, random }
    }

    /// Writes the file once, sample by sample, until it has `len` or the time of the cell is over.
    fn fill_file<C: Clock>(
        &mut self,
        sampler: &mut Sampler<'_, C>,
        mut cell: Cell,
        len: Bytes,
    ) -> Result<Option<Estimate>, DirectoryError> {
        while self.len < len.0 && (self.len < FILE_MIN.0 || !cell.is_out_of_time()) {
            self.prepare(Kernel::Write)?;
            cell.record(sampler.time(|| self.run(Kernel::Write))?);
            self.len += SAMPLE;
            self.advance();
        }
        self.file.sync()?;
        self.file_offset = 0;
        Ok(cell.estimate())
    }

    fn advance(&mut self) {
        self.buffer_offset = (self.buffer_offset + BLOCK * BLOCKS_PER_SAMPLE) % BUFFER;
        self.file_offset += SAMPLE;
    }

    fn stamp(&mut self) {
        let range = self.buffer_offset..self.buffer_offset + BLOCK * BLOCKS_PER_SAMPLE;
        for page in self.buffer.as_mut_slice()[range].chunks_exact_mut(ALIGNMENT) {
            page[..size_of::<u64>()].copy_from_slice(&self.random.next().to_ne_bytes());
        }
    }
}

impl Workload for Bench {
    type Kernel = Kernel;
    type Error = io::Error;

    fn prepare(&mut self, kernel: Kernel) -> io::Result<()> {
        match kernel {
            Kernel::Write => self.stamp(),
            Kernel::Read => {
                self.advance();
                self.file_offset %= self.len;
                self.file.forget_cache()?;
            }
            Kernel::RandomRead => self.file.forget_cache()?,
        }
        Ok(())
    }

    fn run(&mut self, kernel: Kernel) -> io::Result<()> {
        if kernel == Kernel::RandomRead {
            let offset = crew::random_offset(&mut self.random, Bytes(self.len));
            return self.file.read(&mut self.buffer.as_mut_slice()[..RANDOM_BLOCK], offset);
        }
        let range = self.buffer_offset..self.buffer_offset + BLOCK * BLOCKS_PER_SAMPLE;
        let blocks = self.buffer.as_mut_slice()[range].chunks_exact_mut(BLOCK);
        for (block, offset) in blocks.zip((self.file_offset..).step_by(BLOCK)) {
            match kernel {
                Kernel::Write => self.file.write(block, offset)?,
                Kernel::Read | Kernel::RandomRead => self.file.read(block, offset)?,
            }
        }
        Ok(())
    }
}

/// How many reads each thread makes in one sample.
fn reads_per_thread(latency: Estimate, sample: Nanoseconds) -> u32 {
    let reads = sample.0 / whole(latency).max(1);
    u32::try_from(reads.clamp(1, 4096)).expect("it is at most 4096")
}
