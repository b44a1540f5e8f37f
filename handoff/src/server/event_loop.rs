//! The thread of the server: waits for descriptors, reads what clients sent, reports it as events.

mod admission;

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

use rustix::io::Errno;
use tierfeed_core::{
    fleet::launch::JobWorld,
    id::{ConnectionId, Epoch},
    units::Bytes,
};
use tierfeed_numa_memory::failpoint;

use super::{
    ClientEvent, DisconnectCause, Events, Shared,
    connection::Connection,
    violation::{Rule, Violation},
    watch::Source,
};
use crate::{
    closing::Closing,
    endpoint::Endpoint,
    message::{self, CLIENT_MESSAGE_BYTES_MAX, FromClient, PROTOCOL},
    packet::{self, Arrival},
    peer,
};

/// Time without accepting connections after the process ran out of descriptors. Waiting for the
/// next connection would return at once, again and again.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) struct EventLoop {
    shared: Arc<Shared>,
    post: JobWorld,
    endpoint: Endpoint,
    stop: Arc<OwnedFd>,
    events: Events,
    closing: Closing,
    connections_total: u64,
    is_paused: bool,
}

impl EventLoop {
    pub(super) fn new(
        shared: Arc<Shared>,
        post: JobWorld,
        endpoint: Endpoint,
        stop: Arc<OwnedFd>,
        events: Events,
    ) -> Result<Self, Errno> {
        shared.watch.add(&*stop, Source::Stop)?;
        shared.watch.add(&endpoint, Source::Listener)?;
        let closing = Closing::new(endpoint.descriptors());
        Ok(Self {
            shared,
            post,
            endpoint,
            stop,
            events,
            closing,
            connections_total: 0,
            is_paused: false,
        })
    }

    pub(super) fn run(mut self) {
        loop {
            let timeout = self.is_paused.then_some(PAUSE);
            // Waiting on the own epoll fails only for lack of kernel memory, if at all.
            let sources = self.shared.watch.wait(timeout).unwrap_or_default();
            failpoint::pass("handoff");
            if sources.contains(&Source::Stop) {
                break;
            }
            if sources.is_empty() && self.is_paused {
                self.resume_accepting();
            }
            for source in sources {
                self.handle_source(source);
            }
        }
        self.close_all();
    }

    fn handle_source(&mut self, source: Source) {
        match source {
            Source::Stop => (),
            Source::Listener => self.accept(),
            Source::Socket(id) => self.receive_packet(id),
            Source::Wakeup(id) => self.drain(id),
            Source::Process(id) => self.end_connection(id, DisconnectCause::ProcessEnded),
        }
    }

    fn accept(&mut self) {
        let added = match self.endpoint.accept() {
            Ok(Some(socket)) => self.add_connection(socket),
            Ok(None) => Ok(()),
            Err(errno) => Err(errno),
        };
        if added.is_err_and(is_exhaustion) {
            self.shared.watch.remove(&self.endpoint);
            self.is_paused = true;
        }
    }

    fn resume_accepting(&mut self) {
        self.is_paused = self.shared.watch.add(&self.endpoint, Source::Listener).is_err();
    }

    fn add_connection(&mut self, socket: OwnedFd) -> Result<(), Errno> {
        let mut connection = Connection::new(socket);
        let admitted = self.admit(&mut connection);
        match admitted {
            Ok(id) => {
                self.shared.connections().insert(id, connection);
                Ok(())
            }
            Err(turned_away) => {
                self.close(connection);
                turned_away.map_or(Ok(()), Err)
            }
        }
    }

    /// Watches a connection that is accepted. If it is not, the client was told why, or the process
    /// has no descriptors left.
    fn admit(&mut self, connection: &mut Connection) -> Result<ConnectionId, Option<Errno>> {
        if let Err(stranger) = peer::check(connection.socket())? {
            connection.end_with_reason(&stranger);
            return Err(None);
        }
        connection.process = peer::process(connection.socket())?;
        let connections_max = self.shared.limits.connections_max as usize;
        if self.shared.connections().len() + self.closing.waiting() >= connections_max {
            let reason = format_args!("the agent has {connections_max} connections already");
            connection.end_with_reason(&reason);
            return Err(None);
        }
        let id = ConnectionId(self.connections_total);
        self.connections_total += 1;
        self.shared.watch.add(connection.socket(), Source::Socket(id))?;
        if let Some(process) = &connection.process {
            self.shared.watch.add(process, Source::Process(id))?;
        }
        Ok(id)
    }

    /// Closes the descriptors of a connection that has ended, its socket last.
    fn close(&self, mut connection: Connection) {
        // A process that has a copy of a descriptor would keep it watched.
        if let Some(reader) = connection.reader() {
            self.shared.watch.remove(reader.agent_wakeup());
        }
        self.shared.watch.remove(connection.socket());
        self.closing.close(connection.into_socket());
    }

    /// Receives one packet; if more are there, the next wait returns at once.
    fn receive_packet(&mut self, id: ConnectionId) {
        let arrival = {
            let connections = self.shared.connections();
            let Some(connection) = connections.get(&id) else { return };
            if connection.has_ended {
                Ok(None)
            } else {
                packet::receive_bytes(connection.socket(), CLIENT_MESSAGE_BYTES_MAX).map(Some)
            }
        };
        match arrival {
            Ok(None) => self.end_connection(id, DisconnectCause::Closed),
            Ok(Some(Arrival::Nothing)) => (),
            Ok(Some(Arrival::End)) => self.end_connection(id, DisconnectCause::Left),
            Ok(Some(Arrival::Packet(packet))) => {
                if let Err(rule) = self.handle_message(id, &packet.bytes) {
                    self.end_for_violation(id, rule);
                }
            }
            Err(error) => self.end_for_violation(id, error.into()),
        }
    }

    fn handle_message(&mut self, id: ConnectionId, bytes: &[u8]) -> Result<(), Rule> {
        let message: FromClient = message::from_bytes(bytes).map_err(|malformed| {
            // Other versions have other messages, so a message that cannot be parsed is searched
            // for its version.
            match message::protocol_of(bytes) {
                Some(theirs) if theirs != PROTOCOL => Rule::Protocol { theirs },
                _ => malformed.into(),
            }
        })?;
        let event = match message {
            FromClient::Hello(hello) => self.handle_hello(id, &hello)?,
            FromClient::AllocateMemory { request, bytes } => {
                self.with(id, |it| it.request_memory(id, request, Bytes(bytes)))?
            }
            FromClient::FreeMemory { grant } => self.with(id, |it| it.free_memory(id, grant))?,
            FromClient::Publish { request, epoch, samples } => {
                let max = self.shared.limits.published_samples_max;
                self.with(id, |it| it.publish(request, Epoch(epoch), samples, max))?;
                None
            }
            FromClient::Explain { request, samples } => {
                self.with(id, |it| it.explain(id, request, &samples))?
            }
            FromClient::OrderWritten { request } => {
                let Some(written) = self.with(id, |it| it.order_written(request))? else {
                    return Ok(());
                };
                let (rank, epoch, order) = written;
                // Without the lock: reading a long order takes time.
                let samples = order.read().map_err(Rule::Order)?;
                Some(ClientEvent::Published { connection: id, request, rank, epoch, samples })
            }
        };
        if let Some(event) = event {
            (self.events)(event);
        }
        Ok(())
    }

    /// Applies `action` to a connection that has not ended.
    fn with<T>(
        &self,
        id: ConnectionId,
        action: impl FnOnce(&mut Connection) -> Result<T, Rule>,
    ) -> Result<Option<T>, Rule> {
        self.shared.connections().get_mut(&id).map(action).transpose()
    }

    fn drain(&mut self, id: ConnectionId) {
        let mut events = Vec::new();
        let drained = self.with(id, |connection| connection.drain(id, &mut events));
        for event in events {
            (self.events)(event);
        }
        if let Err(rule) = drained {
            self.end_for_violation(id, rule);
        }
    }

    fn end_for_violation(&mut self, id: ConnectionId, rule: Rule) {
        if let Some(connection) = self.shared.connections().get_mut(&id) {
            connection.end_with_reason(&rule);
        }
        self.end_connection(id, DisconnectCause::Violation(Violation(rule)));
    }

    fn end_connection(&mut self, id: ConnectionId, cause: DisconnectCause) {
        if !matches!(cause, DisconnectCause::Violation(_)) {
            // Entries that it pushed last still count, though it sent no wake-up for them.
            self.drain(id);
        }
        let Some(connection) = self.shared.connections().remove(&id) else { return };
        let is_reported = connection.is_reported;
        self.close(connection);
        if is_reported {
            (self.events)(ClientEvent::Gone { connection: id, cause });
        }
        if self.is_paused {
            self.resume_accepting();
        }
    }

    fn close_all(&mut self) {
        self.shared.watch.remove(&*self.stop);
        let connections = std::mem::take(&mut *self.shared.connections());
        for mut connection in connections.into_values() {
            connection.end_with_reason(&"the agent ends");
            self.close(connection);
        }
    }
}

/// Whether the process has no descriptors or memory left; other errors concern one connection,
/// which has ended.
fn is_exhaustion(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::NOSPC)
}
