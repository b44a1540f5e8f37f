//! Closes the sockets of peers without blocking the caller.
//!
//! Descriptors in a packet that was never received are closed with the socket. Closing a descriptor
//! may block: a TCP socket with `SO_LINGER` waits for its peer, for as long as the client chose. If
//! the kernel refuses descriptors at the sender ([`Descriptors::Refused`]), a socket cannot hold
//! any. Otherwise each socket is closed by a thread of its own and counts as a connection until it
//! is closed, so the limit of connections also bounds these threads.

use std::{
    mem,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::descriptors::Descriptors;

#[derive(Debug)]
pub struct Closing {
    descriptors: Descriptors,
    waiting: Arc<AtomicUsize>,
}

impl Closing {
    #[must_use]
    pub fn new(descriptors: Descriptors) -> Self {
        Self { descriptors, waiting: Arc::default() }
    }

    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Closes a socket, on another thread if that may block.
    pub fn close(&self, socket: OwnedFd) {
        if self.descriptors == Descriptors::Refused {
            return;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Arc::clone(&self.waiting);
        let socket = Arc::new(Mutex::new(Some(socket)));
        let handed_over = Arc::clone(&socket);
        // Not joined: it may wait for the client, and it ends with the process.
        let thread = thread::Builder::new().name("tierfeed-close".into()).spawn(move || {
            drop(taken(&handed_over));
            waiting.fetch_sub(1, Ordering::Release);
        });
        if thread.is_err() {
            // Without a thread the socket stays open and counts: closing it here might block.
            mem::forget(taken(&socket));
        }
    }
}

fn taken(socket: &Mutex<Option<OwnedFd>>) -> Option<OwnedFd> {
    socket.lock().unwrap_or_else(PoisonError::into_inner).take()
}
