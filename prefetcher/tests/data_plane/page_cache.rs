//! A tier keeps a sample whose pages lie in the page cache: they are dropped, because they take memory twice.

use std::sync::{Arc, Mutex};

use tierfeed_core::{
    id::SampleId,
    session::{Held, Operation, Origin, Promotion},
    units::Bytes,
};
use tierfeed_dataset::read::{ReadError, Source};
use tierfeed_prefetcher::fetcher::Target;

use crate::{
    faulty_source::content,
    rig::{MAIN, Rig, four_tiers, place, slot},
};

const LEN: u64 = 1000;

/// Delivers [`content`], and notes whose pages were dropped.
#[derive(Debug, Default)]
struct Cached {
    dropped: Mutex<Vec<SampleId>>,
}

impl Cached {
    fn take_dropped(&self) -> Vec<u32> {
        self.dropped.lock().unwrap().drain(..).map(|sample| sample.0).collect()
    }
}

impl Source for Cached {
    fn read(&self, sample: SampleId, to: &Target) -> Result<(), ReadError> {
        to.write(Bytes(0), &content(sample, to.len())).unwrap();
        Ok(())
    }

    fn drop_pages(&self, sample: SampleId) {
        self.dropped.lock().unwrap().push(sample);
    }
}

#[test]
fn pages_are_dropped_when_a_tier_keeps_their_sample_and_not_when_it_only_waits_there() {
    let root = tempfile::tempdir().unwrap();
    let source = Arc::new(Cached::default());
    let mut rig = Rig::start_ready(&four_tiers(root.path()), Arc::clone(&source) as _);
    rig.plane.drop_pages_with(Arc::clone(&source) as _);
    let [ahead, kept] = [0, 4096].map(|offset| place(MAIN, &[(0, offset, LEN)]));
    rig.prefetch(3, LEN, &ahead).unwrap();
    let promote = |held| {
        let (from, to) = (ahead.clone(), slot(0, LEN));
        Operation::Promote { parts: vec![Promotion { sample: SampleId(3), from, to, held }] }
    };
    rig.run(promote(Held::Ahead)).unwrap();
    assert!(source.take_dropped().is_empty());
    rig.run(promote(Held::Retained)).unwrap();
    assert_eq!(source.take_dropped(), [3]);
    rig.fetch(4, slot(8192, LEN)).unwrap();
    assert!(source.take_dropped().is_empty(), "the copy is not there yet");
    rig.demote(4, Origin::Staging(slot(8192, LEN)), LEN, &kept).unwrap();
    assert_eq!(source.take_dropped(), [4]);
}
