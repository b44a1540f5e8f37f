//! The record of what a hog held and gave back, kept within bounds while it runs, and one JSON document at
//! its end.

use std::fmt;

use serde::Serialize;
use tierfeed_core::{
    id::NumaNode,
    tier::Locality,
    units::{Bytes, Nanoseconds, seconds},
};
use tierfeed_numa_memory::Placement;

use super::memory::HeldMemory;
use crate::sysroot::{Sysroot, field_bytes, optional};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub record: Record,
    /// The node that memory was taken from, `None` for any.
    pub numa_node: Option<u32>,
    /// Whether that node was read back from the kernel; `None` without a node or memory.
    pub placement_verified: Option<bool>,
    /// Memory that it left to others in any case.
    pub floor_bytes: u64,
    /// Seconds from when it held the first amount to the end.
    pub held_for_s: f64,
    /// Held at the end, before it was given back.
    pub held_bytes_final: u64,
    /// Private memory of the whole process that was in memory at the end; `None` if the kernel does not say.
    pub resident_bytes: Option<u64>,
    pub locked_bytes: u64,
    pub kept_by: KeptBy,
    pub lock_refusal: Option<String>,
    /// The nodes of the memory, estimated from one page in 128 KiB; `None` where the kernel does not tell.
    pub nodes: Option<Vec<OnNode>>,
    /// What others could take just before the end.
    pub available_bytes_final: u64,
    /// Memory that others could take after everything was given back.
    pub available_bytes_after: u64,
    pub ended_by: Ending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Goal {
    #[serde(rename = "take_bytes")]
    Take(Bytes),
    /// Hold all but this much.
    #[serde(rename = "leave_bytes")]
    Leave(Bytes),
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Take(bytes) => write!(f, "{bytes}"),
            Self::Leave(bytes) => write!(f, "all but {bytes}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    pub requested: Goal,
    /// Seconds from the start until it held that; `None` if it never did.
    pub held_after_s: Option<f64>,
    pub held_bytes_max: u64,
    /// The least that others could take since then.
    pub available_bytes_min: Option<u64>,
    /// The most that others could take since then.
    pub available_bytes_max: Option<u64>,
    pub given_back: Vec<GivenBack>,
    /// The message of the kernel when it last refused memory that was free.
    pub refusal: Option<String>,
    /// Every second point is dropped when there are more than 512.
    pub timeline: Vec<Point>,
    #[serde(skip)]
    point_every: Nanoseconds,
    #[serde(skip)]
    next_point: Nanoseconds,
}

/// Memory that was given back for one reason, all times together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GivenBack {
    pub reason: Reason,
    pub times: u64,
    pub bytes: u64,
    /// Counted from the start.
    pub first_at_s: f64,
    pub last_at_s: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// Seconds since the hog started to take memory.
    pub at_s: f64,
    pub held_bytes: u64,
    pub available_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeptBy {
    Locking,
    /// Memory that is not locked is touched every 30 s.
    Touching,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct OnNode {
    pub numa_node: u32,
    pub held_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Others took memory, and the floor must stay.
    OthersGrew,
    Pressure,
    /// The hog gives everything back at its end.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    Time,
    Stopped,
    /// The command beside it ended.
    Command,
    /// It could not take the amount asked for within the time to wait.
    Unreached,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OthersGrew => "others took memory",
            Self::Pressure => "others wait for memory",
            Self::End => "the hog ends",
        })
    }
}

/// The most points of a timeline; when there are more, every second one is dropped.
const POINTS_MAX: usize = 512;

/// The time between points at first.
const POINT_EVERY: Nanoseconds = Nanoseconds(200_000_000);

impl Report {
    /// The report of a hog that still holds `memory`; the caller adds the floor, and times and bytes of the end.
    pub(super) fn new(
        record: Record,
        memory: &HeldMemory,
        locality: Locality,
        ending: Ending,
    ) -> Self {
        let (held, locked) = (memory.held(), memory.locked());
        let status = optional(&Sysroot::live().join("proc/self/status"));
        Self {
            record,
            numa_node: locality.node().map(|node| node.0),
            placement_verified: match memory.placement() {
                None | Some(Placement::Anywhere) => None,
                Some(Placement::Verified { .. }) => Some(true),
                Some(Placement::Preferred { .. } | Placement::Unverified { .. }) => Some(false),
            },
            floor_bytes: 0,
            held_for_s: 0.0,
            held_bytes_final: held.0,
            // Private memory that is in memory, not in swap.
            resident_bytes: status.and_then(|status| field_bytes(&status, "RssAnon:")),
            locked_bytes: locked.0,
            kept_by: if locked == held { KeptBy::Locking } else { KeptBy::Touching },
            lock_refusal: memory.lock_refusal().map(ToString::to_string),
            nodes: memory.nodes().map(|nodes| nodes.into_iter().map(on_node).collect()),
            available_bytes_final: 0,
            available_bytes_after: 0,
            ended_by: ending,
        }
    }
}

impl Record {
    pub(super) fn new(requested: Goal) -> Self {
        Self {
            requested,
            held_after_s: None,
            held_bytes_max: 0,
            available_bytes_min: None,
            available_bytes_max: None,
            given_back: Vec::new(),
            refusal: None,
            timeline: Vec::new(),
            point_every: POINT_EVERY,
            next_point: Nanoseconds(0),
        }
    }

    pub(super) fn note_observation(&mut self, now: Nanoseconds, available: Bytes, held: Bytes) {
        self.held_bytes_max = self.held_bytes_max.max(held.0);
        if self.held_after_s.is_some() {
            let least = self.available_bytes_min.unwrap_or(available.0);
            self.available_bytes_min = Some(least.min(available.0));
            self.available_bytes_max = self.available_bytes_max.max(Some(available.0));
        }
        if now >= self.next_point {
            self.add_point(now, available, held);
            if self.timeline.len() > POINTS_MAX {
                self.timeline = self.timeline.iter().copied().step_by(2).collect();
                self.point_every.0 *= 2;
            }
            self.next_point = Nanoseconds(now.0 + self.point_every.0);
        }
    }

    /// The last observation, which is part of the timeline in any case.
    pub(super) fn note_last(&mut self, now: Nanoseconds, available: Bytes, held: Bytes) {
        self.next_point = Nanoseconds(u64::MAX);
        self.note_observation(now, available, held);
        self.add_point(now, available, held);
    }

    fn add_point(&mut self, now: Nanoseconds, available: Bytes, held: Bytes) {
        self.timeline.push(Point {
            at_s: seconds(now),
            held_bytes: held.0,
            available_bytes: available.0,
        });
    }

    pub(super) fn note_reached(&mut self, now: Nanoseconds) {
        self.held_after_s.get_or_insert(seconds(now));
    }

    pub(super) fn note_given_back(&mut self, now: Nanoseconds, bytes: Bytes, reason: Reason) {
        let at_s = seconds(now);
        match self.given_back.iter_mut().find(|given| given.reason == reason) {
            Some(given) => {
                given.times += 1;
                given.bytes += bytes.0;
                given.last_at_s = at_s;
            }
            None => self.given_back.push(GivenBack {
                reason,
                times: 1,
                bytes: bytes.0,
                first_at_s: at_s,
                last_at_s: at_s,
            }),
        }
    }
}

fn on_node((node, bytes): (NumaNode, Bytes)) -> OnNode {
    OnNode { numa_node: node.0, held_bytes: bytes.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record::new(Goal::Take(Bytes(80)))
    }

    #[test]
    fn a_timeline_has_a_bound_and_spans_all_time() {
        let mut record = record();
        let observations = 100_000;
        for tenth in 0..observations {
            record.note_observation(Nanoseconds(tenth * 100_000_000), Bytes(tenth), Bytes(tenth));
        }
        let points = &record.timeline;
        assert!((POINTS_MAX / 2..=POINTS_MAX).contains(&points.len()), "{}", points.len());
        assert!(points.is_sorted_by(|one, next| one.at_s < next.at_s));
        assert!(points[0].at_s < 1e-9 && points[points.len() - 1].at_s > 9_900.0);
        assert_eq!(record.held_bytes_max, observations - 1);
        let end = Nanoseconds(observations * 100_000_000);
        record.note_last(end, Bytes(7), Bytes(8));
        let last = Point { at_s: 10_000.0, held_bytes: 8, available_bytes: 7 };
        assert_eq!(record.timeline.last(), Some(&last));
    }

    #[test]
    fn extremes_count_from_the_first_holding() {
        let mut record = record();
        record.note_observation(Nanoseconds(0), Bytes(90), Bytes(0));
        assert_eq!(record.available_bytes_min, None);
        record.note_reached(Nanoseconds(1));
        for available in [12, 10, 11] {
            record.note_observation(Nanoseconds(2), Bytes(available), Bytes(80));
        }
        assert_eq!((record.available_bytes_min, record.available_bytes_max), (Some(10), Some(12)));
    }

    #[test]
    fn what_was_given_back_is_summed_by_reason() {
        let mut record = record();
        let second = |s: u64| Nanoseconds(s * 1_000_000_000);
        record.note_given_back(second(1), Bytes(5), Reason::OthersGrew);
        record.note_given_back(second(3), Bytes(6), Reason::OthersGrew);
        record.note_given_back(second(4), Bytes(7), Reason::End);
        let given = &record.given_back;
        assert_eq!((given[0].times, given[0].bytes), (2, 11));
        assert_eq!((given[0].first_at_s, given[0].last_at_s), (1.0, 3.0));
        assert_eq!((given[1].reason, given[1].bytes), (Reason::End, 7));
    }
}
