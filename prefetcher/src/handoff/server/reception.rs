//! The thread of the server: waits, listens, and passes on.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use rustix::io::Errno;
use tierfeed_core::{
    id::{Epoch, HolderId, Rank},
    units::Bytes,
};

use super::{
    ClientEvent, Departure, Events, Shared,
    connection::Connection,
    publication,
    violation::{Rule, Violation},
    watch::Source,
};
use crate::handoff::{
    endpoint::Endpoint,
    message::{self, CLIENT_MESSAGE_BYTES_MAX, FromAgent, FromClient},
    packet::{self, Arrival, Packet},
    peer,
};

/// How long nobody is let in after the process ran out of descriptors. Waiting for the next
/// connection would return at once, again and again.
const PAUSE: Duration = Duration::from_secs(1);

/// The state of the thread.
pub(super) struct Reception {
    shared: Arc<Shared>,
    endpoint: Endpoint,
    stop: Arc<OwnedFd>,
    events: Events,
    holders: u64,
    is_paused: bool,
}

impl Reception {
    pub(super) fn new(
        shared: Arc<Shared>,
        endpoint: Endpoint,
        stop: Arc<OwnedFd>,
        events: Events,
    ) -> Result<Self, Errno> {
        shared.watch.add(&*stop, Source::Stop)?;
        shared.watch.add(&endpoint, Source::Listener)?;
        Ok(Self { shared, endpoint, stop, events, holders: 0, is_paused: false })
    }

    /// Serves until it is told to stop.
    pub(super) fn run(mut self) {
        loop {
            let timeout = self.is_paused.then_some(PAUSE);
            // Waiting on an epoll of our own fails only for lack of kernel memory, if at all.
            let sources = self.shared.watch.wait(timeout).unwrap_or_default();
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
        let checked = peer::check(socket.as_fd())?;
        let process = peer::process(socket.as_fd())?;
        let mut connection = Connection::new(socket, process);
        if let Err(stranger) = checked {
            connection.dismiss(&stranger);
            return Ok(());
        }
        let mut connections = self.shared.connections();
        let connections_max = self.shared.limits.connections_max;
        if connections.len() >= connections_max as usize {
            connection
                .dismiss(&format_args!("the agent has {connections_max} connections already"));
            return Ok(());
        }
        let holder = HolderId(self.holders);
        self.holders += 1;
        self.shared.watch.add(&connection.socket, Source::Socket(holder))?;
        if let Some(process) = &connection.process {
            self.shared.watch.add(process, Source::Process(holder))?;
        }
        connections.insert(holder, connection);
        Ok(())
    }

    /// Takes one packet; if more are there, the next wait returns at once.
    fn listen(&mut self, holder: HolderId) {
        let arrival = {
            let connections = self.shared.connections();
            let Some(connection) = connections.get(&holder) else { return };
            if connection.is_dismissed() {
                Ok(None)
            } else {
                let socket = connection.socket.as_fd();
                packet::receive(socket, CLIENT_MESSAGE_BYTES_MAX).map(Some)
            }
        };
        match arrival {
            Ok(None) => self.depart(holder, Departure::Closed),
            Ok(Some(Arrival::Nothing)) => (),
            Ok(Some(Arrival::End)) => self.depart(holder, Departure::Left),
            Ok(Some(Arrival::Packet(packet))) => {
                if let Err(rule) = self.understand(holder, packet) {
                    self.expel(holder, rule);
                }
            }
            Err(error) => self.expel(holder, error.into()),
        }
    }

    fn understand(&mut self, holder: HolderId, packet: Packet) -> Result<(), Rule> {
        let message: FromClient = message::from_bytes(&packet.bytes)?;
        let wanted = usize::from(matches!(message, FromClient::Publish { .. }));
        let count = packet.descriptors.len();
        let mut descriptors = packet.descriptors.into_iter();
        if count != wanted {
            return Err(Rule::Descriptors { count, wanted });
        }
        let event = match message {
            FromClient::Hello { protocol, rank, role, pid: _ } => {
                self.with(holder, |it| it.hello(holder, protocol, Rank(rank), role))?.flatten()
            }
            FromClient::AllocateMemory { request, bytes } => {
                self.with(holder, |it| it.request_memory(holder, request, Bytes(bytes)))?
            }
            FromClient::FreeMemory { grant } => {
                self.with(holder, |it| it.free_memory(holder, grant))?
            }
            FromClient::Publish { request, epoch, samples } => {
                let Some(rank) = self.with(holder, |it| it.rank())? else { return Ok(()) };
                let file = descriptors.next().ok_or(Rule::Descriptors { count, wanted })?;
                // Without the lock: reading a long order takes a while.
                let samples_max = self.shared.limits.published_samples_max;
                let samples = publication::read(file, samples, samples_max)?;
                (self.events)(ClientEvent::Published {
                    holder,
                    rank,
                    epoch: Epoch(epoch),
                    samples,
                });
                // After the event, so that no request for the epoch can overtake it.
                self.with(holder, |it| Ok(it.send(&FromAgent::Published { request })))?;
                None
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
        holder: HolderId,
        action: impl FnOnce(&mut Connection) -> Result<T, Rule>,
    ) -> Result<Option<T>, Rule> {
        self.shared.connections().get_mut(&holder).map(action).transpose()
    }

    fn drain(&mut self, holder: HolderId) {
        let mut events = Vec::new();
        let drained = self.with(holder, |connection| {
            connection.reader().map_or(Ok(()), |reader| reader.drain(holder, &mut events))
        });
        for event in events {
            (self.events)(event);
        }
        if let Err(rule) = drained {
            self.expel(holder, rule);
        }
    }

    fn expel(&mut self, holder: HolderId, rule: Rule) {
        if let Some(connection) = self.shared.connections().get_mut(&holder) {
            connection.dismiss(&rule);
        }
        self.depart(holder, Departure::Violation(Violation(rule)));
    }

    fn depart(&mut self, holder: HolderId, cause: Departure) {
        if !matches!(cause, Departure::Violation(_)) {
            // What it did last still counts, though it did not ring for it.
            self.drain(holder);
        }
        let Some(mut connection) = self.shared.connections().remove(&holder) else { return };
        // The client has copies of the bell; the others go with their descriptors.
        if let Some(reader) = connection.reader() {
            self.shared.watch.remove(reader.agent_bell());
        }
        let is_known = connection.is_known();
        drop(connection);
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
        }
    }
}

/// Other failures concern one connection, which is gone by then.
fn is_exhaustion(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::NOSPC)
}
