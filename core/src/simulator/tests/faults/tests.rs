use alloc::{sync::Arc, vec};

use proptest::prelude::*;

use super::*;
use crate::{
    id::NodeId,
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    retention::policy,
    session::{LookAhead, OnError, SkipShare, Windows},
    simulator::Model,
    tier::{Buffer, Kind, Speed},
    units::{Bytes, BytesPerSecond},
};

const CHUNK: Bytes = Bytes(256 << 10);

const SKIP_ALL: OnError = OnError::Skip(SkipShare(1_000_000));

fn settings(policy: policy::Kind, on_error: OnError) -> Settings {
    let size = |i: u64| Bytes(2_000 + (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 60_000);
    let sizes: Arc<[Bytes]> = (0..80).map(size).collect();
    Settings {
        order: Spec {
            samples: 80,
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 42,
            epochs: 3,
            drop_last: false,
            batch_size: 4,
            world: World { nodes: 1, ranks_per_node: 2 },
            start: Position::START,
            further: FurtherDatasets::NONE,
        },
        node: NodeId(0),
        sizes,
        tiers: vec![
            Buffer { kind: Kind::CxlMemory, chunks_max: 3 },
            Buffer { kind: Kind::Scratch, chunks_max: 2 },
        ],
        chunk: CHUNK,
        policy,
        staged_batches: 4,
        staged_batches_max: 0,
        arena: Bytes(700 << 10),
        on_error,
        windows: Windows::default(),
        aim: policy::Aim::default(),
        in_place_tiers: Vec::new(),
        transform: None,
        first_room: Bytes(0),
        look_ahead: LookAhead::Off,
    }
}

fn machine() -> Machine {
    let speed =
        |latency, rate| Speed { latency: Nanoseconds(latency), bandwidth: BytesPerSecond(rate) };
    Machine::from(&Model {
        cold_threads: None,
        cold_burst: Nanoseconds(0),
        cold: speed(1_000_000, 100_000_000),
        tiers: vec![speed(350, 20_000_000_000); 2],
        step_time: Nanoseconds(2_000_000),
        pause: None,
        transforms: None,
        head_start: Nanoseconds(0),
    })
}

fn scenario(seed: u64, operations: u32, incidents: u32) -> Scenario {
    let every = Nanoseconds(8_000_000);
    Scenario { seed, operations: PerMillion(operations), incidents, every }
}

fn assert_no_violation(settings: &Settings, report: &FaultReport, scenario: &Scenario) {
    assert_eq!(report.violation, None, "{scenario:?}");
    for (rank, used) in &report.used {
        let first = Some(settings.order.first(*rank));
        let order = core::iter::successors(first, |batch| settings.order.after(*batch));
        assert_eq!(*used, order.collect::<Vec<_>>(), "{scenario:?}");
    }
    assert_eq!(report.used.len(), 2);
}

fn run_checked(settings: &Settings, scenario: &Scenario) -> FaultReport {
    let report = run_with_faults(settings, &machine(), scenario);
    assert_no_violation(settings, &report, scenario);
    report
}

#[test]
fn without_faults_everything_comes_from_the_agent() {
    let report = run_checked(&settings(policy::Kind::Gap, OnError::Fail), &scenario(1, 0, 0));
    assert_eq!((report.from_agent, report.alone, report.operations), (60, 0, 0));
}

#[test]
fn five_hundred_seeds_break_no_rule_and_bring_every_incident() {
    let mut all = FaultReport::default();
    for seed in 0..500 {
        let policy = policy::Kind::ALL[pick(seed, policy::Kind::ALL.len())];
        let on_error = if seed % 3 == 0 { SKIP_ALL } else { OnError::Fail };
        let in_place_tiers = if seed % 2 == 0 { vec![TierId(0)] } else { Vec::new() };
        let look_ahead = if seed % 5 < 3 { LookAhead::Auto } else { LookAhead::Off };
        let settings = Settings { look_ahead, in_place_tiers, ..settings(policy, on_error) };
        let report = run_checked(&settings, &scenario(seed, 30_000, 12));
        all.operations += report.operations;
        all.from_agent += report.from_agent;
        all.alone += report.alone;
        for (incident, count) in report.incidents {
            *all.incidents.entry(incident).or_default() += count;
        }
    }
    assert!(all.operations > 1_000 && all.from_agent > 10_000 && all.alone > 1_000, "{all:?}");
    assert!(Incident::ALL.iter().all(|it| all.incidents[it] > 100), "{:?}", all.incidents);
}

#[test]
fn a_seed_fails_or_holds_again_as_it_did() {
    let settings = settings(policy::Kind::Gap, OnError::Fail);
    for seed in 0..20 {
        let scenario = scenario(seed, 100_000, 20);
        assert_eq!(
            run_with_faults(&settings, &machine(), &scenario),
            run_with_faults(&settings, &machine(), &scenario)
        );
    }
}

proptest! {
    #[test]
    fn nothing_that_goes_wrong_costs_a_batch(
        seed: u64,
        operations in 0_u32..400_000,
        incidents in 0_u32..40,
        policy in prop::sample::select(&policy::Kind::ALL[..]),
        arena in 100_u64..900,
        skip: bool,
        in_place_tiers in prop::sample::subsequence(vec![TierId(0), TierId(1)], 0..=2),
        looks_ahead: bool,
    ) {
        let look_ahead = if looks_ahead { LookAhead::Auto } else { LookAhead::Off };
        let on_error = if skip { SKIP_ALL } else { OnError::Fail };
        let arena = Bytes(arena << 10);
        let settings =
            Settings { arena, look_ahead, in_place_tiers, ..settings(policy, on_error) };
        let scenario = scenario(seed, operations, incidents);
        let report = run_with_faults(&settings, &machine(), &scenario);
        // An arena that holds no batch at all is no fault.
        if !matches!(report.violation, Some(Violation::Groundless(_, Refusal::TooLarge { .. }))) {
            assert_no_violation(&settings, &report, &scenario);
        }
    }
}
