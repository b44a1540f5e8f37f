//! When an operation ends, given everything else that uses the same link.
//!
//! An operation takes a thread, then the wire, which all operations share one after the other at the rate
//! that the threads which are busy when it starts reach together, then its latency, during which others move
//! their bytes. So threads limit operations, the wire limits bytes, and no time counts twice. A wire that was
//! idle may be ahead of its rate by its burst; a longer rest brings no more.

use alloc::vec::Vec;

use super::{
    clock::Lane,
    machine::{LinkModel, Machine},
    transforms::Transforms,
};
use crate::{
    id::TierId,
    latency_quantiles::Draws,
    session::{Form, Operation, Origin, Promotion, Settings},
    units::{Bytes, Nanoseconds},
};

/// The stream of random numbers of the other nodes' link; tiers have those from 1 on.
const STREAM_OF_PEERS: u64 = 1 << 32;

#[derive(Debug)]
struct Link {
    model: LinkModel,
    draws: Draws,
    /// The time at which the wire is free again if it is not ahead of its rate.
    wire_free_at: Nanoseconds,
    /// The time at which each busy thread is free again.
    busy: Vec<Nanoseconds>,
}

impl Link {
    fn new(model: &LinkModel, draws: Draws) -> Self {
        Self { model: model.clone(), draws, wire_free_at: Nanoseconds(0), busy: Vec::new() }
    }

    fn carry(&mut self, len: Bytes, now: Nanoseconds) -> Nanoseconds {
        let (ready, threads) = self.thread(now);
        let start = self.wire_free_at.max(ready);
        let transfer = self.model.throughput.at(threads).time_for(len);
        self.wire_free_at = Nanoseconds(start.0.saturating_add(transfer.0));
        let latency = self.model.latency.draw(&mut self.draws);
        let moved = self.wire_free_at.0.saturating_sub(self.model.burst.0).max(ready.0);
        let end = Nanoseconds(moved.saturating_add(latency.0));
        if !self.ignores_threads() {
            self.busy.push(end);
        }
        end
    }

    /// The time at which a thread is free to start, and the number of threads that are busy then, this one
    /// included.
    fn thread(&mut self, now: Nanoseconds) -> (Nanoseconds, u32) {
        if self.ignores_threads() {
            return (now, 1);
        }
        self.busy.retain(|end| *end > now);
        let threads_max = self.model.threads.map_or(u32::MAX, core::num::NonZeroU32::get);
        let mut ready = now;
        if self.busy.len() >= threads_max as usize {
            let first = (0..self.busy.len()).min_by_key(|at| self.busy[*at]);
            ready = self.busy.swap_remove(first.expect("a link has a thread"));
        }
        let others = self.busy.iter().filter(|end| **end > ready).count();
        (ready, u32::try_from(others).map_or(u32::MAX, |others| others.saturating_add(1)))
    }

    fn ignores_threads(&self) -> bool {
        self.model.threads.is_none() && self.model.throughput.is_constant()
    }
}

#[derive(Debug)]
pub(super) struct Links {
    cold: Link,
    peers: Option<Link>,
    tiers: Vec<Link>,
    transforms: Option<Transforms>,
}

impl Links {
    pub(super) fn new(settings: &Settings, machine: &Machine) -> Self {
        let link = |(stream, model)| Link::new(model, Draws::of(machine.seed, stream));
        Self {
            cold: link((0, &machine.cold)),
            peers: machine.peers.as_ref().map(|peers| link((STREAM_OF_PEERS, &peers.link))),
            tiers: (1..).zip(&machine.tiers).map(link).collect(),
            transforms: settings
                .transform
                .as_ref()
                .zip(machine.transforms.as_ref())
                .map(|(transform, costs)| Transforms::new(transform, costs, machine.seed)),
        }
    }

    /// The number of lanes of a clock that has one for each link.
    pub(super) fn lanes(machine: &Machine) -> usize {
        machine.tiers.len() + 3
    }

    pub(super) fn lane(operation: &Operation) -> Option<Lane> {
        let tier = match operation {
            Operation::OpenArena { .. }
            | Operation::TrimArena { .. }
            | Operation::RestoreArena { .. }
            | Operation::AddChunk { .. } => return None,
            Operation::Fetch { .. } | Operation::Prefetch { .. } => return Some(Lane(0)),
            Operation::Receive { .. } => return Some(Lane(1)),
            Operation::Transform { .. } => return Some(Lane(2)),
            Operation::Promote { parts } => parts.first()?.from.tier,
            Operation::Advance { to, .. } | Operation::Demote { to, .. } => to.tier,
        };
        Some(Lane(usize::from(tier.0) + 3))
    }

    pub(super) fn carry_out(&mut self, operation: &Operation, now: Nanoseconds) -> Nanoseconds {
        match operation {
            Operation::OpenArena { .. }
            | Operation::TrimArena { .. }
            | Operation::RestoreArena { .. }
            | Operation::AddChunk { .. }
            // See `Self::transform`.
            | Operation::Transform { .. } => now,
            Operation::Fetch { to, .. } => self.cold.carry(to.len, now),
            Operation::Receive { to, .. } => {
                self.peers.as_mut().map_or(now, |peers| peers.carry(to.len, now))
            }
            Operation::Promote { parts } => parts.first().map_or(now, |part| {
                self.tier(part.from.tier, Promotion::bytes(parts), now)
            }),
            Operation::Prefetch { len, to, .. } => {
                let read = self.cold.carry(*len, now);
                self.tier(to.tier, *len, now).max(read)
            }
            Operation::Advance { from, len, to, .. } => {
                let read = self.tier(from.tier, *len, now);
                self.tier(to.tier, *len, now).max(read)
            }
            Operation::Demote { from, len, to, .. } => {
                let read = match from {
                    Origin::Staging(_) => now,
                    Origin::Tier(place) => self.tier(place.tier, *len, now),
                };
                self.tier(to.tier, *len, now).max(read)
            }
        }
    }

    /// The end of a transform that is given out now, and the time that a thread works at it.
    pub(super) fn transform(
        &mut self,
        form: Form,
        read: Bytes,
        now: Nanoseconds,
    ) -> (Nanoseconds, Nanoseconds) {
        let transforms = self.transforms.as_mut();
        transforms.map_or((now, Nanoseconds(0)), |it| it.carry_out(form, read, now))
    }

    fn tier(&mut self, tier: TierId, len: Bytes, now: Nanoseconds) -> Nanoseconds {
        self.tiers.get_mut(usize::from(tier.0)).map_or(now, |link| link.carry(len, now))
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU32;

    use super::*;
    use crate::{
        latency_quantiles::{LatencyQuantiles, PerMillion},
        throughput::Throughput,
        tier::Speed,
        units::BytesPerSecond,
    };

    const MS: u64 = 1_000_000;

    fn ends(model: &LinkModel, operations: u32, len: u64) -> Vec<u64> {
        let mut link = Link::new(model, Draws::of(3, 0));
        (0..operations).map(|_| link.carry(Bytes(len), Nanoseconds(0)).0).collect()
    }

    #[test]
    fn a_speed_alone_is_a_rate_that_all_share_and_a_latency_that_overlaps() {
        let speed = Speed { latency: Nanoseconds(5 * MS), bandwidth: BytesPerSecond(1_000_000) };
        assert_eq!(ends(&speed.into(), 3, 1000), [6 * MS, 7 * MS, 8 * MS]);
    }

    #[test]
    fn threads_limit_how_many_latencies_overlap() {
        let model = LinkModel {
            throughput: Throughput::constant(BytesPerSecond(0)),
            latency: LatencyQuantiles::constant(Nanoseconds(10 * MS)),
            threads: NonZeroU32::new(2),
            burst: Nanoseconds(0),
        };
        assert_eq!(ends(&model, 5, 1), [10, 10, 20, 20, 30].map(|ms| ms * MS));
    }

    #[test]
    fn the_rate_is_that_of_the_threads_that_read_together() {
        let point = |threads, rate| (NonZeroU32::new(threads).unwrap(), BytesPerSecond(rate));
        let throughput = Throughput::measured(&[point(1, 1_000_000), point(4, 4_000_000)]).unwrap();
        let model = |threads| LinkModel {
            throughput: throughput.clone(),
            latency: LatencyQuantiles::constant(Nanoseconds(0)),
            threads: NonZeroU32::new(threads),
            burst: Nanoseconds(0),
        };
        // 100 reads of 1 kB: one thread moves 1 MB/s, two 2 MB/s, four 4 MB/s, once they all run.
        let last = |threads| *ends(&model(threads), 100, 1000).last().unwrap();
        assert_eq!(last(1), 100 * MS);
        assert_eq!(last(2), MS + 99 * MS / 2);
        assert_eq!(last(4), MS + MS / 2 + MS / 3 + 1 + 97 * MS / 4);
    }

    #[test]
    fn a_wire_that_was_idle_is_ahead_of_its_rate_by_its_burst_and_no_more() {
        let speed = Speed { latency: Nanoseconds(0), bandwidth: BytesPerSecond(1_000_000) };
        let model = LinkModel { burst: Nanoseconds(3 * MS), ..speed.into() };
        // 1 kB a millisecond.
        assert_eq!(ends(&model, 6, 1000), [0, 0, 0, 1, 2, 3].map(|ms| ms * MS));
        let mut link = Link::new(&model, Draws::of(3, 0));
        let mut carry = |len, now| link.carry(Bytes(len), Nanoseconds(now * MS)).0 / MS;
        assert_eq!(carry(10_000, 0), 7);
        assert_eq!(carry(1000, 9), 9, "two of three milliseconds are there again");
        assert_eq!(carry(2000, 9), 10);
        assert_eq!(carry(4000, 1000), 1001, "a longer rest brings no more");
    }

    #[test]
    fn latencies_follow_their_spread_and_repeat_with_the_seed() {
        let quantiles =
            [(PerMillion(500_000), Nanoseconds(MS)), (PerMillion::ALL, Nanoseconds(3 * MS))];
        let model = LinkModel {
            throughput: Throughput::constant(BytesPerSecond(0)),
            latency: LatencyQuantiles::measured(&quantiles).unwrap(),
            threads: None,
            burst: Nanoseconds(0),
        };
        let drawn = ends(&model, 1000, 1);
        assert_eq!(drawn, ends(&model, 1000, 1));
        let fast = drawn.iter().filter(|end| **end == MS).count();
        assert!((440..560).contains(&fast), "{fast} of 1000 at the median or below");
        assert!(drawn.iter().all(|end| (MS..=3 * MS).contains(end)));
    }
}
