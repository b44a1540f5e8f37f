//! Which tier takes each sample that comes, so that nothing comes before room was made for it.
//!
//! Samples leave and come in the order in which the epoch reads them. What would come while all tiers
//! are still full does not; instead what would leave last stays, because its room is worth least to
//! others. That costs balance, never a byte of the quota.

use alloc::vec::Vec;

use super::balance::Candidate;
use crate::id::SampleId;

/// When room is made for what comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turnover {
    /// By what leaves of the same class, at its place in the epoch: there is no other class.
    Own,
    /// By what other classes lose all the time: what leaves counts as gone from the start.
    Common,
}

/// What a class may hold in each tier, and what happens to its samples.
#[derive(Debug)]
pub(super) struct Exchange {
    /// Bytes that may still come, by tier; below zero where a tier shrank.
    rooms: Vec<i64>,
    turnover: Turnover,
    events: Vec<(u32, Event)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Leaves { sample: SampleId, len: i64, tier: u8 },
    Comes { sample: SampleId, len: i64 },
}

/// What happened to the room in a tier.
struct Change {
    tier: u8,
    /// Bytes; below zero if the sample took it.
    gained: i64,
    sample: SampleId,
}

impl Exchange {
    pub(super) fn new(quotas: &[u64], turnover: Turnover) -> Self {
        let room = |quota: &u64| i64::try_from(*quota).unwrap_or(i64::MAX);
        Self { rooms: quotas.iter().map(room).collect(), turnover, events: Vec::new() }
    }

    /// Whether a sample may stay in the tier in which it lies; if not, it must come again.
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

    pub(super) fn comes(&mut self, candidate: &Candidate) {
        let Candidate { sample, place, .. } = *candidate;
        self.events.push((place, Event::Comes { sample, len: signed(candidate.len) }));
    }

    /// Tells `keep` of each sample that comes, or stays after all, and of its tier.
    pub(super) fn settle(mut self, keep: &mut dyn FnMut(SampleId, u8)) {
        self.events.sort_unstable_by_key(|(place, _)| *place);
        let (mut missed, mut changes) = (0, Vec::new());
        for (_, event) in core::mem::take(&mut self.events) {
            match event {
                Event::Leaves { sample, len, tier } => {
                    self.rooms[usize::from(tier)] += len;
                    changes.push(Change { tier, gained: len, sample });
                }
                Event::Comes { sample, len } => match self.widest(len) {
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

    /// Lets stay, for what found no room, what leaves last and whose room nothing took.
    fn stay_instead(
        mut self,
        mut missed: i64,
        changes: Vec<Change>,
        keep: &mut dyn FnMut(SampleId, u8),
    ) {
        // What is free in each tier from the change in question to the end.
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

    /// The tier with the most room, the fastest of equals, if it is enough.
    fn widest(&self, len: i64) -> Option<u8> {
        let tiers = (0_u8..).zip(&self.rooms);
        let widest = tiers.max_by_key(|(tier, room)| (**room, core::cmp::Reverse(*tier)));
        widest.filter(|(_, room)| **room >= len).map(|(tier, _)| tier)
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
