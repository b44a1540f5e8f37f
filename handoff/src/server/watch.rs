//! Waits until one of the watched descriptors is ready, and names it.

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

const EVENTS_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Listener,
    Stop,
    /// A control packet arrived, or the connection ended.
    Socket(ConnectionId),
    Wakeup(ConnectionId),
    Process(ConnectionId),
}

#[derive(Debug)]
pub(super) struct Watch {
    epoll: OwnedFd,
}

impl Watch {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    pub(super) fn add(&self, descriptor: impl AsFd, source: Source) -> Result<(), Errno> {
        // Wake-up descriptors are never read, see `wake`: only a new write may wake the thread.
        let flags = match source {
            Source::Wakeup(_) => EventFlags::IN | EventFlags::ET,
            Source::Socket(_) => EventFlags::IN | EventFlags::RDHUP,
            Source::Listener | Source::Stop | Source::Process(_) => EventFlags::IN,
        };
        epoll::add(&self.epoll, descriptor, EventData::new_u64(source.to_word()), flags)
    }

    /// Stops watching; closing a descriptor is not enough where another process has a copy of it.
    pub(super) fn remove(&self, descriptor: impl AsFd) {
        // It fails only for a descriptor that is not watched, which is the wanted state.
        let _ = epoll::delete(&self.epoll, descriptor);
    }

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
            Self::Socket(id) => (id.0 << 3) | 2,
            Self::Wakeup(id) => (id.0 << 3) | 3,
            Self::Process(id) => (id.0 << 3) | 4,
        }
    }

    fn from_word(word: u64) -> Option<Self> {
        let id = ConnectionId(word >> 3);
        match word & 7 {
            0 => Some(Self::Listener),
            1 => Some(Self::Stop),
            2 => Some(Self::Socket(id)),
            3 => Some(Self::Wakeup(id)),
            4 => Some(Self::Process(id)),
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
        let wakeup = wake::agent_wakeup().unwrap();
        watch.add(&wakeup, Source::Wakeup(ConnectionId(7))).unwrap();
        for _ in 0..3 {
            wake::wake_agent(&wakeup);
            let events = watch.wait(Some(Duration::from_secs(10))).unwrap();
            assert_eq!(events, [Source::Wakeup(ConnectionId(7))]);
            assert_eq!(watch.wait(Some(Duration::ZERO)).unwrap(), []);
        }
    }

    #[test]
    fn a_removed_descriptor_wakes_no_more_though_a_copy_of_it_lives() {
        let watch = Watch::new().unwrap();
        let wakeup = wake::agent_wakeup().unwrap();
        let copy = wakeup.try_clone().unwrap();
        watch.add(&wakeup, Source::Wakeup(ConnectionId(7))).unwrap();
        watch.remove(&wakeup);
        drop(wakeup);
        wake::wake_agent(&copy);
        assert_eq!(watch.wait(Some(Duration::ZERO)).unwrap(), []);
    }
}
