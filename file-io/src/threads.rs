//! Runs each operation on a thread of its own.
//!
//! A queue of depth 1 has no thread: its operation runs in `wait`, because a change of threads costs as
//! much as a read from a fast disk.

use std::{
    io,
    os::unix::fs::FileExt as _,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{Builder, JoinHandle},
};

use crate::operation::{Completion, Kind, Operation};

#[derive(Debug)]
pub(crate) enum Threads {
    Inline(Option<Operation>),
    Crew(Crew),
}

#[derive(Debug)]
pub(crate) struct Crew {
    /// One for each thread; empty once the crew shall end.
    orders: Vec<SyncSender<Operation>>,
    /// The threads that have nothing to do.
    idle: Vec<usize>,
    ended: Receiver<(usize, Completion)>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    pub(crate) fn start(depth: u32) -> io::Result<Self> {
        if depth == 1 { Ok(Self::Inline(None)) } else { Crew::start(depth).map(Self::Crew) }
    }

    /// The caller keeps fewer operations in flight than the depth.
    pub(crate) fn push(&mut self, operation: Operation) {
        match self {
            Self::Inline(pending) => *pending = Some(operation),
            Self::Crew(crew) => crew.push(operation),
        }
    }

    /// The caller knows that an operation is in flight.
    pub(crate) fn wait(&mut self) -> Completion {
        match self {
            Self::Inline(pending) => run(pending.take().expect("an operation is in flight")),
            Self::Crew(crew) => crew.wait(),
        }
    }
}

impl Crew {
    fn start(depth: u32) -> io::Result<Self> {
        let count = depth as usize;
        let (end, ended) = sync_channel(count);
        let mut crew = Self { orders: Vec::new(), idle: Vec::new(), ended, threads: Vec::new() };
        for index in 0..count {
            let (order, orders) = sync_channel::<Operation>(1);
            let end = end.clone();
            let serve = move || {
                for operation in orders {
                    // Nobody listens any more when the crew is dropped with operations in flight.
                    if end.send((index, run(operation))).is_err() {
                        return;
                    }
                }
            };
            let builder = Builder::new().name("tierfeed-file".to_owned());
            crew.threads.push(builder.spawn(serve)?);
            crew.orders.push(order);
            crew.idle.push(index);
        }
        Ok(crew)
    }

    fn push(&mut self, operation: Operation) {
        let index = self.idle.pop().expect("fewer operations are in flight than there are threads");
        self.orders[index].send(operation).expect("a thread ends after its orders only");
    }

    fn wait(&mut self) -> Completion {
        let (index, completion) = self.ended.recv().expect("a thread ends after its orders only");
        self.idle.push(index);
        completion
    }
}

impl Drop for Crew {
    /// Invariant 3 of the queue: the threads are waited for.
    fn drop(&mut self) {
        self.orders.clear();
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended too, and said so on stderr.
            let _ = thread.join();
        }
    }
}

fn run(operation: Operation) -> Completion {
    let Operation { file, kind, offset, mut buffer, token } = operation;
    let outcome = loop {
        let outcome = match kind {
            Kind::Read => file.read_at(buffer.as_mut_slice(), offset),
            Kind::Write => file.write_at(buffer.as_slice(), offset),
        };
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            outcome => break outcome,
        }
    };
    Completion { token, buffer, outcome }
}
