//! Fetching ahead pays where a training has idle phases, and costs nothing where it has none.

use super::*;
use crate::session::LookAhead;

const MS: u64 = 1_000_000;

/// 25 steps of 10 ms and then 0.3 s of something else, beside a cold store of 22 MB/s.
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

/// The bytes of the cold store in each epoch.
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
