//! The memory of the write buffers of all chunks of one tier.

use std::{
    collections::VecDeque,
    io,
    ops::Deref,
    path::Path,
    ptr,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use tierfeed_core::units::Bytes;
use tierfeed_numa_memory::{Pages, Region, capacity};

use super::DiskChunk;
use crate::tier::bounce::buffer;

/// The size of one write: large enough for the full rate of a disk.
pub(crate) const WINDOW: u64 = 4 << 20;

/// Windows of a tier that have memory at a time. Two threads fill two; the others are those that the log
/// left partly filled because a sample did not fit.
pub(crate) const WINDOWS_MAX: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Windows {
    state: Mutex<State>,
    returned: Condvar,
    written: AtomicU64,
    failed: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    free: Vec<Region>,
    allocated: usize,
    /// In the order in which they were opened.
    open: VecDeque<OpenWindow>,
}

#[derive(Debug)]
pub(super) struct OpenWindow {
    pub(super) chunk: Weak<DiskChunk>,
    pub(super) part: usize,
}

/// The memory of one window, which returns to the tier on drop.
#[derive(Debug)]
pub(super) struct Memory {
    /// `None` only during drop.
    region: Option<Region>,
    windows: Arc<Windows>,
}

impl Windows {
    /// Memory for a window. If none is free, the window that was opened first is written back.
    ///
    /// The caller must not hold the lock of a window.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::OutOfMemory`] if the system refuses the memory.
    pub(super) fn acquire(self: &Arc<Self>) -> io::Result<Memory> {
        let mut state = self.state.lock();
        loop {
            if let Some(region) = state.free.pop() {
                return Ok(Memory { region: Some(region), windows: Arc::clone(self) });
            }
            if state.allocated == 0 || state.allocated < WINDOWS_MAX && has_room() {
                state.allocated += 1;
                drop(state);
                let allocated = buffer("tierfeed-window", Bytes(WINDOW), Pages::Huge);
                if allocated.is_err() {
                    self.state.lock().allocated -= 1;
                    // Another thread may wait for this window.
                    self.returned.notify_one();
                }
                return Ok(Memory { region: Some(allocated?), windows: Arc::clone(self) });
            }
            match state.open.pop_front() {
                Some(OpenWindow { chunk, part }) => MutexGuard::unlocked(&mut state, || {
                    if let Some(chunk) = chunk.upgrade() {
                        chunk.flush(part);
                    }
                }),
                // All windows are being written; wait for the memory of one of them.
                None => self.returned.wait(&mut state),
            }
        }
    }

    pub(super) fn opened(&self, window: OpenWindow) {
        self.state.lock().open.push_back(window);
        // A thread that waits for memory can write this window back.
        self.returned.notify_one();
    }

    pub(super) fn closed(&self, chunk: &DiskChunk, part: usize) {
        self.state.lock().open.retain(|it| it.part != part || !ptr::eq(it.chunk.as_ptr(), chunk));
    }

    pub(super) fn forget(&self, chunk: &DiskChunk) {
        self.state.lock().open.retain(|it| !ptr::eq(it.chunk.as_ptr(), chunk));
    }

    pub(super) fn count_write(&self, bytes: u64, outcome: &io::Result<()>) {
        match outcome {
            Ok(()) => self.written.fetch_add(bytes, Ordering::Relaxed),
            Err(_) => self.failed.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// The failed writes; the lost samples are read from the cold store instead.
    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn written(&self) -> Bytes {
        Bytes(self.written.load(Ordering::Relaxed))
    }
}

impl Deref for Memory {
    type Target = Region;

    fn deref(&self) -> &Region {
        self.region.as_ref().expect("it is taken when this is dropped")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.windows.state.lock().free.extend(self.region.take());
        self.windows.returned.notify_one();
    }
}

/// Whether the control groups have room for another window. The first one is allocated in any case.
fn has_room() -> bool {
    capacity::cache_headroom(Path::new("/")).is_none_or(|room| room >= Bytes(WINDOW))
}
