//! Compares predictions with the simulator that they come from and with the limits that they name.

use std::{convert::Infallible, sync::Arc};

use tierfeed_core::{
    id::NodeId,
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    session::{LookAhead, OnError, Settings, Windows},
    simulator::simulate,
    tier::Buffer,
    units::{Bytes, seconds},
};

use super::*;

struct NoObserver;

impl Observer for NoObserver {
    type Stop = Infallible;

    fn step(&mut self, _: &StepOutcome) -> ControlFlow<Infallible> {
        ControlFlow::Continue(())
    }
}

/// The prediction of a run on the node of the settings.
fn predicted(settings: &session::Settings, policy: policy::Kind, model: &Model) -> Prediction {
    let nodes = Nodes::One { node: settings.node.0 };
    let ControlFlow::Continue(prediction) =
        Prediction::of(settings, nodes, policy, model, None, &mut NoObserver);
    prediction
}

const CHUNK: Bytes = Bytes::mib(1);
const SAMPLE: u64 = 1 << 16;

/// 64 KiB samples, of which `chunks` keep 16 each.
fn settings(samples: u32, nodes: u32, chunks: u32) -> Settings {
    Settings {
        order: Spec {
            samples,
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 5,
            epochs: 3,
            drop_last: false,
            batch_size: 8,
            world: World { nodes, ranks_per_node: 2 },
            start: Position::START,
            further: FurtherDatasets::NONE,
        },
        node: NodeId(0),
        sizes: Arc::from(vec![Bytes(SAMPLE); samples as usize]),
        tiers: vec![Buffer { kind: Kind::CxlMemory, chunks_max: chunks }],
        chunk: CHUNK,
        policy: policy::Kind::Gap,
        staged_batches: 3,
        staged_batches_max: 0,
        arena: Bytes::mib(4),
        on_error: OnError::Fail,
        windows: Windows::default(),
        aim: tierfeed_core::retention::policy::Aim::default(),
        in_place_tiers: Vec::new(),
        transform: None,
        first_room: Bytes(0),
        look_ahead: LookAhead::Off,
    }
}

fn model() -> Model {
    let cold = Speed { latency: Nanoseconds(1_000_000), bandwidth: BytesPerSecond(50_000_000) };
    let step_time = Nanoseconds(10_000_000);
    Model {
        cold,
        cold_threads: None,
        cold_burst: Nanoseconds(0),
        tiers: vec![UNLIMITED],
        step_time,
        pause: None,
        transforms: None,
        head_start: Nanoseconds(0),
    }
}

fn of(settings: &Settings, nodes: Nodes) -> Prediction {
    let ControlFlow::Continue(prediction) =
        Prediction::of(settings, nodes, policy::Kind::Gap, &model(), None, &mut NoObserver);
    prediction
}

#[test]
fn evening_out_would_write_a_little_of_a_tier_that_wears_out() {
    let mut settings = settings(640, 1, 10);
    assert_eq!(Wear::of(&settings), None, "nothing wears out");
    settings.aim.wears = vec![true];
    let wear = Wear::of(&settings).unwrap();
    assert_eq!(wear.written_bytes_per_epoch, 0);
    let most = 640 * SAMPLE / 4;
    assert!((1..most).contains(&wear.balanced_written_bytes_per_epoch), "{wear:?}");
    settings.policy = policy::Kind::Fifo;
    assert_eq!(Wear::of(&settings), None, "only gap would even out");
}

#[test]
fn on_one_node_the_limit_is_what_the_cache_cannot_hold() {
    let prediction = predicted(&settings(640, 1, 10), policy::Kind::Gap, &model());
    let cold: Vec<_> = prediction.epochs.iter().map(|it| it.figures.minimal_cold_bytes).collect();
    assert_eq!(cold, [640 * SAMPLE, 480 * SAMPLE, 480 * SAMPLE]);
    for epoch in &prediction.epochs {
        let figures = &epoch.figures;
        let times = figures.cold_to_minimal.unwrap();
        assert!((1.0..1.01).contains(&times), "gap reads {times} times the least");
        assert!((figures.best_hit_ratio - figures.hit_ratio).abs() < 0.01, "{figures:?}");
        let reading = model().cold.bandwidth.time_for(Bytes(figures.minimal_cold_bytes));
        let computing = 40.0 * 0.01;
        assert!((figures.lower_bound_s - seconds(reading).max(computing)).abs() < 1e-9);
    }
    let worse = predicted(&settings(640, 1, 10), policy::Kind::None, &model());
    assert!((worse.epochs[1].figures.cold_to_minimal.unwrap() - 4.0 / 3.0).abs() < 1e-9);
}

/// Three nodes with a cache of a tenth each: h* is 0.3 (sampling-and-limits, table 3.6).
#[test]
fn on_several_nodes_the_limit_is_the_closed_form() {
    let prediction = of(&settings(1_600, 3, 10), Nodes::One { node: 1 });
    assert!(prediction.epochs[0].figures.best_hit_ratio.abs() < 1e-9);
    for epoch in &prediction.epochs[1..] {
        let best = epoch.figures.best_hit_ratio;
        assert!((best - 0.3).abs() < 0.001, "{best}");
    }
}

#[test]
fn the_whole_run_is_the_sum_of_its_epochs() {
    let Prediction { epochs, total, .. } = of(&settings(500, 1, 10), Nodes::One { node: 0 });
    let sum = |of: fn(&Figures) -> u64| epochs.iter().map(|it| of(&it.figures)).sum::<u64>();
    let time = |of: fn(&Figures) -> f64| epochs.iter().map(|it| of(&it.figures)).sum::<f64>();
    assert_eq!(total.cold_read_bytes, sum(|it| it.cold_read_bytes));
    assert_eq!(total.demand_bytes, sum(|it| it.demand_bytes));
    assert_eq!(total.steps, sum(|it| it.steps));
    assert_eq!((total.samples, total.cold_samples), (1_500, sum(|it| it.cold_samples)));
    assert_eq!(total.cold_read_bytes, total.cold_samples * SAMPLE);
    assert_eq!(total.minimal_cold_bytes, sum(|it| it.minimal_cold_bytes));
    assert_eq!(total.tier_read_bytes["cxl-memory"], sum(|it| it.tier_read_bytes["cxl-memory"]));
    assert!((total.stall_s - time(|it| it.stall_s)).abs() < 1e-9);
    assert!((total.lower_bound_s - time(|it| it.lower_bound_s)).abs() < 1e-9);
    let times = total.duration_s / total.lower_bound_s;
    assert!((total.duration_to_lower_bound.unwrap() - times).abs() < 1e-9);
}

#[test]
fn all_nodes_together_read_what_each_does_and_take_as_long_as_the_slowest() {
    let settings = settings(500, 3, 10);
    let apart: Vec<_> = (0..3).map(|node| of(&settings, Nodes::One { node })).collect();
    let all = of(&settings, Nodes::All { nodes: 3 });
    for (at, epoch) in all.epochs.iter().enumerate() {
        let each = || apart.iter().map(|it| &it.epochs[at].figures);
        assert_eq!(epoch.figures.cold_read_bytes, each().map(|it| it.cold_read_bytes).sum::<u64>());
        assert_eq!(epoch.figures.steps, each().next().unwrap().steps);
        let slowest = each().map(|it| it.duration_s).fold(0.0, f64::max);
        assert!((epoch.figures.duration_s - slowest).abs() < 1e-9);
        let most = apart.iter().map(|it| it.epochs[at].evenness.step_cold.unwrap().max_bytes);
        assert_eq!(epoch.evenness.step_cold.unwrap().max_bytes, most.max().unwrap());
    }
    assert!(apart.iter().all(|it| it.digest != all.digest));
    let slowest =
        |of: fn(&Figures) -> f64| apart.iter().map(|it| of(&it.total)).fold(0.0, f64::max);
    assert!((all.total.duration_s - slowest(|it| it.duration_s)).abs() < 1e-9);
    assert!((all.total.stall_s - slowest(|it| it.stall_s)).abs() < 1e-9);
    let by_epoch: f64 = all.epochs.iter().map(|it| it.figures.duration_s).sum();
    assert!(all.total.duration_s <= by_epoch + 1e-9, "a node ahead in one epoch is so in the next");
}

#[test]
fn a_prediction_is_the_simulation_of_its_node() {
    let settings = Settings { node: NodeId(2), ..settings(300, 3, 4) };
    let prediction = predicted(&settings, policy::Kind::Fifo, &model());
    let outcome = simulate(&Settings { policy: policy::Kind::Fifo, ..settings }, &model());
    assert_eq!(prediction.digest, format!("{:016x}", outcome.digest));
    assert_eq!(prediction.nodes, Nodes::One { node: 2 });
    let cold = outcome.epochs.iter().map(|epoch| epoch.read.cold.0);
    assert!(prediction.epochs.iter().map(|it| it.figures.cold_read_bytes).eq(cold));
}

/// 20 samples for two ranks: a full batch and one of two samples each.
#[test]
fn a_batch_that_is_not_full_does_not_count_as_a_burst() {
    let prediction = predicted(&settings(20, 1, 0), policy::Kind::None, &model());
    let evenness = prediction.epochs[0].evenness;
    let ranks = evenness.rank_step_cold.unwrap();
    assert_eq!((ranks.min_bytes, ranks.max_bytes), (8 * SAMPLE, 8 * SAMPLE));
    let steps = evenness.step_cold.unwrap();
    assert_eq!((steps.min_bytes, steps.max_bytes), (16 * SAMPLE, 16 * SAMPLE));
    let short = predicted(&settings(4, 1, 0), policy::Kind::None, &model());
    assert_eq!(short.epochs[0].evenness.step_cold, None);
}
