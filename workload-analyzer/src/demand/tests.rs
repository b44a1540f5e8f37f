use std::path::{Path, PathBuf};

use tierfeed_core::{
    tier::{self, Speed},
    units::BytesPerSecond,
};

use super::*;

mod advice;
mod observed;
mod supply;

use tierfeed_dataset::{Dataset, Format, Index, format::Raw, source::Location};

/// 1,000 records of 1,000 B.
fn index() -> Index {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("train.bin");
    std::fs::write(&source, vec![0; 1_000_000]).unwrap();
    let format = Format::Raw(Raw::of_records(Bytes(1_000)));
    build(source, format)
}

fn build(source: PathBuf, format: Format) -> Index {
    let dataset = Dataset::new(Location::Path(source), format);
    Index::build(&dataset, None, &mut |_| ()).unwrap()
}

fn job(keys: &str) -> Job {
    let text = format!(
        "name: a\ndataset: {{ source: x, format: image-folder }}\n\
         order: {{ shuffle: torch-distributed, epochs: 3 }}\nbatch_size: 50\n{keys}"
    );
    Job::parse(&text, Path::new("a.yaml")).unwrap()
}

fn tier(kind: tier::Kind, capacity: u64, read: u64) -> TierFigure {
    let (capacity, read) = (Bytes(capacity), BytesPerSecond(read));
    TierFigure { kind, capacity, read, reads_per_s: None }
}

fn supply(tiers: &[TierFigure], cold: Speed) -> Supply {
    Supply { tiers: tiers.to_vec(), cold, rule: Rule::Gap, chunk: Bytes(1_000) }
}

fn cold(bandwidth: u64) -> Speed {
    Speed { latency: Nanoseconds(0), bandwidth: BytesPerSecond(bandwidth) }
}

fn of(job: &Job, index: &Index) -> Result<Demand, SpecError> {
    Demand::of(job, &Sizes::from(index))
}

/// One node, one rank: 20 steps of 10 ms each.
fn demand() -> Demand {
    of(&job("step_time: 10 ms\n"), &index()).unwrap()
}

#[test]
fn demand_is_what_the_ranks_read_in_a_step_over_the_time_of_a_step() {
    let job = job("step_time: 10 ms\nworld: { nodes: 2, ranks_per_node: 2 }\n");
    let demand = of(&job, &index()).unwrap();
    assert_eq!((demand.samples_per_rank, demand.steps_per_epoch), (250, 5));
    assert_eq!((demand.total, demand.epoch), (Bytes(1_000_000), Bytes(1_000_000)));
    assert_eq!((demand.batch_mean, demand.batch_p99), (Bytes(50_000), Bytes(50_000)));
    assert_eq!(demand.staged_per_node, Bytes(50_000 * 4 * 2));
    assert_eq!(demand.lead, Some(Nanoseconds(40_000_000)));
    let rate =
        |bytes, requests_per_s| Some(ReadRate { bytes: BytesPerSecond(bytes), requests_per_s });
    assert_eq!(demand.rank, rate(5_000_000, 5_000));
    assert_eq!(demand.node, rate(10_000_000, 10_000));
}

#[test]
fn without_a_step_time_there_is_a_size_and_no_rate() {
    let demand = of(&job(""), &index()).unwrap();
    assert_eq!((demand.lead, demand.rank, demand.node), (None, None, None));
    assert_eq!(demand.batch_mean, Bytes(50_000));
    let verdict = verdict(&demand, &supply(&[], cold(1_000_000)));
    assert_eq!((verdict.stall, verdict.compute), (None, None));
    assert_eq!(verdict.lower_bound, Nanoseconds(1_000_000_000));
    assert!(!table(&demand, &verdict).contains("demand per rank"), "said once, by the verdict");
    assert!(
        summary(&demand, &verdict, &[])
            .contains("unknown without the time of a step: run an epoch")
    );
}

#[test]
fn an_epoch_has_what_padding_adds_and_not_what_drop_last_leaves_out() {
    let world = "world: { nodes: 1, ranks_per_node: 3 }\n";
    let epoch = |job: &Job| of(job, &index()).unwrap().epoch;
    assert_eq!(epoch(&job(world)), Bytes(1_002_000));
    let dropping = Job { drop_last: true, ..job(world) };
    assert_eq!(epoch(&dropping), Bytes(999_000));
}

#[test]
fn a_batch_of_uneven_samples_has_a_tail() {
    let directory = tempfile::tempdir().unwrap();
    let class = directory.path().join("c");
    std::fs::create_dir(&class).unwrap();
    for number in 0..100 {
        let len = if number % 2 == 0 { 1_000 } else { 3_000 };
        std::fs::write(class.join(format!("{number}.jpg")), vec![0; len]).unwrap();
    }
    let index = build(directory.path().to_owned(), Format::ImageFolder);
    let demand = of(&job(""), &index).unwrap();
    // 50 samples of 2,000 B with a standard deviation of 1,000 B: sqrt(50) * 1,000 B * 2.326.
    assert_eq!((demand.batch_mean, demand.batch_p99), (Bytes(100_000), Bytes(116_447)));
    let large = Job { batch_size: 100, ..job("") };
    assert_eq!(of(&large, &index).unwrap().batch_p99, Bytes(223_260));
}

#[test]
fn an_order_that_does_not_exist_has_no_demand() {
    let job = Job { drop_last: true, ..job("world: { nodes: 1001 }\n") };
    let expected = SpecError::NothingLeft { samples: 1_000, ranks: 1_001 };
    assert_eq!(of(&job, &index()), Err(expected));
}

#[test]
fn on_one_node_what_the_tiers_keep_need_not_be_read_cold() {
    let tiers = [
        tier(tier::Kind::MainMemory, 100_000, 0),
        tier(tier::Kind::CxlMemory, 400_000, 10_000_000),
    ];
    let verdict = verdict(&demand(), &supply(&tiers, cold(5_000_000)));
    assert!((verdict.cached_share - 0.5).abs() < 1e-12);
    assert_eq!(verdict.minimal_cold, Bytes(500_000));
    assert_eq!(verdict.cold_time, Nanoseconds(100_000_000));
    assert_eq!(verdict.tiers[1].read, Bytes(400_000));
    assert_eq!(verdict.tiers[1].time, Nanoseconds(40_000_000));
    assert_eq!(verdict.lower_bound, Nanoseconds(200_000_000));
    assert_eq!(verdict.first_epoch_lower_bound, Nanoseconds(200_000_000));
    assert_eq!((verdict.bound_by, verdict.stall), (Bound::Compute, Some(Nanoseconds(0))));
}

#[test]
fn a_slow_cold_store_stalls_for_what_it_takes_longer_than_computing() {
    let tiers = [tier(tier::Kind::MainMemory, 500_000, 0)];
    let verdict = verdict(&demand(), &supply(&tiers, cold(1_000_000)));
    assert_eq!(verdict.lower_bound, Nanoseconds(500_000_000));
    assert_eq!(verdict.first_epoch_lower_bound, Nanoseconds(1_000_000_000));
    assert_eq!(
        (verdict.bound_by, verdict.stall),
        (Bound::ColdStore, Some(Nanoseconds(300_000_000)))
    );
    let text = summary(&demand(), &verdict, &[]);
    assert!(text.contains("stalls for 0.300 s an epoch (60.0 %), for cold-store"), "{text}");
}

#[test]
fn a_slow_tier_stalls_too_but_does_not_move_the_lower_bound() {
    let tiers = [tier(tier::Kind::Storage, 600_000, 2_000_000)];
    let verdict = verdict(&demand(), &supply(&tiers, cold(0)));
    assert_eq!(verdict.lower_bound, Nanoseconds(200_000_000));
    assert_eq!(verdict.bound_by, Bound::Tier(tier::Kind::Storage));
    assert_eq!(verdict.stall, Some(Nanoseconds(100_000_000)));
}

#[test]
fn tiers_larger_than_the_dataset_leave_nothing_cold() {
    let tiers = [tier(tier::Kind::MainMemory, u64::MAX, 0), tier(tier::Kind::Storage, u64::MAX, 1)];
    let verdict = verdict(&demand(), &supply(&tiers, cold(1)));
    assert_eq!((verdict.minimal_cold, verdict.tiers[1].cached), (Bytes(0), Bytes(0)));
    assert_eq!((verdict.bound_by, verdict.stall), (Bound::Compute, Some(Nanoseconds(0))));
}

#[test]
fn on_three_nodes_cold_bytes_follow_the_closed_form() {
    let job = job("step_time: 10 ms\nworld: { nodes: 3 }\n");
    let demand = of(&job, &index()).unwrap();
    let cache = demand.epoch.0 * 296 / 1_000;
    let verdict =
        verdict(&demand, &supply(&[tier(tier::Kind::MainMemory, cache, 0)], cold(1_000_000)));
    let share = limit::share_of(verdict.minimal_cold, demand.epoch);
    assert!((share - 0.408).abs() < 5e-4, "{share}");
    assert_eq!(verdict.cold_time.0 / 1_000_000, 136);
}

#[test]
fn quantities_are_plain_numbers_with_the_unit_in_the_key() {
    let demand = demand();
    let verdict = verdict(
        &demand,
        &supply(&[tier(tier::Kind::Scratch, 500_000, 1_000_000)], cold(1_000_000)),
    );
    let json = serde_json::to_value(&demand).unwrap();
    assert_eq!(json["batch_bytes_mean"], 50_000);
    assert_eq!(json["step_time_ns"], 10_000_000);
    assert_eq!(json["node"]["bytes_per_s"], 5_000_000);
    let json = serde_json::to_value(&verdict).unwrap();
    assert_eq!(
        (&json["minimal_cold_bytes"], &json["lower_bound_s"]),
        (&500_000.into(), &0.5.into())
    );
    assert_eq!((&json["bound_by"], &json["stall_s"]), (&"cold-store".into(), &0.3.into()));
    assert_eq!(json["tiers"][0]["kind"], "scratch");
}
