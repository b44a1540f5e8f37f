use alloc::vec;

use proptest::prelude::*;

use super::*;
use crate::{
    id::NodeId,
    latency_quantiles::LatencyQuantiles,
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    retention::policy,
    session::{LookAhead, OnError, Settings, Windows},
    simulator::{Machine, Model, StepCost, TransformCosts, simulate_on},
    tier::{Buffer, Kind, Speed},
};

fn any_facts() -> impl Strategy<Value = Facts> {
    let lens = (1_u64..1_000_000, 1_u64..1_000_000);
    let rooms = prop::collection::vec((0_u64..1_000_000_000, 0_u64..10_000_000_000), 0..4);
    let times = (0_u64..10_000_000, 0_u64..10_000_000, 1_u32..64);
    let scan = (0_u32..10, prop_oneof![Just(0), 0_u64..100_000_000_000]);
    (lens, rooms, 0_u64..1_000_000_000, times, 1_u64..10_000, scan).prop_map(
        |(
            (stored, prepared),
            rooms,
            cold,
            (prepare, rest, threads),
            samples,
            (later_epochs, scan),
        )| Facts {
            samples,
            reads: samples,
            stored: Bytes(stored),
            prepared: Bytes(prepared),
            rooms: rooms
                .into_iter()
                .map(|(len, rate)| Room {
                    len: Bytes(len),
                    rate: (rate > 0).then_some(BytesPerSecond(rate)),
                })
                .collect(),
            cold: (cold > 0).then_some(BytesPerSecond(cold)),
            each: SampleTime { prepare: Nanoseconds(prepare), rest: Nanoseconds(rest) },
            threads: NonZeroU32::new(threads).unwrap(),
            compute: None,
            later_epochs,
            scan: Nanoseconds(scan),
        },
    )
}

proptest! {
    #[test]
    fn what_is_chosen_is_the_shorter_run_but_for_little(facts in any_facts()) {
        let choice = choose(&facts);
        let epochs = u128::from(facts.later_epochs);
        let [stored, prepared] =
            [choice.stored, choice.prepared].map(|it| u128::from(it.longest().0) * epochs);
        let prepared = prepared + u128::from(facts.scan.0);
        match choice.form {
            Form::Prepared => prop_assert!(prepared < stored, "invariant 1"),
            Form::Stored => {
                let least = stored * u128::from(1000 - WORTH) / 1000;
                prop_assert!(prepared >= least.saturating_sub(epochs), "invariant 1");
            }
        }
    }

    #[test]
    fn a_reason_names_a_scan_only_where_there_is_one(facts in any_facts()) {
        let reason = choose(&facts).reason();
        prop_assert!(facts.scan.0 > 0 || !reason.contains("scan"), "{reason}");
        prop_assert!(facts.later_epochs > 0 || !reason.contains("later epochs"), "{reason}");
    }

    #[test]
    fn more_of_what_is_short_makes_no_epoch_longer(facts in any_facts()) {
        for form in Form::ALL {
            let before = epoch(&facts, form);
            let mut roomy = facts.clone();
            // A rate of a tier that is not known holds nothing up.
            roomy.rooms.push(Room { len: Bytes(100_000_000), rate: None });
            let mut faster = facts.clone();
            faster.cold.iter_mut().for_each(|rate| rate.0 = rate.0.saturating_mul(2));
            let mut wider = facts.clone();
            wider.threads = wider.threads.saturating_add(1);
            for better in [roomy, faster, wider] {
                prop_assert!(epoch(&better, form).longest() <= before.longest(), "invariant 2");
            }
        }
    }
}

const SAMPLES: u32 = 1200;
const BATCH: u32 = 8;

/// With one tier of `room` in chunks of 64 KiB, which no sample waits for.
fn simulated(facts: &Facts, form: Form) -> u64 {
    let steps = u64::from(SAMPLES / BATCH);
    let chunk = Bytes(64 << 10);
    let room = facts.rooms[0].len;
    let settings = Settings {
        order: Spec {
            samples: SAMPLES,
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 3,
            epochs: 4,
            drop_last: false,
            batch_size: BATCH,
            world: World { nodes: 1, ranks_per_node: 1 },
            start: Position::START,
            further: FurtherDatasets::NONE,
        },
        node: NodeId(0),
        sizes: vec![facts.stored; SAMPLES as usize].into(),
        tiers: vec![Buffer::within(Kind::CxlMemory, room, chunk)],
        chunk,
        policy: policy::Kind::Gap,
        staged_batches: 6,
        staged_batches_max: 0,
        arena: Bytes::mib(32),
        on_error: OnError::Fail,
        windows: Windows::default(),
        aim: policy::Aim::default(),
        in_place_tiers: Vec::new(),
        transform: None,
        first_room: Bytes(0),
        look_ahead: LookAhead::Off,
    };
    let prepared = (form == Form::Prepared).then(|| vec![facts.prepared; SAMPLES as usize].into());
    let settings = settings.with_transform(Bytes(10_000), facts.threads, prepared);
    let speed = |rate| Speed { latency: Nanoseconds(0), bandwidth: rate };
    let model = Model {
        cold: speed(facts.cold.unwrap()),
        cold_threads: None,
        cold_burst: Nanoseconds(0),
        tiers: vec![speed(BytesPerSecond(20_000_000_000))],
        step_time: Nanoseconds(facts.compute.unwrap().0 / steps),
        pause: None,
        transforms: None,
        head_start: Nanoseconds(0),
    };
    let costs = TransformCosts {
        prepare: StepCost {
            each: LatencyQuantiles::constant(facts.each.prepare),
            kib: Nanoseconds(0),
        },
        rest: LatencyQuantiles::constant(facts.each.rest),
    };
    let machine = Machine { transforms: Some(costs), ..Machine::from(&model) };
    let outcome = simulate_on(&settings, &machine);
    outcome.epochs[2..].iter().map(|epoch| epoch.duration.0).sum::<u64>() / 2
}

#[test]
fn what_is_chosen_takes_at_most_three_hundredths_longer_than_the_other_when_both_are_simulated() {
    let mut chosen = [0_u32; 2];
    let mut farthest = 0_u64;
    for prepared in [8_000, 40_000, 100_000] {
        for room_percent in [20, 60, 120, 300] {
            for cold in [10_000_000, 40_000_000, 300_000_000] {
                for prepare in [200_000, 1_000_000, 4_000_000] {
                    for threads in [1, 3] {
                        let facts = Facts {
                            samples: SAMPLES.into(),
                            reads: SAMPLES.into(),
                            stored: Bytes(20_000),
                            prepared: Bytes(prepared),
                            rooms: vec![Room {
                                len: Bytes(20_000 * u64::from(SAMPLES) * room_percent / 100),
                                rate: None,
                            }],
                            cold: Some(BytesPerSecond(cold)),
                            each: SampleTime {
                                prepare: Nanoseconds(prepare),
                                rest: Nanoseconds(300_000),
                            },
                            threads: NonZeroU32::new(threads).unwrap(),
                            compute: Some(Nanoseconds(200_000_000)),
                            later_epochs: 3,
                            scan: Nanoseconds(0),
                        };
                        let choice = choose(&facts);
                        let [stored, prepared] = Form::ALL.map(|form| simulated(&facts, form));
                        let (mine, other) = match choice.form {
                            Form::Stored => (stored, prepared),
                            Form::Prepared => (prepared, stored),
                        };
                        let predicted = [choice.stored, choice.prepared].map(|it| it.longest().0);
                        for (simulated, predicted) in [stored, prepared].into_iter().zip(predicted)
                        {
                            let off = simulated.abs_diff(predicted) * 1000 / simulated;
                            farthest = farthest.max(off);
                        }
                        assert!(
                            mine * 100 <= other * 103,
                            "{choice:?}: {mine} and {other} of {facts:?}"
                        );
                        chosen[choice.form as usize] += 1;
                    }
                }
            }
        }
    }
    assert!(farthest <= 10, "{farthest} thousandths");
    assert!(chosen.iter().all(|count| *count > 40), "{chosen:?}");
}

#[test]
fn a_choice_says_what_is_short() {
    let facts = Facts {
        samples: 1000,
        reads: 1000,
        stored: Bytes(100_000),
        prepared: Bytes(200_000),
        rooms: vec![Room { len: Bytes(1 << 30), rate: None }],
        cold: Some(BytesPerSecond(100_000_000)),
        each: SampleTime { prepare: Nanoseconds(4_000_000), rest: Nanoseconds(500_000) },
        threads: NonZeroU32::new(2).unwrap(),
        compute: Some(Nanoseconds(400_000_000)),
        later_epochs: 9,
        scan: Nanoseconds(0),
    };
    let choice = choose(&facts);
    assert_eq!(choice.form, Form::Prepared);
    assert_eq!(
        choice.reason(),
        "an epoch takes 2.25 s with stored samples, which the time of threads sets, and 400 ms with prepared \
         ones, which the step time sets"
    );
    let scanned = Facts { scan: Nanoseconds(3_000_000_000), ..facts.clone() };
    let choice = choose(&scanned);
    assert_eq!(choice.form, Form::Prepared, "9 epochs save 1.85 s each");
    let reason = choice.reason();
    assert!(reason.ends_with("sets; scanning the heads of images takes 3 s once"), "{reason}");
    let long = Facts { scan: Nanoseconds(17_000_000_000), ..facts.clone() };
    let choice = choose(&long);
    assert_eq!(choice.form, Form::Stored);
    let reason = choice.reason();
    let why = "sets; scanning the heads of images would take 17 s, and prepared samples would save 16.65 s in \
               all later epochs";
    assert!(reason.ends_with(why), "{reason}");
    let known = Facts { scan: Nanoseconds(0), later_epochs: 0, ..facts.clone() };
    let choice = choose(&known);
    assert_eq!(choice.form, Form::Stored, "one epoch saves nothing");
    let reason = choice.reason();
    assert!(reason.ends_with("sets; no epoch comes after the first one"), "{reason}");
    let short = Facts { rooms: vec![Room { len: Bytes(1 << 26), rate: None }], ..facts.clone() };
    assert_eq!(choose(&short).form, Form::Prepared, "threads are shorter than the cold store");
    let far = Facts { cold: Some(BytesPerSecond(10_000_000)), ..short };
    assert_eq!(choose(&far).form, Form::Stored, "the cold store is short");
}
