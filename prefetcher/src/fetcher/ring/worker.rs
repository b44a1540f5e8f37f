//! One thread with its ring.

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
use tierfeed_numa_memory::drill;

use super::{
    Board, Seat,
    bounces::Bounces,
    pending::{RUN_MAX, Span, Way},
    sample::{Outcome, Piece, is_for_ring, pieces},
};
use crate::fetcher::Fetch;
use tierfeed_dataset::read::{Version, file::version_of};

/// How long a thread waits before it asks a kernel again that took nothing.
const BREATH: Duration = Duration::from_millis(1);

/// How long memory of an arena that was given back may stay registered while nothing is read.
const LET_GO_AFTER: Duration = Duration::from_secs(1);

/// Pieces that one read brings.
#[derive(Debug)]
struct Run {
    pieces: Vec<(Span, Piece)>,
    /// Where the read starts in the file.
    start: u64,
    /// How many bytes it must bring at least.
    needed: usize,
}

/// Where the bytes of a run are.
#[derive(Debug, Clone, Copy)]
enum Came<'a> {
    /// Not all of them came.
    Nowhere,
    /// Where they shall be.
    ToPlaces,
    /// In a buffer.
    To(&'a [u8]),
}

#[derive(Debug)]
pub(super) struct Worker {
    board: Arc<Board>,
    seat: usize,
    ring: ReadRing,
    runs: BTreeMap<u64, Run>,
    next: u64,
    bounces: Bounces,
    /// A run that waits for a bounce buffer.
    held: Option<Vec<(Span, Piece)>>,
    has_regions: bool,
}

impl Worker {
    /// Sets up the ring of the calling thread.
    pub(super) fn new(board: Arc<Board>, seat: usize, depth: NonZeroU16) -> io::Result<Self> {
        let mut ring = ReadRing::new(depth.get(), board.seats[seat].waker.clone())?;
        let mut bounces = Bounces::default();
        // Whether buffers can be registered shows now, not at the first read.
        let first = bounces.take(RUN_MAX, &mut ring);
        first.into_iter().for_each(|bounce| bounces.give_back(bounce));
        board.note_registration(ring.registration());
        let (runs, next) = (BTreeMap::new(), 0);
        Ok(Self { board, seat, ring, runs, next, bounces, held: None, has_regions: false })
    }

    /// Reads until the fetcher stops.
    pub(super) fn run(mut self) {
        let mut ended = Vec::new();
        loop {
            drill::pass("ring");
            self.take_fetches();
            self.fill();
            if !ended.is_empty() {
                // The disk works while bytes are copied and answers given.
                self.ring.start();
                self.finish(&mut ended);
                self.board.note_registration(self.ring.registration());
                continue;
            }
            if self.board.list().is_stopped {
                self.held = None;
                if self.ring.in_flight() == 0 {
                    return;
                }
            }
            self.sleep(&mut ended);
        }
    }

    fn seat(&self) -> &Seat {
        &self.board.seats[self.seat]
    }

    fn sleep(&mut self, ended: &mut Vec<Ended>) {
        if self.has_regions {
            self.has_regions = self.ring.forget_regions();
        }
        self.seat().is_asleep.store(true, Ordering::SeqCst);
        let has_work = {
            let list = self.board.list();
            let can_read = self.held.is_none() && self.ring.has_room();
            !list.fetches.is_empty() || (!list.pieces.is_empty() && can_read)
        };
        let patience = self.has_regions.then_some(LET_GO_AFTER);
        if !has_work && self.ring.wait(patience, ended).is_err() {
            thread::park_timeout(BREATH);
        }
        self.seat().is_asleep.store(false, Ordering::SeqCst);
    }

    /// Takes apart what was given since.
    fn take_fetches(&mut self) {
        let fetches = mem::take(&mut self.board.list().fetches);
        let mut found = Vec::new();
        for fetch in fetches {
            match self.take_apart(fetch) {
                Ok(pieces) => found.extend(pieces),
                Err(fetch) => self.board.hand_over(fetch),
            }
        }
        if found.is_empty() {
            return;
        }
        let mut list = self.board.list();
        if list.is_stopped {
            drop(list);
            return drop(found);
        }
        for (span, piece) in found {
            list.pieces.push(span, piece);
        }
    }

    fn take_apart(&self, fetch: Fetch) -> Result<Vec<(Span, Piece)>, Fetch> {
        let index = self.board.source.index();
        if fetch.sample.0 >= index.len() {
            return Err(fetch);
        }
        let extent = index.extent(fetch.sample);
        if !is_for_ring(&extent, &fetch.to) {
            return Err(fetch);
        }
        match self.board.files.get(&extent.path) {
            Ok(direct) => pieces(fetch, extent, direct),
            Err(_) => Err(fetch),
        }
    }

    /// Gives the kernel what the ring has room for.
    fn fill(&mut self) {
        while self.ring.has_room() {
            let next = self.held.take().or_else(|| self.board.list().pieces.next_run());
            let Some(pieces) = next else { return };
            let Some((start, to)) = self.target(&pieces) else {
                self.held = Some(pieces);
                return;
            };
            self.read(pieces, start, to);
        }
    }

    /// Where in the file the read of a run starts, and where it goes; `None` without a free buffer.
    fn target(&mut self, pieces: &[(Span, Piece)]) -> Option<(u64, Destination)> {
        let (first, last) = (pieces[0].0, pieces[pieces.len() - 1].0);
        if first.way == Way::Straight {
            self.has_regions = true;
            return Some((first.offset, straight(pieces)));
        }
        let block = pieces[0].1.sample.direct.block;
        let start = first.offset - first.offset % block;
        let len = (last.offset + last.len - start).next_multiple_of(block);
        let bounce = self.bounces.take(len, &mut self.ring)?;
        Some((start, Destination::Bounce(bounce, usize::try_from(len).unwrap_or(usize::MAX))))
    }

    fn read(&mut self, pieces: Vec<(Span, Piece)>, start: u64, to: Destination) {
        let last = pieces[pieces.len() - 1].0;
        let needed = usize::try_from(last.offset + last.len - start).unwrap_or(usize::MAX);
        let file = Arc::clone(&pieces[0].1.sample.direct.file);
        let (run, token) = (Run { pieces, start, needed }, self.next);
        self.next += 1;
        match self.ring.push(Read { file, offset: start, to, token }) {
            Ok(()) => {
                self.board.reads.fetch_add(1, Ordering::Relaxed);
                self.runs.insert(token, run);
            }
            Err(_) => self.end(run, Came::Nowhere, &mut Versions::default()),
        }
    }

    fn finish(&mut self, ended: &mut Vec<Ended>) {
        let mut versions = Versions::default();
        for Ended { token, bounce, outcome } in ended.drain(..) {
            let Some(run) = self.runs.remove(&token) else { continue };
            let came = match &bounce {
                _ if !outcome.is_ok_and(|read| read >= run.needed) => Came::Nowhere,
                Some(bounce) => Came::To(bounce.as_slice()),
                None => Came::ToPlaces,
            };
            self.end(run, came, &mut versions);
            bounce.into_iter().for_each(|bounce| self.bounces.give_back(bounce));
        }
    }

    fn end(&self, run: Run, came: Came<'_>, versions: &mut Versions) {
        for (span, piece) in run.pieces {
            let is_there = match came {
                Came::Nowhere => false,
                Came::ToPlaces => true,
                Came::To(bytes) => copy(bytes, span.offset - run.start, &span, &piece),
            };
            match piece.sample.piece_ended(is_there) {
                Outcome::Unfinished => (),
                Outcome::There(fetch) if versions.hold(&piece) => {
                    self.board.samples.fetch_add(1, Ordering::Relaxed);
                    fetch.end(Ok(()));
                }
                Outcome::There(fetch) | Outcome::Lost(fetch) => {
                    // The file may have been replaced: the next read opens it anew.
                    self.board.files.forget(piece.sample.path());
                    self.board.hand_over(fetch);
                }
            }
        }
    }
}

fn straight(pieces: &[(Span, Piece)]) -> Destination {
    let place = |(span, piece): &(Span, Piece)| RegionRange {
        region: Arc::clone(&piece.sample.to().region),
        offset: Bytes(piece.sample.to().offset.0 + piece.at.0),
        len: Bytes(span.len),
    };
    Destination::Ranges(pieces.iter().map(place).collect())
}

/// Puts a piece to its place. Fails only for a place outside of its region or sample.
fn copy(bytes: &[u8], from: u64, span: &Span, piece: &Piece) -> bool {
    let range = usize::try_from(from).ok().zip(usize::try_from(from + span.len).ok());
    let bytes = range.and_then(|(from, to)| bytes.get(from..to));
    bytes.is_some_and(|bytes| piece.sample.to().write(piece.at, bytes).is_ok())
}

/// What files are like after a turn of reads: one look for all that it brought of one.
#[derive(Debug, Default)]
struct Versions {
    found: BTreeMap<usize, Option<Version>>,
}

impl Versions {
    fn hold(&mut self, piece: &Piece) -> bool {
        let direct = &piece.sample.direct;
        let name = Arc::as_ptr(direct).addr();
        let found = self.found.entry(name).or_insert_with(|| version_of(&direct.file).ok());
        found.is_some_and(|found| piece.sample.is_of(found))
    }
}
