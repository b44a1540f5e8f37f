//! What an observer is told, against what the session counts and the order says.

use proptest::prelude::*;

use super::*;
use crate::{
    id::NodeId,
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    retention::policy,
    session::{LookAhead, OnError, Windows},
    simulator::{EpochOutcome, Model, simulate, simulate_observed},
    tier::{Buffer, Kind, Speed},
    units::BytesPerSecond,
};

const EPOCHS: u32 = 3;

fn settings(policy: policy::Kind, samples: u32, world: World, chunks: &[u32]) -> Settings {
    let buffer = |chunks_max: &u32| Buffer { kind: Kind::CxlMemory, chunks_max: *chunks_max };
    Settings {
        order: Spec {
            samples,
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 7,
            epochs: EPOCHS,
            drop_last: false,
            batch_size: 8,
            world,
            start: Position::START,
            further: FurtherDatasets::NONE,
        },
        node: NodeId(world.nodes - 1),
        // Empty samples too: they share the place of the next.
        sizes: (0..u64::from(samples)).map(|i| Bytes(i % 7 * 30_000)).collect(),
        tiers: chunks.iter().map(buffer).collect(),
        chunk: Bytes::mib(1),
        policy,
        staged_batches: 3,
        staged_batches_max: 0,
        arena: Bytes::mib(8),
        on_error: OnError::Fail,
        windows: Windows::default(),
        aim: policy::Aim::default(),
        in_place_tiers: Vec::new(),
        transform: None,
        first_room: Bytes(0),
        look_ahead: LookAhead::Off,
    }
}

fn model(tiers: usize) -> Model {
    let speed =
        |latency, rate| Speed { latency: Nanoseconds(latency), bandwidth: BytesPerSecond(rate) };
    Model {
        cold_threads: None,
        cold_burst: Nanoseconds(0),
        cold: speed(1_000_000, 100_000_000),
        tiers: vec![speed(350, 20_000_000_000); tiers],
        step_time: Nanoseconds(5_000_000),
        pause: None,
        transforms: None,
        head_start: Nanoseconds(0),
    }
}

/// Keeps everything that it is told.
#[derive(Default)]
struct Everything {
    steps: Vec<StepOutcome>,
    stop_after: Option<usize>,
}

impl Observer for Everything {
    type Stop = usize;

    fn step(&mut self, step: &StepOutcome) -> ControlFlow<usize> {
        self.steps.push(step.clone());
        match self.stop_after {
            Some(steps) if self.steps.len() == steps => ControlFlow::Break(steps),
            _ => ControlFlow::Continue(()),
        }
    }
}

fn observed(settings: &Settings) -> (Everything, Vec<EpochOutcome>) {
    let mut everything = Everything::default();
    let model = model(settings.tiers.len());
    match simulate_observed(settings, &(&model).into(), &mut everything) {
        ControlFlow::Continue(outcome) => (everything, outcome.epochs),
        ControlFlow::Break(steps) => panic!("the observer did not ask to stop after {steps} steps"),
    }
}

fn check_sums(steps: &[StepOutcome], epoch: &EpochOutcome) {
    let steps = || steps.iter().filter(|step| step.epoch == epoch.epoch);
    let sum = |of: &dyn Fn(&StepOutcome) -> u64| steps().map(of).sum::<u64>();
    assert_eq!(steps().count(), epoch.steps as usize);
    assert_eq!(sum(&|step| step.cold().0), epoch.read.cold.0);
    assert_eq!(sum(&|step| step.demand().0), epoch.read.demand.0);
    assert_eq!(sum(&|step| step.stall.0), epoch.stall.0);
    for (tier, bytes) in epoch.read.from_tier.iter().enumerate() {
        let from_tier =
            |step: &StepOutcome| step.ranks.iter().map(|rank| rank.from_tier[tier].0).sum();
        assert_eq!(sum(&from_tier), bytes.0, "tier {tier}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn steps_sum_to_what_the_session_counts(
        samples in 1_u32..150,
        (nodes, ranks_per_node) in (1_u32..3, 1_u32..4),
        chunks in prop::collection::vec(0_u32..5, 0..3),
        policy in prop::sample::select(&policy::Kind::ALL[..]),
    ) {
        let world = World { nodes, ranks_per_node };
        let (seen, epochs) = observed(&settings(policy, samples, world, &chunks));
        for epoch in &epochs {
            check_sums(&seen.steps, epoch);
        }
    }

}

#[test]
fn an_observer_ends_the_run() {
    let world = World { nodes: 1, ranks_per_node: 1 };
    let settings = settings(policy::Kind::Fifo, 150, world, &[1]);
    let mut everything = Everything { stop_after: Some(5), ..Everything::default() };
    let outcome = simulate_observed(&settings, &(&model(1)).into(), &mut everything);
    assert_eq!(outcome, ControlFlow::Break(5));
    let samples = |step: &StepOutcome| step.ranks.iter().map(|rank| rank.samples).sum::<u32>();
    assert_eq!(everything.steps.iter().map(samples).collect::<Vec<_>>(), [8; 5]);
}

#[test]
fn being_observed_changes_nothing() {
    let world = World { nodes: 1, ranks_per_node: 3 };
    let settings = settings(policy::Kind::DeepMemory, 150, world, &[1, 1]);
    let mut steps: Vec<StepOutcome> = Vec::new();
    let ControlFlow::Continue(outcome) =
        simulate_observed(&settings, &(&model(2)).into(), &mut steps);
    assert_eq!(outcome, simulate(&settings, &model(2)));
    assert_eq!(steps.len(), 3 * 7);
}
