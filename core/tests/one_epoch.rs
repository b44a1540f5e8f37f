//! One epoch of a long run, from a few epochs before it, beside the same epoch of the whole run.

use std::{convert::Infallible, ops::ControlFlow};

use tierfeed_core::{
    id::{Epoch, NodeId},
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    retention::policy::{Aim, Kind},
    session::{LookAhead, OnError, Settings, Windows},
    simulator::{
        EpochOutcome, LateStart, Machine, Model, Observer, StepOutcome, simulate_through, warm_up,
    },
    tier::{Buffer, Kind as TierKind, Speed},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

const EPOCHS: u32 = 24;

struct Deaf;

impl Observer for Deaf {
    type Stop = Infallible;

    fn step(&mut self, _: &StepOutcome) -> ControlFlow<Infallible> {
        ControlFlow::Continue(())
    }
}

fn settings(policy: Kind, nodes: u32) -> Settings {
    let size = |i: u64| 20_000 + (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 180_000;
    let sizes: Vec<Bytes> = (0..600).map(|i| Bytes(size(i))).collect();
    let total: u64 = sizes.iter().map(|len| len.0).sum();
    let chunk = Bytes::mib(1);
    let chunks = |percent: u64| u32::try_from(total * percent / 100 / chunk.0).expect("few");
    let tiers = [(TierKind::CxlMemory, 30), (TierKind::Scratch, 10)].map(|(kind, percent)| {
        Buffer { kind, chunks_max: chunks(percent / u64::from(nodes.min(2))) }
    });
    Settings {
        order: Spec {
            samples: 600,
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 42,
            epochs: EPOCHS,
            drop_last: false,
            batch_size: 8,
            world: World { nodes, ranks_per_node: 2 },
            start: Position::START,
            further: FurtherDatasets::NONE,
        },
        node: NodeId(nodes - 1),
        sizes: sizes.into(),
        tiers: tiers.to_vec(),
        chunk,
        policy,
        staged_batches: 4,
        staged_batches_max: 0,
        arena: Bytes::mib(8),
        on_error: OnError::Fail,
        windows: Windows::default(),
        aim: Aim::default(),
        in_place_tiers: Vec::new(),
        transform: None,
        first_room: Bytes(0),
        look_ahead: LookAhead::Off,
    }
}

fn through(settings: &Settings, last: Epoch) -> EpochOutcome {
    let speed =
        |latency, rate| Speed { latency: Nanoseconds(latency), bandwidth: BytesPerSecond(rate) };
    let model = Model {
        cold_threads: None,
        cold_burst: Nanoseconds(0),
        cold: speed(1_000_000, 100_000_000),
        tiers: vec![speed(350, 20_000_000_000); 2],
        step_time: Nanoseconds(5_000_000),
        pause: None,
        transforms: None,
        head_start: Nanoseconds(0),
    };
    let run = simulate_through(settings, &Machine::from(&model), last, &mut Deaf);
    let ControlFlow::Continue(mut outcome) = run;
    outcome.epochs.pop().expect("the last epoch was played")
}

/// An epoch of the whole run, and of a run that starts a few epochs before it.
fn both(policy: Kind, nodes: u32, epoch: Epoch) -> [EpochOutcome; 2] {
    let whole = settings(policy, nodes);
    let mut late = whole.clone();
    let first = Epoch(epoch.0 - warm_up(&whole.order));
    late.order.start = Position { epoch: first, samples: 0 };
    [through(&whole, epoch), through(&late, epoch)]
}

/// The cold store, then each tier.
fn sources(of: &EpochOutcome) -> Vec<u64> {
    core::iter::once(&of.read.cold).chain(&of.read.from_tier).map(|bytes| bytes.0).collect()
}

const LONGEST: u64 = 200_000;

#[test]
fn an_epoch_told_from_a_late_start_is_that_of_the_whole_run_as_far_as_is_claimed() {
    for (nodes, policy) in [1, 3].into_iter().flat_map(|nodes| Kind::ALL.map(|it| (nodes, it))) {
        for epoch in [10, 23].map(Epoch) {
            let [whole, late] = both(policy, nodes, epoch);
            let case = format!("{policy} on {nodes} nodes, epoch {}", epoch.0);
            assert_eq!((late.epoch, late.steps), (whole.epoch, whole.steps), "{case}");
            assert_eq!(late.read.demand, whole.read.demand, "{case}");
            assert_eq!(late.minimal_cold, whole.minimal_cold, "{case}");
            assert_eq!(late.lower_bound, whole.lower_bound, "{case}");
            let off = late.read.cold.0.abs_diff(whole.read.cold.0);
            let demand = whole.read.demand.0;
            match LateStart::of(policy, nodes) {
                LateStart::Equal => assert_eq!(sources(&late), sources(&whole), "{case}"),
                LateStart::Near if nodes == 1 => assert!(off <= LONGEST, "{case}: {off}"),
                LateStart::Near => assert!(off * 1000 <= demand * 15, "{case}: {off} of {demand}"),
                LateStart::Estimate => assert!(off * 5 <= demand, "{case}: {off} of {demand}"),
            }
        }
    }
}
