//! The generations of this node's schedule: when the next one comes, and which of them the manager knows.

use std::collections::VecDeque;

use tierfeed_core::{
    fleet::{Assignment, revision::Held, schedule::Schedule},
    order::Spec,
    session::Observed,
};
use tokio::task::spawn_blocking;

use crate::observe::report::GENERATIONS_KEPT;

#[derive(Debug)]
pub(super) struct Revisions {
    held: Held,
    epochs: u32,
    /// The last ones, oldest first; never empty.
    made: VecDeque<Schedule>,
    /// The latest generation that the manager knows; `None` if that is not certain.
    known: Option<u32>,
}

impl Revisions {
    pub(super) fn of(Assignment { schedule, .. }: &Assignment, order: &Spec) -> Self {
        let first = schedule.clone();
        let held = Held::of(&first, order.start.epoch);
        let known = Some(first.generation);
        Self { held, epochs: order.epochs, made: VecDeque::from([first]), known }
    }

    /// The next generation, if the observations ask for one. A depth of staging takes a part of a second to compute.
    pub(super) async fn next(&mut self, observed: &Observed) -> Option<Schedule> {
        let latest = self.made.back().cloned()?;
        let (mut held, epochs, observed) = (self.held.clone(), self.epochs, observed.clone());
        let decided = spawn_blocking(move || (held.next(&latest, epochs, &observed), held)).await;
        let (next, held) = decided.expect("a decision does not panic");
        self.held = held;
        let next = next?;
        if self.made.len() == GENERATIONS_KEPT {
            self.made.pop_front();
        }
        self.made.push_back(next.clone());
        Some(next)
    }

    /// Those that the manager may not know, oldest first.
    pub(super) fn untold(&self) -> Vec<Schedule> {
        let is_untold = |it: &&Schedule| self.known.is_none_or(|known| it.generation > known);
        self.made.iter().filter(is_untold).cloned().collect()
    }

    /// The manager knows all of them.
    pub(super) fn told(&mut self) {
        self.known = self.made.back().map(|it| it.generation);
    }

    /// There is another manager, which knows no more than this generation.
    pub(super) fn forgotten(&mut self, known: Option<u32>) {
        self.known = known;
    }
}

#[cfg(test)]
mod tests {
    use tierfeed_core::{
        fleet::first_schedule,
        id::{Epoch, NodeId},
        order::{FurtherDatasets, Position, Shuffle, World},
        retention::policy,
        session::{Cycle, ObservedLink, Supply},
        units::{Bytes, BytesPerSecond, Nanoseconds},
    };

    use super::*;
    use crate::schedule::tests::{inputs, offer};

    /// Trainers that pause, and a cold store of that rate.
    fn observed(planned: u32, rate: u64) -> Observed {
        let second = Nanoseconds(1_000_000_000);
        let consumed = Bytes(2_500_000_000);
        let (epoch, capacity) = (Bytes(100_000_000_000), Bytes::mib(8_192));
        let (staged, hits, cold) = (Bytes(0), 20_000, BytesPerSecond(rate));
        Observed {
            planned: Epoch(planned),
            cold: ObservedLink::default(),
            tiers: Vec::new(),
            transforms: Default::default(),
            load: None,
            cycle: Some(Cycle { consumed, busy: second, idle: second }),
            supply: Some(Supply { epoch, capacity, staged, hits, cold }),
        }
    }

    #[tokio::test]
    async fn a_manager_is_told_every_generation_that_it_may_not_know() {
        let schedule = first_schedule::of(&inputs(), &offer(200)).unwrap();
        let (node, generation, policy) = (NodeId(0), 0, policy::Kind::Gap);
        let assigned = Assignment { node, generation, order: 0, policy, schedule };
        let order = Spec {
            samples: 100,
            shuffle: Shuffle::Sequential,
            seed: 0,
            epochs: 9,
            drop_last: false,
            batch_size: 1,
            world: World { nodes: 1, ranks_per_node: 1 },
            start: Position::START,
            further: FurtherDatasets::NONE,
        };
        let mut revisions = Revisions::of(&assigned, &order);
        assert!(revisions.untold().is_empty());
        for (planned, rate) in [(1, 1_300_000_000), (2, 400_000_000)] {
            revisions.next(&observed(planned, rate)).await.unwrap();
        }
        let untold = |revisions: &Revisions| -> Vec<u32> {
            revisions.untold().iter().map(|it| it.generation).collect()
        };
        assert_eq!(untold(&revisions), [1, 2], "both were made while there was no manager");
        revisions.told();
        assert!(revisions.untold().is_empty());
        revisions.forgotten(None);
        assert_eq!(untold(&revisions), [0, 1, 2], "the reply to the registration may be lost");
        revisions.forgotten(Some(0));
        assert_eq!(untold(&revisions), [1, 2]);
    }
}
