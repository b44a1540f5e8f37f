//! What a hog held, as one JSON document.

use serde::Serialize;
use tierfeed_core::{
    tier::Locality,
    units::{Bytes, Nanoseconds},
};
use tierfeed_numa_memory::Placement;

use super::{
    course::{Course, Ending},
    decision::{self, Look},
    goal::{Goal, Step},
    holding::Holding,
    record::{GivenBack, Point, seconds},
};
use crate::sysroot::{Sysroot, optional};

/// What a hog did from its start to its end.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What it was told to hold, step by step.
    pub requested: Vec<Requested>,
    /// The node that memory was taken from, `None` for any.
    pub numa_node: Option<u32>,
    /// Whether that node was read back from the kernel; `None` without a node or memory.
    pub placement_verified: Option<bool>,
    /// What it left to others in any case, at the last step that ran.
    pub floor_bytes: u64,
    /// Seconds from the start until it held the first amount; `None` if it never did.
    pub held_after_s: Option<f64>,
    /// Seconds from then to the end.
    pub held_for_s: f64,
    /// The most that it held at once.
    pub held_bytes_max: u64,
    /// What it held when it ended, before it gave that back.
    pub held_bytes_final: u64,
    /// What of that was in memory: private memory of the whole process; `None` if the kernel does not
    /// say.
    pub resident_bytes: Option<u64>,
    /// What of it was locked.
    pub locked_bytes: u64,
    /// How it was kept in memory.
    pub kept_by: KeptBy,
    /// Why not all was locked.
    pub lock_refusal: Option<String>,
    /// Where it lay, estimated from one page in 128 KiB; `None` where the kernel lets nobody look.
    pub nodes: Option<Vec<OnNode>>,
    /// The least that others could take since the first amount was held.
    pub available_bytes_min: Option<u64>,
    /// The most.
    pub available_bytes_max: Option<u64>,
    /// What others could take just before the end.
    pub available_bytes_final: u64,
    /// What others could take when everything was given back.
    pub available_bytes_after: u64,
    /// What it gave back, by reason.
    pub given_back: Vec<GivenBack>,
    /// What the kernel said when it last refused memory that was free.
    pub refusal: Option<String>,
    /// Why it ended.
    pub ended_by: Ending,
    /// What was held over time; points are dropped evenly when there are many.
    pub timeline: Vec<Point>,
}

/// One amount that was asked for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Requested {
    /// How much to hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub take_bytes: Option<u64>,
    /// How much to leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leave_bytes: Option<u64>,
    /// For how long; `None` has no end.
    pub lasts_s: Option<f64>,
    /// When it was held first, in seconds since the start; `None` if never.
    pub reached_at_s: Option<f64>,
}

/// How memory is kept from swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeptBy {
    /// All of it is locked.
    Locking,
    /// What is not locked is touched every 30 s.
    Touching,
}

/// What lies on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct OnNode {
    /// The node.
    pub numa_node: u32,
    /// How much.
    pub held_bytes: u64,
}

/// What was held at the end.
#[derive(Debug)]
pub(crate) struct Held {
    bytes: Bytes,
    locked: Bytes,
    lock_refusal: Option<String>,
    resident: Option<u64>,
    nodes: Option<Vec<OnNode>>,
    placement: Option<Placement>,
}

/// Where it was held, and what was left there.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) locality: Locality,
    pub(crate) before: Look,
    pub(crate) after: Look,
}

impl Held {
    pub(crate) fn of(holding: &Holding, sysroot: Sysroot<'_>) -> Self {
        let nodes = holding.nodes().map(|nodes| {
            let on_node = |(node, bytes): (tierfeed_core::id::NumaNode, Bytes)| OnNode {
                numa_node: node.0,
                held_bytes: bytes.0,
            };
            nodes.into_iter().map(on_node).collect()
        });
        Self {
            bytes: holding.held(),
            locked: holding.locked(),
            lock_refusal: holding.lock_refusal().map(ToString::to_string),
            resident: resident(sysroot),
            nodes,
            placement: holding.placement(),
        }
    }
}

impl Report {
    pub(crate) fn new(
        course: &Course,
        held: &Held,
        place: &Place,
        now: Nanoseconds,
        ending: Ending,
    ) -> Self {
        let record = course.record();
        let steps = course.schedule().profile().steps();
        let last = steps.last().expect("a profile has a step").goal;
        let goal = course.goal(now).map_or(last, |(_, goal)| goal);
        let (available_min, available_max) = record.available_while_held().unzip();
        let all_locked = held.locked == held.bytes;
        Self {
            requested: steps.iter().zip(record.steps_reached()).map(requested).collect(),
            numa_node: match place.locality {
                Locality::Anywhere => None,
                Locality::Numa(node) => Some(node.0),
            },
            placement_verified: match held.placement {
                None | Some(Placement::Anywhere) => None,
                Some(Placement::Verified { .. }) => Some(true),
                Some(Placement::Unverified { .. }) => Some(false),
            },
            floor_bytes: decision::floor(goal, place.before.total).0,
            held_after_s: record.first_held().map(seconds),
            held_for_s: record
                .first_held()
                .map_or(0.0, |first| seconds(Nanoseconds(now.0.saturating_sub(first.0)))),
            held_bytes_max: record.held_max().max(held.bytes).0,
            held_bytes_final: held.bytes.0,
            resident_bytes: held.resident,
            locked_bytes: held.locked.0,
            kept_by: if all_locked { KeptBy::Locking } else { KeptBy::Touching },
            lock_refusal: held.lock_refusal.clone(),
            nodes: held.nodes.clone(),
            available_bytes_min: available_min.map(|bytes| bytes.0),
            available_bytes_max: available_max.map(|bytes| bytes.0),
            available_bytes_final: place.before.available.0,
            available_bytes_after: place.after.available.0,
            given_back: record.given_back(),
            refusal: record.refusal().map(str::to_owned),
            ended_by: ending,
            timeline: record.timeline().to_vec(),
        }
    }
}

fn requested((step, reached): (&Step, &Option<Nanoseconds>)) -> Requested {
    let (take_bytes, leave_bytes) = match step.goal {
        Goal::Take(bytes) => (Some(bytes.0), None),
        Goal::Leave(bytes) => (None, Some(bytes.0)),
    };
    Requested {
        take_bytes,
        leave_bytes,
        lasts_s: step.lasts.map(seconds),
        reached_at_s: reached.map(seconds),
    }
}

/// Private memory of this process that is in memory, not in swap.
fn resident(sysroot: Sysroot<'_>) -> Option<u64> {
    let status = optional(&sysroot.join("proc/self/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes << 10)
}
