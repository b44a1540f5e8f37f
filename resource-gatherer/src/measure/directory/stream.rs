//! Keeps blocks of a file in flight and tells of each that arrives.

use std::{
    collections::VecDeque,
    io,
    num::NonZeroU32,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use fastrand::Rng;
use tierfeed_core::units::Nanoseconds;
use tierfeed_file_io::{AlignedBuffer, Engine, Kind, Operation, Queue};

use super::DirectoryError;
use crate::measure::{
    clock::{Clock, SystemClock},
    direct_file::DirectFile,
};

/// Tells a measurement to end. All clones share one signal.
#[derive(Debug, Clone, Default)]
pub struct Abort(Arc<AtomicBool>);

impl Abort {
    /// Ends the measurement after the operations that are in flight.
    pub fn abort(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn check(&self) -> Result<(), DirectoryError> {
        if self.0.load(Ordering::Relaxed) { Err(DirectoryError::Aborted) } else { Ok(()) }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub(super) kind: Kind,
    pub(super) block: usize,
    pub(super) depth: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) at: Nanoseconds,
    pub(super) latency: Nanoseconds,
}

pub(super) struct Stream<'bench> {
    job: Job,
    file: &'bench DirectFile,
    queue: Queue,
    /// First in, first out, so that blocks land all over the memory instead of in a cache.
    buffers: &'bench mut VecDeque<AlignedBuffer>,
    abort: &'bench Abort,
}

impl<'bench> Stream<'bench> {
    /// `buffers` must be at least as many as the depth, each as long as a block.
    pub(super) fn new(
        job: Job,
        engine: Engine,
        file: &'bench DirectFile,
        buffers: &'bench mut VecDeque<AlignedBuffer>,
        abort: &'bench Abort,
    ) -> Result<Self, DirectoryError> {
        let depth = NonZeroU32::new(job.depth).expect("every job has a depth of at least 1");
        Ok(Self { job, file, queue: Queue::new(engine, depth)?, buffers, abort })
    }

    /// Keeps the queue full with operations at the offsets that `place` gives, until it gives none or
    /// `observe` breaks, and then until nothing is in flight.
    pub(super) fn run(
        &mut self,
        place: &mut dyn FnMut(&mut AlignedBuffer) -> io::Result<Option<u64>>,
        observe: &mut dyn FnMut(Arrival) -> io::Result<ControlFlow<()>>,
    ) -> Result<(), DirectoryError> {
        let mut has_place = true;
        let mut is_over = false;
        loop {
            while has_place && !is_over && self.queue.has_room() {
                has_place = self.push(place)?;
            }
            let Some(arrival) = self.wait()? else { return Ok(()) };
            // What was in flight when the end came was not among as many others.
            if !is_over {
                is_over = observe(arrival)?.is_break();
            }
            self.abort.check()?;
        }
    }

    /// Returns false once `place` gives no more.
    fn push(
        &mut self,
        place: &mut dyn FnMut(&mut AlignedBuffer) -> io::Result<Option<u64>>,
    ) -> Result<bool, DirectoryError> {
        let mut buffer = self.buffers.pop_front().expect("there is a buffer for each in flight");
        let Some(offset) = place(&mut buffer)? else {
            self.buffers.push_front(buffer);
            return Ok(false);
        };
        let file = self.file.shared();
        // The token is the time of the request.
        let token = SystemClock.wall().0;
        self.queue.push(Operation { file, kind: self.job.kind, offset, buffer, token });
        Ok(true)
    }

    fn wait(&mut self) -> Result<Option<Arrival>, DirectoryError> {
        let Some((ended, moved)) = self.queue.wait()? else { return Ok(None) };
        let at = SystemClock.wall();
        self.buffers.push_back(ended.buffer);
        if moved? < self.job.block {
            let kind = match self.job.kind {
                Kind::Read => io::ErrorKind::UnexpectedEof,
                Kind::Write => io::ErrorKind::WriteZero,
            };
            return Err(io::Error::from(kind).into());
        }
        Ok(Some(Arrival { at, latency: Nanoseconds(at.0.saturating_sub(ended.token)) }))
    }
}

/// Blocks of random bytes, which do not compress; alike until they are stamped.
pub(super) fn random_blocks(
    count: usize,
    len: usize,
    random: &mut Rng,
    abort: &Abort,
) -> Result<VecDeque<AlignedBuffer>, DirectoryError> {
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    let block = |_| {
        abort.check()?;
        let mut block = AlignedBuffer::zeroed(len);
        block.as_mut_slice().copy_from_slice(&bytes);
        Ok(block)
    };
    (0..count).map(block).collect()
}

/// Makes each 4 KiB of `block` unlike any written before, so that a device cannot deduplicate it.
pub(super) fn stamp(block: &mut AlignedBuffer, random: &mut Rng) {
    for page in block.as_mut_slice().chunks_mut(RANDOM_BLOCK) {
        page[..size_of::<u64>()].copy_from_slice(&random.u64(..).to_ne_bytes());
    }
}

pub(super) const RANDOM_BLOCK: usize = 4096;

/// The start of one of the blocks of the first `len` bytes, which hold at least one.
pub(super) fn random_offset(random: &mut Rng, len: u64) -> u64 {
    let block = RANDOM_BLOCK as u64;
    random.u64(..len / block) * block
}
