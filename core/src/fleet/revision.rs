//! When a node gets the next generation of its schedule: when what it observed asks for another room for
//! look-ahead, by more than noise.
//!
//! The manager revises the schedules of a run, and the simulator those of a simulated one, by the same
//! function.

use alloc::{format, string::String};

use crate::{
    id::Epoch,
    session::{Cycle, Observed, Supply},
    units::{Bytes, Nanoseconds},
};

/// A room that differs from the one that holds by less than this part of the larger stands (hysteresis).
const STANDS_WITHIN: u64 = 8;

/// Another room for look-ahead, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// The room.
    pub room: Bytes,
    /// Why it changes, in words.
    pub reason: String,
}

/// The room that a schedule gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The room.
    pub room: Bytes,
    /// The first epoch that the schedule was made for.
    pub from: Epoch,
}

/// The room that ought to follow the one which is held, by what was observed; `None` if it stands. Rooms that
/// differ by less than a `chunk` are one.
#[must_use]
pub fn revise(held: Held, chunk: Bytes, observed: &Observed) -> Option<Revision> {
    let Held { room, from } = held;
    let supply = observed.supply.as_ref()?;
    if observed.cycle.is_none() && observed.planned <= from {
        // A pause that the job file declares may still come: its room holds for two cycles an epoch.
        return None;
    }
    let worth = observed.cycle.map_or(Bytes(0), |cycle| cycle.room(supply));
    let noise = (worth.max(room).0 / STANDS_WITHIN).max(chunk.0);
    if worth.0.abs_diff(room.0) < noise {
        return None;
    }
    let reason = match observed.cycle {
        Some(cycle) => reason(cycle, supply, worth),
        None => format!("trainers do not pause: {room} for samples to come are worth nothing"),
    };
    Some(Revision { room: worth, reason })
}

/// Why a room is worth most, in words.
#[must_use]
pub fn reason(cycle: Cycle, supply: &Supply, worth: Bytes) -> String {
    let (idle, busy) = (rounded(cycle.idle), rounded(cycle.busy));
    format!(
        "trainers pause for {idle} after {busy} in which they consume {}, and the cold store gives {}: \
         {worth} of {} for samples to come are worth most",
        cycle.consumed, supply.cold, supply.capacity
    )
}

/// To three digits or so: enough for a sentence.
fn rounded(time: Nanoseconds) -> Nanoseconds {
    Nanoseconds(time.0 - time.0 % 1_000_000_u64.min(time.0.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    use crate::{session::ObservedLink, units::BytesPerSecond};

    const CHUNK: Bytes = Bytes(10);

    /// Trainers that consume 2,500 bytes in a second, then pause for one.
    fn observed(rate: u64) -> Observed {
        let second = Nanoseconds(1_000_000_000);
        let cycle = Some(Cycle { consumed: Bytes(2_500), busy: second, idle: second });
        let (epoch, capacity) = (Bytes(100_000), Bytes(2_000));
        let cold = BytesPerSecond(rate);
        let supply = Some(Supply { epoch, capacity, staged: Bytes(0), hits: 20_000, cold });
        let (planned, cold) = (Epoch(1), ObservedLink::default());
        Observed { planned, cold, tiers: Vec::new(), cycle, supply }
    }

    /// Of a schedule that was made for the first epoch, while the second is planned.
    fn held(room: u64) -> Held {
        Held { room: Bytes(room), from: Epoch(0) }
    }

    fn room(room: u64, observed: &Observed) -> Option<u64> {
        revise(held(room), CHUNK, observed).map(|revision| revision.room.0)
    }

    #[test]
    fn pauses_beside_a_slow_cold_store_get_room_and_say_why() {
        let revision = revise(held(0), CHUNK, &observed(1_300)).unwrap();
        assert!(revision.room > Bytes(1_000), "{revision:?}");
        let why = "trainers pause for 1 s after 1 s in which they consume 2.44 KiB, and the cold store gives \
                   1.30 kB/s";
        assert!(revision.reason.starts_with(why), "{}", revision.reason);
    }

    #[test]
    fn what_differs_by_little_stands() {
        let worth = room(0, &observed(1_300)).unwrap();
        assert_eq!(room(worth, &observed(1_300)), None);
        assert_eq!(room(worth - worth / 10, &observed(1_300)), None);
        assert_eq!(room(worth + worth / 10, &observed(1_300)), None);
        assert_eq!(room(worth / 2, &observed(1_300)), Some(worth));
        let still = Observed { cycle: None, ..observed(1_300) };
        assert_eq!((room(0, &still), room(5, &still), room(worth, &still)), (None, None, Some(0)));
    }

    #[test]
    fn declared_pauses_that_did_not_come_yet_keep_their_room_through_the_first_half_epoch() {
        let early = Observed { cycle: None, planned: Epoch(0), ..observed(1_300) };
        assert_eq!(room(500, &early), None);
        assert_eq!(room(500, &Observed { planned: Epoch(1), ..early }), Some(0));
    }

    #[test]
    fn without_a_rate_of_the_cold_store_nothing_changes() {
        let unknown = Observed { supply: None, ..observed(1_300) };
        assert_eq!(room(500, &unknown), None);
    }
}
