//! The threads that sockets and TLS run on, however many requests are in flight.
//!
//! They are started and ended by a thread of their own, because whoever drops a fetcher may be where a
//! runtime must not be dropped.

use std::{
    io,
    num::NonZeroUsize,
    sync::mpsc::{SyncSender, sync_channel},
    thread::{Builder, JoinHandle},
    time::Duration,
};

use tokio::{
    runtime::{self, Handle},
    sync::watch,
};

/// Threads that the network and TLS get; a thread of an ordinary server decrypts some gigabytes a second.
pub const NETWORK_THREADS: NonZeroUsize = NonZeroUsize::new(4).expect("4 is not 0");

/// No step of a task takes longer; a name that is being looked up may, and is left behind.
const GRACE: Duration = Duration::from_secs(5);

/// Threads for requests, and the word that they shall end.
#[derive(Debug)]
pub(crate) struct Network {
    handle: Handle,
    is_stopped: watch::Sender<bool>,
    /// Dropped to end the threads.
    end: Option<SyncSender<()>>,
    keeper: Option<JoinHandle<()>>,
}

impl Network {
    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// If one cannot be started.
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(NETWORK_THREADS.get())
            .thread_name("tierfeed-objects")
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = sync_channel(0);
        let keeper = Builder::new().name("tierfeed-network".to_owned()).spawn(move || {
            // Nothing is ever sent: the error is the word.
            let _ = ended.recv();
            runtime.shutdown_timeout(GRACE);
        })?;
        let (end, keeper) = (Some(end), Some(keeper));
        Ok(Self { handle, is_stopped: watch::Sender::new(false), end, keeper })
    }

    /// Runs a task on the threads; it is dropped when [`Self::stop`] was or is called.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = until_stopped(self.is_stopped.subscribe(), task);
        drop(self.handle.spawn(task));
    }

    /// Waits for what runs on this thread, its sockets on the others; none if the network stops first.
    pub(crate) fn wait_blocking<T>(&self, task: impl Future<Output = T>) -> Option<T> {
        self.handle.block_on(until_stopped(self.is_stopped.subscribe(), task))
    }

    /// Lets all tasks end, now and from now on.
    pub(crate) fn stop(&self) {
        self.is_stopped.send_replace(true);
    }
}

async fn until_stopped<T>(
    mut stopped: watch::Receiver<bool>,
    task: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        _ = stopped.wait_for(|is_stopped| *is_stopped) => None,
        outcome = task => Some(outcome),
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop();
        drop(self.end.take());
        if let Some(keeper) = self.keeper.take() {
            // It has nothing to say, and panics of tasks end with them.
            let _ = keeper.join();
        }
    }
}
