//! A tier or a source with an emulated speed is never faster than that, and its bytes are correct.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tierfeed_core::{
    id::SampleId,
    session::{Operation, Origin, Retention},
    tier::Speed,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_dataset::read::ThrottledSource;

use crate::{
    faulty_source::{FaultySource, content},
    rig::{CXL, Rig, four_tiers, place, promote, slot},
};

const LEN: u64 = 100_032;

/// 100 032 bytes take 10 ms.
const SLOW: Speed =
    Speed { latency: Nanoseconds(2_000_000), bandwidth: BytesPerSecond(10_003_200) };

#[expect(clippy::disallowed_methods, reason = "the point of emulation is time that people measure")]
fn time(act: impl FnOnce()) -> Duration {
    let start = Instant::now();
    act();
    start.elapsed()
}

#[test]
fn copies_share_the_bandwidth_of_their_tier() {
    let root = tempfile::tempdir().unwrap();
    let mut settings = four_tiers(root.path());
    settings.tiers[1].emulated = Some(SLOW);
    let mut rig = Rig::start_ready(&settings, Arc::new(FaultySource::default()));
    let place = place(CXL, &[(0, 0, LEN)]);
    let demoting = time(|| rig.cache(7, LEN, &place));
    assert!(demoting >= Duration::from_millis(12), "{demoting:?}");
    let promoting = time(|| {
        let ops: Vec<_> = (0..4)
            .map(|index| {
                let (from, to) = (place.clone(), slot(index * LEN, LEN));
                rig.start_op(promote(SampleId(7), from, to))
            })
            .collect();
        for op in ops {
            rig.wait(op).unwrap();
        }
    });
    // Two threads: the second pair of transfers starts when the first ended, but no byte is lost.
    assert!(promoting >= Duration::from_millis(42), "{promoting:?}");
    assert_eq!(rig.staged(slot(3 * LEN, LEN)), content(SampleId(7), Bytes(LEN)));
}

#[test]
fn a_slow_source_is_slow_and_right() {
    let root = tempfile::tempdir().unwrap();
    let source = ThrottledSource::new(FaultySource::default(), SLOW);
    let mut rig = Rig::start_ready(&four_tiers(root.path()), Arc::new(source));
    let fetching = time(|| rig.fetch(7, slot(0, LEN)).unwrap());
    assert!(fetching >= Duration::from_millis(12), "{fetching:?}");
    assert_eq!(rig.staged(slot(0, LEN)), content(SampleId(7), Bytes(LEN)));
}

#[test]
fn shutdown_does_not_wait_for_an_emulated_link() {
    let root = tempfile::tempdir().unwrap();
    let glacier = Speed { latency: Nanoseconds(3_600_000_000_000), bandwidth: BytesPerSecond(1) };
    let mut settings = four_tiers(root.path());
    settings.tiers[1].emulated = Some(glacier);
    let source = ThrottledSource::new(FaultySource::default(), glacier);
    let mut rig = Rig::start_ready(&settings, Arc::new(source));
    rig.start_op(Operation::Fetch {
        sample: SampleId(7),
        to: slot(0, LEN),
        retention: Retention::Kept,
    });
    let (sample, from, len) = (SampleId(7), Origin::Staging(slot(0, LEN)), Bytes(LEN));
    rig.start_op(Operation::Demote { sample, from, len, to: place(CXL, &[(0, 0, LEN)]) });
    assert_eq!(rig.shut_down().len(), 2 + 9);
}
