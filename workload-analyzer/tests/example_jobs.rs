//! The jobs in `configs/` load, and have the values that their comments state.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use tierfeed_core::{
    budget::{Percent, Request},
    order::Shuffle,
    retention::policy,
    session::OnError,
    tier::Kind,
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::{Format, format::Raw, source::Location};
use tierfeed_workload_analyzer::{
    Job,
    analysis::Analysis,
    demand::{Demand, Sizes},
    job::Presence,
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
        let is_job = path.file_name().is_some_and(|name| name != "prices.yaml");
        if is_job && path.extension().is_some_and(|extension| extension == "yaml") {
            let job = Job::load(&path).unwrap_or_else(|error| panic!("{error}"));
            let stem = path.file_stem().unwrap().to_str().unwrap();
            assert!(stem.starts_with(&job.name), "{} is named {}", path.display(), job.name);
            count += 1;
        }
    }
    assert!(count >= 9, "{count} examples");
}

#[test]
fn the_full_example_uses_every_tier() {
    let job = load("imagenet-resnet50.yaml");
    assert_eq!(job.tiers.iter().map(|tier| tier.kind).collect::<Vec<_>>(), Kind::ALL);
    assert_eq!(job.step_time, Some(Nanoseconds(120_000_000)));
    assert_eq!(job.world.ranks(), 8);
    assert_eq!(job.order(1_281_167).unwrap().steps_per_epoch(), 626);
}

/// Fails if a default is changed in the code but not in the comments.
#[test]
fn the_full_example_spells_out_the_defaults_of_the_minimal_one() {
    let (full, minimal) = (load("imagenet-resnet50.yaml"), load("minimal.yaml"));
    assert_eq!(minimal.policy, full.policy);
    assert_eq!(minimal.chunk, full.chunk);
    assert_eq!(minimal.prefetch_batches, full.prefetch_batches);
    assert_eq!(minimal.assignment, full.assignment);
    assert_eq!(minimal.cold.limited_by, full.cold.limited_by);
    assert_eq!(minimal.on_error, full.on_error);
    assert_eq!((minimal.drop_last, minimal.start), (full.drop_last, full.start));
    assert_eq!(minimal.tiers[0], full.tiers[0]);
    let cxl = &minimal.tiers[1];
    assert_eq!((cxl.presence, cxl.budget), (Presence::IfPresent, full.tiers[1].budget));
}

#[test]
fn the_minimal_example_has_the_documented_defaults() {
    let job = load("minimal.yaml");
    assert_eq!((job.shuffle, job.seed, job.drop_last), (Shuffle::TORCH_DISTRIBUTED, 0, false));
    assert_eq!((job.world.nodes, job.world.ranks_per_node), (1, 1));
    assert_eq!((job.policy, job.chunk), (policy::Kind::Gap, None));
    assert_eq!((job.staged_batches(), job.on_error), (4, OnError::Fail));
    assert_eq!((job.step_time, &job.cold.speed, &job.index), (None, &None, &None));
    let kinds: Vec<_> = job.tiers.iter().map(|tier| tier.kind).collect();
    assert_eq!(kinds, [Kind::MainMemory, Kind::CxlMemory]);
    assert!(job.tiers.iter().all(|tier| tier.budget == Request::Share(Percent::DEFAULT)));
}

#[test]
fn the_laptop_emulates_the_missing_tiers() {
    let job = load("laptop-emulated-cxl.yaml");
    assert!(job.cold.speed.is_some());
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
    assert!(matches!(job.tiers[0].budget, Request::Size(size) if size > training_set));
}

/// The mean rate of one rank, in MB/s.
fn need(job: &Job, step_time: Nanoseconds) -> f64 {
    let described = job.described.as_ref().expect("the example describes its dataset");
    let sizes = Sizes::described(described, job.seed);
    let demand = Demand::at(job, &sizes, Some(step_time)).unwrap();
    f64::from(u32::try_from(demand.rank.unwrap().bytes.0 / 1_000).unwrap()) / 1_000.0
}

/// The rates that follow from the shapes and computation times of `MLPerf` Storage v2.0.
#[test]
fn the_examples_need_what_mlperf_storage_asks_for() {
    for (name, accelerator, step_us, expected) in [
        ("unet3d.yaml", "A100", 636_000, "1614"),
        ("unet3d.yaml", "H100", 323_000, "3177"),
        ("unet3d.yaml", "B200", 162_000, "6335"),
        ("resnet50-tfrecord.yaml", "A100", 435_000, "105"),
        ("resnet50-tfrecord.yaml", "H100", 224_000, "205"),
        ("cosmoflow.yaml", "A100", 5_510, "513"),
        ("cosmoflow.yaml", "H100", 3_500, "808"),
    ] {
        let job = load(name);
        let need = need(&job, Nanoseconds(step_us * 1_000));
        assert_eq!(format!("{need:.0}"), expected, "{name} on {accelerator}: {need}");
        if accelerator == "H100" {
            assert_eq!(job.step_time, Some(Nanoseconds(step_us * 1_000)), "{name}");
        }
    }
}

/// The same for workloads without an example; a part of `dlrm`, whose samples do not fit in 32 bits.
#[test]
fn other_shapes_of_mlperf_storage_follow_too() {
    for (name, objects, per_object, bytes, batch, step_us, expected) in [
        ("retinanet", 1_170_301, 1, 322_957, 24, 47_550, "163"),
        ("flux", 4_296, 288, 2_164_832, 48, 1_350_000, "77"),
        ("bert", 500, 1_000, 2_500, 48, 968_000, "0.1"),
        ("dlrm", 64, 6_144, 761, 16_384, 375, "33249"),
    ] {
        let text = format!(
            "name: {name}\ndataset:\n  source: /data\n  format: tfrecord\n  described: {{ objects: \
             {objects}, samples_per_object: {per_object}, sample_bytes: {bytes} }}\n\
             order: {{ shuffle: sequential, epochs: 1 }}\nbatch_size: {batch}\n"
        );
        let job = Job::parse(&text, Path::new("a.yaml")).unwrap();
        let need = need(&job, Nanoseconds(step_us * 1_000));
        let digits = usize::from(need < 1.0);
        assert_eq!(format!("{need:.digits$}"), expected, "{name}: {need}");
    }
}

#[test]
fn the_token_example_reads_whole_sequences() {
    let job = load("tokens-gpt2.yaml");
    let described = job.described.unwrap();
    assert!(matches!(&job.dataset.format, Format::Raw(raw)
        if raw.record_bytes == described.sample_bytes));
    assert_eq!(format!("{:.3}", need(&job, job.step_time.unwrap())), "0.196");
}

/// The statements in the comments of the full example about its model.
#[test]
fn the_full_example_saves_what_its_checkpoints_hold() {
    let job = load("imagenet-resnet50.yaml");
    let saved = job.trainer.model.unwrap().saved_bytes();
    let written = job.trainer.checkpoint.unwrap().bytes.unwrap();
    assert!(saved <= written && written.0 - saved.0 < written.0 / 100, "{saved} in {written}");
    let sizes = Sizes::of(1_281_167, || std::iter::repeat_n(Bytes(110_000), 1_281_167));
    let demand = Demand::of(&job, &sizes).unwrap();
    let analysis = Analysis::of(&job, &sizes, &demand, Bytes::mib(1 << 20));
    assert_eq!(analysis.decoded_batch, Some(Bytes(256 * 224 * 224 * 3 * 4)));
    assert_eq!(analysis.checkpoint.unwrap().count, 90);
    assert_eq!(analysis.phases.len(), 5);
}

#[test]
fn the_example_with_a_validation_reads_it_after_each_second_epoch() {
    let job = load("train-and-validate.yaml");
    let order = job.order_of_all(&[1_281_167, 50_000]).unwrap();
    let steps = [0, 1, 2, 3].map(|epoch| order.steps_in(tierfeed_core::id::Epoch(epoch)));
    assert_eq!(steps, [5_005, 5_005 + 98, 5_005, 5_005 + 98]);
}
