//! The fixed number of threads that sockets and TLS run on: those of requests to an object store, or those
//! of all connections to other nodes.
//!
//! A separate thread shuts them down, because their owner may be dropped in an asynchronous context, where
//! a tokio runtime must not be dropped.

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

/// Threads for the network and TLS; a thread of an ordinary server decrypts some gigabytes a second.
pub const NETWORK_THREADS: NonZeroUsize = NonZeroUsize::new(4).expect("4 is not 0");

/// No step of a task takes longer, except a DNS lookup, which is abandoned.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Network {
    handle: Handle,
    is_stopped: watch::Sender<bool>,
    /// Dropped to shut the threads down.
    end: Option<SyncSender<()>>,
    shutdown_thread: Option<JoinHandle<()>>,
}

impl Network {
    /// `name` is the name of each thread in the system, of at most 15 bytes.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started.
    pub fn start(name: &str, threads: NonZeroUsize) -> io::Result<Self> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(threads.get())
            .thread_name(name)
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = sync_channel(0);
        let shutdown_thread =
            Builder::new().name("tierfeed-network".to_owned()).spawn(move || {
                // Nothing is ever sent: the closed channel is the signal.
                let _ = ended.recv();
                runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
            })?;
        let (end, shutdown_thread) = (Some(end), Some(shutdown_thread));
        Ok(Self { handle, is_stopped: watch::Sender::new(false), end, shutdown_thread })
    }

    /// [`Self::stop`] drops the task, also if it was called before.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawner().spawn(task);
    }

    /// Starts tasks but does not keep the threads, for tasks that start others.
    pub(crate) fn spawner(&self) -> Spawner {
        Spawner { handle: self.handle.clone(), is_stopped: self.is_stopped.subscribe() }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs a task on this thread, with its sockets on the others; `None` if the network stops first.
    pub(crate) fn wait_blocking<T>(&self, task: impl Future<Output = T>) -> Option<T> {
        self.handle.block_on(until_stopped(self.is_stopped.subscribe(), task))
    }

    /// Ends all tasks, also those that are started later.
    pub fn stop(&self) {
        self.is_stopped.send_replace(true);
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Spawner {
    handle: Handle,
    is_stopped: watch::Receiver<bool>,
}

impl Spawner {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.handle.spawn(until_stopped(self.is_stopped.clone(), task)));
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
        if let Some(shutdown_thread) = self.shutdown_thread.take() {
            // It returns nothing, and a panic of a task ends only that task.
            let _ = shutdown_thread.join();
        }
    }
}
