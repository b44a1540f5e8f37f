//! Which operation is given out next: on each link the one with the earliest deadline.
//!
//! What waits for a link stands in a queue for each rank, in the order in which the rank needs it. At
//! most a window of operations runs on a link at a time, so that a rank that fell behind or jumped finds
//! no deep prefetch of others before it. Where threads are divided over ranks ([`crate::session::assignment`]),
//! each rank has a part of the window of the cold store, and no more. Deadlines are asked for when an operation is given out, not
//! when it was planned: a pace that changes moves a whole queue at once.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. If any order meets all deadlines on one link of equal operations, this one does.
//! 2. No link has more operations than its window, and no rank more than its part.

use alloc::{
    collections::{BTreeSet, VecDeque},
    vec::Vec,
};
use core::num::NonZeroU32;

use super::{depth::Depth, pace::Need};
use crate::{
    id::{OpId, Rank, TierId},
    session::assignment::{self, Assignment, Division},
    units::{Bytes, Nanoseconds},
};

/// Operations that are given out at a time, by link. Fewer let a late rank overtake sooner; too few
/// leave a link idle between an operation and the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Reads from the cold store.
    pub cold: NonZeroU32,
    /// Copies from or into each tier.
    pub tier: NonZeroU32,
    /// How reads from the cold store are divided over ranks. [`Assignment::Lobster`] needs rates that the
    /// session does not know: then whoever knows them divides ([`super::Session::divide`]).
    pub assignment: Assignment,
    /// Whether the window of the cold store follows what is measured.
    pub adaptation: Adaptation,
}

/// What becomes of the window of the cold store while it is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adaptation {
    /// It stays as it is.
    Fixed,
    /// It is made as large as throughput gains by it, up to `max`.
    Measured {
        /// What is never exceeded.
        max: NonZeroU32,
    },
}

/// Operations for each thread that carries them out.
const AT_HAND: NonZeroU32 = NonZeroU32::new(16).expect("16 is not 0");

/// The same at the start on the cold store, where the window grows if that pays.
const COLD_AT_HAND: NonZeroU32 = NonZeroU32::new(2).expect("2 is not 0");

/// Reads of the cold store that are given out at a time, however much that gains: small samples from a
/// far store need as many, and the rings of the prefetcher hold no more.
const COLD_MAX: NonZeroU32 = NonZeroU32::new(256).expect("256 is not 0");

impl Windows {
    /// For links on which so many threads carry operations out, one pool for all ranks. Each thread has
    /// a few at hand: copying a small sample takes less time than telling the session and being told the
    /// next. The window of the cold store starts with this and follows what is measured.
    #[must_use]
    pub fn for_threads(cold: NonZeroU32, tier: NonZeroU32) -> Self {
        let (cold, tier) = (cold.saturating_mul(COLD_AT_HAND), tier.saturating_mul(AT_HAND));
        let adaptation = Adaptation::Measured { max: COLD_MAX.max(cold) };
        Self { cold, tier, assignment: Assignment::Shared, adaptation }
    }
}

impl Default for Windows {
    /// What keeps a link of 10 ms and 2.5 GB/s busy with samples of 100 kB, and any memory. It stays.
    fn default() -> Self {
        let window = |count| NonZeroU32::new(count).expect("a window is not empty");
        Self {
            cold: window(256),
            tier: window(64),
            assignment: Assignment::Shared,
            adaptation: Adaptation::Fixed,
        }
    }
}

/// Where an operation needs its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    Cold,
    Tier(TierId),
}

/// What waits for one link.
#[derive(Debug)]
struct Queue {
    window: usize,
    running: usize,
    waiting: usize,
    /// By the number of the batch that needs it, then in the order of planning.
    by_rank: Vec<OfRank>,
    /// What no batch needs, but the node: due when it was planned.
    of_node: VecDeque<(Nanoseconds, OpId)>,
}

/// What waits for one link on behalf of one rank.
#[derive(Debug)]
struct OfRank {
    waiting: BTreeSet<(u64, OpId)>,
    running: usize,
    running_max: usize,
}

/// What waits for its turn, by link: the cold store, then the tiers.
#[derive(Debug)]
pub(super) struct Line {
    first: Rank,
    queues: Vec<Queue>,
    /// What the window of the cold store follows, if it does.
    depth: Option<Depth>,
    /// The threads of each rank, if they are divided.
    division: Option<Vec<u32>>,
}

/// How an operation ended, as far as the depth of its link is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carried {
    /// So many bytes were read.
    Read(Bytes),
    /// It failed, or it is not told.
    Nothing,
}

/// On whose behalf an operation was given out: the index of a rank, or nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Given(Option<usize>);

impl Given {
    /// What never stood in line.
    pub(super) const DIRECTLY: Self = Self(None);
}

/// Whose turn it is on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    deadline: Nanoseconds,
    op: OpId,
    /// Index of the rank, or `None` for the node.
    rank: Option<usize>,
}

impl Line {
    pub(super) fn new(windows: Windows, tiers: usize, first: Rank, ranks: u32) -> Self {
        let queue = |window: NonZeroU32| Queue {
            window: window.get() as usize,
            running: 0,
            waiting: 0,
            by_rank: (0..ranks).map(|_| OfRank::default()).collect(),
            of_node: VecDeque::new(),
        };
        let depth = match windows.adaptation {
            Adaptation::Fixed => None,
            Adaptation::Measured { max } => Some(Depth::new(windows.cold, max)),
        };
        let tiers = (0..tiers).map(|_| queue(windows.tier));
        let queues = core::iter::once(queue(windows.cold)).chain(tiers).collect();
        Self { first, queues, depth, division: None }
    }

    /// Adds an operation that may run as far as its bytes are concerned.
    pub(super) fn push(&mut self, link: Link, need: Option<Need>, now: Nanoseconds, op: OpId) {
        let rank = need.map(|need| (self.rank(need), need.number));
        let queue = &mut self.queues[index(link)];
        queue.waiting += 1;
        match rank {
            Some((rank, number)) => {
                queue.by_rank[rank].waiting.insert((number, op));
            }
            None => queue.of_node.push_back((now, op)),
        }
    }

    /// Lets an operation that still waits stand in for a batch that needs it sooner.
    pub(super) fn hasten(&mut self, link: Link, op: OpId, from: Need, to: Need) {
        let (old, new) = (self.rank(from), self.rank(to));
        let queue = &mut self.queues[index(link)];
        if queue.by_rank[old].waiting.remove(&(from.number, op)) {
            queue.by_rank[new].waiting.insert((to.number, op));
        }
    }

    /// Takes an operation out of the line. Returns whether it still waited there.
    pub(super) fn call_off(&mut self, link: Link, op: OpId, need: Need) -> bool {
        let rank = self.rank(need);
        let queue = &mut self.queues[index(link)];
        let waited = queue.by_rank[rank].waiting.remove(&(need.number, op));
        queue.waiting -= usize::from(waited);
        waited
    }

    /// The operation to give out, if there is one on a link that has room. Links take nothing from each
    /// other, so the first one that has room will do.
    pub(super) fn next(&mut self, expected: impl Fn(Need) -> Nanoseconds) -> Option<(OpId, Given)> {
        let first = self.first;
        let has_room = |queue: &&mut Queue| queue.waiting > 0 && queue.running < queue.window;
        let mut with_room = self.queues.iter_mut().filter(has_room);
        let (queue, turn) =
            with_room.find_map(|queue| queue.turn(first, &expected).map(|turn| (queue, turn)))?;
        queue.waiting -= 1;
        queue.running += 1;
        match turn.rank {
            Some(rank) => {
                let of_rank = &mut queue.by_rank[rank];
                of_rank.waiting.pop_first();
                of_rank.running += 1;
            }
            None => {
                queue.of_node.pop_front();
            }
        }
        Some((turn.op, Given(turn.rank)))
    }

    /// Takes note that an operation that was given out ended.
    pub(super) fn ended(&mut self, link: Link, given: Given, carried: Carried, now: Nanoseconds) {
        if link == Link::Cold {
            self.measure(carried, now);
        }
        let queue = &mut self.queues[index(link)];
        queue.running = queue.running.saturating_sub(1);
        if let Given(Some(rank)) = given {
            let running = &mut queue.by_rank[rank].running;
            *running = running.saturating_sub(1);
        }
    }

    /// Lets the window of the cold store follow what is measured.
    fn measure(&mut self, carried: Carried, now: Nanoseconds) {
        let (Some(depth), Some(queue)) = (&mut self.depth, self.queues.first_mut()) else { return };
        match carried {
            Carried::Read(len) if queue.waiting > 0 && queue.running >= queue.window => {
                depth.ended(len, u32::try_from(queue.running).unwrap_or(u32::MAX), now);
            }
            Carried::Read(_) | Carried::Nothing => depth.was_idle(),
        }
        let window = depth.window() as usize;
        if window != queue.window {
            queue.window = window;
            self.apply_division();
        }
    }

    /// How many reads of the cold store may run now.
    pub(super) fn cold_window(&self) -> usize {
        self.queues[index(Link::Cold)].window
    }

    /// Operations of each rank on the cold store, given out or waiting.
    pub(super) fn cold_requests(&self) -> impl Iterator<Item = u64> + '_ {
        let ranks = self.queues[index(Link::Cold)].by_rank.iter();
        ranks.map(|rank| (rank.waiting.len() + rank.running) as u64)
    }

    /// Divides the window of the cold store in proportion to what each rank has under way or in line.
    pub(super) fn divide_in_proportion(&mut self) {
        let requests: Vec<u64> = self.cold_requests().collect();
        let window = self.queues[index(Link::Cold)].window;
        let window = u32::try_from(window).unwrap_or(u32::MAX);
        // Without a request there is nothing to go by, and a part of nothing would hold all up.
        let is_idle = requests.iter().all(|count| *count == 0);
        let parts = || Division::Queues(assignment::proportional(&requests, window));
        self.divide(&if is_idle { Division::Pool(window) } else { parts() });
    }

    /// Divides the window of the cold store as threads are divided. A rank without a thread may still
    /// have one operation: it would wait for ever for threads that are divided when it goes on.
    pub(super) fn divide(&mut self, division: &Division) {
        self.division = match division {
            Division::Queues(counts) => Some(counts.clone()),
            Division::Pool(_) => None,
        };
        self.apply_division();
    }

    fn apply_division(&mut self) {
        let queue = &mut self.queues[index(Link::Cold)];
        let Some(counts) = &self.division else {
            queue.by_rank.iter_mut().for_each(|rank| rank.running_max = usize::MAX);
            return;
        };
        let threads: usize = counts.iter().map(|count| *count as usize).sum();
        for (rank, count) in queue.by_rank.iter_mut().zip(counts) {
            let part = (*count as usize).saturating_mul(queue.window) / threads.max(1);
            rank.running_max = part.max(1);
        }
    }

    fn rank(&self, need: Need) -> usize {
        (need.rank.0 - self.first.0) as usize
    }
}

impl Default for OfRank {
    fn default() -> Self {
        Self { waiting: BTreeSet::new(), running: 0, running_max: usize::MAX }
    }
}

impl Queue {
    fn turn(&self, first: Rank, expected: &impl Fn(Need) -> Nanoseconds) -> Option<Turn> {
        let of_rank = |(rank, queue): (u32, &OfRank)| {
            let &(number, op) = queue.waiting.first()?;
            if queue.running >= queue.running_max {
                return None;
            }
            let deadline = expected(Need { rank: Rank(first.0 + rank), number });
            Some(Turn { deadline, op, rank: Some(rank as usize) })
        };
        let of_node = self.of_node.front();
        let of_node = of_node.map(|(planned, op)| Turn { deadline: *planned, op: *op, rank: None });
        (0..).zip(&self.by_rank).filter_map(of_rank).chain(of_node).min()
    }
}

fn index(link: Link) -> usize {
    match link {
        Link::Cold => 0,
        Link::Tier(tier) => usize::from(tier.0) + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Released at a time, due at a time; each takes one.
    type Job = (u64, u64);

    fn window(count: u32) -> Windows {
        let count = NonZeroU32::new(count).unwrap();
        Windows { cold: count, tier: count, ..Windows::default() }
    }

    /// Whether some order of the jobs meets all deadlines, tried one by one.
    fn can_be_met(jobs: &[Job], time: u64, done: u32) -> bool {
        if done.count_ones() as usize == jobs.len() {
            return true;
        }
        if jobs.iter().enumerate().any(|(at, (_, due))| done & (1 << at) == 0 && *due <= time) {
            return false;
        }
        let next = |at: usize| {
            done & (1 << at) == 0
                && jobs[at].0 <= time
                && can_be_met(jobs, time + 1, done | (1 << at))
        };
        (0..jobs.len()).any(next) || can_be_met(jobs, time + 1, done)
    }

    /// Whether the line meets all deadlines. The number of a batch is its deadline; ranks alternate.
    fn are_met(jobs: &[Job]) -> bool {
        let mut line = Line::new(window(1), 0, Rank(0), 2);
        let expected = |need: Need| Nanoseconds(need.number);
        let mut left = jobs.len();
        for time in 0.. {
            for (at, (_, due)) in jobs.iter().enumerate().filter(|(_, job)| job.0 == time) {
                let need = Need { rank: Rank(u32::try_from(at % 2).unwrap()), number: *due };
                let op = OpId(at as u64);
                line.push(Link::Cold, Some(need), Nanoseconds(time), op);
            }
            if let Some((OpId(at), _)) = line.next(expected) {
                assert!(line.next(expected).is_none(), "invariant 2");
                let given = Given(Some(usize::try_from(at % 2).unwrap()));
                line.ended(Link::Cold, given, Carried::Nothing, Nanoseconds(time));
                left -= 1;
                if jobs[usize::try_from(at).unwrap()].1 <= time {
                    return false;
                }
            }
            if left == 0 {
                return true;
            }
        }
        true
    }

    #[test]
    fn whatever_deadlines_can_be_met_are_met() {
        // Four jobs with three times of release and six of deadline each: 18^4 cases.
        let (mut feasible, mut cases) = (0, 0);
        for code in 0..18_u32.pow(4) {
            let job = |at: u32| {
                let part = code / 18_u32.pow(at) % 18;
                (u64::from(part % 3), u64::from(part / 3))
            };
            let jobs: Vec<Job> = (0..4).map(job).collect();
            let can_be_met = can_be_met(&jobs, 0, 0);
            assert_eq!(are_met(&jobs), can_be_met, "invariant 1: {jobs:?}");
            feasible += u32::from(can_be_met);
            cases += 1;
        }
        assert!(feasible > cases / 10, "{feasible} of {cases}");
    }

    #[test]
    fn what_the_node_needs_is_due_when_it_was_planned() {
        let mut line = Line::new(window(9), 1, Rank(3), 1);
        let tier = Link::Tier(TierId(0));
        let need = |number| Some(Need { rank: Rank(3), number });
        for (op, need, now) in [(1, need(50), 10), (2, None, 20), (3, need(15), 20)] {
            line.push(tier, need, Nanoseconds(now), OpId(op));
        }
        let given = core::iter::from_fn(|| line.next(|need| Nanoseconds(need.number)));
        let given: Vec<u64> = given.map(|(op, _)| op.0).collect();
        assert_eq!(given, [3, 2, 1]);
    }

    #[test]
    fn what_an_earlier_batch_waits_for_overtakes() {
        let mut line = Line::new(window(9), 0, Rank(0), 2);
        let late = Need { rank: Rank(0), number: 90 };
        for op in [OpId(1), OpId(2)] {
            line.push(Link::Cold, Some(late), Nanoseconds(0), op);
        }
        let soon = Need { rank: Rank(1), number: 5 };
        line.hasten(Link::Cold, OpId(2), late, soon);
        line.hasten(Link::Cold, OpId(7), late, soon);
        let given = core::iter::from_fn(|| line.next(|need| Nanoseconds(need.number)));
        let given: Vec<u64> = given.map(|(op, _)| op.0).collect();
        assert_eq!(given, [2, 1]);
    }

    /// Gives out and ends reads of `len` bytes, one a millisecond, while others wait.
    fn read_in_haste(line: &mut Line, reads: u64, now: &mut u64) {
        for op in 0..reads {
            let need = Need { rank: Rank(u32::try_from(op % 2).unwrap()), number: op };
            line.push(Link::Cold, Some(need), Nanoseconds(*now), OpId(op));
        }
        let mut running: VecDeque<Given> = VecDeque::new();
        loop {
            let given = core::iter::from_fn(|| line.next(|need| Nanoseconds(need.number)));
            let before = running.len();
            running.extend(given.map(|(_, given)| given));
            assert!(running.len() <= before.max(line.cold_window()), "invariant 2");
            let Some(given) = running.pop_front() else { break };
            *now += 1_000_000;
            line.ended(Link::Cold, given, Carried::Read(Bytes(1000)), Nanoseconds(*now));
        }
    }

    #[test]
    fn a_window_that_gains_nothing_shrinks_and_with_it_the_part_of_each_rank() {
        let max = NonZeroU32::new(64).unwrap();
        let windows = Windows { adaptation: Adaptation::Measured { max }, ..window(16) };
        let mut line = Line::new(windows, 0, Rank(0), 2);
        line.divide(&Division::Queues(alloc::vec![1, 1]));
        let mut now = 0;
        read_in_haste(&mut line, 20_000, &mut now);
        assert_eq!(line.cold_window(), 1);
        let parts: Vec<_> = line.queues[0].by_rank.iter().map(|it| it.running_max).collect();
        assert_eq!(parts, [1, 1]);
        // Where nothing waits, nothing is learnt.
        (0..2000).for_each(|_| read_in_haste(&mut line, 1, &mut now));
        assert_eq!(line.depth.as_ref().map(Depth::is_void), Some(true));
    }

    #[test]
    fn a_fixed_window_stays() {
        let mut line = Line::new(window(16), 0, Rank(0), 2);
        read_in_haste(&mut line, 20_000, &mut 0);
        assert_eq!(line.cold_window(), 16);
    }

    #[test]
    fn a_rank_has_its_part_of_the_window_and_never_none() {
        let mut line = Line::new(window(8), 0, Rank(0), 3);
        for op in 0..60 {
            let rank = Rank(u32::try_from(op % 3).unwrap());
            line.push(Link::Cold, Some(Need { rank, number: op }), Nanoseconds(0), OpId(op));
        }
        assert_eq!(line.cold_requests().collect::<Vec<_>>(), [20; 3]);
        let given = |line: &mut Line| {
            let given = core::iter::from_fn(|| line.next(|need| Nanoseconds(need.number)));
            let given: Vec<Given> = given.map(|(_, given)| given).collect();
            given
                .iter()
                .for_each(|given| line.ended(Link::Cold, *given, Carried::Nothing, Nanoseconds(0)));
            [0, 1, 2].map(|rank| given.iter().filter(|it| **it == Given(Some(rank))).count())
        };
        line.divide(&Division::Queues(alloc::vec![3, 1, 0]));
        assert_eq!(given(&mut line), [5, 2, 1], "invariant 2");
        line.divide(&Division::Queues(alloc::vec![1, 2, 0]));
        assert_eq!(given(&mut line), [2, 5, 1], "invariant 2");
        line.divide(&Division::Pool(4));
        assert_eq!(given(&mut line).iter().sum::<usize>(), 8);
    }

    #[test]
    fn in_proportion_a_rank_has_the_part_that_its_requests_are_of_all() {
        let mut line = Line::new(window(8), 0, Rank(0), 2);
        line.divide_in_proportion();
        for op in 0..40 {
            // Three of four for the first rank, and those of the other are due before.
            let rank = Rank(u32::from(op % 4 == 0));
            line.push(Link::Cold, Some(Need { rank, number: op }), Nanoseconds(0), OpId(op));
        }
        let given = |line: &mut Line| {
            let due = |need: Need| Nanoseconds(u64::from(need.rank == Rank(0)));
            let given: Vec<Given> =
                core::iter::from_fn(|| line.next(due)).map(|(_, given)| given).collect();
            given
                .iter()
                .for_each(|given| line.ended(Link::Cold, *given, Carried::Nothing, Nanoseconds(0)));
            [0, 1].map(|rank| given.iter().filter(|it| **it == Given(Some(rank))).count())
        };
        assert_eq!(given(&mut line), [0, 8], "nothing in line divides nothing");
        line.divide_in_proportion();
        assert_eq!(line.cold_requests().collect::<Vec<_>>(), [30, 2]);
        assert_eq!(given(&mut line), [7, 1]);
    }

    #[test]
    fn a_rank_whose_reads_are_all_under_way_keeps_its_part() {
        let mut line = Line::new(window(4), 0, Rank(0), 2);
        let push = |line: &mut Line, rank: Rank, op: u64| {
            let need = Need { rank, number: op };
            line.push(Link::Cold, Some(need), Nanoseconds(0), OpId(op));
        };
        (0..2).for_each(|op| push(&mut line, Rank(0), op));
        let given = core::iter::from_fn(|| line.next(|_| Nanoseconds(0))).count();
        (2..4).for_each(|op| push(&mut line, Rank(1), op));
        assert_eq!(given, 2);
        assert_eq!(line.cold_requests().collect::<Vec<_>>(), [2, 2]);
    }
}
