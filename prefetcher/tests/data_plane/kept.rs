//! A trainer writes into its staging memory while a sample arrives there.
//!
//! The bug: a sample that stays in the cache was summed in staging after it had arrived. Bytes that a trainer
//! had written there before were summed too, and went from the cache to every rank in every epoch.

use std::sync::{Arc, OnceLock};

use tierfeed_core::{
    id::SampleId,
    session::{Fault, Origin},
    units::Bytes,
};
use tierfeed_dataset::read::{ReadError, Source};
use tierfeed_numa_memory::Region;
use tierfeed_prefetcher::fetcher::Target;

use crate::{
    faulty_source::content,
    rig::{MAIN, RANK, Rig, four_tiers, place, slot},
};

const LEN: u64 = 100_000;

/// Delivers [`content`]; before it returns, a trainer writes one byte of the arena.
#[derive(Debug, Default)]
struct Interrupted {
    arena: OnceLock<Arc<Region>>,
    at: u64,
}

impl Source for Interrupted {
    fn read(&self, sample: SampleId, to: &Target) -> Result<(), ReadError> {
        to.write(Bytes(0), &content(sample, to.len())).unwrap();
        let arena = self.arena.get().expect("the arena is open");
        let mut byte = [0];
        arena.read(Bytes(self.at), &mut byte).unwrap();
        arena.write(Bytes(self.at), &[!byte[0]]).unwrap();
        Ok(())
    }
}

#[test]
fn what_a_trainer_writes_while_a_sample_arrives_is_not_kept() {
    let root = tempfile::tempdir().unwrap();
    let source = Arc::new(Interrupted { at: LEN / 2, ..Interrupted::default() });
    let mut rig = Rig::start_ready(&four_tiers(root.path()), Arc::clone(&source) as _);
    source.arena.set(rig.plane.arena(RANK).unwrap()).unwrap();
    let kept = place(MAIN, &[(0, 0, LEN)]);
    rig.fetch(7, slot(0, LEN)).unwrap();
    let demoted = rig.demote(7, Origin::Staging(slot(0, LEN)), LEN, &kept);
    assert_eq!(demoted, Err(Fault::Corrupt));
    assert!(rig.promote(7, &kept, slot(0, LEN)).is_err(), "nothing is there");
}

#[test]
fn what_a_trainer_writes_beside_a_sample_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let source = Arc::new(Interrupted { at: LEN, ..Interrupted::default() });
    let mut rig = Rig::start_ready(&four_tiers(root.path()), Arc::clone(&source) as _);
    source.arena.set(rig.plane.arena(RANK).unwrap()).unwrap();
    let kept = place(MAIN, &[(0, 0, LEN)]);
    rig.cache(7, LEN, &kept);
    rig.promote(7, &kept, slot(0, LEN)).unwrap();
    assert_eq!(rig.staged(slot(0, LEN)), content(SampleId(7), Bytes(LEN)));
}
