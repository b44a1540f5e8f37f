//! Writes files of a run directory on a thread beside a loop, one after the other, because the directory may be
//! slow or hang.

use std::io;

use tokio::{
    sync::mpsc,
    task::{JoinHandle, spawn_blocking},
};

/// Writes that wait for the thread; further ones are dropped.
const WAITING_MAX: usize = 4096;

struct Write {
    carry_out: Box<dyn FnOnce() -> io::Result<()> + Send>,
    lost: &'static str,
}

#[derive(Debug)]
pub(crate) struct WritesBeside {
    queue: mpsc::Sender<Write>,
    thread: JoinHandle<()>,
}

impl WritesBeside {
    /// Must be called within a tokio runtime.
    pub(crate) fn start() -> Self {
        let (queue, mut writes) = mpsc::channel::<Write>(WAITING_MAX);
        let thread = spawn_blocking(move || {
            while let Some(Write { carry_out, lost }) = writes.blocking_recv() {
                if let Err(error) = carry_out() {
                    tracing::warn!(%error, "{lost}");
                }
            }
        });
        Self { queue, thread }
    }

    /// Writes as soon as what was given before is written. `lost` is what a failure means, for the log.
    pub(crate) fn give(
        &self,
        lost: &'static str,
        carry_out: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) {
        let write = Write { carry_out: Box::new(carry_out), lost };
        if self.queue.try_send(write).is_err() {
            tracing::warn!("the run directory does not answer: {lost}");
        }
    }

    /// Waits until all is written.
    pub(crate) async fn end(self) {
        drop(self.queue);
        // A panic of the thread counts as failed writes.
        let _ = self.thread.await;
    }
}
