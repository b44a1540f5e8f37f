//! Chooses the tier of each sample that enters, so that none enters before room was made for it.
//!
//! Samples leave and enter in the order in which the epoch reads them. A sample that would enter
//! while all tiers are still full is rejected; instead the latest departure stays, because its room
//! is worth least to others. That costs balance, but no byte of the quota.

use alloc::vec::Vec;

use super::balance::Candidate;
use crate::id::SampleId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turnover {
    /// When samples of the same class leave, at their position in the epoch: there is no other class.
    Own,
    /// From the start of the epoch: room comes from other classes, which lose samples all the time.
    Common,
}

/// The room of a class in each tier, and the changes of its samples.
#[derive(Debug)]
pub(super) struct Exchange {
    /// Bytes that may still enter, by tier; negative where a tier shrank.
    rooms: Vec<i64>,
    turnover: Turnover,
    events: Vec<(u32, Event)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Leaves { sample: SampleId, len: i64, tier: u8 },
    Enters { sample: SampleId, len: i64 },
}

struct Change {
    tier: u8,
    /// Bytes gained; negative if a sample took them.
    gained: i64,
    sample: SampleId,
}

impl Exchange {
    pub(super) fn new(quotas: &[u64], turnover: Turnover) -> Self {
        let room = |quota: &u64| i64::try_from(*quota).unwrap_or(i64::MAX);
        Self { rooms: quotas.iter().map(room).collect(), turnover, events: Vec::new() }
    }

    /// Whether a sample may stay in the tier in which it lies; if not, it must enter again.
    pub(super) fn stays(&mut self, tier: u8, len: u64) -> bool {
        let (room, len) = (&mut self.rooms[usize::from(tier)], signed(len));
        let fits = *room >= len;
        if fits {
            *room -= len;
        }
        fits
    }

    pub(super) fn leaves(&mut self, candidate: &Candidate, tier: u8) {
        let Candidate { sample, place, .. } = *candidate;
        let len = signed(candidate.len);
        if self.turnover == Turnover::Own {
            self.rooms[usize::from(tier)] -= len;
            self.events.push((place, Event::Leaves { sample, len, tier }));
        }
    }

    pub(super) fn enters(&mut self, candidate: &Candidate) {
        let Candidate { sample, place, .. } = *candidate;
        self.events.push((place, Event::Enters { sample, len: signed(candidate.len) }));
    }

    /// Calls `keep` for each sample that enters, or stays after all, with its tier.
    pub(super) fn settle(mut self, keep: &mut dyn FnMut(SampleId, u8)) {
        self.events.sort_unstable_by_key(|(place, _)| *place);
        let (mut missed, mut changes) = (0, Vec::new());
        for (_, event) in core::mem::take(&mut self.events) {
            match event {
                Event::Leaves { sample, len, tier } => {
                    self.rooms[usize::from(tier)] += len;
                    changes.push(Change { tier, gained: len, sample });
                }
                Event::Enters { sample, len } => match self.tier_with_room(len) {
                    Some(tier) => {
                        self.rooms[usize::from(tier)] -= len;
                        changes.push(Change { tier, gained: -len, sample });
                        keep(sample, tier);
                    }
                    None => missed += len,
                },
            }
        }
        self.stay_instead(missed, changes, keep);
    }

    /// Retains the latest departures whose room no sample took, in place of rejected insertions.
    fn stay_instead(
        mut self,
        mut missed: i64,
        changes: Vec<Change>,
        keep: &mut dyn FnMut(SampleId, u8),
    ) {
        // Free bytes of each tier from the change in question to the end.
        let mut free = self.rooms.clone();
        for Change { tier, gained, sample } in changes.into_iter().rev() {
            let (room, free) = (&mut self.rooms[usize::from(tier)], &mut free[usize::from(tier)]);
            *free = (*free).min(*room);
            if missed > 0 && (1..=*free).contains(&gained) {
                missed -= gained;
                *free -= gained;
                keep(sample, tier);
            }
            *room -= gained;
        }
    }

    /// The tier with the most room, the fastest of equals; `None` if the room is not enough.
    fn tier_with_room(&self, len: i64) -> Option<u8> {
        let tiers = (0_u8..).zip(&self.rooms);
        let widest = tiers.max_by_key(|(tier, room)| (**room, core::cmp::Reverse(*tier)));
        widest.filter(|(_, room)| **room >= len).map(|(tier, _)| tier)
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
