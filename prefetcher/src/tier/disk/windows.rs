//! The memory in which all chunks of one tier gather what they write.

use std::{
    collections::VecDeque,
    io,
    ops::Deref,
    path::Path,
    ptr,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use tierfeed_core::{tier::Locality, units::Bytes};
use tierfeed_numa_memory::{Pages, Region, Request, capacity};

use super::DiskChunk;

/// What is written at once: enough for a disk to be as fast as it can.
pub(crate) const WINDOW: u64 = 4 << 20;

/// Windows of a tier that are gathered at a time. Two threads fill two; the others are those that the
/// log left half full because a sample did not fit.
pub(crate) const WINDOWS_MAX: usize = 8;

/// All windows of a tier.
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
    made: usize,
    /// The one opened longest ago first.
    open: VecDeque<Entry>,
}

/// An open window.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) chunk: Weak<DiskChunk>,
    pub(super) part: usize,
}

/// The memory of one window; it goes back when this is dropped.
#[derive(Debug)]
pub(super) struct Memory {
    /// Only `None` while it is dropped.
    region: Option<Region>,
    windows: Arc<Windows>,
}

impl Windows {
    /// Memory for a window. If there is none left the window that was opened longest ago is written.
    ///
    /// The caller holds no lock of a window.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::OutOfMemory`].
    pub(super) fn take(self: &Arc<Self>) -> io::Result<Memory> {
        let mut state = self.state();
        loop {
            if let Some(region) = state.free.pop() {
                return Ok(Memory { region: Some(region), windows: Arc::clone(self) });
            }
            if state.made == 0 || state.made < WINDOWS_MAX && has_room() {
                state.made += 1;
                drop(state);
                let made = make();
                if made.is_err() {
                    self.state().made -= 1;
                }
                return Ok(Memory { region: Some(made?), windows: Arc::clone(self) });
            }
            state = match state.open.pop_front() {
                Some(Entry { chunk, part }) => {
                    drop(state);
                    if let Some(chunk) = chunk.upgrade() {
                        chunk.flush(part);
                    }
                    self.state()
                }
                // All are being written; one of them comes back.
                None => self.returned.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Notes that a window has memory.
    pub(super) fn opened(&self, entry: Entry) {
        self.state().open.push_back(entry);
        // Who waits for memory can write this one out.
        self.returned.notify_one();
    }

    /// Notes that a window has none any more.
    pub(super) fn closed(&self, chunk: &DiskChunk, part: usize) {
        self.state().open.retain(|it| it.part != part || !ptr::eq(it.chunk.as_ptr(), chunk));
    }

    /// Notes that a chunk is gone.
    pub(super) fn forget(&self, chunk: &DiskChunk) {
        self.state().open.retain(|it| !ptr::eq(it.chunk.as_ptr(), chunk));
    }

    /// Counts what went to the disk.
    pub(super) fn wrote(&self, bytes: u64, outcome: &io::Result<()>) {
        match outcome {
            Ok(()) => self.written.fetch_add(bytes, Ordering::Relaxed),
            Err(_) => self.failed.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// Writes that failed so far; what they were to write is read from the cold store instead.
    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Bytes of samples that were written to the disk.
    #[cfg(test)]
    pub(crate) fn written(&self) -> Bytes {
        Bytes(self.written.load(Ordering::Relaxed))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics between two changes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.windows.state().free.extend(self.region.take());
        self.windows.returned.notify_one();
    }
}

/// Whether the control groups have room for more than one window. One is made in any case.
fn has_room() -> bool {
    capacity::cache_headroom(Path::new("/")).is_none_or(|room| room >= Bytes(WINDOW))
}

fn make() -> io::Result<Region> {
    let request = Request {
        len: Bytes(WINDOW),
        locality: Locality::Anywhere,
        name: "tierfeed-window",
        pages: Pages::Huge,
    };
    Region::allocate(&request).map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))
}
