//! One connection of a node that has proved itself: receives its requests, and sends their answers.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use tierfeed_core::id::NodeId;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use crate::peers::{
    Asked, Event,
    handshake::Proved,
    message::{Message, MessageError, MessageReader},
    server::{
        Shared, Waiting,
        outgoing::{Outgoing, Request},
    },
};

/// The most requests of one connection that are not answered; further ones wait in its socket.
pub(crate) const REQUESTS_MAX: usize = 4;

/// Bytes that a task sends before others run on its thread.
const TURN_BYTES: u64 = 4 << 20;

struct Serving {
    shared: Arc<Shared>,
    proved: Proved,
    reader: MessageReader,
    /// Requests that the owner has not answered.
    asked: usize,
    answered: VecDeque<Outgoing>,
    answers: mpsc::Receiver<Outgoing>,
    /// Given out with each request.
    sender: mpsc::Sender<Outgoing>,
    /// When the connection last took a byte, or had none to take.
    moved: Instant,
}

/// Serves until the other end closes the connection, or it fails.
pub(crate) async fn serve(shared: Arc<Shared>, proved: Proved) {
    let (sender, answers) = mpsc::channel(REQUESTS_MAX);
    let mut serving = Serving {
        shared,
        proved,
        reader: MessageReader::default(),
        asked: 0,
        answered: VecDeque::new(),
        answers,
        sender,
        moved: Instant::now(),
    };
    let error = loop {
        if let Err(error) = serving.step().await {
            break error;
        }
    };
    let is_end =
        matches!(&error, MessageError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof);
    if !is_end || serving.reader.has_begun() {
        serving.shared.counts.lock().lost += 1;
        let peer = serving.proved.node.0;
        tracing::debug!(peer, %error, "a connection of a peer was lost");
    }
}

impl Serving {
    async fn step(&mut self) -> Result<(), MessageError> {
        self.receive()?;
        let has_more = self.send()?;
        let is_sending = !self.answered.is_empty() || self.proved.channel.has_unsent();
        if !is_sending {
            self.moved = Instant::now();
        } else if self.moved.elapsed() >= self.shared.settings.stuck_after {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        if has_more {
            tokio::task::yield_now().await;
            return Ok(());
        }
        let may_receive = self.may_receive();
        let stuck = self.moved + self.shared.settings.stuck_after;
        let channel = &self.proved.channel;
        tokio::select! {
            Some(answer) = self.answers.recv() => {
                self.asked -= 1;
                self.answered.push_back(answer);
            }
            ready = channel.readable(), if may_receive => ready?,
            ready = channel.writable(), if is_sending => ready?,
            () = sleep_until(stuck), if is_sending => {}
        }
        Ok(())
    }

    fn may_receive(&self) -> bool {
        self.asked + self.answered.len() < REQUESTS_MAX
    }

    fn receive(&mut self) -> Result<(), MessageError> {
        while self.may_receive() {
            let Proved { channel, received, .. } = &mut self.proved;
            match self.reader.receive(channel, received) {
                Ok(message) => self.ask(message)?,
                Err(MessageError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn ask(&mut self, message: Message) -> Result<(), MessageError> {
        let Message::Ask { id, generation, within_ms, samples } = message else {
            return Err(MessageError::Unexpected);
        };
        let request = Request { id, samples: samples.clone() };
        let id = self.shared.next_id();
        let waiting = Waiting { request, answers: self.sender.clone() };
        self.shared.asked.lock().insert(id, waiting);
        self.asked += 1;
        let peer: NodeId = self.proved.node;
        let within = Duration::from_millis(within_ms.into());
        (self.shared.event)(Event::Asked(Asked { id, peer, generation, within, samples }));
        Ok(())
    }

    /// Sends what the connection takes, up to a limit; returns whether it may take more.
    fn send(&mut self) -> Result<bool, MessageError> {
        self.proved.channel.flush()?;
        let mut sent = 0;
        let outcome = loop {
            let Some(answer) = self.answered.front_mut() else { break Ok(false) };
            if sent >= TURN_BYTES {
                break Ok(true);
            }
            let Proved { channel, sent: tags, .. } = &mut self.proved;
            match answer.send(channel, tags) {
                Ok(0) => {
                    self.answered.pop_front();
                }
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(false),
                Err(error) => break Err(error.into()),
            }
        };
        if sent > 0 {
            self.moved = Instant::now();
            self.shared.counts.lock().sent_bytes += sent;
        }
        outcome
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // The requests of this connection that its owner has not answered: their answers are dropped.
        let own = &self.sender;
        self.shared.asked.lock().retain(|_, waiting| !waiting.answers.same_channel(own));
    }
}
