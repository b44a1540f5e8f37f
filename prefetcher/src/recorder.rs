//! A flight recorder: what happened last, in a ring that never grows beyond its limit.
//!
//! Threads note an event with one short lock and without an allocation once the ring is full. Nothing
//! wakes up for it and nothing is written until somebody asks. Times are those of one clock, of which
//! the recorder knows when it read zero, so that its events can be laid beside those of other programs.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. The ring holds the last events, at most as many as its capacity.
//! 2. Every event is either held or counted as dropped.

use std::{
    sync::{Mutex, PoisonError},
    time::{Instant, SystemTime},
};

use tierfeed_core::{
    id::{BatchId, Rank, SampleId, TierId},
    session::{Fault, StallCause},
    units::{Bytes, Nanoseconds},
};

/// Something that took a while, or happened at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When it began.
    pub at: Nanoseconds,
    /// How long it took.
    pub lasted: Nanoseconds,
    /// What it was.
    pub what: What,
}

/// Where bytes were moved from or to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The cold store.
    Cold,
    /// Staging memory.
    Staging,
    /// A tier.
    Tier(TierId),
}

/// What an event was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A sample was moved.
    Moved {
        /// From where.
        from: End,
        /// To where.
        to: End,
        /// Which sample.
        sample: SampleId,
        /// How long it is.
        len: Bytes,
        /// What went wrong, if anything did.
        fault: Option<Fault>,
    },
    /// The staging memory of a rank was mapped.
    Arena(Rank, Option<Fault>),
    /// A chunk was added to a tier.
    Chunk(TierId, Option<Fault>),
    /// A batch was assembled in staging.
    Staged(BatchId),
    /// A trainer waited for a batch.
    Waited(BatchId),
    /// A part of such a wait.
    Part(BatchId, StallCause),
    /// A trainer held a batch.
    Held(BatchId),
    /// A tier may hold so many chunks from now on.
    Resized(TierId, u32),
    /// Each rank may have so many batches staged from now on.
    Limited(u32),
    /// A trainer connected.
    Came(Rank),
    /// A trainer is gone.
    Left(Rank),
}

/// Keeps the last events.
#[derive(Debug)]
pub struct Recorder {
    origin: Instant,
    capacity: usize,
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    events: Vec<Event>,
    /// Where the next event goes once the ring is full.
    next: usize,
    dropped: u64,
}

/// What a recorder held at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// The events, in the order in which they ended.
    pub events: Vec<Event>,
    /// Earlier ones that were dropped.
    pub dropped: u64,
    /// The time since 1970 when the clock of the events read zero.
    pub zero_since_1970: Nanoseconds,
}

impl Recorder {
    /// Keeps at most `capacity` events, whose clock reads zero at `origin`.
    #[must_use]
    pub fn new(origin: Instant, capacity: usize) -> Self {
        Self { origin, capacity, ring: Mutex::default() }
    }

    /// Time on the clock of the events.
    #[must_use]
    pub fn now(&self) -> Nanoseconds {
        since(self.origin)
    }

    /// Notes an event.
    pub fn note(&self, event: Event) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.events.len() < self.capacity {
            ring.events.push(event);
            return;
        }
        ring.dropped += 1;
        let next = ring.next;
        if let Some(oldest) = ring.events.get_mut(next) {
            *oldest = event;
            ring.next = (next + 1) % self.capacity;
        }
    }

    /// Notes what ends now and took so long.
    pub fn ended(&self, lasted: Nanoseconds, what: What) {
        let at = Nanoseconds(self.now().0.saturating_sub(lasted.0));
        self.note(Event { at, lasted, what });
    }

    /// What it holds now. Threads that note events wait while they are copied.
    #[must_use]
    pub fn recording(&self) -> Recording {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let (late, early) = ring.events.split_at(ring.next.min(ring.events.len()));
        let events = early.iter().chain(late).copied().collect();
        let dropped = ring.dropped;
        drop(ring);
        // Taken now, so that a wall clock that was set or slewed since the start is as others have it.
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let wall = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        let zero_since_1970 = Nanoseconds(wall.saturating_sub(self.now().0));
        Recording { events, dropped, zero_since_1970 }
    }
}

fn since(origin: Instant) -> Nanoseconds {
    // No process runs for the 584 years that fit.
    Nanoseconds(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a recorder is made for a clock")]
mod tests {
    use super::*;

    fn event(number: u64) -> Event {
        let (at, lasted) = (Nanoseconds(number), Nanoseconds(1));
        Event { at, lasted, what: What::Came(Rank(0)) }
    }

    #[test]
    fn the_last_events_are_held_and_the_others_counted() {
        let recorder = Recorder::new(Instant::now(), 3);
        for held in 0..3 {
            assert_eq!(recorder.recording().events.len(), held);
            recorder.note(event(held as u64));
        }
        (3..8).for_each(|number| recorder.note(event(number)));
        let recording = recorder.recording();
        assert_eq!(recording.events, [5, 6, 7].map(event), "invariant 1");
        assert_eq!(recording.dropped, 5, "invariant 2");
    }

    #[test]
    fn a_recorder_without_room_counts_only() {
        let recorder = Recorder::new(Instant::now(), 0);
        recorder.note(event(1));
        assert_eq!((recorder.recording().events.len(), recorder.recording().dropped), (0, 1));
    }

    #[test]
    fn events_lie_on_the_wall_clock() {
        let recorder = Recorder::new(Instant::now(), 1);
        let wall = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
        let before = wall();
        recorder.ended(Nanoseconds(0), What::Came(Rank(1)));
        let recording = recorder.recording();
        let at = u128::from(recording.zero_since_1970.0 + recording.events[0].at.0);
        // A second for a clock that is being set.
        assert!(before.abs_diff(at) < 1_000_000_000 && at < wall() + 1_000_000_000);
    }
}
