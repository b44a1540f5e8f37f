//! Measures a directory: random access of 4 KiB, sequential access of 1 MiB, reads of whole chunks.
//!
//! 1. At most [`Limits::file`] is written, each block once, into a file without a name; at most a
//!    quarter of what is free there, and of the memory where the directory lies in memory.
//! 2. The blocks hold random bytes with a stamp in each 4 KiB, so that a device that compresses or
//!    deduplicates gains nothing, and everything read was written: unwritten extents read as zeros
//!    without I/O.
//! 3. Reads go past the page cache, or drop it first and say so.
//! 4. Sequential reads land in turn all over buffers that no cache holds; a chunk has memory of its own
//!    that was touched before.
//! 5. Everything is timed by the wall clock: what is measured waits for a device or for threads. Each job
//!    ends with [`Limits::cell`], at most one lap, chunk or window later.
//! 6. A file system that does not answer is given up ([`DirectoryError::NoAnswer`]).
//!
//! Operations are kept in flight by the kernel's rings where they work. A RAM disk and files behind the
//! page cache are read by threads: there the work is copying, which one ring does on one CPU.

mod bench;
mod remarks;
mod stream;
#[cfg(test)]
mod tests;
mod watchdog;

use std::{
    io,
    path::{Path, PathBuf},
};

use tierfeed_core::{
    id::NumaNode,
    tier::Locality,
    units::{Bytes, Nanoseconds},
};
use tierfeed_file_io::{Engine, io_uring_available};
use tierfeed_numa_memory::capacity;

pub use self::stream::Abort;
use self::{
    bench::{BUFFER_COUNT, Bench},
    watchdog::Failure,
};
pub use super::direct_file::PlaceError;
use super::{direct_file::DirectFile, limits::Limits, memory::ALLOCATABLE_MIN};
use crate::{
    available::DiskSpace,
    figures::{self, Access, Figures, Storage},
    inventory::{
        Inventory, mount,
        mount::{Medium, Mount},
    },
};

/// The most reads in flight for [`crate::report::Tier::random_read_iops`]: the depth with the highest rate
/// counts, which on a RAM disk is a small one.
pub const RANDOM_READ_DEPTH: u32 = 32;

#[derive(Debug, Clone, Default)]
pub struct Request {
    /// `None` for [`patience`].
    pub patience: Option<Nanoseconds>,
    pub abort: Abort,
    pub extent: Extent,
    /// The NUMA node on which the pages of the file lie, on a RAM disk; `None` where the file system puts
    /// them.
    pub numa_node: Option<NumaNode>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extent {
    #[default]
    Whole,
    /// The rate of sequential reads and the latency, by which a tier is classified.
    Reads,
}

#[derive(Debug, Clone)]
pub struct Findings {
    pub storage: Storage,
    /// The figures that a tier is made of.
    pub figures: Figures,
    pub capacity_bytes: u64,
    /// Bytes that this process may still write there.
    pub free_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    #[error("{0} are free, at least {least} are needed", least = Bytes(4 * FILE_MIN.0))]
    TooFull(Bytes),
    #[error("{0} of memory can be taken, at least {ALLOCATABLE_MIN} are needed")]
    LittleMemory(Bytes),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(
        "no answer within {0}; is its server gone? A thread of this process waits on, and may keep it \
         from ending"
    )]
    NoAnswer(Nanoseconds),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("cannot measure on a thread of its own: {0}")]
    Thread(#[source] io::Error),
    #[error("ended early, as was asked")]
    Aborted,
}

const BLOCK: usize = 1 << 20;
/// Blocks in the buffers for [`Extent::Reads`]: they take time to be made.
const READS_BUFFER_COUNT: usize = 16;
const FILE_MIN: Bytes = Bytes::mib(8);
const CHUNK: Bytes = Bytes::mib(512);
/// A measurement takes at most this many times [`Limits::cell`].
pub(crate) const JOBS_MAX: u64 = 8;

/// The time that a directory may take before it counts as one that does not answer: all jobs, and 15 s for
/// what they do not time (filling buffers, waiting for the device to be done).
#[must_use]
pub fn patience(limits: &Limits) -> Nanoseconds {
    Nanoseconds(limits.cell.0.saturating_mul(JOBS_MAX).saturating_add(15_000_000_000))
}

/// # Errors
///
/// The file system is too full or does not answer, or reading or writing failed.
pub fn measure(
    inventory: &Inventory,
    path: &Path,
    limits: &Limits,
    request: &Request,
) -> Result<Findings, DirectoryError> {
    let site =
        Site { path: path.to_owned(), mount: mount::holding(&inventory.mounts, path).cloned() };
    let (limits, request) = (*limits, request.clone());
    let patience = request.patience.unwrap_or_else(|| patience(&limits));
    let abort = request.abort.clone();
    watchdog::within(patience, move || site.measure(&limits, &request)).unwrap_or_else(|failure| {
        // If it is only slow, it shall not disturb what is measured next.
        abort.abort();
        Err(match failure {
            Failure::Expired => DirectoryError::NoAnswer(patience),
            Failure::Thread(source) => DirectoryError::Thread(source),
        })
    })
}

/// The directory `path` without links, if it is one and answers within 10 s.
///
/// # Errors
///
/// It is not there, is no directory, or its file system does not answer.
pub fn existing(path: &Path) -> io::Result<PathBuf> {
    let wanted = path.to_owned();
    let look = move || {
        let path = wanted.canonicalize()?;
        if path.is_dir() { Ok(path) } else { Err(io::ErrorKind::NotADirectory.into()) }
    };
    match watchdog::within(Nanoseconds(10_000_000_000), look) {
        Ok(found) => found,
        Err(Failure::Expired) => Err(io::ErrorKind::TimedOut.into()),
        Err(Failure::Thread(source)) => Err(source),
    }
}

struct Site {
    path: PathBuf,
    mount: Option<Mount>,
}

impl Site {
    fn measure(&self, limits: &Limits, request: &Request) -> Result<Findings, DirectoryError> {
        let medium = self.mount.as_ref().map_or(Medium::Other, |mount| mount.medium);
        let DiskSpace { total, free, .. } = DiskSpace::at(&self.path)?;
        let locality = request.numa_node.map_or(Locality::Anywhere, Locality::Numa);
        let len = file_len(free, (medium, locality), limits)?;
        let file = DirectFile::create_in(&self.path)?;
        let placed = request.numa_node.map(|node| file.place_on(node, len)).transpose()?;
        let access = file.access();
        let mut remarks = Vec::new();
        let engine = engine(medium, access, &mut remarks);
        let is_whole = request.extent == Extent::Whole;
        let buffers = if is_whole { BUFFER_COUNT } else { READS_BUFFER_COUNT };
        let mut bench = Bench::new(file, (engine, buffers), limits.cell, request.abort.clone())?;
        let sequential_write = bench.fill_file(len)?;
        if let Some(placed) = placed {
            bench.file.verify(placed, Bytes(bench.len))?;
        }
        // Direct reads need no flush before them, which can take long on a busy device.
        if is_whole || access == Access::Buffered {
            bench.file.sync()?;
        }
        let sequential_read = bench.read_in_order()?;
        let chunk = chunk_len(Bytes(bench.len))?;
        let chunk_read = if is_whole { bench.read_chunks(chunk)? } else { None };
        let depths: &[u32] = if is_whole { &[1, RANDOM_READ_DEPTH] } else { &[1] };
        let mut random_reads = Vec::new();
        for depth in depths {
            random_reads.extend(bench.read_randomly(*depth)?);
        }
        remarks.extend(self.mount.as_ref().and_then(remarks::of_mount));
        remarks.extend(remarks::of_access(access, medium));
        remarks.extend(remarks::of_engine(medium));
        remarks.extend(remarks::of_length(Bytes(bench.len), limits.file));
        let alone = random_reads.iter().find(|it| it.access.depth == 1);
        let most = random_reads.iter().map(|it| it.access.iops);
        let figures = Figures {
            read_bytes_per_s: sequential_read,
            write_bytes_per_s: sequential_write,
            copy_bytes_per_s: chunk_read,
            idle_latency_ns: alone.map(|it| it.median_latency),
            random_read_iops: most.max_by(|a, b| a.median.total_cmp(&b.median)),
            ..Figures::default()
        };
        let storage = Storage {
            path: self.path.clone(),
            medium,
            engine: match engine {
                Engine::IoUring => figures::Engine::IoUring,
                Engine::Threads => figures::Engine::Threads,
            },
            access,
            file_bytes: bench.len,
            random_reads: random_reads.into_iter().map(|it| it.access).collect(),
            sequential_read_bytes_per_s: sequential_read,
            sequential_write_bytes_per_s: sequential_write,
            chunk_read_bytes_per_s: chunk_read,
            chunk_bytes: chunk.0,
            remarks,
        };
        Ok(Findings { storage, figures, capacity_bytes: total.0, free_bytes: free.0 })
    }
}

fn engine(medium: Medium, access: Access, remarks: &mut Vec<String>) -> Engine {
    if medium == Medium::Memory || access == Access::Buffered {
        return Engine::Threads;
    }
    match io_uring_available() {
        Ok(()) => Engine::IoUring,
        Err(reason) => {
            remarks.push(format!("one thread for each request, because {reason}"));
            Engine::Threads
        }
    }
}

/// The length of the file, by invariant 1, where memory has room for the buffers.
fn file_len(
    free: Bytes,
    (medium, locality): (Medium, Locality),
    limits: &Limits,
) -> Result<Bytes, DirectoryError> {
    let memory = capacity::allocatable_bytes(Path::new("/"), locality)?;
    if memory < ALLOCATABLE_MIN {
        return Err(DirectoryError::LittleMemory(memory));
    }
    let free = if medium == Medium::Memory { free.min(memory) } else { free };
    let allowed = Bytes(free.0 / 4);
    if allowed < FILE_MIN {
        return Err(DirectoryError::TooFull(free));
    }
    let block = BLOCK as u64;
    Ok(Bytes(limits.file.0.clamp(FILE_MIN.0, allowed.0) / block * block))
}

/// A chunk as the prefetcher has it, or what of it fits into the file and a quarter of the memory.
fn chunk_len(file: Bytes) -> io::Result<Bytes> {
    let memory = capacity::allocatable_bytes(Path::new("/"), Locality::Anywhere)?;
    let len = CHUNK.min(file).min(Bytes(memory.0 / 4)).0;
    let block = BLOCK as u64;
    Ok(Bytes((len / block * block).max(block)))
}
