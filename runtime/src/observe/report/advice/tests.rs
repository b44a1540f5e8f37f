//! Advice is followed in the simulator, in the same job: the waits fall by at least half of what was promised.

use std::num::NonZeroU32;

use tierfeed_core::{
    id::NodeId,
    latency_quantiles::{LatencyQuantiles, PerMillion},
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    retention::policy::{self, Aim},
    session::{LookAhead, OnError, Progress, Session, Settings, Windows},
    simulator::{LinkModel, Machine, Model, Outcome, Pause, simulate_on},
    tier::{Buffer, Speed},
    units::{Nanoseconds, seconds},
};

use super::*;
use crate::observe::report::{Report, verdict::ReaderStats};

const MS: u64 = 1_000_000;

const CHUNK: Bytes = Bytes::mib(1);

#[derive(Debug, Clone)]
struct Case {
    settings: Settings,
    machine: Machine,
}

/// Photographs in batches of four, with so many MiB of CXL memory, at 22 MB/s.
fn case(samples: u32, cxl: u32, look_ahead: LookAhead) -> Case {
    let size = |i: u64| 20_000 + (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 180_000;
    let sizes: Vec<Bytes> = (0..u64::from(samples)).map(|i| Bytes(size(i))).collect();
    let kind = Kind::CxlMemory;
    let tiers = (cxl > 0).then_some(Buffer { kind, chunks_max: cxl });
    let settings = Settings {
        order: Spec {
            samples,
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 42,
            epochs: 3,
            drop_last: false,
            batch_size: 4,
            world: World { nodes: 1, ranks_per_node: 1 },
            start: Position::START,
            further: FurtherDatasets::NONE,
        },
        node: NodeId(0),
        sizes: sizes.into(),
        tiers: tiers.into_iter().collect(),
        chunk: CHUNK,
        policy: policy::Kind::Gap,
        staged_batches: 4,
        staged_batches_max: 0,
        arena: Bytes::mib(4),
        on_error: OnError::Fail,
        windows: Windows { cold: NonZeroU32::new(16).unwrap(), ..Windows::default() },
        aim: Aim::default(),
        in_place_tiers: Vec::new(),
        transform: None,
        first_room: Bytes(0),
        look_ahead,
    };
    let speed =
        |latency, rate| Speed { latency: Nanoseconds(latency), bandwidth: BytesPerSecond(rate) };
    let model = Model {
        cold_threads: None,
        cold_burst: Nanoseconds(0),
        cold: speed(MS / 10, 22_000_000),
        tiers: vec![speed(350, 20_000_000_000); usize::from(cxl > 0)],
        step_time: Nanoseconds(10 * MS),
        pause: None,
        transforms: None,
        head_start: Nanoseconds(0),
    };
    Case { settings, machine: Machine::from(&model) }
}

/// The same with 0.3 s of something else after every 25 steps.
fn with_phases(samples: u32, cxl: u32, look_ahead: LookAhead) -> Case {
    let mut case = case(samples, cxl, look_ahead);
    let every = NonZeroU32::new(25).unwrap();
    case.machine.pause = Some(Pause { every, time: Nanoseconds(300 * MS) });
    case
}

impl Case {
    fn run(&self) -> Outcome {
        simulate_on(&self.settings, &self.machine)
    }

    fn advice(&self) -> Vec<Advice> {
        let outcome = self.run();
        let progress = progress(&self.settings, &outcome);
        let wall = outcome.epochs.iter().map(|epoch| epoch.duration.0).sum();
        let kinds: Vec<Kind> = self.settings.tiers.iter().map(|tier| tier.kind).collect();
        let tier = |tier: &Buffer| TierEntry {
            name: tier.kind.name(),
            cache_bytes: tier.capacity(CHUNK).0,
            cache_least_bytes: tier.capacity(CHUNK).0,
            ..TierEntry::default()
        };
        let facts = Report {
            policy: self.settings.policy.name(),
            tiers: self.settings.tiers.iter().map(tier).collect(),
            ..Report::default()
        };
        let report = Report::of(RunFigures {
            facts,
            progress: &progress,
            kinds: &kinds,
            ranks: 1,
            further: Vec::new(),
            reader_stats: ReaderStats { readers_max: 1, ..ReaderStats::default() },
            staged_batches: self.settings.staged_batches,
            look_ahead: self.settings.look_ahead,
            cycle: outcome.cycle,
            chunk: CHUNK,
            cold: BytesPerSecond(0),
            step_time: None,
            wall: Nanoseconds(wall),
            cold_before: Bytes(0),
            transformed_before: Nanoseconds(0),
            processors: 8,
        });
        report.advice
    }

    fn with(&self, advice: &Advice) -> Self {
        let mut changed = self.clone();
        let Self { settings, machine } = &mut changed;
        let rate = advice.to_bytes_per_s.map(BytesPerSecond);
        match advice.change {
            "cold-bandwidth" => machine.cold = faster(&machine.cold, rate.unwrap()),
            "faster-tier" => machine.tiers[0] = faster(&machine.tiers[0], rate.unwrap()),
            "policy" => settings.policy = policy::Kind::Gap,
            "look-ahead" => settings.look_ahead = LookAhead::Auto,
            "cache" | "look-ahead-room" => {
                let chunks = advice.more_bytes.unwrap().div_ceil(CHUNK.0);
                settings.tiers[0].chunks_max += u32::try_from(chunks).unwrap();
            }
            "batches-ahead" => {
                let count = u32::try_from(advice.to_count.unwrap()).unwrap();
                settings.arena.0 = settings.arena.0 * u64::from(count) / 4;
                settings.staged_batches = count;
            }
            other => panic!("{other} cannot be followed here"),
        }
        changed
    }
}

fn faster(link: &LinkModel, rate: BytesPerSecond) -> LinkModel {
    let speed = Speed { latency: Nanoseconds(0), bandwidth: rate };
    LinkModel { latency: link.latency.clone(), ..LinkModel::from(speed) }
}

/// The progress of a simulated run, as far as advice needs it.
fn progress(settings: &Settings, outcome: &Outcome) -> Progress {
    let mut progress = Session::new(settings.clone()).progress().clone();
    progress.epochs = outcome.epochs.iter().map(|epoch| epoch.read.clone()).collect();
    progress.waits = outcome.waits.clone();
    progress.first_stall = outcome.first_stall;
    progress.cold_busy = outcome.cold_busy;
    progress.tiers_busy = outcome.tiers_busy.clone();
    progress
}

fn stall(outcome: &Outcome) -> f64 {
    outcome.epochs.iter().map(|epoch| seconds(epoch.stall)).sum()
}

/// Follows each piece of advice by itself. Returns their kinds.
fn followed(case: &Case) -> Vec<&'static str> {
    let before = stall(&case.run());
    let advice = case.advice();
    for advice in &advice {
        let promised = advice.saves_s.unwrap();
        let after = stall(&case.with(advice).run());
        assert!(
            before - after >= promised / 2.0,
            "waited {before:.3} s, then {after:.3} s; {promised:.3} s less were promised: {advice:?}"
        );
        assert!(promised > 0.0 && promised <= before, "{advice:?}");
    }
    advice.iter().map(|advice| advice.change).collect()
}

#[test]
fn a_training_with_phases_that_does_not_look_ahead_is_told_to() {
    let case = with_phases(500, 32, LookAhead::Off);
    assert_eq!(followed(&case), ["look-ahead", "cold-bandwidth"]);
}

#[test]
fn where_the_tiers_have_no_room_to_look_ahead_it_is_told_how_much_more_would_hold_what_is_missing()
{
    let case = with_phases(5_000, 2, LookAhead::Auto);
    assert_eq!(followed(&case), ["look-ahead-room", "cold-bandwidth"]);
}

#[test]
fn where_there_are_no_tiers_batches_are_counted_by_what_is_missing_in_a_cycle() {
    let case = with_phases(2_000, 0, LookAhead::Auto);
    assert_eq!(followed(&case), ["batches-ahead", "cold-bandwidth"]);
    let count = case.advice()[0].to_count.unwrap();
    assert!((12..40).contains(&count), "one batch more would not do: {count}");
}

#[test]
fn a_cold_store_that_is_always_busy_gets_other_advice_and_that_is_right_too() {
    let case = case(2_000, 60, LookAhead::Auto);
    assert_eq!(followed(&case), ["cold-bandwidth", "cache"]);
    let mut fifo = case;
    fifo.settings.policy = policy::Kind::Fifo;
    assert_eq!(followed(&fifo), ["cold-bandwidth", "policy", "cache"]);
}

#[test]
fn a_store_that_is_late_now_and_then_is_bridged_by_more_batches() {
    let mut late = case(2_000, 0, LookAhead::Off);
    let rate = BytesPerSecond(100_000_000);
    late.machine.cold = faster(&late.machine.cold, rate);
    let part = |millionths| PerMillion(millionths);
    late.machine.cold.latency = LatencyQuantiles::measured(&[
        (part(0), Nanoseconds(MS)),
        (part(990_000), Nanoseconds(2 * MS)),
        (part(1_000_000), Nanoseconds(80 * MS)),
    ])
    .unwrap();
    assert_eq!(followed(&late), ["batches-ahead"]);
}

#[test]
fn a_tier_that_is_too_slow_is_told_the_rate_that_keeps_up() {
    let mut slow = case(500, 40, LookAhead::Off);
    slow.machine.cold = faster(&slow.machine.cold, BytesPerSecond(500_000_000));
    slow.machine.tiers[0] = faster(&slow.machine.tiers[0], BytesPerSecond(15_000_000));
    assert_eq!(followed(&slow), ["faster-tier"]);
}
