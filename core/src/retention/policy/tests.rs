//! What each policy keeps, compared with tables, with the optimum, and with the published text.

mod optimum;
mod rules;
mod tables;

use alloc::{vec, vec::Vec};

use proptest::prelude::*;

use super::*;
use crate::{
    id::{BatchId, Epoch, Rank, Step},
    order::{FurtherDatasets, Position, Shuffle, World},
};

const LEN: Bytes = Bytes(64);

fn order(samples: u32, nodes: u32, epochs: u32) -> Spec {
    Spec {
        samples,
        shuffle: Shuffle::TORCH_DISTRIBUTED,
        seed: 7,
        epochs,
        drop_last: false,
        batch_size: 10,
        world: World { nodes, ranks_per_node: 1 },
        start: Position::START,
        further: FurtherDatasets::NONE,
    }
}

/// Samples of equal size, and tiers that hold the given numbers of them.
fn setting(order: Spec, tiers: &[u32]) -> Setting {
    let sizes = vec![LEN; order.samples as usize].into();
    let room = |samples: &u32| Bytes(u64::from(*samples) * LEN.0);
    let capacities = tiers.iter().map(room).collect();
    Setting { order, node: NodeId(0), sizes, capacities, aim: Aim::default() }
}

struct Stage {
    policy: Box<dyn Policy>,
    future: FutureAccesses,
    residency: Residency,
}

impl Stage {
    fn new(kind: Kind, setting: &Setting) -> Self {
        let policy = build(kind, setting);
        Self {
            future: FutureAccesses::new(setting.order, setting.node, policy.lookahead()),
            residency: Residency::new(
                Arc::clone(&setting.sizes),
                setting.capacities.iter().copied(),
            ),
            policy,
        }
    }

    /// One rank that reads `samples` in its only epoch, step by step of `batch_size`.
    fn published(kind: Kind, samples: &[u32], batch_size: u32, tiers: &[u32]) -> Self {
        let count = u32::try_from(samples.len()).unwrap();
        let order = Spec { shuffle: Shuffle::Published, batch_size, ..order(count, 1, 1) };
        let mut stage = Self::new(kind, &setting(order, tiers));
        let samples: Vec<_> = samples.iter().copied().map(SampleId).collect();
        let publication = stage.future.publish(Rank(0), Epoch(0), samples.into());
        assert_eq!(publication, crate::retention::future_accesses::Publication::New);
        stage
    }

    /// Reads the sample at a place of the order; returns it and the tier where it lay.
    fn read(&mut self, epoch: u32, place: u32) -> (SampleId, Option<TierId>) {
        let size = self.future.spec().batch_size;
        let rank = self.future.spec().world.ranks_of(self.future.node()).next().unwrap();
        let batch = BatchId { epoch: Epoch(epoch), step: Step(place / size), rank };
        self.future.prepare(batch.epoch);
        let sample = self.future.batch(batch).unwrap()[(place % size) as usize];
        let tier = self.residency.tier_of(sample);
        let at = self.future.read_of(batch, (place % size) as usize);
        self.policy.read(Read { sample, at }, &self.future, &mut self.residency);
        for enters in self.residency.drain_moves().filter(|it| it.from.is_none()) {
            assert_eq!(enters.sample, sample, "nothing else lies in staging");
        }
        (sample, tier)
    }

    fn tier(&self, sample: u32) -> Option<u8> {
        self.residency.tier_of(SampleId(sample)).map(|tier| tier.0)
    }

    fn contents(&self) -> Vec<Vec<u32>> {
        let samples = 0..u32::try_from(self.residency.samples()).unwrap();
        let of =
            |tier: TierId| samples.clone().filter(|it| self.tier(*it) == Some(tier.0)).collect();
        self.residency.tiers().map(of).collect()
    }

    /// Excess samples are demoted where there is room, else evicted.
    fn resize(&mut self, tier: TierId, capacity: Bytes) {
        self.residency.resize(tier, capacity);
        for sample in (0..self.residency.samples()).map(|it| SampleId(u32::try_from(it).unwrap())) {
            let level = self.residency.levels()[usize::from(tier.0)];
            if level.used > level.capacity && self.residency.tier_of(sample) == Some(tier) {
                let below = self.residency.tiers().filter(|other| *other > tier);
                let to = below.into_iter().find(|to| self.residency.put(sample, *to).is_ok());
                if to.is_none() {
                    self.residency.take_out(sample);
                }
                self.policy.displaced(sample, tier, to);
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Op {
    Read(u32, u32),
    Forget(u32),
    Resize(u8, u64),
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => (0_u32..5, 0_u32..40).prop_map(|(epoch, place)| Op::Read(epoch, place)),
        1 => (0_u32..80).prop_map(Op::Forget),
        2 => (0_u8..3, 0_u64..3000).prop_map(|(tier, bytes)| Op::Resize(tier, bytes)),
    ]
}

/// Policies that keep every sample for which some tier is large enough.
const KEEP_WHAT_IS_READ: [Kind; 4] = [Kind::Deli, Kind::Fifo, Kind::Lru, Kind::PageCache];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_is_asked_and_taken_away_tiers_hold_what_they_may_and_fill_again(
        ops in prop::collection::vec(any_op(), 1..150),
        lens in prop::collection::vec(1_u64..700, 80),
    ) {
        let setting = Setting {
            sizes: lens.into_iter().map(Bytes).collect(),
            ..setting(order(80, 2, 5), &[40, 20, 30])
        };
        for kind in Kind::ALL {
            let mut stage = Stage::new(kind, &setting);
            for op in &ops {
                match *op {
                    Op::Read(epoch, place) => {
                        let (sample, _) = stage.read(epoch, place);
                        let is_kept = stage.residency.tier_of(sample).is_some();
                        let fits = fastest(sample, &stage.residency).is_some();
                        prop_assert!(is_kept || !fits || !KEEP_WHAT_IS_READ.contains(&kind), "{kind}");
                    }
                    Op::Forget(sample) => {
                        if let Some(tier) = stage.residency.tier_of(SampleId(sample)) {
                            stage.residency.take_out(SampleId(sample));
                            stage.policy.displaced(SampleId(sample), tier, None);
                        }
                    }
                    Op::Resize(tier, bytes) => stage.resize(TierId(tier), Bytes(bytes)),
                }
                for level in stage.residency.levels() {
                    prop_assert!(level.used <= level.capacity, "{kind}: {level:?}");
                }
            }
            for tier in stage.residency.tiers() {
                stage.resize(tier, Bytes(0));
            }
            prop_assert_eq!(stage.residency.kept(), 0);
            for tier in stage.residency.tiers() {
                stage.resize(tier, Bytes(80 * 704));
            }
            for place in 0..40 {
                stage.read(0, place);
            }
            prop_assert_eq!(stage.residency.kept() > 0, kind != Kind::None, "{}", kind);
        }
    }

    #[test]
    fn equal_reads_give_equal_books(
        reads in prop::collection::vec((0_u32..5, 0_u32..40), 1..200),
    ) {
        let setting = setting(order(80, 2, 5), &[9, 5, 12]);
        for kind in Kind::ALL {
            let [once, again] = [(), ()].map(|()| {
                let mut stage = Stage::new(kind, &setting);
                for (epoch, place) in &reads {
                    stage.read(*epoch, *place);
                }
                stage.contents()
            });
            prop_assert_eq!(once, again, "{}", kind);
        }
    }
}

#[test]
fn every_policy_is_found_by_its_name() {
    for kind in Kind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
    }
    let names: Vec<_> = Kind::ALL.into_iter().map(Kind::name).collect();
    assert_eq!(names.join(", "), Kind::NAMES);
    assert_eq!("mru".parse::<Kind>(), Err(UnknownKind));
}
