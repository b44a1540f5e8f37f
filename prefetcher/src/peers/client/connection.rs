//! One connection to a peer: sends requests, and receives the samples of their answers to their targets.
//!
//! One task owns the connection and the reads that were asked on it. It writes to a target only between two
//! of its waits, so a read that it ends at its deadline is written to no longer; the rest of its bytes is
//! received and dropped. When no read of the connection is left that could still arrive in time, it is
//! closed, and with it what the peer would still send.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use tierfeed_core::units::Bytes;
use tierfeed_dataset::read::sample_sum::SampleSum;
use tokio::{
    net::TcpStream,
    time::{Instant, sleep_until, timeout},
};

use crate::peers::{
    Failure, Outcome, Read,
    channel::Channel,
    client::{
        Shared,
        peer::{DialedPeer, Peer, Request},
    },
    counters::add,
    handshake::{self, HandshakeError, Proved},
    head::{HeadError, HeadReader},
    wire::{Answered, Header, Kind, write_asked},
};

/// The most requests on one connection: the next one travels while the bytes of the last come.
const REQUESTS_MAX: usize = 2;

/// Bytes that a task receives before others run on its thread.
const TURN_BYTES: u64 = 4 << 20;

/// Bytes that are received at once where they cannot go to their target directly.
const SCRATCH_BYTES: usize = 64 << 10;

/// The most bytes of one sample that are received only to be dropped, so that other reads go on: it has
/// another length, or its read ended before the answer.
const DROPPED_BYTES_MAX: u64 = 1 << 30;

pub(crate) struct Connection {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
}

struct Open<'a> {
    shared: &'a Shared,
    peer: &'a Peer,
    life: u64,
    proved: Proved,
    asked: VecDeque<Asked>,
    next_id: u64,
    unsent: Vec<u8>,
    head: HeadReader,
    answer: Option<Arriving>,
    scratch: Vec<u8>,
    /// When the last byte came, or was first expected.
    heard: Instant,
}

struct Asked {
    id: u64,
    request: Request,
    sent: Instant,
    /// Whether no other request was under way when it was sent.
    was_alone: bool,
}

struct Arriving {
    id: u64,
    entries: Vec<Answered>,
    /// The index of the entry whose bytes are received.
    at: usize,
    done: u64,
    sum: SampleSum,
}

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, peer: Arc<Peer>) -> Self {
        Self { shared, peer }
    }

    /// Connects, and sends requests until the connection fails or is idle for too long.
    pub(crate) async fn run(self) {
        let Self { shared, peer } = self;
        let Some(DialedPeer { address, incarnation, life }) = peer.dialed() else {
            return peer.closed();
        };
        let connected = async {
            let channel = Channel::plain(TcpStream::connect(address).await?)?;
            handshake::connect(channel, &shared.access, peer.id, incarnation).await
        };
        let failure = match timeout(shared.settings.connect_within, connected).await {
            Ok(Ok(proved)) => {
                peer.connected();
                add(&shared.totals.connected, 1);
                let failure = Open::new(&shared, &peer, life, proved).run().await;
                tracing::debug!(peer = peer.id.0, %failure, "a connection to a peer was closed");
                peer.closed();
                return shared.launch(&peer);
            }
            Ok(Err(HandshakeError::Lost(_) | HandshakeError::Full)) | Err(_) => Failure::Refused,
            Ok(Err(HandshakeError::NotProved | HandshakeError::OtherProcess)) => Failure::Stranger,
        };
        shared.fail(peer.refused(life, Instant::now()), failure);
        shared.launch(&peer);
    }
}

impl<'a> Open<'a> {
    fn new(shared: &'a Shared, peer: &'a Peer, life: u64, proved: Proved) -> Self {
        Self {
            shared,
            peer,
            life,
            proved,
            asked: VecDeque::new(),
            next_id: 0,
            unsent: Vec::new(),
            head: HeadReader::default(),
            answer: None,
            scratch: Vec::new(),
            heard: Instant::now(),
        }
    }

    /// Returns why the connection ended; no read of it is left then.
    async fn run(mut self) -> Failure {
        let failure = loop {
            if let Err(failure) = self.step().await {
                break failure;
            }
        };
        let now = Instant::now();
        for asked in std::mem::take(&mut self.asked) {
            self.peer.settle(asked.request.bytes, now);
            self.shared.fail(asked.request.reads.into_iter().flatten(), failure);
        }
        failure
    }

    /// Does what can be done at once, then waits for more.
    async fn step(&mut self) -> Result<(), Failure> {
        self.ask();
        self.send().map_err(of_connection)?;
        let has_more = self.receive()?;
        self.expire()?;
        if !self.peer.is_alive(self.life) {
            return Err(Failure::Closed);
        }
        if has_more {
            tokio::task::yield_now().await;
            return Ok(());
        }
        let may_ask = self.asked.len() < REQUESTS_MAX;
        let wake = self.wake();
        let channel = &self.proved.channel;
        let is_sending = !self.unsent.is_empty() || channel.has_unsent();
        tokio::select! {
            ready = channel.readable() => ready.map_err(of_connection),
            ready = channel.writable(), if is_sending => ready.map_err(of_connection),
            () = self.peer.work.notified(), if may_ask => Ok(()),
            () = sleep_until(wake) => Ok(()),
        }
    }

    fn ask(&mut self) {
        while self.asked.len() < REQUESTS_MAX {
            let now = Instant::now();
            let Some(request) = self.peer.take(self.life, now) else { return };
            let id = self.next_id;
            self.next_id += 1;
            let left = request.reads.iter().flatten().map(|read| read.deadline).max();
            let within = left.map_or(Duration::ZERO, |left| left.saturating_duration_since(now));
            let header = Header {
                kind: Kind::Ask,
                id,
                generation: request.generation,
                count: u32::try_from(request.reads.len()).unwrap_or(u32::MAX),
                within_ms: u32::try_from(within.as_millis()).unwrap_or(u32::MAX),
            };
            let mut head = Vec::new();
            header.write(&mut head);
            request.reads.iter().flatten().for_each(|read| write_asked(read.sample, &mut head));
            let tag = self.proved.sent.sign(&head);
            self.unsent.extend(head);
            self.unsent.extend(tag);
            add(&self.shared.totals.requests, 1);
            let was_alone = self.asked.is_empty();
            if was_alone {
                self.heard = now;
            }
            self.asked.push_back(Asked { id, request, sent: now, was_alone });
        }
    }

    fn send(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.proved.channel.send(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.proved.channel.flush()
    }

    /// Receives what is there, up to a limit; returns whether there may be more.
    fn receive(&mut self) -> Result<bool, Failure> {
        let mut received = 0;
        let outcome = loop {
            if received >= TURN_BYTES {
                break Ok(true);
            }
            match self.receive_next() {
                Ok(bytes) => received += bytes,
                Err(HeadError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    break Ok(false);
                }
                Err(HeadError::Io(error)) => break Err(of_connection(error)),
                Err(HeadError::Wire(_) | HeadError::Tag | HeadError::Unexpected) => {
                    break Err(Failure::Protocol);
                }
            }
        };
        if received > 0 {
            self.heard = Instant::now();
            self.peer.arrived(received, self.heard);
            add(&self.shared.totals.received_bytes, received);
        }
        outcome
    }

    /// Receives a head, or bytes of one sample; returns the number of the latter.
    fn receive_next(&mut self) -> Result<u64, HeadError> {
        let Some(answer) = self.answer.as_mut() else {
            let Proved { channel, received, .. } = &mut self.proved;
            let (header, entries) = self.head.receive(channel, received)?;
            self.heard = Instant::now();
            self.begin(header, &entries)?;
            return Ok(0);
        };
        let asked = self.asked.iter_mut().find(|asked| asked.id == answer.id);
        let asked = asked.ok_or(HeadError::Unexpected)?;
        let (Some(entry), Some(read)) =
            (answer.entries.get(answer.at), asked.request.reads.get_mut(answer.at))
        else {
            let id = answer.id;
            self.answer = None;
            self.settle(id);
            return Ok(0);
        };
        let Some((len, xxh3)) = entry.held else {
            answer.next();
            return Ok(0);
        };
        let left = len - answer.done;
        if left > 0 {
            let channel = &mut self.proved.channel;
            let received = answer.receive(channel, read, left, &mut self.scratch, self.shared)?;
            answer.done += received;
            return Ok(received);
        }
        if let Some(read) = read.take() {
            let sum = match read.to.memory() {
                Some(_) => Some(answer.sum.finish()),
                None => read.to.sum(),
            };
            let is_right = sum == Some(xxh3);
            let held = Outcome::Held { xxh3 };
            let outcome = if is_right { held } else { Outcome::Failed(Failure::BrokenSum) };
            self.shared.end(read, outcome);
        }
        answer.next();
        Ok(0)
    }

    /// Takes the head of an answer, and ends the reads of which no bytes will come.
    fn begin(&mut self, header: Header, entries: &[u8]) -> Result<(), HeadError> {
        let asked = self.asked.iter_mut().find(|asked| asked.id == header.id);
        let asked = asked.ok_or(HeadError::Unexpected)?;
        if asked.was_alone {
            self.peer.answered_after(asked.sent.elapsed());
        }
        match header.kind {
            Kind::Ask => return Err(HeadError::Unexpected),
            Kind::OtherGeneration => {
                let reads = asked.request.reads.iter_mut().filter_map(Option::take);
                self.shared.fail(reads, Failure::OtherGeneration);
                self.settle(header.id);
                return Ok(());
            }
            Kind::Answer => {}
        }
        let entries = Answered::parse_all(entries)?;
        if entries.len() != asked.request.reads.len() {
            return Err(HeadError::Unexpected);
        }
        for (entry, read) in entries.iter().zip(&mut asked.request.reads) {
            if read.as_ref().is_some_and(|wanted| entry.sample != wanted.sample) {
                return Err(HeadError::Unexpected);
            }
            match entry.held {
                Some((len, _)) if read.as_ref().is_some_and(|it| len == it.len().0) => {}
                None => self.shared.end_taken(read, Outcome::Absent),
                // Also of a read that has ended, whose bytes are dropped.
                Some((len, _)) => {
                    self.shared.end_taken(read, Outcome::Failed(Failure::WrongLength));
                    if len > DROPPED_BYTES_MAX {
                        return Err(HeadError::Unexpected);
                    }
                }
            }
        }
        self.answer = Some(Arriving::new(header.id, entries));
        Ok(())
    }

    fn settle(&mut self, id: u64) {
        if let Some(at) = self.asked.iter().position(|asked| asked.id == id)
            && let Some(asked) = self.asked.remove(at)
        {
            self.peer.settle(asked.request.bytes, Instant::now());
        }
    }

    /// Ends reads at their deadline; an error if the connection is of no use any more.
    fn expire(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        let mut expired = 0;
        for asked in &mut self.asked {
            for read in asked.request.expire(now) {
                expired += 1;
                self.shared.end(read, Outcome::Failed(Failure::Timeout));
            }
        }
        if expired > 0 && self.asked.iter().all(|asked| asked.request.is_over()) {
            return Err(Failure::Timeout);
        }
        let silence = now.saturating_duration_since(self.heard);
        match self.asked.is_empty() {
            false if silence >= self.shared.settings.silent_after => Err(Failure::Silent),
            true if silence >= self.shared.settings.idle_for => Err(Failure::Closed),
            _ => Ok(()),
        }
    }

    fn wake(&self) -> Instant {
        let settings = &self.shared.settings;
        let patience =
            if self.asked.is_empty() { settings.idle_for } else { settings.silent_after };
        let deadlines = self.asked.iter().filter_map(|asked| asked.request.deadline());
        deadlines.fold(self.heard + patience, Instant::min)
    }
}

impl Arriving {
    fn new(id: u64, entries: Vec<Answered>) -> Self {
        let sum = SampleSum::of_len(0);
        let mut answer = Self { id, entries, at: 0, done: 0, sum };
        answer.start_at(0);
        answer
    }

    fn next(&mut self) {
        self.start_at(self.at + 1);
    }

    fn start_at(&mut self, at: usize) {
        let len = self.entries.get(at).and_then(|entry| entry.held).map_or(0, |(len, _)| len);
        (self.at, self.done, self.sum) = (at, 0, SampleSum::of_len(len));
    }

    /// Receives some of the `left` bytes of a sample to its target, or drops them if its read has ended.
    fn receive(
        &mut self,
        channel: &mut Channel,
        read: &mut Option<Read>,
        left: u64,
        scratch: &mut Vec<u8>,
        shared: &Shared,
    ) -> io::Result<u64> {
        if let Some((region, offset)) = read.as_ref().and_then(|read| read.to.memory()) {
            let at = Bytes(offset.0.saturating_add(self.done));
            return Ok(channel.receive_summed(region, at, Bytes(left), &mut self.sum)?.0);
        }
        scratch.resize(SCRATCH_BYTES, 0);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(SCRATCH_BYTES);
        let received = channel.receive(&mut scratch[..wanted])?;
        if let Some(written) = read
            && written.to.write(Bytes(self.done), &scratch[..received]).is_err()
        {
            shared.end_taken(read, Outcome::Failed(Failure::Target));
        }
        Ok(received as u64)
    }
}

fn of_connection(_: io::Error) -> Failure {
    Failure::Closed
}
