//! A trainer writes into its staging memory while a sample arrives there, or before it is transformed.
//!
//! The bugs: a sample that stays in the cache was summed in staging after it had arrived. Bytes that a
//! trainer had written there before were summed too, and went from the cache to every rank in every epoch.
//! And where tiers hold prepared forms, a worker decoded the bytes that lay in staging then, and the sum of
//! its output stood for the sample.

use std::{
    env, io,
    num::NonZeroUsize,
    os::fd::AsFd as _,
    path::Path,
    process,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tierfeed_core::{
    id::{Epoch, SampleId},
    session::{Fault, Form, Operation, Origin, Slot},
    units::Bytes,
};
use tierfeed_dataset::read::{ReadError, Source};
use tierfeed_numa_memory::Region;
use tierfeed_prefetcher::{
    fetcher::Target,
    transforms::{Settings as TransformSettings, Transforms},
};
use tierfeed_transform::{
    worker_process::Program,
    worker_protocol::{Defect, Setup},
};
use tierfeed_transform_worker::{Apply, Input, serve};

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

/// A rig whose trainer writes byte `at` of its arena whenever a sample arrives.
fn interrupted(root: &Path, at: u64) -> Rig {
    let source = Arc::new(Interrupted { at, ..Interrupted::default() });
    let rig = Rig::start_ready(&four_tiers(root), Arc::clone(&source) as _);
    source.arena.set(rig.plane.arena(RANK).unwrap()).unwrap();
    rig
}

#[test]
fn what_a_trainer_writes_while_a_sample_arrives_is_not_kept() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = interrupted(root.path(), LEN / 2);
    let kept = place(MAIN, &[(0, 0, LEN)]);
    rig.fetch(7, slot(0, LEN)).unwrap();
    let demoted = rig.demote(7, Origin::Staging(slot(0, LEN)), LEN, &kept);
    assert_eq!(demoted, Err(Fault::Corrupt));
    assert!(rig.promote(7, &kept, slot(0, LEN)).is_err(), "nothing is there");
}

#[test]
fn what_a_trainer_writes_beside_a_sample_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = interrupted(root.path(), LEN);
    let kept = place(MAIN, &[(0, 0, LEN)]);
    rig.cache(7, LEN, &kept);
    rig.promote(7, &kept, slot(0, LEN)).unwrap();
    assert_eq!(rig.staged(slot(0, LEN)), content(SampleId(7), Bytes(LEN)));
}

/// Hands a sample over as it is stored. Its prepared form is the sample backwards.
struct Reversing;

impl Apply for Reversing {
    fn apply(
        &mut self,
        input: &Input<'_>,
        row: &mut [u8],
        prepared: Option<&mut Vec<u8>>,
    ) -> Result<(), Defect> {
        row.copy_from_slice(input.bytes);
        prepared.into_iter().for_each(|it| it.extend(input.bytes.iter().rev()));
        Ok(())
    }
}

/// Serves when another test starts this program.
#[test]
#[ignore = "no test of its own: others start it"]
fn worker() {
    let socket = io::stdin().as_fd().try_clone_to_owned().unwrap();
    serve(socket, |_| Ok(Reversing)).unwrap();
}

/// A worker that is this program again.
fn reversing() -> Transforms {
    let arguments = ["--ignored", "--exact", "kept::worker", "--nocapture"];
    let settings = TransformSettings {
        program: Program {
            path: env::current_exe().unwrap(),
            arguments: arguments.map(str::to_owned).to_vec(),
        },
        setup: Setup {
            parent: process::id(),
            seed: 1,
            pixels_max: 1 << 20,
            time_limit: Duration::from_secs(60),
            niceness: 0,
            pipeline: "reversing".to_owned(),
        },
        workers: NonZeroUsize::MIN,
        queued_max: NonZeroUsize::MIN,
    };
    Transforms::start_blocking(settings).unwrap()
}

/// The place of the row, behind the sample.
fn row() -> Slot {
    slot(1 << 20, LEN)
}

/// Fetches sample 7 for a tier that holds prepared forms, and transforms it.
fn prepare(rig: &mut Rig) {
    rig.plane.transform_with(reversing());
    let from = slot(0, LEN);
    rig.fetch(7, from).unwrap();
    rig.run(Operation::Transform {
        sample: SampleId(7),
        epoch: Epoch(0),
        from,
        form: Form::Stored,
        prepared: Some(from),
        to: row(),
    })
    .unwrap();
}

#[test]
fn what_a_trainer_writes_before_a_sample_is_transformed_is_not_kept() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = interrupted(root.path(), 0);
    let kept = place(MAIN, &[(0, 0, LEN)]);
    prepare(&mut rig);
    let mut changed = content(SampleId(7), Bytes(LEN));
    changed[0] = !changed[0];
    assert!(rig.staged(row()) == changed, "its own batch has what it wrote");
    let demoted = rig.demote(7, Origin::Staging(slot(0, LEN)), LEN, &kept);
    assert_eq!(demoted, Err(Fault::Corrupt));
    assert!(rig.promote(7, &kept, slot(0, LEN)).is_err(), "nothing is there");
}

#[test]
fn the_prepared_form_of_what_arrived_is_kept() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = interrupted(root.path(), LEN);
    let kept = place(MAIN, &[(0, 0, LEN)]);
    prepare(&mut rig);
    let mut expected = content(SampleId(7), Bytes(LEN));
    assert!(rig.staged(row()) == expected, "the row");
    rig.demote(7, Origin::Staging(slot(0, LEN)), LEN, &kept).unwrap();
    rig.scribble(slot(0, LEN));
    rig.promote(7, &kept, slot(0, LEN)).unwrap();
    expected.reverse();
    assert!(rig.staged(slot(0, LEN)) == expected, "the prepared form");
}
