//! Runs operations on as many threads as the queue is deep.
//!
//! A queue of depth 1 has no thread: its operation runs in `wait`, because a switch of threads
//! costs as much as a read from a fast disk. Otherwise all threads take from one list, so that a
//! running thread takes the next operation instead of waking another.

use std::{
    collections::VecDeque,
    io, mem,
    os::unix::fs::FileExt as _,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{Builder, JoinHandle},
};

use crate::operation::{Kind, Operation};

/// An operation that has ended, and the bytes that it moved.
type Ended = (Operation, io::Result<usize>);

#[derive(Debug)]
pub(crate) enum Threads {
    Inline(Option<Operation>),
    ThreadPool(ThreadPool),
}

#[derive(Debug)]
pub(crate) struct ThreadPool {
    shared: Arc<SharedLists>,
    threads: Vec<JoinHandle<()>>,
}

/// The state that the threads share.
#[derive(Debug, Default)]
struct SharedLists {
    lists: Mutex<Lists>,
    has_pending: Condvar,
    has_ended: Condvar,
}

/// Both lists together are at most as long as the queue is deep.
#[derive(Debug, Default)]
struct Lists {
    pending: VecDeque<Operation>,
    ended: VecDeque<Ended>,
    is_closing: bool,
}

impl Threads {
    pub(crate) fn start(depth: u32) -> io::Result<Self> {
        if depth == 1 {
            Ok(Self::Inline(None))
        } else {
            ThreadPool::start(depth).map(Self::ThreadPool)
        }
    }

    /// The caller keeps fewer operations in flight than the depth.
    pub(crate) fn push(&mut self, operation: Operation) {
        match self {
            Self::Inline(pending) => *pending = Some(operation),
            Self::ThreadPool(crew) => crew.push(operation),
        }
    }

    /// The caller knows that an operation is in flight.
    pub(crate) fn wait(&mut self) -> Ended {
        match self {
            Self::Inline(pending) => run(pending.take().expect("an operation is in flight")),
            Self::ThreadPool(crew) => crew.wait(),
        }
    }
}

impl ThreadPool {
    fn start(depth: u32) -> io::Result<Self> {
        let mut crew = Self { shared: Arc::default(), threads: Vec::new() };
        for _ in 0..depth {
            let shared = Arc::clone(&crew.shared);
            let builder = Builder::new().name("tierfeed-file".to_owned());
            crew.threads.push(builder.spawn(move || shared.serve())?);
        }
        Ok(crew)
    }

    fn push(&self, operation: Operation) {
        self.shared.lock().pending.push_back(operation);
        self.shared.has_pending.notify_one();
    }

    fn wait(&self) -> Ended {
        let lists = self.shared.lock();
        let is_empty = |lists: &mut Lists| lists.ended.is_empty();
        let lists = self.shared.has_ended.wait_while(lists, is_empty);
        lists.expect(NO_PANIC).ended.pop_front().expect("it was waited for")
    }
}

impl Drop for ThreadPool {
    /// Invariant 3 of the queue: the threads are joined. Operations that have not begun are
    /// dropped.
    fn drop(&mut self) {
        let mut lists = self.shared.lock();
        lists.is_closing = true;
        let unbegun = mem::take(&mut lists.pending);
        drop(lists);
        drop(unbegun);
        self.shared.has_pending.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended too, and reported it on stderr.
            let _ = thread.join();
        }
    }
}

const NO_PANIC: &str = "nothing that can panic is done under the lock";

impl SharedLists {
    fn lock(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().expect(NO_PANIC)
    }

    fn serve(&self) {
        let has_nothing = |lists: &mut Lists| lists.pending.is_empty() && !lists.is_closing;
        loop {
            let lists = self.has_pending.wait_while(self.lock(), has_nothing);
            let Some(operation) = lists.expect(NO_PANIC).pending.pop_front() else { return };
            let ended = run(operation);
            self.lock().ended.push_back(ended);
            self.has_ended.notify_one();
        }
    }
}

fn run(mut operation: Operation) -> Ended {
    let Operation { file, kind, offset, buffer, .. } = &mut operation;
    let outcome = loop {
        let outcome = match kind {
            Kind::Read => file.read_at(buffer.as_mut_slice(), *offset),
            Kind::Write => file.write_at(buffer.as_slice(), *offset),
        };
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            outcome => break outcome,
        }
    };
    (operation, outcome)
}
