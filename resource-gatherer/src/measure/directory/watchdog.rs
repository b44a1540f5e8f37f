//! Keeps a file system that does not answer from holding up the probe.
//!
//! A thread cannot leave a read from a server that is gone. So the work is done by a thread, and
//! if it does not end in time, the thread is abandoned: it stays until the server answers or the process
//! ends, with the memory and the file that it holds, and its result is dropped. Nothing waits for it.

use std::{
    io,
    sync::mpsc::{RecvTimeoutError, sync_channel},
    thread::Builder,
    time::Duration,
};

use tierfeed_core::units::Nanoseconds;

#[derive(Debug)]
pub(super) enum Failure {
    Expired,
    Thread(io::Error),
}

/// Does `work` on a thread of its own and waits up to `time` for it.
pub(super) fn within<T: Send + 'static>(
    time: Nanoseconds,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let (send, receive) = sync_channel(1);
    let builder = Builder::new().name("tierfeed-storage".to_owned());
    let thread = builder.spawn(move || {
        // After the time the receiver is gone.
        let _ = send.send(work());
    });
    let thread = thread.map_err(Failure::Thread)?;
    match receive.recv_timeout(Duration::from_nanos(time.0)) {
        Ok(result) => {
            // It has sent its result, so it ends.
            let _ = thread.join();
            Ok(result)
        }
        Err(RecvTimeoutError::Timeout) => Err(Failure::Expired),
        // It panicked, and said so on stderr.
        Err(RecvTimeoutError::Disconnected) => {
            Err(Failure::Thread(io::Error::other("the thread that measures panicked")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn work_that_ends_gives_its_result() {
        assert_eq!(within(Nanoseconds(u64::MAX), || 7).unwrap(), 7);
    }

    #[test]
    fn work_that_never_ends_holds_nobody_up() {
        let (keep, never) = channel::<()>();
        let outcome = within(Nanoseconds(1_000_000), move || never.recv());
        assert!(matches!(outcome, Err(Failure::Expired)));
        drop(keep);
    }

    #[test]
    fn work_that_panics_is_an_error() {
        let outcome = within(Nanoseconds(u64::MAX), || assert_eq!(1 + 1, 3, "on purpose"));
        assert!(matches!(outcome, Err(Failure::Thread(_))));
    }
}
