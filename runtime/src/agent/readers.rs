//! The connections that read batches, and the waits that they may have had.
//!
//! Trainers measure their waits themselves, and the report does not trust them: a wait cannot begin before
//! the connection, end after now, or make the sum of waits longer than the connection has existed.

use std::collections::BTreeMap;

use tierfeed_core::{
    id::ConnectionId,
    session::{Tally, Wait},
    units::Nanoseconds,
};
use tierfeed_handoff::Role;

use crate::observe::report::ReaderStats;

#[derive(Debug, Default)]
pub(super) struct Readers {
    connected: BTreeMap<ConnectionId, Reader>,
    reader_stats: ReaderStats,
}

#[derive(Debug)]
struct Reader {
    since: Nanoseconds,
    role: Role,
    /// The sum of the waits that were accepted.
    waited: Nanoseconds,
    is_active: bool,
}

impl Readers {
    pub(super) fn connect(&mut self, connection: ConnectionId, role: Role, now: Nanoseconds) {
        self.reader_stats.were_there = true;
        let waited = Nanoseconds(0);
        self.connected.insert(connection, Reader { since: now, role, waited, is_active: false });
    }

    pub(super) fn disconnect(&mut self, connection: ConnectionId) {
        self.connected.remove(&connection);
    }

    /// The reader requests batches, or reads them itself.
    pub(super) fn mark_active(&mut self, connection: ConnectionId) {
        let Some(reader) = self.connected.get_mut(&connection) else { return };
        if !std::mem::replace(&mut reader.is_active, true) {
            self.reader_stats.has_workers |= reader.role == Role::Worker;
            let active = self.connected.values().filter(|reader| reader.is_active).count();
            let active = u32::try_from(active).unwrap_or(u32::MAX);
            self.reader_stats.readers_max = self.reader_stats.readers_max.max(active);
        }
    }

    /// A reported wait, clamped to what is possible. If its stamps do not fit, as in a container with a clock
    /// of its own, only its length counts and it ends now.
    pub(super) fn clamp_wait(
        &mut self,
        connection: ConnectionId,
        reported: Wait,
        now: Nanoseconds,
    ) -> Wait {
        let Some(reader) = self.connected.get_mut(&connection) else {
            return Wait::ending(now, Nanoseconds(0));
        };
        let fits = reader.since <= reported.since
            && reported.since <= reported.until
            && reported.until <= now;
        let until = if fits { reported.until } else { now };
        let len = Nanoseconds(reported.len().0.min(reader.time_left(until).0));
        reader.waited.0 += len.0;
        Wait::ending(until, len)
    }

    /// A tally whose waits are clamped to the time since its trainer connected.
    pub(super) fn clamp_tally(
        &mut self,
        connection: ConnectionId,
        reported: Tally,
        now: Nanoseconds,
    ) -> Tally {
        self.mark_active(connection);
        let Some(reader) = self.connected.get_mut(&connection) else {
            return reported.within(Nanoseconds(0));
        };
        let tally = reported.within(reader.time_left(now));
        reader.waited.0 += tally.waited().0;
        tally
    }

    pub(super) fn reader_stats(&self) -> ReaderStats {
        self.reader_stats
    }
}

impl Reader {
    fn time_left(&self, until: Nanoseconds) -> Nanoseconds {
        let connected = until.0.saturating_sub(self.since.0);
        Nanoseconds(connected.saturating_sub(self.waited.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tierfeed_core::id::Epoch;

    use super::*;

    const ONE: ConnectionId = ConnectionId(1);

    fn wait(since: u64, until: u64) -> Wait {
        Wait { since: Nanoseconds(since), until: Nanoseconds(until) }
    }

    fn connected() -> Readers {
        let mut readers = Readers::default();
        readers.connect(ONE, Role::Trainer, Nanoseconds(100));
        readers
    }

    #[test]
    fn a_wait_keeps_its_stamps_and_one_with_stamps_of_another_clock_its_length() {
        let now = Nanoseconds(300);
        assert_eq!(connected().clamp_wait(ONE, wait(110, 150), now), wait(110, 150));
        assert_eq!(connected().clamp_wait(ONE, wait(9_000, 9_050), now), wait(250, 300));
        assert_eq!(connected().clamp_wait(ONE, wait(0, u64::MAX), now), wait(100, 300));
        assert_eq!(connected().clamp_wait(ONE, wait(200, 150), now).len(), Nanoseconds(0));
        assert_eq!(
            connected().clamp_wait(ConnectionId(2), wait(110, 150), now).len(),
            Nanoseconds(0)
        );
    }

    #[test]
    fn readers_count_at_a_time_once_they_read() {
        let mut readers = connected();
        let connected = ReaderStats { were_there: true, ..ReaderStats::default() };
        assert_eq!(readers.reader_stats(), connected, "it only connected");
        readers.mark_active(ONE);
        readers.mark_active(ONE);
        readers.disconnect(ONE);
        for connection in 2..5 {
            readers.connect(ConnectionId(connection), Role::Worker, Nanoseconds(0));
        }
        readers.mark_active(ConnectionId(2));
        readers.clamp_tally(ConnectionId(3), Tally::empty(Epoch(0)), Nanoseconds(1));
        assert_eq!(
            readers.reader_stats(),
            ReaderStats { readers_max: 2, has_workers: true, ..connected }
        );
    }

    proptest! {
        #[test]
        fn no_reader_waits_for_longer_than_it_is_connected(
            reported in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 1..20),
            times in prop::collection::vec(0_u64..1_000, 20),
        ) {
            let mut readers = connected();
            let (mut now, mut sum) = (100, 0);
            for ((since, until, decoding), passed) in reported.into_iter().zip(times) {
                now += passed;
                let clamped = readers.clamp_wait(ONE, wait(since, until), Nanoseconds(now));
                prop_assert!(clamped.since.0 >= 100 && clamped.until.0 <= now);
                let tally = Tally { decoding: Nanoseconds(decoding), ..Tally::empty(Epoch(0)) };
                let tally = readers.clamp_tally(ONE, tally, Nanoseconds(now));
                sum += clamped.len().0 + tally.waited().0;
                prop_assert!(sum <= now - 100);
            }
        }
    }
}
