//! Who reads batches, since when, and for how much waiting of theirs there was time.
//!
//! Trainers measure their waits themselves and are not trusted with the report: nobody waits before it
//! connected, after now, or for longer altogether than it has been connected.

use std::collections::BTreeMap;

use tierfeed_core::{
    id::HolderId,
    session::{Tally, Wait},
    units::Nanoseconds,
};
use tierfeed_handoff::Role;

use crate::observe::report::Readership;

/// The connections that read batches.
#[derive(Debug, Default)]
pub(super) struct Readers {
    connected: BTreeMap<HolderId, Reader>,
    readership: Readership,
}

#[derive(Debug)]
struct Reader {
    since: Nanoseconds,
    role: Role,
    /// The waits that were believed.
    waited: Nanoseconds,
    is_active: bool,
}

impl Readers {
    pub(super) fn came(&mut self, holder: HolderId, role: Role, now: Nanoseconds) {
        let waited = Nanoseconds(0);
        self.connected.insert(holder, Reader { since: now, role, waited, is_active: false });
    }

    pub(super) fn left(&mut self, holder: HolderId) {
        self.connected.remove(&holder);
    }

    /// It asks for batches, or reads them itself.
    pub(super) fn acts(&mut self, holder: HolderId) {
        let Some(reader) = self.connected.get_mut(&holder) else { return };
        if !std::mem::replace(&mut reader.is_active, true) {
            self.readership.has_workers |= reader.role == Role::Worker;
            let active = self.connected.values().filter(|reader| reader.is_active).count();
            let active = u32::try_from(active).unwrap_or(u32::MAX);
            self.readership.readers_max = self.readership.readers_max.max(active);
        }
    }

    /// A wait as far as it can be. One whose stamps do not fit, as those of a container with a clock of its
    /// own, has its length and ends now.
    pub(super) fn believe(&mut self, holder: HolderId, told: Wait, now: Nanoseconds) -> Wait {
        let Some(reader) = self.connected.get_mut(&holder) else {
            return Wait::ending(now, Nanoseconds(0));
        };
        let fits = reader.since <= told.since && told.since <= told.until && told.until <= now;
        let until = if fits { told.until } else { now };
        let len = Nanoseconds(told.len().0.min(reader.time_left(until).0));
        reader.waited.0 += len.0;
        Wait::ending(until, len)
    }

    /// A tally whose waits fit into the time since its trainer connected.
    pub(super) fn believe_tally(
        &mut self,
        holder: HolderId,
        told: Tally,
        now: Nanoseconds,
    ) -> Tally {
        self.acts(holder);
        let Some(reader) = self.connected.get_mut(&holder) else {
            return told.within(Nanoseconds(0));
        };
        let tally = told.within(reader.time_left(now));
        reader.waited.0 += tally.waited().0;
        tally
    }

    pub(super) fn readership(&self) -> Readership {
        self.readership
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

    const ONE: HolderId = HolderId(1);

    fn wait(since: u64, until: u64) -> Wait {
        Wait { since: Nanoseconds(since), until: Nanoseconds(until) }
    }

    fn connected() -> Readers {
        let mut readers = Readers::default();
        readers.came(ONE, Role::Trainer, Nanoseconds(100));
        readers
    }

    #[test]
    fn a_wait_keeps_its_stamps_and_one_with_stamps_of_another_clock_its_length() {
        let now = Nanoseconds(300);
        assert_eq!(connected().believe(ONE, wait(110, 150), now), wait(110, 150));
        assert_eq!(connected().believe(ONE, wait(9_000, 9_050), now), wait(250, 300));
        assert_eq!(connected().believe(ONE, wait(0, u64::MAX), now), wait(100, 300));
        assert_eq!(connected().believe(ONE, wait(200, 150), now).len(), Nanoseconds(0));
        assert_eq!(connected().believe(HolderId(2), wait(110, 150), now).len(), Nanoseconds(0));
    }

    #[test]
    fn readers_count_at_a_time_once_they_read() {
        let mut readers = connected();
        assert_eq!(readers.readership(), Readership::default(), "it only connected");
        readers.acts(ONE);
        readers.acts(ONE);
        readers.left(ONE);
        for holder in 2..5 {
            readers.came(HolderId(holder), Role::Worker, Nanoseconds(0));
        }
        readers.acts(HolderId(2));
        readers.believe_tally(HolderId(3), Tally::empty(Epoch(0)), Nanoseconds(1));
        assert_eq!(
            readers.readership(),
            Readership { readers_max: 2, has_workers: true, starved: None }
        );
    }

    proptest! {
        #[test]
        fn nobody_waits_for_longer_than_it_is_there(
            told in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 1..20),
            times in prop::collection::vec(0_u64..1_000, 20),
        ) {
            let mut readers = connected();
            let (mut now, mut sum) = (100, 0);
            for ((since, until, decoding), passed) in told.into_iter().zip(times) {
                now += passed;
                let believed = readers.believe(ONE, wait(since, until), Nanoseconds(now));
                prop_assert!(believed.since.0 >= 100 && believed.until.0 <= now);
                let tally = Tally { decoding: Nanoseconds(decoding), ..Tally::empty(Epoch(0)) };
                let tally = readers.believe_tally(ONE, tally, Nanoseconds(now));
                sum += believed.len().0 + tally.waited().0;
                prop_assert!(sum <= now - 100);
            }
        }
    }
}
