//! Writes files of a run directory on a thread beside a loop, one after the other, because the directory may be
//! slow or hang.

use std::{
    io,
    path::{Path, PathBuf},
};

use tokio::{
    sync::mpsc,
    task::{JoinHandle, spawn_blocking},
};

/// Writes that wait for the thread; further ones are dropped.
const WAITING_MAX: usize = 4096;

type CarryOut = Box<dyn FnOnce(&Path) -> io::Result<()> + Send>;

struct Write {
    path: PathBuf,
    carry_out: CarryOut,
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
            while let Some(Write { path, carry_out, lost }) = writes.blocking_recv() {
                if let Err(error) = carry_out(&path) {
                    tracing::warn!(path = %path.display(), %error, "{lost}");
                }
            }
        });
        Self { queue, thread }
    }

    /// Writes the file at `path` as soon as what was given before is written. `lost` is what a failure means, for the
    /// log.
    pub(crate) fn give(
        &self,
        path: PathBuf,
        lost: &'static str,
        carry_out: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
    ) {
        let write = Write { path, carry_out: Box::new(carry_out), lost };
        if let Err(dropped) = self.queue.try_send(write) {
            let Write { path, .. } = dropped.into_inner();
            tracing::warn!(path = %path.display(), "the run directory does not answer: {lost}");
        }
    }

    /// Waits until all is written.
    pub(crate) async fn end(self) {
        drop(self.queue);
        // A panic of the thread counts as failed writes.
        let _ = self.thread.await;
    }
}
