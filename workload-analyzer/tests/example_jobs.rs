//! The jobs in `configs/` load, and say what their comments say.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tierfeed_core::{
    order::Shuffle,
    policy,
    tier::Kind,
    units::{Bytes, Nanoseconds},
};
use tierfeed_workload_analyzer::{
    Job,
    job::{Budget, Format, OnError, Percent, format::Raw},
    source::Location,
};

fn configs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs")
}

#[track_caller]
fn load(name: &str) -> Job {
    Job::load(&configs().join(name)).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_example_loads_and_is_named_after_its_file() {
    let mut count = 0;
    for entry in fs::read_dir(configs()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let job = Job::load(&path).unwrap_or_else(|error| panic!("{error}"));
            let stem = path.file_stem().unwrap().to_str().unwrap();
            assert!(stem.starts_with(&job.name), "{} is named {}", path.display(), job.name);
            count += 1;
        }
    }
    assert!(count >= 5, "{count} examples");
}

#[test]
fn the_full_example_uses_every_tier() {
    let job = load("imagenet-resnet50.yaml");
    assert_eq!(job.tiers.iter().map(|tier| tier.kind).collect::<Vec<_>>(), Kind::ALL);
    assert_eq!(job.step_time, Some(Nanoseconds(120_000_000)));
    assert_eq!(job.world.ranks(), 8);
    assert_eq!(job.order(1_281_167).unwrap().steps_per_epoch(), 626);
}

/// A default that is told in the comments and changed in the code would show here.
#[test]
fn the_full_example_spells_out_the_defaults_of_the_minimal_one() {
    let (full, minimal) = (load("imagenet-resnet50.yaml"), load("minimal.yaml"));
    assert_eq!(minimal.policy, full.policy);
    assert_eq!(minimal.chunk, full.chunk);
    assert_eq!(minimal.prefetch_batches, full.prefetch_batches);
    assert_eq!(minimal.on_error, full.on_error);
    assert_eq!((minimal.drop_last, minimal.start), (full.drop_last, full.start));
    assert_eq!(minimal.tiers, full.tiers[..1]);
}

#[test]
fn the_minimal_example_has_the_documented_defaults() {
    let job = load("minimal.yaml");
    assert_eq!((job.shuffle, job.seed, job.drop_last), (Shuffle::TORCH_DISTRIBUTED, 0, false));
    assert_eq!((job.world.nodes, job.world.ranks_per_node), (1, 1));
    assert_eq!((job.policy, job.chunk), (policy::Kind::Gap, Bytes::mib(512)));
    assert_eq!((job.prefetch_batches, job.on_error), (4, OnError::Fail));
    assert_eq!((job.step_time, &job.dataset.speed, &job.dataset.index), (None, &None, &None));
    assert_eq!(job.tiers.len(), 1);
    assert_eq!(job.tiers[0].kind, Kind::MainMemory);
    assert_eq!(job.tiers[0].budget, Budget::Reserve(Percent(20)));
}

#[test]
fn the_laptop_emulates_what_it_has_not() {
    let job = load("laptop-emulated-cxl.yaml");
    assert!(job.dataset.speed.is_some());
    let emulated: Vec<_> = job.tiers.iter().map(|tier| tier.speed.is_some()).collect();
    assert_eq!(emulated, [false, true, false]);
    assert!(matches!(&job.dataset.source, Location::Path(path) if path.is_absolute()));
}

#[test]
fn the_raw_example_keeps_all_of_cifar_10() {
    let job = load("cifar10-raw.yaml");
    assert_eq!(job.dataset.format, Format::Raw(Raw::of_records(Bytes(3_073))));
    let training_set = Bytes(50_000 * 3_073);
    assert_eq!(training_set.to_string(), "146.53 MiB");
    assert!(matches!(job.tiers[0].budget, Budget::Size(size) if size > training_set));
}
