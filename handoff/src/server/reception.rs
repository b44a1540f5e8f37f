//! The thread of the server: waits, listens, and passes on.

mod entrance;

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

use rustix::io::Errno;
use tierfeed_core::{
    fleet::launch::Post,
    id::{ConnectionId, Epoch},
    units::Bytes,
};
use tierfeed_numa_memory::drill;

use super::{
    ClientEvent, Departure, Events, Shared,
    connection::Connection,
    member::Greeting,
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

/// How long nobody is let in after the process ran out of descriptors. Waiting for the next
/// connection would return at once, again and again.
const PAUSE: Duration = Duration::from_secs(1);

/// The state of the thread.
pub(super) struct Reception {
    shared: Arc<Shared>,
    /// What the job says of its ranks.
    post: Post,
    endpoint: Endpoint,
    stop: Arc<OwnedFd>,
    events: Events,
    closing: Closing,
    holders: u64,
    is_paused: bool,
}

impl Reception {
    pub(super) fn new(
        shared: Arc<Shared>,
        post: Post,
        endpoint: Endpoint,
        stop: Arc<OwnedFd>,
        events: Events,
    ) -> Result<Self, Errno> {
        shared.watch.add(&*stop, Source::Stop)?;
        shared.watch.add(&endpoint, Source::Listener)?;
        let closing = Closing::new(endpoint.descriptors());
        Ok(Self { shared, post, endpoint, stop, events, closing, holders: 0, is_paused: false })
    }

    /// Serves until it is told to stop.
    pub(super) fn run(mut self) {
        loop {
            let timeout = self.is_paused.then_some(PAUSE);
            // Waiting on an epoll of our own fails only for lack of kernel memory, if at all.
            let sources = self.shared.watch.wait(timeout).unwrap_or_default();
            drill::pass("handoff");
            if sources.contains(&Source::Stop) {
                break;
            }
            if sources.is_empty() && self.is_paused {
                self.resume();
            }
            for source in sources {
                self.attend(source);
            }
        }
        self.say_goodbye();
    }

    fn attend(&mut self, source: Source) {
        match source {
            Source::Stop => (),
            Source::Listener => self.accept(),
            Source::Socket(holder) => self.listen(holder),
            Source::Bell(holder) => self.drain(holder),
            Source::Process(holder) => self.depart(holder, Departure::ProcessEnded),
        }
    }

    fn accept(&mut self) {
        let entered = match self.endpoint.accept() {
            Ok(Some(socket)) => self.enter(socket),
            Ok(None) => Ok(()),
            Err(errno) => Err(errno),
        };
        if entered.is_err_and(is_exhaustion) {
            self.shared.watch.remove(&self.endpoint);
            self.is_paused = true;
        }
    }

    fn resume(&mut self) {
        self.is_paused = self.shared.watch.add(&self.endpoint, Source::Listener).is_err();
    }

    fn enter(&mut self, socket: OwnedFd) -> Result<(), Errno> {
        let mut connection = Connection::new(socket);
        let admitted = self.admit(&mut connection);
        match admitted {
            Ok(holder) => {
                self.shared.connections().insert(holder, connection);
                Ok(())
            }
            Err(turned_away) => {
                self.let_go(connection);
                turned_away.map_or(Ok(()), Err)
            }
        }
    }

    /// Watches a connection that may stay. Another one was told why not, or the process has no room.
    fn admit(&mut self, connection: &mut Connection) -> Result<ConnectionId, Option<Errno>> {
        if let Err(stranger) = peer::check(connection.socket())? {
            connection.dismiss(&stranger);
            return Err(None);
        }
        connection.process = peer::process(connection.socket())?;
        let connections_max = self.shared.limits.connections_max as usize;
        if self.shared.connections().len() + self.closing.waiting() >= connections_max {
            let reason = format_args!("the agent has {connections_max} connections already");
            connection.dismiss(&reason);
            return Err(None);
        }
        let holder = ConnectionId(self.holders);
        self.holders += 1;
        self.shared.watch.add(connection.socket(), Source::Socket(holder))?;
        if let Some(process) = &connection.process {
            self.shared.watch.add(process, Source::Process(holder))?;
        }
        Ok(holder)
    }

    /// Closes what belongs to a connection that is over, its socket last.
    fn let_go(&self, mut connection: Connection) {
        // A process that has a copy of a descriptor would keep it watched.
        if let Some(reader) = connection.reader() {
            self.shared.watch.remove(reader.agent_bell());
        }
        self.shared.watch.remove(connection.socket());
        self.closing.close(connection.into_socket());
    }

    /// Takes one packet; if more are there, the next wait returns at once.
    fn listen(&mut self, holder: ConnectionId) {
        let arrival = {
            let connections = self.shared.connections();
            let Some(connection) = connections.get(&holder) else { return };
            if connection.is_dismissed() {
                Ok(None)
            } else {
                packet::receive_bytes(connection.socket(), CLIENT_MESSAGE_BYTES_MAX).map(Some)
            }
        };
        match arrival {
            Ok(None) => self.depart(holder, Departure::Closed),
            Ok(Some(Arrival::Nothing)) => (),
            Ok(Some(Arrival::End)) => self.depart(holder, Departure::Left),
            Ok(Some(Arrival::Packet(packet))) => {
                if let Err(rule) = self.understand(holder, &packet.bytes) {
                    self.expel(holder, rule);
                }
            }
            Err(error) => self.expel(holder, error.into()),
        }
    }

    fn understand(&mut self, holder: ConnectionId, bytes: &[u8]) -> Result<(), Rule> {
        let message: FromClient = message::from_bytes(bytes).map_err(|malformed| {
            // Other versions have other messages, so the version is looked for in what makes no sense.
            match message::protocol_of(bytes) {
                Some(theirs) if theirs != PROTOCOL => Rule::Protocol { theirs },
                _ => malformed.into(),
            }
        })?;
        let event = match message {
            FromClient::Hello { protocol, role, pid, trainer, variables } => {
                let greeting = Greeting { protocol, role, pid, trainer, variables };
                self.greet(holder, &greeting)?
            }
            FromClient::AllocateMemory { request, bytes } => {
                self.with(holder, |it| it.request_memory(holder, request, Bytes(bytes)))?
            }
            FromClient::FreeMemory { grant } => {
                self.with(holder, |it| it.free_memory(holder, grant))?
            }
            FromClient::Publish { request, epoch, samples } => {
                let max = self.shared.limits.published_samples_max;
                self.with(holder, |it| it.publish(request, Epoch(epoch), samples, max))?;
                None
            }
            FromClient::OrderWritten { request } => {
                let Some(written) = self.with(holder, |it| it.order_written(request))? else {
                    return Ok(());
                };
                let (rank, epoch, order) = written;
                // Without the lock: reading a long order takes a while.
                let samples = order.read().map_err(Rule::Order)?;
                Some(ClientEvent::Published { holder, request, rank, epoch, samples })
            }
        };
        if let Some(event) = event {
            (self.events)(event);
        }
        Ok(())
    }

    /// Lets a living connection do something.
    fn with<T>(
        &self,
        holder: ConnectionId,
        action: impl FnOnce(&mut Connection) -> Result<T, Rule>,
    ) -> Result<Option<T>, Rule> {
        self.shared.connections().get_mut(&holder).map(action).transpose()
    }

    fn drain(&mut self, holder: ConnectionId) {
        let mut events = Vec::new();
        let drained = self.with(holder, |connection| connection.drain(holder, &mut events));
        for event in events {
            (self.events)(event);
        }
        if let Err(rule) = drained {
            self.expel(holder, rule);
        }
    }

    fn expel(&mut self, holder: ConnectionId, rule: Rule) {
        if let Some(connection) = self.shared.connections().get_mut(&holder) {
            connection.dismiss(&rule);
        }
        self.depart(holder, Departure::Violation(Violation(rule)));
    }

    fn depart(&mut self, holder: ConnectionId, cause: Departure) {
        if !matches!(cause, Departure::Violation(_)) {
            // What it did last still counts, though it did not ring for it.
            self.drain(holder);
        }
        let Some(connection) = self.shared.connections().remove(&holder) else { return };
        let is_known = connection.is_known();
        self.let_go(connection);
        if is_known {
            (self.events)(ClientEvent::Gone { holder, cause });
        }
        if self.is_paused {
            self.resume();
        }
    }

    fn say_goodbye(&mut self) {
        self.shared.watch.remove(&*self.stop);
        let connections = std::mem::take(&mut *self.shared.connections());
        for mut connection in connections.into_values() {
            connection.dismiss(&"the agent ends");
            self.let_go(connection);
        }
    }
}

/// Other failures concern one connection, which is gone by then.
fn is_exhaustion(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::NOSPC)
}
