//! Distributes the directories below a source, and the parts of large ones, to threads.
//!
//! 1. The listing does not depend on the timing of the threads.
//! 2. Nor does the error: after one, only those parts are still read that may hold an earlier one
//!    in the order of the listing.
//!
//! Querying a network file system for the size of a file is one round trip and no work, so there
//! are more threads than CPUs, except on file systems in memory.

mod directory;

use std::{
    cmp::Ordering,
    num::NonZeroUsize,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{self, AtomicU64},
        mpsc::{self, SyncSender},
    },
    thread,
};

use rustix::fs::fstatfs;

use self::directory::{Block, Buffers, Entry};
use crate::source::{
    Listing, Selection, SourceError,
    arranged::{Filled, listing},
    names::{append, below, python_order},
};

/// Enough to hide round trips, few enough not to overload a shared file server.
const THREADS_MAX: usize = 16;

const PROGRESS_STEP: u64 = 1_024;

/// `TMPFS_MAGIC` and `RAMFS_MAGIC` of `linux/magic.h`.
const MEMORY_FILE_SYSTEMS: [u64; 2] = [0x0102_1994, 0x8584_58f6];

pub(super) struct Crawl<'a> {
    root: &'a Path,
    directory: OwnedFd,
    selection: &'a dyn Selection,
    threads: usize,
    state: Mutex<State>,
    change: Condvar,
    objects: AtomicU64,
}

#[derive(Default)]
struct State {
    tasks: Vec<Task>,
    /// Tasks that wait or are in progress.
    unfinished: usize,
    blocks_waiting: usize,
    filled: Vec<Filled>,
    failure: Option<Failure>,
}

enum Task {
    Enter(Entry),
    Measure(Block),
}

struct Failure {
    directory: Vec<u8>,
    /// `None` for the directory itself.
    name: Option<Vec<u8>>,
    error: SourceError,
}

impl Failure {
    fn compare(&self, directory: &[u8], name: Option<&[u8]>) -> Ordering {
        let names = || match (&self.name, name) {
            (Some(left), Some(right)) => python_order(left, right),
            (left, right) => left.is_some().cmp(&right.is_some()),
        };
        python_order(&self.directory, directory).then_with(names)
    }
}

impl<'a> Crawl<'a> {
    pub(super) fn new(root: &'a Path, directory: OwnedFd, selection: &'a dyn Selection) -> Self {
        Self {
            root,
            threads: threads(&directory),
            directory,
            selection,
            state: Mutex::default(),
            change: Condvar::new(),
            objects: AtomicU64::new(0),
        }
    }

    pub(super) fn run(self, progress: &mut dyn FnMut(u64)) -> Result<Listing, SourceError> {
        self.add(Task::Enter(Entry::root()));
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::sync_channel(self.threads);
            for _ in 0..self.threads {
                let (sender, crawl) = (sender.clone(), &self);
                scope.spawn(move || crawl.work(&sender));
            }
            drop(sender);
            let mut most = 0;
            for objects in receiver {
                most = most.max(objects);
                progress(most);
            }
        });
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        match state.failure {
            Some(failure) => Err(failure.error),
            None => Ok(listing(state.filled)),
        }
    }

    fn work(&self, progress: &SyncSender<u64>) {
        let mut buffers = Buffers::default();
        while let Some(task) = self.next() {
            let _finishes = Finishes(self);
            let found = match task {
                Task::Enter(entry) if self.is_behind_failure(&entry.path) => 0,
                Task::Enter(entry) => self.enter(entry, &mut buffers),
                Task::Measure(block) => self.measure(block),
            };
            let before = self.objects.fetch_add(found, atomic::Ordering::Relaxed);
            let after = before + found;
            if before / PROGRESS_STEP != after / PROGRESS_STEP {
                // The receiver is dropped only if the caller's function panicked.
                let _ = progress.send(after);
            }
        }
    }

    fn next(&self) -> Option<Task> {
        let idle = |state: &mut State| state.tasks.is_empty() && state.unfinished > 0;
        let waited = self.change.wait_while(self.state(), idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let task = state.tasks.pop()?;
        state.blocks_waiting -= usize::from(matches!(task, Task::Measure(_)));
        Some(task)
    }

    fn add(&self, task: Task) {
        let mut state = self.state();
        state.unfinished += 1;
        state.tasks.push(task);
        drop(state);
        self.change.notify_one();
    }

    fn add_directory(&self, entry: Entry) {
        self.add(Task::Enter(entry));
    }

    /// Hands the block to another thread; returns it if all of them are busy.
    fn offer(&self, block: Block) -> Option<Block> {
        let mut state = self.state();
        if state.blocks_waiting >= self.threads {
            return Some(block);
        }
        state.blocks_waiting += 1;
        state.unfinished += 1;
        state.tasks.push(Task::Measure(block));
        drop(state);
        self.change.notify_one();
        None
    }

    fn fill(&self, filled: Filled) {
        self.state().filled.push(filled);
    }

    /// Keeps the error if it is the first in the order. `name` is `None` for that of the directory
    /// itself.
    fn fail(
        &self,
        directory: &[u8],
        name: Option<&[u8]>,
        error: impl FnOnce(PathBuf) -> SourceError,
    ) {
        let mut state = self.state();
        let known = state.failure.as_ref().map(|it| it.compare(directory, name));
        if known.is_some_and(|it| it != Ordering::Greater) {
            return;
        }
        let mut path = directory.to_vec();
        append(&mut path, name.unwrap_or_default());
        state.failure = Some(Failure {
            directory: directory.to_vec(),
            name: name.map(<[u8]>::to_vec),
            error: error(self.path(&path)),
        });
    }

    fn path(&self, path: &[u8]) -> PathBuf {
        below(self.root, path)
    }

    /// Whether everything in and below `path` comes after the first failure.
    fn is_behind_failure(&self, path: &[u8]) -> bool {
        let state = self.state();
        let failure = state.failure.as_ref();
        failure.is_some_and(|it| python_order(&it.directory, path) == Ordering::Less)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a task as done, even if a selection panics: otherwise all other threads would wait
/// forever.
struct Finishes<'a>(&'a Crawl<'a>);

impl Drop for Finishes<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.unfinished -= 1;
        let is_over = state.unfinished == 0;
        drop(state);
        if is_over {
            self.0.change.notify_all();
        }
    }
}

fn threads(directory: &OwnedFd) -> usize {
    let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let kind = fstatfs(directory).map(|it| u64::try_from(it.f_type).unwrap_or(0));
    let is_memory = kind.is_ok_and(|kind| MEMORY_FILE_SYSTEMS.contains(&kind));
    if is_memory { cpus.min(THREADS_MAX) } else { THREADS_MAX }
}
