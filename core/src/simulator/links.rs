//! When an operation ends, given everything else that uses the same link.

use alloc::vec::Vec;

use super::Model;
use crate::{
    id::{OpId, TierId},
    session::{Command, Origin},
    tier::Speed,
    units::{Bytes, Nanoseconds},
};

/// Latencies overlap, bytes queue.
#[derive(Debug, Clone, Copy)]
struct Link {
    speed: Speed,
    free_at: Nanoseconds,
}

impl Link {
    fn new(speed: Speed) -> Self {
        Self { speed, free_at: Nanoseconds(0) }
    }

    fn carry(&mut self, len: Bytes, now: Nanoseconds) -> Nanoseconds {
        let start = self.free_at.max(now);
        self.free_at = Nanoseconds(start.0 + self.speed.bandwidth.time_for(len).0);
        Nanoseconds(self.free_at.0 + self.speed.latency.0)
    }
}

/// All links of a node.
#[derive(Debug)]
pub(super) struct Links {
    cold: Link,
    tiers: Vec<Link>,
}

impl Links {
    pub(super) fn new(model: &Model) -> Self {
        let tiers = model.tiers.iter().map(|speed| Link::new(*speed)).collect();
        Self { cold: Link::new(model.cold), tiers }
    }

    /// When the operation of a command ends, or `None` if the command is not one.
    pub(super) fn carry_out(
        &mut self,
        command: &Command,
        now: Nanoseconds,
    ) -> Option<(OpId, Nanoseconds)> {
        match command {
            Command::OpenArena { op, .. } | Command::AddChunk { op, .. } => Some((*op, now)),
            Command::Fetch { op, to, .. } => Some((*op, self.cold.carry(to.len, now))),
            Command::Promote { op, from, to, .. } => Some((*op, self.tier(from.tier, to.len, now))),
            Command::Demote { op, from, len, to, .. } => {
                let read = match from {
                    Origin::Staging(_) => now,
                    Origin::Tier(place) => self.tier(place.tier, *len, now),
                };
                Some((*op, self.tier(to.tier, *len, now).max(read)))
            }
            Command::CloseArena { .. }
            | Command::DropChunk { .. }
            | Command::Admit { .. }
            | Command::Reject { .. }
            | Command::Lease { .. }
            | Command::Refuse { .. } => None,
        }
    }

    fn tier(&mut self, tier: TierId, len: Bytes, now: Nanoseconds) -> Nanoseconds {
        self.tiers.get_mut(usize::from(tier.0)).map_or(now, |link| link.carry(len, now))
    }
}
