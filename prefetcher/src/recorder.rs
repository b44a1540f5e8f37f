//! A flight recorder: the most recent events, in a ring buffer of fixed capacity.
//!
//! A thread records an event under one short lock, without an allocation once the ring is full. No thread
//! wakes up for it and nothing is written until a recording is asked for. All times are of one monotonic
//! clock; the recorder knows its offset to 1970, so events can be merged with traces of other programs.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. The ring holds the most recent events, at most as many as its capacity.
//! 2. Every event is either held or counted as dropped.

use std::time::{Instant, SystemTime};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tierfeed_core::{
    id::{BatchId, Rank, SampleId, TierId},
    session::{Fault, Form, StallCause},
    units::{Bytes, Nanoseconds},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When it began, on the clock of the recorder.
    pub at: Nanoseconds,
    /// Zero for an instant event.
    pub lasted: Nanoseconds,
    pub kind: EventKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Endpoint {
    Cold,
    Staging,
    Tier(TierId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    Moved {
        from: Endpoint,
        to: Endpoint,
        /// The first of a list.
        sample: SampleId,
        samples: u32,
        /// Of all.
        len: Bytes,
        fault: Option<Fault>,
    },
    Transformed {
        sample: SampleId,
        form: Form,
        /// The size of the row.
        len: Bytes,
        fault: Option<Fault>,
    },
    Arena(Rank, Option<Fault>),
    Chunk(TierId, Option<Fault>),
    Staged(BatchId),
    Waited(BatchId),
    /// A part of the wait of a trainer for a batch.
    WaitPart(BatchId, StallCause),
    Held(BatchId),
    /// The number of chunks that a tier may hold changed.
    TierResized(TierId, u32),
    /// The number of batches that each rank may have staged changed.
    StagingResized(u32),
    /// Threads were divided anew over ranks, and between reading and transforming.
    Divided {
        rank: Rank,
        /// Threads that read for it.
        loading: u32,
        /// Threads that transform for it.
        transforming: u32,
    },
    Connected(Rank),
    Disconnected(Rank),
}

#[derive(Debug)]
pub struct Recorder {
    origin: Instant,
    capacity: usize,
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    events: Vec<Event>,
    /// The event that is overwritten next, once the ring is full.
    next: usize,
    dropped: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// The events, in the order in which they ended.
    pub events: Vec<Event>,
    pub dropped: u64,
    /// The time since 1970 when the clock of the events read zero.
    pub zero_since_1970: Nanoseconds,
}

impl Recorder {
    /// The clock of the recorder reads zero at `origin`.
    #[must_use]
    pub fn new(origin: Instant, capacity: usize) -> Self {
        Self { origin, capacity, ring: Mutex::default() }
    }

    #[must_use]
    pub fn now(&self) -> Nanoseconds {
        since(self.origin)
    }

    /// Records an event; drops the oldest if the ring is full.
    pub fn record(&self, event: Event) {
        let mut ring = self.ring.lock();
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

    /// Records an event that ends now and lasted `lasted`.
    pub fn record_ended(&self, lasted: Nanoseconds, kind: EventKind) {
        let at = Nanoseconds(self.now().0.saturating_sub(lasted.0));
        self.record(Event { at, lasted, kind });
    }

    /// Threads that record wait while the events are copied.
    #[must_use]
    pub fn recording(&self) -> Recording {
        let ring = self.ring.lock();
        let (late, early) = ring.events.split_at(ring.next.min(ring.events.len()));
        let events = early.iter().chain(late).copied().collect();
        let dropped = ring.dropped;
        drop(ring);
        // Read now, so that a wall clock that was set or slewed since the start agrees with other programs.
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let wall = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        let zero_since_1970 = Nanoseconds(wall.saturating_sub(self.now().0));
        Recording { events, dropped, zero_since_1970 }
    }
}

fn since(origin: Instant) -> Nanoseconds {
    // 64 bits hold 584 years.
    Nanoseconds(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a recorder is made for a clock")]
mod tests {
    use super::*;

    fn event(number: u64) -> Event {
        let (at, lasted) = (Nanoseconds(number), Nanoseconds(1));
        Event { at, lasted, kind: EventKind::Connected(Rank(0)) }
    }

    #[test]
    fn the_last_events_are_held_and_the_others_counted() {
        let recorder = Recorder::new(Instant::now(), 3);
        for held in 0..3 {
            assert_eq!(recorder.recording().events.len(), held);
            recorder.record(event(held as u64));
        }
        (3..8).for_each(|number| recorder.record(event(number)));
        let recording = recorder.recording();
        assert_eq!(recording.events, [5, 6, 7].map(event), "invariant 1");
        assert_eq!(recording.dropped, 5, "invariant 2");
    }

    #[test]
    fn a_recorder_without_room_counts_only() {
        let recorder = Recorder::new(Instant::now(), 0);
        recorder.record(event(1));
        assert_eq!((recorder.recording().events.len(), recorder.recording().dropped), (0, 1));
    }

    #[test]
    fn events_lie_on_the_wall_clock() {
        let recorder = Recorder::new(Instant::now(), 1);
        let wall = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
        let before = wall();
        recorder.record_ended(Nanoseconds(0), EventKind::Connected(Rank(1)));
        let recording = recorder.recording();
        let at = u128::from(recording.zero_since_1970.0 + recording.events[0].at.0);
        // A second for a clock that is being set.
        assert!(before.abs_diff(at) < 1_000_000_000 && at < wall() + 1_000_000_000);
    }
}
