//! Which operation is given out next: in each channel the one with the earliest deadline.
//!
//! A channel is the cold store, all other nodes together, the threads that transform, or one tier. It has a queue for each rank, in the order in which the rank
//! needs its batches. At most a window of operations runs in a channel at a time, so that a rank that fell
//! behind or jumped does not wait behind deep prefetch of others. Where threads are divided over ranks
//! ([`crate::session::assignment`]), each rank has a part of the windows of the cold store and of the transforms, and
//! no more.
//! Deadlines are computed when an operation is given out, not when it is planned: a pace that changes moves
//! a whole queue at once. Among equal deadlines ranks take turns, and what no batch needs comes last.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. If any order meets all deadlines in one channel of equal operations, this one does.
//! 2. No channel has more operations than its window, and no rank more than its part.
//! 3. Where all deadlines are equal, no rank begins two operations more than another whose operations wait.

use alloc::{collections::VecDeque, vec::Vec};
use core::num::NonZeroU32;

use super::{
    assignment::{Assignment, Stages, proportional},
    cold_window::ColdWindow,
    deadlines::BatchNumber,
    waiting::Waiting,
    windows::{Adaptation, Windows},
};
use crate::{
    id::{OpId, Rank, TierId},
    units::{Bytes, Nanoseconds},
};

/// The resource over which an operation moves its bytes, or the threads that transform them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Cold,
    /// It has no window: the requests to each node are bounded where they are sent.
    Peers,
    Transform,
    Tier(TierId),
}

#[derive(Debug)]
struct Queue {
    window: usize,
    running: usize,
    waiting: usize,
    /// By the number of the batch that needs it, then in the order of planning.
    by_rank: Vec<RankQueue>,
    /// The index from which ranks take turns: that after the rank which began an operation last.
    turn: usize,
    /// Operations that no batch needs. The deadline of each is the time at which it was planned.
    background: VecDeque<(Nanoseconds, OpId)>,
    /// The threads of each rank; `None` if they are not divided.
    division: Option<Vec<u32>>,
}

#[derive(Debug)]
struct RankQueue {
    waiting: Waiting,
    running: usize,
    /// The part of the window that the rank may use.
    running_max: usize,
}

/// One queue for each channel: the cold store, the other nodes, the threads that transform, then the tiers.
#[derive(Debug)]
pub(super) struct EdfScheduler {
    first: Rank,
    queues: Vec<Queue>,
    /// Sets the window of the cold store; `None` if it is fixed.
    adaptive: Option<ColdWindow>,
    cold_max: NonZeroU32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transfer {
    Read(Bytes),
    /// The operation failed, or was no read.
    Other,
}

/// The index of the rank that needs the operation in the slot; `None` for a background operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WindowSlot(Option<usize>);

#[derive(Debug, Clone, Copy)]
struct Candidate {
    deadline: Nanoseconds,
    op: OpId,
    /// The index of the rank, or `None` for a background operation.
    rank: Option<usize>,
}

impl EdfScheduler {
    pub(super) fn new(
        windows: Windows,
        transforms: NonZeroU32,
        tiers: usize,
        first: Rank,
        ranks: u32,
    ) -> Self {
        let queue = |window: NonZeroU32| Queue {
            window: window.get() as usize,
            running: 0,
            waiting: 0,
            by_rank: (0..ranks).map(|_| RankQueue::default()).collect(),
            turn: 0,
            background: VecDeque::new(),
            division: None,
        };
        let adaptive = match windows.adaptation {
            // Lobster sets the window itself.
            _ if windows.assignment == Assignment::Lobster => None,
            Adaptation::Fixed => None,
            Adaptation::Measured { max } => Some(ColdWindow::new(windows.cold, max)),
        };
        let tiers = (0..tiers).map(|_| queue(windows.tier));
        let others = [queue(windows.cold), queue(NonZeroU32::MAX), queue(transforms)];
        let queues = others.into_iter().chain(tiers).collect();
        Self { first, queues, adaptive, cold_max: windows.cold_max() }
    }

    /// The operation must not wait for others.
    pub(super) fn push(
        &mut self,
        channel: Channel,
        batch: Option<BatchNumber>,
        now: Nanoseconds,
        op: OpId,
    ) {
        let rank = batch.map(|batch| (self.rank(batch), batch.number));
        let queue = &mut self.queues[index(channel)];
        queue.waiting += 1;
        match rank {
            Some((rank, number)) => {
                queue.by_rank[rank].waiting.insert(number, op);
            }
            None => queue.background.push_back((now, op)),
        }
    }

    /// Gives a queued operation the earlier deadline of another batch.
    pub(super) fn bring_forward(
        &mut self,
        channel: Channel,
        op: OpId,
        from: BatchNumber,
        to: BatchNumber,
    ) {
        let (old, new) = (self.rank(from), self.rank(to));
        let queue = &mut self.queues[index(channel)];
        if queue.by_rank[old].waiting.remove(from.number, op) {
            queue.by_rank[new].waiting.insert(to.number, op);
        }
    }

    /// Returns whether the operation was still queued.
    pub(super) fn cancel(&mut self, channel: Channel, op: OpId, batch: BatchNumber) -> bool {
        let rank = self.rank(batch);
        let queue = &mut self.queues[index(channel)];
        let waited = queue.by_rank[rank].waiting.remove(batch.number, op);
        queue.waiting -= usize::from(waited);
        waited
    }

    /// The operation to give out, if there is one in a channel whose window has a free slot. Channels do
    /// not compete, so the first one with a free slot is taken.
    pub(super) fn next(
        &mut self,
        deadline: impl Fn(BatchNumber) -> Nanoseconds,
    ) -> Option<(OpId, WindowSlot)> {
        let first = self.first;
        let has_room = |queue: &&mut Queue| queue.waiting > 0 && queue.running < queue.window;
        let mut with_room = self.queues.iter_mut().filter(has_room);
        let (queue, candidate) =
            with_room.find_map(|queue| queue.earliest(first, &deadline).map(|it| (queue, it)))?;
        queue.waiting -= 1;
        queue.running += 1;
        match candidate.rank {
            Some(rank) => {
                let rank_queue = &mut queue.by_rank[rank];
                rank_queue.waiting.pop_first();
                rank_queue.running += 1;
                queue.turn = rank + 1;
            }
            None => {
                queue.background.pop_front();
            }
        }
        Some((candidate.op, WindowSlot(candidate.rank)))
    }

    pub(super) fn ended(
        &mut self,
        channel: Channel,
        given: WindowSlot,
        transfer: Transfer,
        now: Nanoseconds,
    ) {
        if channel == Channel::Cold {
            self.measure(transfer, now);
        }
        let queue = &mut self.queues[index(channel)];
        queue.running = queue.running.saturating_sub(1);
        if let WindowSlot(Some(rank)) = given {
            let running = &mut queue.by_rank[rank].running;
            *running = running.saturating_sub(1);
        }
    }

    fn measure(&mut self, transfer: Transfer, now: Nanoseconds) {
        let (Some(adaptive), Some(queue)) = (&mut self.adaptive, self.queues.first_mut()) else {
            return;
        };
        match transfer {
            Transfer::Read(len) if queue.waiting > 0 && queue.running >= queue.window => {
                adaptive.ended(len, u32::try_from(queue.running).unwrap_or(u32::MAX), now);
            }
            Transfer::Read(_) | Transfer::Other => adaptive.was_idle(),
        }
        let window = adaptive.window() as usize;
        if window != queue.window {
            queue.window = window;
            queue.apply_division();
        }
    }

    /// Whether `windows` reads wait for the cold store for each that may run, so that more would only wait
    /// longer.
    pub(super) fn is_cold_fed(&self, windows: usize) -> bool {
        let queue = &self.queues[index(Channel::Cold)];
        let each_rank_waits =
            || queue.by_rank.iter().all(|rank| rank.waiting.len() >= rank.running_max * windows);
        queue.waiting >= queue.window * windows && (queue.division.is_none() || each_rank_waits())
    }

    pub(super) fn cold_window(&self) -> usize {
        self.queues[index(Channel::Cold)].window
    }

    pub(super) fn requests(&self, channel: Channel) -> impl Iterator<Item = u64> + '_ {
        self.queues[index(channel)].requests()
    }

    /// Divides the windows of the cold store and of the transforms in proportion to the operations of each
    /// rank that run or wait there.
    pub(super) fn divide_in_proportion(&mut self) {
        for channel in [Channel::Cold, Channel::Transform] {
            let queue = &mut self.queues[index(channel)];
            let requests: Vec<u64> = queue.requests().collect();
            let window = u32::try_from(queue.window).unwrap_or(u32::MAX);
            // Without a request all parts would be zero, and nothing would run.
            let is_idle = requests.iter().all(|count| *count == 0);
            queue.divide((!is_idle).then(|| proportional(&requests, window)));
        }
    }

    /// Sets the windows of the cold store and of the transforms to the threads for each, the first at most
    /// to `cold_max`, and divides them over ranks.
    pub(super) fn divide(&mut self, stages: &Stages) {
        let parts = [
            (Channel::Cold, stages.loading_all.min(self.cold_max.get()), &stages.loading),
            (Channel::Transform, stages.transforming_all, &stages.transforming),
        ];
        for (channel, window, counts) in parts {
            let queue = &mut self.queues[index(channel)];
            queue.window = window.max(1) as usize;
            queue.divide((!counts.is_empty()).then(|| counts.clone()));
        }
    }

    fn rank(&self, batch: BatchNumber) -> usize {
        (batch.rank.0 - self.first.0) as usize
    }
}

impl Default for RankQueue {
    fn default() -> Self {
        Self { waiting: Waiting::default(), running: 0, running_max: usize::MAX }
    }
}

impl Queue {
    fn requests(&self) -> impl Iterator<Item = u64> + '_ {
        self.by_rank.iter().map(|rank| (rank.waiting.len() + rank.running) as u64)
    }

    /// Divides the window as threads are divided. A rank without a thread may still have one operation:
    /// threads are divided anew when a rank goes on, so without one it would wait for ever.
    fn divide(&mut self, division: Option<Vec<u32>>) {
        self.division = division;
        self.apply_division();
    }

    fn apply_division(&mut self) {
        let Some(counts) = &self.division else {
            self.by_rank.iter_mut().for_each(|rank| rank.running_max = usize::MAX);
            return;
        };
        let threads: usize = counts.iter().map(|count| *count as usize).sum();
        for (rank, count) in self.by_rank.iter_mut().zip(counts) {
            let part = (*count as usize).saturating_mul(self.window) / threads.max(1);
            rank.running_max = part.max(1);
        }
    }

    fn earliest(
        &self,
        first: Rank,
        deadline: &impl Fn(BatchNumber) -> Nanoseconds,
    ) -> Option<Candidate> {
        let ranks = || (0..).zip(&self.by_rank);
        let in_turn = ranks().skip(self.turn).chain(ranks().take(self.turn));
        let with_room = in_turn.filter(|(_, queue)| queue.running < queue.running_max);
        let of_ranks = with_room.filter_map(|(rank, queue)| {
            let (number, op) = queue.waiting.first()?;
            let deadline = deadline(BatchNumber { rank: Rank(first.0 + rank), number });
            Some(Candidate { deadline, op, rank: Some(rank as usize) })
        });
        let background =
            self.background.front().map(|&(deadline, op)| Candidate { deadline, op, rank: None });
        // The first of several with one deadline.
        of_ranks.chain(background).min_by_key(|candidate| candidate.deadline)
    }
}

fn index(channel: Channel) -> usize {
    match channel {
        Channel::Cold => 0,
        Channel::Peers => 1,
        Channel::Transform => 2,
        Channel::Tier(tier) => usize::from(tier.0) + 3,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// (release time, deadline); each takes one unit.
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

    /// Whether the scheduler meets all deadlines. The number of a batch is its deadline; ranks alternate.
    fn are_met(jobs: &[Job]) -> bool {
        let mut scheduler = EdfScheduler::new(window(1), NonZeroU32::MIN, 0, Rank(0), 2);
        let expected = |batch: BatchNumber| Nanoseconds(batch.number);
        let mut left = jobs.len();
        for time in 0.. {
            for (at, (_, due)) in jobs.iter().enumerate().filter(|(_, job)| job.0 == time) {
                let batch =
                    BatchNumber { rank: Rank(u32::try_from(at % 2).unwrap()), number: *due };
                let op = OpId(at as u64);
                scheduler.push(Channel::Cold, Some(batch), Nanoseconds(time), op);
            }
            if let Some((OpId(at), _)) = scheduler.next(expected) {
                assert!(scheduler.next(expected).is_none(), "invariant 2");
                let given = WindowSlot(Some(usize::try_from(at % 2).unwrap()));
                scheduler.ended(Channel::Cold, given, Transfer::Other, Nanoseconds(time));
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
    fn all_deadlines_that_can_be_met_are_met() {
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

    proptest! {
        #[test]
        fn of_ranks_with_equal_deadlines_none_begins_two_operations_more_than_another_that_waits(
            counts in prop::collection::vec(0_usize..20, 1..6),
            slots in 1_u32..5,
            ends in prop::collection::vec(0_usize..5, 1..9),
        ) {
            let ranks = u32::try_from(counts.len()).unwrap();
            let mut scheduler = EdfScheduler::new(window(slots), NonZeroU32::MIN, 0, Rank(3), ranks);
            // Rank by rank, as batches are planned.
            let of_rank = |(rank, count)| core::iter::repeat_n(rank, count);
            let planned = (0..ranks).zip(counts.iter().copied()).flat_map(of_rank);
            for (op, rank) in (0..).zip(planned) {
                let batch = BatchNumber { rank: Rank(3 + rank), number: op / 4 };
                scheduler.push(Channel::Cold, Some(batch), Nanoseconds(0), OpId(op));
            }
            let mut begun = alloc::vec![0; counts.len()];
            let (mut running, mut ends) = (Vec::new(), ends.iter().cycle());
            loop {
                while let Some((_, given)) = scheduler.next(|_| Nanoseconds(7)) {
                    let waiting = begun.iter().zip(&counts).filter(|(begun, all)| begun < all);
                    let least = waiting.map(|(begun, _)| *begun).min();
                    let rank = given.0.unwrap();
                    prop_assert_eq!(Some(begun[rank]), least, "invariant 3: {} after {:?}", rank, begun);
                    begun[rank] += 1;
                    running.push(given);
                }
                if running.is_empty() {
                    break;
                }
                let given = running.swap_remove(ends.next().unwrap() % running.len());
                scheduler.ended(Channel::Cold, given, Transfer::Other, Nanoseconds(0));
            }
            prop_assert_eq!(begun, counts);
        }
    }

    #[test]
    fn what_the_node_needs_is_due_when_it_was_planned() {
        let mut scheduler = EdfScheduler::new(window(9), NonZeroU32::MIN, 1, Rank(3), 1);
        let tier = Channel::Tier(TierId(0));
        let batch = |number| Some(BatchNumber { rank: Rank(3), number });
        for (op, batch, now) in
            [(1, batch(50), 10), (2, None, 20), (3, batch(15), 20), (4, batch(20), 20)]
        {
            scheduler.push(tier, batch, Nanoseconds(now), OpId(op));
        }
        let given = core::iter::from_fn(|| scheduler.next(|batch| Nanoseconds(batch.number)));
        let given: Vec<u64> = given.map(|(op, _)| op.0).collect();
        assert_eq!(given, [3, 4, 2, 1]);
    }

    #[test]
    fn what_an_earlier_batch_waits_for_overtakes() {
        let mut scheduler = EdfScheduler::new(window(9), NonZeroU32::MIN, 0, Rank(0), 2);
        let late = BatchNumber { rank: Rank(0), number: 90 };
        for op in [OpId(1), OpId(2)] {
            scheduler.push(Channel::Cold, Some(late), Nanoseconds(0), op);
        }
        let soon = BatchNumber { rank: Rank(1), number: 5 };
        scheduler.bring_forward(Channel::Cold, OpId(2), late, soon);
        scheduler.bring_forward(Channel::Cold, OpId(7), late, soon);
        let given = core::iter::from_fn(|| scheduler.next(|batch| Nanoseconds(batch.number)));
        let given: Vec<u64> = given.map(|(op, _)| op.0).collect();
        assert_eq!(given, [2, 1]);
    }

    /// Gives out and ends reads of `len` bytes, one a millisecond, while others wait.
    fn read_in_haste(scheduler: &mut EdfScheduler, reads: u64, now: &mut u64) {
        for op in 0..reads {
            let batch = BatchNumber { rank: Rank(u32::try_from(op % 2).unwrap()), number: op };
            scheduler.push(Channel::Cold, Some(batch), Nanoseconds(*now), OpId(op));
        }
        let mut running: VecDeque<WindowSlot> = VecDeque::new();
        loop {
            let given = core::iter::from_fn(|| scheduler.next(|batch| Nanoseconds(batch.number)));
            let before = running.len();
            running.extend(given.map(|(_, given)| given));
            assert!(running.len() <= before.max(scheduler.cold_window()), "invariant 2");
            let Some(given) = running.pop_front() else { break };
            *now += 1_000_000;
            scheduler.ended(Channel::Cold, given, Transfer::Read(Bytes(1000)), Nanoseconds(*now));
        }
    }

    #[test]
    fn a_window_that_gains_nothing_shrinks_and_with_it_the_part_of_each_rank() {
        let max = NonZeroU32::new(64).unwrap();
        let windows = Windows { adaptation: Adaptation::Measured { max }, ..window(16) };
        let mut scheduler = EdfScheduler::new(windows, NonZeroU32::MIN, 0, Rank(0), 2);
        scheduler.queues[0].divide(Some(alloc::vec![1, 1]));
        let mut now = 0;
        read_in_haste(&mut scheduler, 20_000, &mut now);
        assert_eq!(scheduler.cold_window(), 1);
        let parts: Vec<_> = scheduler.queues[0].by_rank.iter().map(|it| it.running_max).collect();
        assert_eq!(parts, [1, 1]);
        // Where nothing waits, nothing is learnt.
        (0..2000).for_each(|_| read_in_haste(&mut scheduler, 1, &mut now));
        assert_eq!(scheduler.adaptive.as_ref().map(ColdWindow::is_void), Some(true));
    }

    #[test]
    fn a_fixed_window_stays() {
        let mut scheduler = EdfScheduler::new(window(16), NonZeroU32::MIN, 0, Rank(0), 2);
        read_in_haste(&mut scheduler, 20_000, &mut 0);
        assert_eq!(scheduler.cold_window(), 16);
    }

    #[test]
    fn a_rank_has_its_part_of_the_window_and_never_none() {
        let mut scheduler = EdfScheduler::new(window(8), NonZeroU32::MIN, 0, Rank(0), 3);
        for op in 0..60 {
            let rank = Rank(u32::try_from(op % 3).unwrap());
            scheduler.push(
                Channel::Cold,
                Some(BatchNumber { rank, number: op }),
                Nanoseconds(0),
                OpId(op),
            );
        }
        assert_eq!(scheduler.requests(Channel::Cold).collect::<Vec<_>>(), [20; 3]);
        let given = |scheduler: &mut EdfScheduler| {
            let given = core::iter::from_fn(|| scheduler.next(|batch| Nanoseconds(batch.number)));
            let given: Vec<WindowSlot> = given.map(|(_, given)| given).collect();
            given.iter().for_each(|given| {
                scheduler.ended(Channel::Cold, *given, Transfer::Other, Nanoseconds(0));
            });
            [0, 1, 2].map(|rank| given.iter().filter(|it| **it == WindowSlot(Some(rank))).count())
        };
        scheduler.queues[0].divide(Some(alloc::vec![3, 1, 0]));
        assert_eq!(given(&mut scheduler), [5, 2, 1], "invariant 2");
        scheduler.queues[0].divide(Some(alloc::vec![1, 2, 0]));
        assert_eq!(given(&mut scheduler), [2, 5, 1], "invariant 2");
        scheduler.queues[0].divide(None);
        assert_eq!(given(&mut scheduler).iter().sum::<usize>(), 8);
    }

    #[test]
    fn in_proportion_a_rank_has_the_part_that_its_requests_are_of_all() {
        let mut scheduler = EdfScheduler::new(window(8), NonZeroU32::MIN, 0, Rank(0), 2);
        scheduler.divide_in_proportion();
        for op in 0..40 {
            // Three of four for the first rank, and those of the other are due before.
            let rank = Rank(u32::from(op % 4 == 0));
            scheduler.push(
                Channel::Cold,
                Some(BatchNumber { rank, number: op }),
                Nanoseconds(0),
                OpId(op),
            );
        }
        let given = |scheduler: &mut EdfScheduler| {
            let due = |batch: BatchNumber| Nanoseconds(u64::from(batch.rank == Rank(0)));
            let given: Vec<WindowSlot> =
                core::iter::from_fn(|| scheduler.next(due)).map(|(_, given)| given).collect();
            given.iter().for_each(|given| {
                scheduler.ended(Channel::Cold, *given, Transfer::Other, Nanoseconds(0));
            });
            [0, 1].map(|rank| given.iter().filter(|it| **it == WindowSlot(Some(rank))).count())
        };
        assert_eq!(given(&mut scheduler), [0, 8], "nothing queued divides nothing");
        scheduler.divide_in_proportion();
        assert_eq!(scheduler.requests(Channel::Cold).collect::<Vec<_>>(), [30, 2]);
        assert_eq!(given(&mut scheduler), [7, 1]);
    }

    #[test]
    fn a_rank_whose_reads_are_all_under_way_keeps_its_part() {
        let mut scheduler = EdfScheduler::new(window(4), NonZeroU32::MIN, 0, Rank(0), 2);
        let push = |scheduler: &mut EdfScheduler, rank: Rank, op: u64| {
            let batch = BatchNumber { rank, number: op };
            scheduler.push(Channel::Cold, Some(batch), Nanoseconds(0), OpId(op));
        };
        (0..2).for_each(|op| push(&mut scheduler, Rank(0), op));
        let given = core::iter::from_fn(|| scheduler.next(|_| Nanoseconds(0))).count();
        (2..4).for_each(|op| push(&mut scheduler, Rank(1), op));
        assert_eq!(given, 2);
        assert_eq!(scheduler.requests(Channel::Cold).collect::<Vec<_>>(), [2, 2]);
    }
}
