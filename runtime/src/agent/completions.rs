//! What the data plane finished and the loop has not seen yet.
//!
//! A queue of its own, because threads of the data plane must not wait for the loop, and the loop
//! itself completes operations that no thread takes. It needs no bound: it holds at most one entry for
//! each operation in flight, of which the session keeps no more than its staging memory allows.

use std::sync::{Arc, Mutex, PoisonError};

use tierfeed_core::{id::OpId, session::Fault};
use tokio::sync::Notify;

/// An operation that ended.
pub(super) type Completion = (OpId, Result<(), Fault>);

#[derive(Debug, Clone, Default)]
pub(super) struct Completions(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    done: Mutex<Vec<Completion>>,
    arrived: Notify,
}

impl Completions {
    pub(super) fn push(&self, op: OpId, outcome: Result<(), Fault>) {
        self.0.done.lock().unwrap_or_else(PoisonError::into_inner).push((op, outcome));
        self.0.arrived.notify_one();
    }

    /// Waits until something is there and takes all of it, oldest first. Nothing is lost if the wait is
    /// given up.
    pub(super) async fn next(&self) -> Vec<Completion> {
        loop {
            let done = self.take();
            if !done.is_empty() {
                return done;
            }
            self.0.arrived.notified().await;
        }
    }

    /// What is there now.
    pub(super) fn take(&self) -> Vec<Completion> {
        std::mem::take(&mut *self.0.done.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn completions_come_together_in_their_order() {
        let completions = Completions::default();
        completions.push(OpId(1), Ok(()));
        completions.push(OpId(2), Err(Fault::Io));
        assert_eq!(completions.next().await, [(OpId(1), Ok(())), (OpId(2), Err(Fault::Io))]);
        assert_eq!(completions.take(), []);
    }

    #[tokio::test]
    async fn a_wait_ends_with_the_next_completion() {
        let completions = Completions::default();
        let sender = completions.clone();
        let thread = std::thread::spawn(move || sender.push(OpId(7), Ok(())));
        assert_eq!(completions.next().await, [(OpId(7), Ok(()))]);
        thread.join().unwrap();
    }
}
