//! One thread with its ring: submits reads and completes fetches.

use std::{
    collections::BTreeMap,
    io, mem,
    num::NonZeroU16,
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use tierfeed_core::units::Bytes;
use tierfeed_file_io::reads::{Destination, Ended, Read, ReadRing, RegionRange};
use tierfeed_numa_memory::failpoint;

use super::{
    RingState, ThreadWaker,
    bounces::Bounces,
    pending::{Buffering, FileRange, RUN_MAX},
    sample::{Outcome, Piece, is_for_ring, pieces},
};
use crate::fetcher::Fetch;
use tierfeed_dataset::read::{Version, file::version_of};

/// How long a thread waits after the kernel refused to wait for completions.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// How long trimmed memory of an arena may stay registered while no read runs.
const RELEASE_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Run {
    pieces: Vec<(FileRange, Piece)>,
    /// Where the read starts in the file.
    start: u64,
    /// The least number of bytes that the read must return.
    needed: usize,
}

#[derive(Debug, Clone, Copy)]
enum ReadOutcome<'a> {
    /// The read failed or was short.
    Failed,
    InPlace,
    Buffered(&'a [u8]),
}

#[derive(Debug)]
pub(super) struct Worker {
    state: Arc<RingState>,
    index: usize,
    ring: ReadRing,
    runs: BTreeMap<u64, Run>,
    next: u64,
    bounces: Bounces,
    /// A run that waits for a bounce buffer.
    waiting_run: Option<Vec<(FileRange, Piece)>>,
    has_regions: bool,
}

impl Worker {
    /// Creates the ring of the calling thread.
    pub(super) fn new(state: Arc<RingState>, index: usize, depth: NonZeroU16) -> io::Result<Self> {
        let mut ring = ReadRing::new(depth.get(), state.wakers[index].waker.clone())?;
        let mut bounces = Bounces::default();
        // The first buffer shows now whether buffers can be registered, not at the first read.
        let first = bounces.take(RUN_MAX, &mut ring);
        first.into_iter().for_each(|bounce| bounces.give_back(bounce));
        state.warn_unregistered(ring.registration());
        let (runs, next) = (BTreeMap::new(), 0);
        Ok(Self { state, index, ring, runs, next, bounces, waiting_run: None, has_regions: false })
    }

    /// Runs until the fetcher stops and no read is in flight.
    pub(super) fn run(mut self) {
        let mut ended = Vec::new();
        loop {
            failpoint::pass("ring");
            self.take_fetches();
            self.fill();
            if !ended.is_empty() {
                // The disk works while this thread copies bytes and answers fetches.
                self.ring.start();
                self.finish(&mut ended);
                self.state.warn_unregistered(self.ring.registration());
                continue;
            }
            if self.state.queue.lock().is_stopped {
                self.waiting_run = None;
                if self.ring.in_flight() == 0 {
                    return;
                }
            }
            self.sleep(&mut ended);
        }
    }

    fn waker(&self) -> &ThreadWaker {
        &self.state.wakers[self.index]
    }

    fn sleep(&mut self, ended: &mut Vec<Ended>) {
        if self.has_regions {
            self.has_regions = self.ring.forget_regions();
        }
        self.waker().is_asleep.store(true, Ordering::SeqCst);
        let has_work = {
            let queue = self.state.queue.lock();
            let can_read = self.waiting_run.is_none() && self.ring.has_room();
            !queue.fetches.is_empty() || (!queue.pieces.is_empty() && can_read)
        };
        let timeout = self.has_regions.then_some(RELEASE_AFTER);
        if !has_work && self.ring.wait(timeout, ended).is_err() {
            thread::park_timeout(RETRY_AFTER);
        }
        self.waker().is_asleep.store(false, Ordering::SeqCst);
    }

    /// Splits new fetches into pieces; hands over those that a ring cannot read.
    fn take_fetches(&mut self) {
        let fetches = mem::take(&mut self.state.queue.lock().fetches);
        let mut found = Vec::new();
        for fetch in fetches {
            match self.split(fetch) {
                Ok(pieces) => found.extend(pieces),
                Err(fetch) => self.state.hand_over(fetch),
            }
        }
        if found.is_empty() {
            return;
        }
        let mut queue = self.state.queue.lock();
        if queue.is_stopped {
            drop(queue);
            return drop(found);
        }
        for (span, piece) in found {
            queue.pieces.push(span, piece);
        }
    }

    fn split(&self, fetch: Fetch) -> Result<Vec<(FileRange, Piece)>, Fetch> {
        let index = self.state.source.index();
        if fetch.sample.0 >= index.len() {
            return Err(fetch);
        }
        let extent = index.extent(fetch.sample);
        if !is_for_ring(&extent, &fetch.to) {
            return Err(fetch);
        }
        if self.state.source.leaves_pages(fetch.sample, &fetch.to) {
            return Err(fetch);
        }
        let Ok(direct) = self.state.files.get(&extent.path) else { return Err(fetch) };
        let sample = fetch.sample;
        let pieces = pieces(fetch, extent, direct)?;
        self.state.source.note_read_past(sample);
        Ok(pieces)
    }

    /// Submits runs until the ring or the bounce buffers are full.
    fn fill(&mut self) {
        while self.ring.has_room() {
            let next =
                self.waiting_run.take().or_else(|| self.state.queue.lock().pieces.next_run());
            let Some(pieces) = next else { return };
            let Some((start, to)) = self.target(&pieces) else {
                self.waiting_run = Some(pieces);
                return;
            };
            self.read(pieces, start, to);
        }
    }

    /// The file offset and the destination of the read of a run; `None` without a free buffer.
    fn target(&mut self, pieces: &[(FileRange, Piece)]) -> Option<(u64, Destination)> {
        let (first, last) = (pieces[0].0, pieces[pieces.len() - 1].0);
        if first.buffering == Buffering::ZeroCopy
            && let Some(ranges) = ranges_of(pieces)
        {
            self.has_regions = true;
            return Some((first.offset, Destination::Ranges(ranges)));
        }
        let block = pieces[0].1.sample.direct.block;
        let start = first.offset - first.offset % block;
        let len = (last.offset + last.len - start).next_multiple_of(block);
        let bounce = self.bounces.take(len, &mut self.ring)?;
        Some((start, Destination::Bounce(bounce, usize::try_from(len).unwrap_or(usize::MAX))))
    }

    fn read(&mut self, pieces: Vec<(FileRange, Piece)>, start: u64, to: Destination) {
        let last = pieces[pieces.len() - 1].0;
        let needed = usize::try_from(last.offset + last.len - start).unwrap_or(usize::MAX);
        let file = Arc::clone(&pieces[0].1.sample.direct.file);
        let (run, token) = (Run { pieces, start, needed }, self.next);
        self.next += 1;
        match self.ring.push(Read { file, offset: start, to, token }) {
            Ok(()) => {
                self.state.reads.fetch_add(1, Ordering::Relaxed);
                self.runs.insert(token, run);
            }
            Err(_) => self.end(run, ReadOutcome::Failed, &mut Versions::default()),
        }
    }

    fn finish(&mut self, ended: &mut Vec<Ended>) {
        let mut versions = Versions::default();
        for Ended { token, bounce, outcome } in ended.drain(..) {
            let Some(run) = self.runs.remove(&token) else { continue };
            let outcome = match &bounce {
                _ if !outcome.is_ok_and(|read| read >= run.needed) => ReadOutcome::Failed,
                Some(bounce) => ReadOutcome::Buffered(bounce.as_slice()),
                None => ReadOutcome::InPlace,
            };
            self.end(run, outcome, &mut versions);
            bounce.into_iter().for_each(|bounce| self.bounces.give_back(bounce));
        }
    }

    fn end(&self, run: Run, outcome: ReadOutcome<'_>, versions: &mut Versions) {
        for (span, piece) in run.pieces {
            let is_there = match outcome {
                ReadOutcome::Failed => false,
                ReadOutcome::InPlace => true,
                ReadOutcome::Buffered(bytes) => copy(bytes, span.offset - run.start, &span, &piece),
            };
            match piece.sample.piece_ended(is_there) {
                Outcome::Unfinished => (),
                Outcome::Complete(fetch) if versions.is_current(&piece) => {
                    self.state.samples.fetch_add(1, Ordering::Relaxed);
                    fetch.end(Ok(()));
                }
                Outcome::Complete(fetch) | Outcome::Failed(fetch) => {
                    // The file may have been replaced: the next read opens it again.
                    self.state.files.forget(piece.sample.path());
                    self.state.hand_over(fetch);
                }
            }
        }
    }
}

fn ranges_of(pieces: &[(FileRange, Piece)]) -> Option<Vec<RegionRange>> {
    let range = |(span, piece): &(FileRange, Piece)| {
        let (region, offset) = piece.sample.to().direct()?;
        let offset = Bytes(offset.0 + piece.at.0);
        Some(RegionRange { region: Arc::clone(region), offset, len: Bytes(span.len) })
    };
    pieces.iter().map(range).collect()
}

/// Fails only for a target outside of its region or sample.
fn copy(bytes: &[u8], from: u64, span: &FileRange, piece: &Piece) -> bool {
    let range = usize::try_from(from).ok().zip(usize::try_from(from + span.len).ok());
    let bytes = range.and_then(|(from, to)| bytes.get(from..to));
    bytes.is_some_and(|bytes| piece.sample.to().write(piece.at, bytes).is_ok())
}

/// The versions of files after a batch of reads: one `stat` for all samples of a file.
#[derive(Debug, Default)]
struct Versions {
    found: BTreeMap<usize, Option<Version>>,
}

impl Versions {
    fn is_current(&mut self, piece: &Piece) -> bool {
        let direct = &piece.sample.direct;
        let name = Arc::as_ptr(direct).addr();
        let found = self.found.entry(name).or_insert_with(|| version_of(&direct.file).ok());
        found.is_some_and(|found| piece.sample.is_of(found))
    }
}
