//! How much room of the tiers the first schedule keeps free for samples to come.
//!
//! Where the job file declares the pauses of its training and how long a step takes, and the rate of the cold
//! store is known, that room follows before anything is observed, by the derivation that the manager revises it
//! with later ([`Cycle::room`]): nothing is hit yet, as in a first epoch.

use alloc::{format, string::String};

use crate::{
    fleet::revision,
    session::{AUTO_RATE_MAX, Cycle, LookAhead, Supply},
    units::{Bytes, BytesPerSecond},
};

/// The phases of a training that its job file declares, on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phases {
    /// A busy phase, and the pause after it.
    pub cycle: Cycle,
    /// Bytes that the node reads in an epoch.
    pub epoch: Bytes,
    /// Bytes that its ranks read in a step.
    pub step: Bytes,
}

/// The room, and the reason in words; none where that is empty.
pub(super) fn first_room(
    look_ahead: LookAhead,
    phases: Option<Phases>,
    cold: Option<BytesPerSecond>,
    capacity: Bytes,
    depth: u32,
) -> (Bytes, String) {
    let (phases, cold) = match (look_ahead, phases, cold) {
        (LookAhead::Room(room), ..) => return (room, String::new()),
        (LookAhead::Auto, Some(phases), Some(cold)) if cold < AUTO_RATE_MAX => (phases, cold),
        (LookAhead::Auto | LookAhead::Off, ..) => return (Bytes(0), String::new()),
    };
    let staged = Bytes(phases.step.0.saturating_mul(depth.saturating_sub(1).into()));
    let supply = Supply { epoch: phases.epoch, capacity, staged, hits: 0, cold };
    match phases.cycle.room(&supply) {
        Bytes(0) => (Bytes(0), String::new()),
        room => {
            let why = revision::reason(phases.cycle, &supply, room);
            (room, format!("as the job file says, {why}"))
        }
    }
}
