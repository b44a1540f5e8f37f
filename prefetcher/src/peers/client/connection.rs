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
        Shared, fail,
        peer::{DialedPeer, Peer, Request},
    },
    handshake::{self, HandshakeError, Proved},
    message::{Answered, Message, MessageError, MessageReader},
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
    reader: MessageReader,
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
            let stream = TcpStream::connect(address).await?;
            handshake::connect(stream, &shared.access, peer.id, incarnation).await
        };
        let failure = match timeout(shared.settings.connect_within, connected).await {
            Ok(Ok(proved)) => {
                peer.connected();
                shared.counts.lock().connected += 1;
                let failure = Open::new(&shared, &peer, life, proved).run().await;
                tracing::debug!(peer = peer.id.0, %failure, "a connection to a peer was closed");
                peer.closed();
                return shared.launch(&peer);
            }
            Ok(Err(HandshakeError::Lost(_) | HandshakeError::Full)) | Err(_) => Failure::Refused,
            Ok(Err(HandshakeError::NotProved | HandshakeError::OtherProcess)) => Failure::Stranger,
        };
        tracing::debug!(peer = peer.id.0, %failure, "a peer is not connected");
        fail(peer.refused(life, Instant::now()), failure);
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
            reader: MessageReader::default(),
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
            fail(asked.request.reads.into_iter().flatten(), failure);
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
            let ask = Message::Ask {
                id,
                generation: request.generation,
                within_ms: u32::try_from(within.as_millis()).unwrap_or(u32::MAX),
                samples: request.reads.iter().flatten().map(|read| read.sample).collect(),
            };
            self.unsent.extend(ask.tagged(&mut self.proved.sent));
            self.shared.counts.lock().requests += 1;
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
                Err(MessageError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    break Ok(false);
                }
                Err(MessageError::Io(error)) => break Err(of_connection(error)),
                Err(_) => break Err(Failure::Protocol),
            }
        };
        if received > 0 {
            self.heard = Instant::now();
            self.peer.arrived(received, self.heard);
            self.shared.counts.lock().received_bytes += received;
        }
        outcome
    }

    /// Receives a message, or bytes of one sample; returns the number of the latter.
    fn receive_next(&mut self) -> Result<u64, MessageError> {
        let Some(answer) = self.answer.as_mut() else {
            let Proved { channel, received, .. } = &mut self.proved;
            let message = self.reader.receive(channel, received)?;
            self.heard = Instant::now();
            self.begin(message)?;
            return Ok(0);
        };
        let asked = self.asked.iter_mut().find(|asked| asked.id == answer.id);
        let asked = asked.ok_or(MessageError::Unexpected)?;
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
            let received = answer.receive(channel, read, left, &mut self.scratch)?;
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
            read.end(outcome);
        }
        answer.next();
        Ok(0)
    }

    /// Takes an answer, and ends the reads of which no bytes will come.
    fn begin(&mut self, message: Message) -> Result<(), MessageError> {
        let (id, entries) = match message {
            Message::Answer { id, entries } => (id, Some(entries)),
            Message::OtherGeneration { id } => (id, None),
            _ => return Err(MessageError::Unexpected),
        };
        let asked = self.asked.iter_mut().find(|asked| asked.id == id);
        let asked = asked.ok_or(MessageError::Unexpected)?;
        if asked.was_alone {
            self.peer.answered_after(asked.sent.elapsed());
        }
        let Some(entries) = entries else {
            let reads = asked.request.reads.iter_mut().filter_map(Option::take);
            fail(reads, Failure::OtherGeneration);
            self.settle(id);
            return Ok(());
        };
        if entries.len() != asked.request.reads.len() {
            return Err(MessageError::Unexpected);
        }
        for (entry, read) in entries.iter().zip(&mut asked.request.reads) {
            if read.as_ref().is_some_and(|wanted| entry.sample != wanted.sample) {
                return Err(MessageError::Unexpected);
            }
            match entry.held {
                Some((len, _)) if read.as_ref().is_some_and(|it| len == it.len().0) => {}
                None => end(read, Outcome::Absent),
                // Also of a read that has ended, whose bytes are dropped.
                Some((len, _)) => {
                    end(read, Outcome::Failed(Failure::WrongLength));
                    if len > DROPPED_BYTES_MAX {
                        return Err(MessageError::Unexpected);
                    }
                }
            }
        }
        self.answer = Some(Arriving::new(id, entries));
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
                read.end(Outcome::Failed(Failure::Timeout));
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
            end(read, Outcome::Failed(Failure::Target));
        }
        Ok(received as u64)
    }
}

fn end(read: &mut Option<Read>, outcome: Outcome) {
    if let Some(read) = read.take() {
        read.end(outcome);
    }
}

fn of_connection(_: io::Error) -> Failure {
    Failure::Closed
}
