//! Fetching ahead pays where a training has idle phases, and costs nothing where it has none.

use super::*;
use crate::session::LookAhead;

const MS: u64 = 1_000_000;

/// 25 steps of 10 ms and then 0.3 s without reads, beside a cold store of 22 MB/s.
fn machine() -> Machine {
    let cold = Speed { latency: Nanoseconds(MS / 10), bandwidth: BytesPerSecond(22_000_000) };
    let pause = Pause { every: NonZeroU32::new(25).unwrap(), time: Nanoseconds(300 * MS) };
    let pause = Some(pause);
    let step_time = Nanoseconds(10 * MS);
    Machine::from(&Model { cold, step_time, pause, ..model(2) })
}

/// Photographs in batches of four, with 8 MiB of main memory and 24 MiB of CXL memory.
fn photographs_in_tiers(samples: u32, look_ahead: LookAhead) -> Settings {
    let tiers = vec![
        Buffer { kind: Kind::MainMemory, chunks_max: 8 },
        Buffer { kind: Kind::CxlMemory, chunks_max: 24 },
    ];
    let mut settings = settings(policy::Kind::Gap, samples, 1, tiers);
    settings.order.batch_size = 4;
    settings.windows.cold = NonZeroU32::new(16).unwrap();
    Settings { look_ahead, ..settings }
}

/// The duration of each epoch, in thousandths of what the training needs for computing and pausing.
fn slowdowns(outcome: &Outcome) -> Vec<u64> {
    let per_mille = |epoch: &EpochOutcome| {
        let busy = epoch.duration.0 - epoch.stall.0;
        epoch.duration.0 * 1000 / busy
    };
    outcome.epochs.iter().map(per_mille).collect()
}

fn cold(outcome: &Outcome) -> Vec<u64> {
    outcome.epochs.iter().map(|epoch| epoch.read.cold.0).collect()
}

#[test]
fn what_is_read_in_idle_phases_is_there_in_the_busy_ones() {
    let run = |look_ahead| simulate_on(&photographs_in_tiers(500, look_ahead), &machine());
    let (without, with) = (run(LookAhead::Off), run(LookAhead::Auto));
    assert!(slowdowns(&without)[0] > 1300);
    let slowdowns = slowdowns(&with);
    assert!(slowdowns[0] <= 1120 && slowdowns[1..].iter().all(|&it| it <= 1020), "{slowdowns:?}");
}

/// The end of the first epoch if the cold store reads its samples in order without a break, as fast as it
/// can.
fn read_without_a_break(settings: &Settings, machine: &Machine) -> u64 {
    let order = settings.order.epoch_of(settings.node, Epoch(0)).unwrap();
    let (mut read, mut now) = (0, 0);
    for (step, batch) in (1..).zip(order.samples().chunks(settings.order.batch_size as usize)) {
        read += batch.iter().map(|sample| settings.sizes[sample.0 as usize].0).sum::<u64>();
        now = now.max(machine.cold.throughput.at(1).time_for(Bytes(read)).0);
        now += machine.step_time.mean().0;
        let pause = machine.pause.filter(|pause| step % pause.every.get() == 0);
        now += pause.map_or(0, |pause| pause.time.0);
    }
    now
}

/// Some samples are larger than a chunk, as among photographs of several cameras.
#[test]
fn a_first_epoch_takes_no_longer_than_its_reads_in_order() {
    let mut settings = photographs_in_tiers(500, LookAhead::Auto);
    let large = |sample: usize, len: Bytes| if sample % 83 == 7 { Bytes(1_500_000) } else { len };
    settings.sizes = (0..).zip(settings.sizes.iter()).map(|(at, len)| large(at, *len)).collect();
    let machine = machine();
    let outcome = simulate_on(&settings, &machine);
    let [took, least] = [outcome.epochs[0].duration.0, read_without_a_break(&settings, &machine)];
    assert!(took * 100 <= least * 102, "{took} ns, and {least} without a break");
}

#[test]
fn beside_a_dataset_that_is_much_larger_the_room_is_for_looking_ahead() {
    let run = |look_ahead| simulate_on(&photographs_in_tiers(15_000, look_ahead), &machine());
    let (without, with) = (run(LookAhead::Off), run(LookAhead::Auto));
    assert!(slowdowns(&without).iter().all(|&it| it > 1300));
    let slowdowns = slowdowns(&with);
    assert!(slowdowns.iter().all(|&it| it <= 1030), "{slowdowns:?}");
    for (with, without) in cold(&with).into_iter().zip(cold(&without)) {
        assert!(with.abs_diff(without) * 200 <= without, "{with} beside {without} bytes");
    }
}

/// An example of the derivation, in samples of a KiB: the reads of an epoch and of a cycle, the lengths of
/// its phases, the rate of the cold store in a second, and the capacity of the tiers.
#[derive(Debug, Clone, Copy)]
struct Example {
    epoch: u32,
    steps: u32,
    batch: u32,
    busy: u64,
    idle: u64,
    rate: u64,
    capacity: u32,
}

const SMALL: Example = Example {
    epoch: 5_400,
    steps: 27,
    batch: 40,
    busy: 250,
    idle: 300,
    rate: 2_200,
    capacity: 2_400,
};

const LARGE: Example = Example {
    epoch: 100_000,
    steps: 25,
    batch: 100,
    busy: 1_000,
    idle: 1_000,
    rate: 1_300,
    capacity: 2_000,
};

/// The time of the last epoch of the example, in thousandths of computing and pausing.
fn last_slowdown(example: Example, ranks: u32, spread: u64, look_ahead: LookAhead) -> u64 {
    let Example { epoch, steps, batch, busy, idle, rate, capacity } = example;
    let tier = Buffer { kind: Kind::CxlMemory, chunks_max: capacity / 16 };
    let mut settings = settings(policy::Kind::Gap, epoch, ranks, vec![tier]);
    settings.order.batch_size = batch / ranks;
    settings.order.epochs = if epoch > 50_000 { 2 } else { 3 };
    settings.sizes = (0..epoch).map(|_| Bytes(1024)).collect();
    settings.chunk = Bytes(16 * 1024);
    settings.windows.cold = NonZeroU32::new(16).unwrap();
    let cold = Speed { latency: Nanoseconds(0), bandwidth: BytesPerSecond(rate * 1024) };
    let pause = Pause { every: NonZeroU32::new(steps).unwrap(), time: Nanoseconds(idle * MS) };
    let step = busy * MS / u64::from(steps);
    let step_time = Nanoseconds(step);
    let model = Model { cold, step_time, pause: Some(pause), ..model(1) };
    let mut machine = Machine::from(&model);
    if spread > 0 {
        let [short, long] = [100 - spread, 100 + spread].map(|part| Nanoseconds(step / 100 * part));
        let quantiles = [(PerMillion(0), short), (PerMillion::ALL, long)];
        machine.step_time = LatencyQuantiles::measured(&quantiles).unwrap();
    }
    let outcome = simulate_on(&Settings { look_ahead, ..settings }, &machine);
    *slowdowns(&outcome).last().unwrap()
}

#[test]
fn no_other_room_for_looking_ahead_makes_an_epoch_three_percent_shorter() {
    for (example, ranks, spread) in [(SMALL, 1, 0), (SMALL, 2, 20), (LARGE, 2, 0)] {
        let chosen = last_slowdown(example, ranks, spread, LookAhead::Auto);
        let capacity = u64::from(example.capacity) * 1024;
        let rooms = [0, 5, 10, 25, 50, 75, 100].map(|percent| Bytes(capacity * percent / 100));
        let sweep = rooms.map(|room| last_slowdown(example, ranks, spread, LookAhead::Room(room)));
        let best = *sweep.iter().min().unwrap();
        assert!(chosen * 100 <= best * 103, "{example:?}: {chosen} beside {sweep:?}");
        // With the best division the store gives in the idle phases what is missing in the busy ones.
        assert!(chosen <= 1_030, "{example:?}: {chosen} thousandths of the bound, {sweep:?}");
    }
}

/// Files of 4 to 20 KB with tiers for a seventieth of them, and phases in which the store can just catch
/// up.
fn small_files(first_room: Bytes) -> (Settings, Machine) {
    let tiers = vec![Buffer { kind: Kind::CxlMemory, chunks_max: 10 }];
    let mut settings = settings(policy::Kind::Gap, 4_000, 1, tiers);
    settings.sizes = (0..4_000).map(|file| Bytes(4_000 + file * 7_919 % 16_000)).collect();
    settings.order.batch_size = 4;
    settings.chunk = Bytes(64 << 10);
    settings.windows.cold = NonZeroU32::new(16).unwrap();
    let Machine { pause, .. } = machine();
    let pause = pause.map(|pause| Pause { time: Nanoseconds(250 * MS), ..pause });
    let cold = Speed { latency: Nanoseconds(MS), bandwidth: BytesPerSecond(2_500_000) };
    let model = Model { cold, step_time: Nanoseconds(10 * MS), pause, ..model(1) };
    (Settings { look_ahead: LookAhead::Auto, first_room, ..settings }, Machine::from(&model))
}

#[test]
fn phases_that_are_known_before_have_their_room_in_the_first_epoch() {
    let run = |first_room| {
        let (settings, machine) = small_files(first_room);
        slowdowns(&simulate_on(&settings, &machine))
    };
    let (observed, declared) = (run(Bytes(0)), run(Bytes(490 << 10)));
    assert!(observed[0] > 1_100, "{observed:?}");
    assert!(declared.iter().all(|&it| it <= 1_030), "{declared:?}");
}
