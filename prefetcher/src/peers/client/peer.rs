//! One peer: where it listens, what waits to be asked of it, and what was measured.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use parking_lot::Mutex;
use tierfeed_core::{id::NodeId, units::Bytes};
use tokio::{sync::Notify, time::Instant};

use crate::peers::{LinkFigures, Read, client::link::Link, message::SAMPLES_MAX};

/// A request with more bytes is divided, so that several connections carry it.
const REQUEST_BYTES_MAX: u64 = 16 << 20;

/// The most bytes that wait to be asked of one peer.
const WAITING_BYTES_MAX: u64 = 1 << 30;

const WAITING_READS_MAX: usize = 65_536;

/// The pause after a connection was refused; it doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_millis(50);

const PAUSE_MAX: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: NodeId,
    state: Mutex<State>,
    /// Signalled when a request waits, or the peer moved.
    pub(crate) work: Notify,
}

#[derive(Debug, Default)]
struct State {
    address: Option<(SocketAddr, u64)>,
    /// Incremented when earlier connections are no longer those of the peer.
    life: u64,
    gathered: Option<Request>,
    waiting: VecDeque<Request>,
    waiting_bytes: u64,
    waiting_reads: usize,
    asked: usize,
    connections: usize,
    refused: u32,
    not_before: Option<Instant>,
    link: Link,
}

#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) generation: u64,
    /// `None` for reads that have ended.
    pub(crate) reads: Vec<Option<Read>>,
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct DialedPeer {
    pub(crate) address: SocketAddr,
    pub(crate) incarnation: u64,
    pub(crate) life: u64,
}

#[derive(Debug)]
pub(crate) enum Connect {
    /// At once; it is counted already.
    Now,
    /// None is needed, or the pause after a refusal is not over.
    Not,
    /// There is no connection and none may be opened, so these reads fail.
    Later(Vec<Read>),
}

impl Request {
    fn live(&self) -> impl Iterator<Item = &Read> {
        self.reads.iter().flatten()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.live().next().is_none()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.live().map(|read| read.deadline).min()
    }

    pub(crate) fn expire(&mut self, now: Instant) -> impl Iterator<Item = Read> + '_ {
        self.reads.iter_mut().filter_map(move |read| read.take_if(|read| read.deadline <= now))
    }
}

impl Peer {
    pub(crate) fn new(id: NodeId) -> Self {
        Self { id, state: Mutex::default(), work: Notify::new() }
    }

    pub(crate) fn move_to(&self, address: SocketAddr, incarnation: u64) {
        let mut state = self.state.lock();
        if state.address == Some((address, incarnation)) {
            return;
        }
        state.address = Some((address, incarnation));
        state.life += 1;
        (state.refused, state.not_before) = (0, None);
        drop(state);
        self.wake_all();
    }

    /// Closes its connections, and returns the reads that wait.
    pub(crate) fn remove(&self) -> Vec<Read> {
        let mut state = self.state.lock();
        state.address = None;
        state.life += 1;
        let reads = state.take_waiting();
        drop(state);
        self.wake_all();
        reads
    }

    /// `None` if the peer was removed.
    pub(crate) fn dialed(&self) -> Option<DialedPeer> {
        let state = self.state.lock();
        let life = state.life;
        state.address.map(|(address, incarnation)| DialedPeer { address, incarnation, life })
    }

    pub(crate) fn is_alive(&self, life: u64) -> bool {
        self.state.lock().life == life
    }

    /// Adds a read to the next request; returns it if too many wait.
    pub(crate) fn gather(&self, generation: u64, read: Read) -> Result<(), Box<Read>> {
        let mut state = self.state.lock();
        let len = read.len().0;
        if state.waiting_reads >= WAITING_READS_MAX
            || state.waiting_bytes.saturating_add(len) > WAITING_BYTES_MAX
        {
            return Err(Box::new(read));
        }
        let fits = |request: &Request| {
            request.generation == generation
                && request.reads.len() < SAMPLES_MAX
                && request.bytes.saturating_add(len) <= REQUEST_BYTES_MAX
        };
        if state.gathered.as_ref().is_some_and(|gathered| !fits(gathered)) {
            state.seal();
        }
        state.waiting_reads += 1;
        state.waiting_bytes += len;
        let new = || Request { generation, ..Request::default() };
        let gathered = state.gathered.get_or_insert_with(new);
        gathered.reads.push(Some(read));
        gathered.bytes += len;
        Ok(())
    }

    /// Lets the gathered reads be sent.
    pub(crate) fn flush(&self) {
        self.state.lock().seal();
        self.work.notify_one();
    }

    /// The next request, if the window allows it and the connection is of this life.
    pub(crate) fn take(&self, life: u64, now: Instant) -> Option<Request> {
        let mut state = self.state.lock();
        let next = state.waiting.front().filter(|_| state.life == life)?.bytes;
        let in_flight = state.link.in_flight();
        if in_flight > 0 && in_flight.saturating_add(next) > state.link.window() {
            return None;
        }
        let request = state.waiting.pop_front()?;
        state.waiting_reads -= request.reads.len();
        state.waiting_bytes -= request.bytes;
        state.asked += 1;
        state.link.asked(request.bytes, now);
        let more = !state.waiting.is_empty();
        drop(state);
        if more {
            self.work.notify_one();
        }
        Some(request)
    }

    /// Ends a request for `bytes`.
    pub(crate) fn settle(&self, bytes: u64, now: Instant) {
        let mut state = self.state.lock();
        state.asked = state.asked.saturating_sub(1);
        state.link.settled(bytes, now);
        drop(state);
        self.work.notify_one();
    }

    pub(crate) fn arrived(&self, bytes: u64, now: Instant) {
        self.state.lock().link.arrived(bytes, now);
    }

    pub(crate) fn answered_after(&self, time: Duration) {
        self.state.lock().link.answered_after(time);
    }

    pub(crate) fn may_connect(&self, connections_max: usize, now: Instant) -> Connect {
        let mut state = self.state.lock();
        if state.waiting.is_empty() {
            return Connect::Not;
        }
        let is_paused = state.not_before.is_some_and(|not_before| now < not_before);
        if state.connections == 0 && (is_paused || state.address.is_none()) {
            return Connect::Later(state.take_waiting());
        }
        let wanted = (state.waiting.len() + state.asked).min(connections_max.max(1));
        if is_paused || state.connections >= wanted {
            return Connect::Not;
        }
        state.connections += 1;
        Connect::Now
    }

    pub(crate) fn connected(&self) {
        let mut state = self.state.lock();
        (state.refused, state.not_before) = (0, None);
    }

    /// Returns the reads that have no other connection to wait for.
    pub(crate) fn refused(&self, life: u64, now: Instant) -> Vec<Read> {
        let mut state = self.state.lock();
        state.connections -= 1;
        if state.life != life {
            return Vec::new();
        }
        let pause = PAUSE_MIN.saturating_mul(1 << state.refused.min(10)).min(PAUSE_MAX);
        state.refused = state.refused.saturating_add(1);
        state.not_before = Some(now + pause);
        if state.connections == 0 { state.take_waiting() } else { Vec::new() }
    }

    pub(crate) fn closed(&self) {
        self.state.lock().connections -= 1;
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.state.lock().waiting.is_empty()
    }

    pub(crate) fn expire(&self, now: Instant) -> Vec<Read> {
        let mut state = self.state.lock();
        if state.waiting.iter().all(|request| request.deadline().is_some_and(|it| it > now)) {
            return Vec::new();
        }
        let mut expired = Vec::new();
        let mut waiting = std::mem::take(&mut state.waiting);
        waiting.retain_mut(|request| {
            expired.extend(request.expire(now));
            // What was never asked is asked no longer.
            request.reads.retain(Option::is_some);
            request.bytes = request.live().map(|read| read.len().0).sum();
            !request.reads.is_empty()
        });
        state.waiting = waiting;
        state.count_waiting();
        expired
    }

    pub(crate) fn measure_anew(&self) {
        self.state.lock().link.measure_anew();
    }

    pub(crate) fn figures(&self) -> LinkFigures {
        let state = self.state.lock();
        LinkFigures {
            peer: self.id,
            connections: state.connections,
            in_flight: Bytes(state.link.in_flight()),
            measured: state.link.measured(),
        }
    }

    fn wake_all(&self) {
        self.work.notify_waiters();
        self.work.notify_one();
    }
}

impl State {
    fn seal(&mut self) {
        self.waiting.extend(self.gathered.take());
    }

    fn take_waiting(&mut self) -> Vec<Read> {
        self.seal();
        let waiting = std::mem::take(&mut self.waiting);
        self.count_waiting();
        waiting.into_iter().flat_map(|request| request.reads).flatten().collect()
    }

    fn count_waiting(&mut self) {
        let all = || self.waiting.iter().chain(&self.gathered);
        let (reads, bytes) = (all().map(|it| it.reads.len()).sum(), all().map(|it| it.bytes).sum());
        (self.waiting_reads, self.waiting_bytes) = (reads, bytes);
    }
}
