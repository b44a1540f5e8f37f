//! Ends a process in time after a signal, and an agent once it stops serving, even if one of its threads
//! hangs: in a read of a lost store, on a connection to a lost host, at a lock, at a full pipe.

use std::{
    sync::{Once, mpsc},
    thread::Builder,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::time::Instant;

/// How long a process may take to end by itself: from the signal on, or from when an agent stops serving.
pub(crate) const ENDS_WITHIN: Duration = Duration::from_secs(9);

/// How long a command that this process started may take before it is killed.
pub(crate) const COMMAND_GRACE: Duration = Duration::from_secs(5);

/// How long the agent of `run` may take to end once no other node is waited for.
pub(crate) const CONCLUDED_WITHIN: Duration = Duration::from_secs(4);

/// How long a process may take to say why it panicked, and to end.
pub(crate) const AFTER_PANIC: Duration = Duration::from_secs(1);

/// How long the last message may take: standard error may be a full pipe.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(200);

/// Kills this process if it still runs after `patience`. Only the first call has an effect.
pub(crate) fn start(patience: Duration) {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let waiting = Builder::new().name("deadline".into()).spawn(move || end_after(patience));
        if let Err(error) = waiting {
            tracing::warn!(%error, "no thread watches over the end of this process");
        }
    });
}

/// Waits until this time; for ever if there is none.
pub(crate) async fn reached(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn end_after(patience: Duration) {
    wait(patience);
    let (said, is_said) = mpsc::sync_channel::<()>(1);
    let speaking = Builder::new().spawn(move || {
        tracing::error!("did not end within {patience:?} after it was asked to; killed");
        drop(said);
    });
    drop(speaking);
    // An error means that the thread has written the message, or failed to.
    let _ = is_said.recv_timeout(LAST_WORDS_WITHIN);
    // No exit handlers run: they could hang as well.
    let _ = kill(Pid::this(), Signal::SIGKILL);
}

fn wait(patience: Duration) {
    let (_silent, word) = mpsc::sync_channel::<()>(0);
    // The channel is a timer: nothing is sent.
    let _ = word.recv_timeout(patience);
}
