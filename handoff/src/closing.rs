//! Closes the sockets of peers without waiting.
//!
//! A packet that was never taken out of a socket ends with it, and so do the descriptors in it. The end
//! of a descriptor may wait: a TCP socket with `SO_LINGER` for its peer, as long as the client likes.
//! Where the kernel lets nobody send descriptors ([`Descriptors::Refused`]), nothing of the
//! kind can be in a socket. Elsewhere each socket is closed by a thread of its own; it counts as a
//! connection until that is over, so there are never more of them than the limit of connections.

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

/// Closes sockets and counts those that are being closed.
#[derive(Debug)]
pub struct Closing {
    descriptors: Descriptors,
    waiting: Arc<AtomicUsize>,
}

impl Closing {
    /// For sockets that hold what `descriptors` says.
    #[must_use]
    pub fn new(descriptors: Descriptors) -> Self {
        Self { descriptors, waiting: Arc::default() }
    }

    /// Sockets that are being closed.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Closes a socket, beside the caller if that may wait.
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
            // Without threads it stays open and counts: to close it here might wait.
            mem::forget(taken(&socket));
        }
    }
}

fn taken(socket: &Mutex<Option<OwnedFd>>) -> Option<OwnedFd> {
    socket.lock().unwrap_or_else(PoisonError::into_inner).take()
}
