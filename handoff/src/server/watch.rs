//! Waits for whichever descriptor has something to say, and names it.

use std::{
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use rustix::{
    event::{
        Timespec,
        epoll::{self, CreateFlags, Event, EventData, EventFlags},
    },
    io::Errno,
};
use tierfeed_core::id::ConnectionId;

/// Events that one wait returns.
const EVENTS_MAX: usize = 64;

/// A descriptor that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A client wants in.
    Listener,
    /// The server shall end.
    Stop,
    /// A control packet, or the end of the connection.
    Socket(ConnectionId),
    /// The client has put something into its ring.
    Bell(ConnectionId),
    /// The process of the client has ended.
    Process(ConnectionId),
}

/// A set of watched descriptors.
#[derive(Debug)]
pub(super) struct Watch {
    epoll: OwnedFd,
}

impl Watch {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    pub(super) fn add(&self, descriptor: impl AsFd, source: Source) -> Result<(), Errno> {
        // Bells are never read, see `wake`: only a change may wake us.
        let flags = match source {
            Source::Bell(_) => EventFlags::IN | EventFlags::ET,
            Source::Socket(_) => EventFlags::IN | EventFlags::RDHUP,
            Source::Listener | Source::Stop | Source::Process(_) => EventFlags::IN,
        };
        epoll::add(&self.epoll, descriptor, EventData::new_u64(source.to_word()), flags)
    }

    /// Closing a descriptor does not do this where another process has a copy of it.
    pub(super) fn remove(&self, descriptor: impl AsFd) {
        // It fails only for a descriptor that is not watched, which is what is wanted.
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Waits for events, at most `timeout`.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> Result<Vec<Source>, Errno> {
        let timeout = timeout.map(|it| Timespec::try_from(it).unwrap_or(Timespec::default()));
        let mut space = [MaybeUninit::<Event>::uninit(); EVENTS_MAX];
        match epoll::wait(&self.epoll, &mut space, timeout.as_ref()) {
            Ok((events, _)) => {
                Ok(events.iter().filter_map(|event| Source::from_word(event.data.u64())).collect())
            }
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(errno) => Err(errno),
        }
    }
}

impl Source {
    fn to_word(self) -> u64 {
        match self {
            Self::Listener => 0,
            Self::Stop => 1,
            Self::Socket(holder) => (holder.0 << 3) | 2,
            Self::Bell(holder) => (holder.0 << 3) | 3,
            Self::Process(holder) => (holder.0 << 3) | 4,
        }
    }

    fn from_word(word: u64) -> Option<Self> {
        let holder = ConnectionId(word >> 3);
        match word & 7 {
            0 => Some(Self::Listener),
            1 => Some(Self::Stop),
            2 => Some(Self::Socket(holder)),
            3 => Some(Self::Bell(holder)),
            4 => Some(Self::Process(holder)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wake;

    #[test]
    fn a_bell_that_is_never_read_wakes_for_every_ring() {
        let watch = Watch::new().unwrap();
        let bell = wake::agent_bell().unwrap();
        watch.add(&bell, Source::Bell(ConnectionId(7))).unwrap();
        for _ in 0..3 {
            wake::ring_agent(&bell);
            let events = watch.wait(Some(Duration::from_secs(10))).unwrap();
            assert_eq!(events, [Source::Bell(ConnectionId(7))]);
            assert_eq!(watch.wait(Some(Duration::ZERO)).unwrap(), []);
        }
    }

    #[test]
    fn a_removed_descriptor_wakes_no_more_though_a_copy_of_it_lives() {
        let watch = Watch::new().unwrap();
        let bell = wake::agent_bell().unwrap();
        let copy = bell.try_clone().unwrap();
        watch.add(&bell, Source::Bell(ConnectionId(7))).unwrap();
        watch.remove(&bell);
        drop(bell);
        wake::ring_agent(&copy);
        assert_eq!(watch.wait(Some(Duration::ZERO)).unwrap(), []);
    }
}
