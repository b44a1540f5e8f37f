//! The queue of operations that the data plane finished and the loop has not taken yet.
//!
//! The loop takes a limited number at a time, so that it handles other events in between.
//!
//! It is no bounded channel, because threads of the data plane must not wait for the loop, and the loop
//! itself completes operations that no thread takes. Its length has a bound all the same: one entry for
//! each operation in flight, and staging memory limits how many the session keeps in flight.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tierfeed_core::{session::Event, units::Nanoseconds};
use tokio::sync::Notify;

use crate::clock::Clock;

const TAKEN_MAX: usize = 256;

/// The end of an operation, and when that was; the loop takes it later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) event: Event,
    pub(super) at: Nanoseconds,
}

#[derive(Debug, Clone)]
pub(super) struct Completions(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    done: Mutex<VecDeque<Completion>>,
    arrived: Notify,
}

impl Completions {
    pub(super) fn new(clock: Clock) -> Self {
        Self(Arc::new(Shared { clock, done: Mutex::default(), arrived: Notify::default() }))
    }

    /// Takes note of an operation that ends now.
    pub(super) fn push(&self, event: Event) {
        let mut done = self.0.done.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, so that times are in order.
        done.push_back(Completion { event, at: self.0.clock.now() });
        drop(done);
        self.0.arrived.notify_one();
    }

    /// Waits for completions and takes the oldest, at most [`TAKEN_MAX`]. Cancel safe.
    pub(super) async fn next(&self) -> Vec<Completion> {
        loop {
            // Yields to timers and signals, even if the queue is never empty.
            tokio::task::coop::consume_budget().await;
            let done = self.take();
            if !done.is_empty() {
                return done;
            }
            self.0.arrived.notified().await;
        }
    }

    /// The oldest completions that are queued now, at most [`TAKEN_MAX`].
    pub(super) fn take(&self) -> Vec<Completion> {
        let mut done = self.0.done.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = done.len().min(TAKEN_MAX);
        done.drain(..taken).collect()
    }
}

#[cfg(test)]
mod tests {
    use tierfeed_core::{id::OpId, session::Fault};

    use super::*;

    fn ended(op: u64, outcome: Result<(), Fault>) -> Event {
        Event::Completed { op: OpId(op), outcome }
    }

    #[tokio::test]
    async fn completions_come_together_in_their_order() {
        let clock = Clock::start();
        let completions = Completions::new(clock);
        completions.push(ended(1, Ok(())));
        completions.push(ended(2, Err(Fault::Io)));
        let both_ended = clock.now();
        let done = completions.next().await;
        let events: Vec<_> = done.iter().map(|it| it.event.clone()).collect();
        assert_eq!(events, [ended(1, Ok(())), ended(2, Err(Fault::Io))]);
        assert!(done[0].at <= done[1].at && done[1].at <= both_ended, "when they ended: {done:?}");
        assert_eq!(completions.take(), []);
    }

    #[tokio::test]
    async fn completions_that_never_end_leave_timers_their_turn() {
        let completions = Completions::new(Clock::start());
        let endless = tokio::spawn(async move {
            for op in 0..10_000_000 {
                completions.push(ended(op, Ok(())));
                completions.next().await;
            }
        });
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        assert!(!endless.is_finished(), "the timer had no turn before the end");
        endless.abort();
    }

    #[tokio::test]
    async fn a_wait_ends_with_the_next_completion() {
        let completions = Completions::new(Clock::start());
        let sender = completions.clone();
        let thread = std::thread::spawn(move || sender.push(ended(7, Ok(()))));
        assert_eq!(completions.next().await[0].event, ended(7, Ok(())));
        thread.join().unwrap();
    }
}
