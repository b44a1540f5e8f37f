use std::{fmt::Write as _, fs};

use proptest::prelude::*;
use tierfeed_core::{
    budget::Percent,
    outage::PATIENCE,
    retention::{in_place::InPlaceMode, policy},
    session::SkipShare,
    units::BytesPerSecond,
};

use tierfeed_dataset::{Format, format::Raw, source::Location};

use super::*;
use tierfeed_dataset::source::{Access, Address, Identity};

mod datasets;
mod order;
mod reference;
mod trainer;
mod transform;

/// Every key, one per line, so that a case can replace one line.
const FULL: &str = "\
name: resnet50
dataset:
  source: file:///data/train
  format: image-folder
  emulate: { latency: 1 ms, bandwidth: 200 MB/s }
  index: train.index
order:
  shuffle: torch-distributed
  seed: 42
  epochs: 90
  drop_last: true
batch_size: 256
world:
  nodes: 2
  ranks_per_node: 8
step_time: 120 ms
policy: deepmemory
chunk: 1 MiB
prefetch: { batches: 6, look_ahead: 1 GiB, assignment: proportional }
on_error: skip
tiers:
  main-memory: { size: 4 GiB }
  cxl-memory:
    numa_nodes: [2, 3]
    reserve: 20 %
    emulate: { latency: 350 ns, bandwidth: 20 GB/s }
  scratch: { path: /mnt/scratch, size: 16 GiB }
  storage:
    path: cache
    size: 200 GiB
";

const REQUIRED: &str = "\
name: small
dataset: { source: data, format: image-folder }
order: { shuffle: sequential, epochs: 1 }
batch_size: 8
";

fn parse(text: &str) -> Result<Job, JobError> {
    Job::parse(text, Path::new("jobs/a.yaml"))
}

/// [`FULL`] with line `number` (from 1) replaced by `line`.
fn full_with(number: usize, line: &str) -> String {
    let mut text = String::new();
    for (count, old) in (1..).zip(FULL.lines()) {
        writeln!(text, "{}", if count == number { line } else { old }).unwrap();
    }
    text
}

#[track_caller]
fn check_line(number: usize, line: &str, message: &str) {
    let error = parse(&full_with(number, line)).unwrap_err();
    assert_eq!(error.to_string(), format!("jobs/a.yaml:{message}"));
}

#[track_caller]
fn check_text(text: &str, message: &str) {
    assert_eq!(parse(text).unwrap_err().to_string(), format!("jobs/a.yaml:{message}"));
}

#[test]
fn a_store_is_waited_for_as_long_as_the_job_says() {
    let with = |patience: &str| {
        let dataset = format!("{{ source: data, format: image-folder, patience: {patience} }}");
        parse(&REQUIRED.replace("{ source: data, format: image-folder }", &dataset))
    };
    for (typed, seconds) in [("2 min", 120), ("90 s", 90), ("0 s", 0)] {
        let expected = Nanoseconds(seconds * 1_000_000_000);
        assert_eq!(with(typed).unwrap().cold.patience, expected, "{typed}");
    }
    let error = with("long").unwrap_err().to_string();
    assert!(error.starts_with("jobs/a.yaml:2: dataset.patience is `long`;"), "{error}");
    assert!(error.contains("30 min"), "{error}");
}

#[test]
fn a_share_of_an_epoch_may_be_skipped() {
    let with = |on_error: &str| parse(&format!("{REQUIRED}on_error: {on_error}\n"));
    let share = |parts| OnError::Skip(SkipShare(parts));
    for (typed, expected) in [
        ("fail", OnError::Fail),
        ("skip", share(10_000)),
        ("{ skip: 1 % }", share(10_000)),
        ("{ skip: 0.25% }", share(2_500)),
        ("{ skip: 100 % }", share(1_000_000)),
        ("{ skip: 0.02 }", share(20_000)),
    ] {
        assert_eq!(with(typed).unwrap().on_error, expected, "{typed}");
    }
    for typed in ["0 %", "101 %", "5", "-1 %", "some", "nan %", "0.00001 %"] {
        let error = with(&format!("{{ skip: {typed} }}")).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("jobs/a.yaml:5: on_error.skip is `{typed}`;")),
            "{error}"
        );
        assert!(error.contains("`1 %`"), "{error}");
    }
    let error = with("ignore").unwrap_err().to_string();
    assert!(error.contains("on_error is `ignore`") && error.contains("fail, skip"), "{error}");
    let error = with("{ skips: 1 % }").unwrap_err().to_string();
    assert!(error.contains("skips"), "{error}");
}

#[test]
fn every_key_of_a_full_job_arrives() {
    let job = parse(FULL).unwrap();
    let emulated = |latency, bandwidth| {
        Some(Speed { latency: Nanoseconds(latency), bandwidth: BytesPerSecond(bandwidth) })
    };
    let tier = |kind, budget| TierRequest {
        kind,
        presence: Presence::Required,
        budget,
        numa_nodes: Vec::new(),
        path: None,
        writes_per_epoch: None,
        speed: None,
        direct: InPlaceMode::Never,
    };
    let expected = Job {
        name: "resnet50".to_owned(),
        dataset: Dataset::new(Location::Path(PathBuf::from("/data/train")), Format::ImageFolder),
        further: Vec::new(),
        cold: ColdStore {
            speed: emulated(1_000_000, 200_000_000),
            limited_by: policy::Saves::Bytes,
            page_cache: PageCache::Off,
            patience: PATIENCE,
        },
        index: Some(PathBuf::from("jobs/train.index")),
        described: None,
        shuffle: Shuffle::TORCH_DISTRIBUTED,
        seed: 42,
        epochs: 90,
        drop_last: true,
        start: Position::START,
        batch_size: 256,
        world: World { nodes: 2, ranks_per_node: 8 },
        step_time: Some(Nanoseconds(120_000_000)),
        policy: policy::Kind::DeepMemory,
        tuning: policy::Tuning::default(),
        chunk: Some(Bytes::mib(1)),
        prefetch_batches: Some(6),
        look_ahead: LookAhead::Room(Bytes::mib(1 << 10)),
        assignment: Assignment::Proportional,
        transform: None,
        threads: Threads::Auto,
        on_error: OnError::Skip(SkipShare::DEFAULT),
        verify: Verify::Shared,
        network: Network::Open,
        tiers: vec![
            tier(tier::Kind::MainMemory, Request::Size(Bytes::mib(4 << 10))),
            TierRequest {
                numa_nodes: vec![NumaNode(2), NumaNode(3)],
                speed: emulated(350, 20_000_000_000),
                direct: InPlaceMode::Auto,
                ..tier(tier::Kind::CxlMemory, Request::Share(Percent::DEFAULT))
            },
            TierRequest {
                path: Some(PathBuf::from("/mnt/scratch")),
                ..tier(tier::Kind::Scratch, Request::Size(Bytes::mib(16 << 10)))
            },
            TierRequest {
                path: Some(PathBuf::from("jobs/cache")),
                ..tier(tier::Kind::Storage, Request::Size(Bytes::mib(200 << 10)))
            },
        ],
        job_scratch: None,
        trainer: Trainer::default(),
    };
    assert_eq!(job, expected);
}

#[test]
fn a_job_with_the_required_keys_alone_has_the_documented_defaults() {
    let expected = Job {
        name: "small".to_owned(),
        dataset: Dataset::new(Location::Path(PathBuf::from("jobs/data")), Format::ImageFolder),
        further: Vec::new(),
        cold: ColdStore {
            speed: None,
            limited_by: policy::Saves::Bytes,
            page_cache: PageCache::Auto,
            patience: PATIENCE,
        },
        index: None,
        described: None,
        shuffle: Shuffle::Sequential,
        seed: 0,
        epochs: 1,
        drop_last: false,
        start: Position::START,
        batch_size: 8,
        world: World { nodes: 1, ranks_per_node: 1 },
        step_time: None,
        policy: policy::Kind::Gap,
        tuning: policy::Tuning::default(),
        chunk: None,
        prefetch_batches: None,
        look_ahead: LookAhead::Auto,
        assignment: Assignment::Shared,
        transform: None,
        threads: Threads::Auto,
        on_error: OnError::Fail,
        verify: Verify::Shared,
        network: Network::Open,
        tiers: vec![
            TierRequest {
                kind: tier::Kind::MainMemory,
                presence: Presence::Required,
                budget: Request::Share(Percent::DEFAULT),
                numa_nodes: Vec::new(),
                path: None,
                writes_per_epoch: None,
                speed: None,
                direct: InPlaceMode::Never,
            },
            TierRequest {
                kind: tier::Kind::CxlMemory,
                presence: Presence::IfPresent,
                budget: Request::Share(Percent::DEFAULT),
                numa_nodes: Vec::new(),
                path: None,
                writes_per_epoch: None,
                speed: None,
                direct: InPlaceMode::Auto,
            },
        ],
        job_scratch: None,
        trainer: Trainer::default(),
    };
    assert_eq!(parse(REQUIRED).unwrap(), expected);
}

#[test]
fn an_invalid_value_is_named_with_its_line_and_what_would_be_right() {
    check_line(
        1,
        "name: a/b",
        "1: name is `a/b`; expected 1 to 64 letters, digits, `-`, `_` or `.`, and no `.` in front",
    );
    check_line(
        4,
        "  format: zip",
        "4: dataset.format is `zip`; expected one of image-folder, files, raw, tfrecord, webdataset, mds, litdata, megatron, npy, npz, parquet, arrow, hdf5, lmdb, ffcv",
    );
    check_line(
        8,
        "  shuffle: random",
        "8: order.shuffle is `random`; expected one of sequential, torch-distributed, torch-random, tf-shuffle, tf-index, mosaic, grain, block, published",
    );
    check_line(10, "  epochs: 0", "10: order.epochs is `0`; it must be between 1 and 1000000");
    check_line(12, "batch_size: 0", "12: batch_size is `0`; it must be between 1 and 1048576");
    check_line(
        12,
        "batch_size: 99999999999",
        "12: batch_size is `99999999999`; it must be between 1 and 1048576",
    );
    check_line(14, "  nodes: 0", "14: world.nodes is `0`; it must be between 1 and 65536");
    check_line(
        15,
        "  ranks_per_node: 0",
        "15: world.ranks_per_node is `0`; it must be between 1 and 1024",
    );
    check_line(
        17,
        "policy: mru",
        "17: policy is `mru`; expected one of gap, deepmemory, lobster, lobster-lazy, nopfs, deli, \
         pinned, partitioned, belady, fifo, lru, page-cache, none; did you mean `lru`?",
    );
    check_line(
        19,
        "prefetch: { batches: 1 }",
        "19: prefetch.batches is `1`; it must be between 2 and 1024",
    );
    check_line(
        19,
        "prefetch: { look_ahead: on }",
        "19: prefetch.look_ahead is `on`; expected one of auto, off, a size such as 4 GiB",
    );
    check_line(
        19,
        "prefetch: { assignment: greedy }",
        "19: prefetch.assignment is `greedy`; expected one of shared, proportional, lobster",
    );
    check_line(20, "on_error: retry", "20: on_error is `retry`; expected one of fail, skip");
    check_line(
        24,
        "    numa_nodes: [2, 1024]",
        "24: tiers.cxl-memory.numa_nodes[1] is `1024`; it must be between 0 and 1023",
    );
    check_line(
        24,
        "    numa_nodes: [2, 2]",
        "24: tiers.cxl-memory.numa_nodes is `2`; each NUMA node may be listed once",
    );
    check_line(
        29,
        "    path: ''",
        "29: tiers.storage.path is ``; expected a path, absolute or from the directory of the job file",
    );
    check_line(
        29,
        "    path: ~/tiers",
        "29: tiers.storage.path is `~/tiers`; `~` and `$NAME` are for shells, and no shell reads this; \
         write the whole path, as a URL such as file:///data if there is a `$` in it",
    );
    check_line(
        29,
        "    path: s3://bucket/tiers",
        "29: tiers.storage.path is `s3://bucket/tiers`; expected a path on the node, absolute or from \
         the directory of the job file",
    );
}

#[test]
fn a_quantity_without_its_unit_is_refused() {
    let units = "expected one of the units";
    check_line(
        16,
        "step_time: 120",
        &format!("16: step_time is `120`; {units} ns, us, ms, s, min, for example `120 ms`"),
    );
    check_line(
        16,
        "step_time: soon",
        "16: step_time is `soon`; expected a number with a unit, for example `120 ms`",
    );
    check_line(
        16,
        "step_time: 0 s",
        "16: step_time is `0 s`; it must be above 0, for example `120 ms`",
    );
    check_line(
        18,
        "chunk: 512",
        &format!(
            "18: chunk is `512`; {units} B, kB, MB, GB, TB, KiB, MiB, GiB, TiB, for example `512 MiB`"
        ),
    );
    for chunk in ["65 kB", "32 KiB", "2 TiB", "1000001 B"] {
        check_line(
            18,
            &format!("chunk: {chunk}"),
            &format!(
                "18: chunk is `{chunk}`; a chunk is a multiple of 4 KiB, at least 64 KiB and at most 1 TiB, for example `512 MiB`"
            ),
        );
    }
    check_line(
        5,
        "  emulate: { latency: 1 MiB }",
        &format!(
            "5: dataset.emulate.latency is `1 MiB`; {units} ns, us, ms, s, min, for example `350 ns`"
        ),
    );
    check_line(
        5,
        "  emulate: { bandwidth: 0 B/s }",
        "5: dataset.emulate.bandwidth is `0 B/s`; it must be above 0, for example `20 GB/s`",
    );
    for share in ["20", "0 %", "91 %", "12.5 %", "-3 %", "%"] {
        check_line(
            25,
            &format!("    reserve: '{share}'"),
            &format!(
                "25: tiers.cxl-memory.reserve is `{share}`; expected a whole percentage from 1 % to 90 %, for example `20 %`"
            ),
        );
    }
    check_line(
        30,
        "    size: 0.5 MiB",
        "30: tiers.storage.size is `512 KiB`; a tier has at least one chunk, which is 1 MiB in this job",
    );
}

#[test]
fn a_source_is_limited_by_bytes_by_default() {
    let with = |keys| REQUIRED.replace("image-folder }", &format!("image-folder, {keys} }}"));
    let limit = |keys| parse(&with(keys)).map(|job| job.cold.limited_by);
    assert_eq!(limit("limited_by: requests").unwrap(), policy::Saves::Requests);
    assert_eq!(limit("limited_by: bytes").unwrap(), policy::Saves::Bytes);
    check_text(
        &with("limited_by: iops"),
        "2: dataset.limited_by is `iops`; expected one of bytes, requests",
    );
}

#[test]
fn free_memory_caches_files_unless_the_job_or_an_emulated_speed_says_otherwise() {
    let with = |keys| REQUIRED.replace("image-folder }", &format!("image-folder, {keys} }}"));
    let page_cache = |keys| parse(&with(keys)).unwrap().cold.page_cache;
    assert_eq!(page_cache("page_cache: auto"), PageCache::Auto);
    assert_eq!(page_cache("page_cache: off"), PageCache::Off);
    assert_eq!(page_cache("emulate: { latency: 1 ms, bandwidth: 1 MB/s }"), PageCache::Off);
    assert_eq!(
        page_cache("page_cache: auto, emulate: { latency: 1 ms, bandwidth: 1 MB/s }"),
        PageCache::Off
    );
    check_text(
        &with("page_cache: direct"),
        "2: dataset.page_cache is `direct`; expected one of auto, off",
    );
}

#[test]
fn a_source_is_a_path_or_a_url_that_can_be_read() {
    for (source, path) in [
        ("file:///data/a%20b", "/data/a%20b"),
        ("/data", "/data"),
        ("../data", "jobs/../data"),
        ("s3", "jobs/s3"),
        ("file:///data/$NAME", "/data/$NAME"),
    ] {
        let job = parse(&full_with(3, &format!("  source: {source}"))).unwrap();
        assert_eq!(job.dataset.source, Location::Path(PathBuf::from(path)));
    }
    check_line(
        3,
        "  source: ftp://a/b",
        "3: dataset.source is `ftp://a/b`; expected a path, or a URL that starts with file://, s3://, gs://, az://, https:// or http://",
    );
    check_line(
        3,
        "  source: file://data",
        "3: dataset.source is `file://data`; a file URL has three slashes and an absolute path, for example `file:///data/train`",
    );
    for source in ["~/data", "$DATA/train", "/data/${SPLIT}"] {
        let error = parse(&full_with(3, &format!("  source: {source}"))).unwrap_err().to_string();
        assert!(error.contains("3: dataset.source is"), "{error}");
        assert!(error.contains("`~` and `$NAME` are for shells"), "{error}");
    }
    check_line(
        3,
        "  source: s3:/bucket/train",
        "3: dataset.source is `s3:/bucket/train`; that is a path; a URL has two slashes, as in `s3://`",
    );
    check_line(
        3,
        "  source: ''",
        "3: dataset.source is ``; expected a path, absolute or from the directory of the job file",
    );
}

#[test]
fn a_bucket_has_a_server_a_region_and_a_reader() {
    let text = full_with(
        3,
        "  source: s3://bucket/train\n  endpoint: http://127.0.0.1:9000\n  region: eu-central-1\n  \
         anonymous: true",
    );
    let expected = Address {
        url: "s3://bucket/train".to_owned(),
        access: Access {
            endpoint: Some("http://127.0.0.1:9000".to_owned()),
            region: Some("eu-central-1".to_owned()),
            identity: Identity::Anonymous,
        },
    };
    assert_eq!(parse(&text).unwrap().dataset.source, Location::Bucket(expected));
}

/// Reports and logs are read by others: neither the value nor the text around it may appear.
#[test]
fn a_credential_is_refused_by_its_name_and_not_shown() {
    let elsewhere = "is a credential, and a job file holds none; give it to the environment, for \
                     example as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    for key in ["access_key_id", "secret_access_key", "sas_token", "password"] {
        let line = format!("  source: s3://bucket\n  {key}: hunter2");
        check_line(3, &line, &format!("4: dataset.{key} {elsewhere}"));
    }
    let error = parse(&full_with(3, "  source: s3://AKIA:hunter2@bucket/train")).unwrap_err();
    let said = error.to_string();
    assert!(said.starts_with("jobs/a.yaml:3: dataset.source is `s3://***@bucket/train`"), "{said}");
}

#[test]
fn keys_that_conflict_are_refused() {
    check_line(30, "", "29: tiers.storage has no budget; give `size: 16 GiB` or `reserve: 20 %`");
    check_line(
        25,
        "    reserve: 20 %\n    size: 1 GiB",
        "24: tiers.cxl-memory has both `size` and `reserve`; keep one of them",
    );
    check_line(
        24,
        "    numa_nodes: []",
        "24: tiers.cxl-memory.numa_nodes is empty; list a NUMA node, or remove it to use what was measured",
    );
    check_line(
        26,
        "    emulate: {}",
        "26: tiers.cxl-memory.emulate has neither `latency` nor `bandwidth`; give one of them, or remove it",
    );
    check_line(
        4,
        "  format: raw",
        "3: dataset has `format: raw`, which needs `record_bytes`, the size of a record; for tokens, `dtype` and `sequence_length`",
    );
    check_line(
        6,
        "  record_bytes: 3072",
        "6: dataset.record_bytes is for `format: raw` only; remove it",
    );
}

#[test]
fn records_are_given_in_bytes_or_with_a_unit() {
    let with =
        |bytes: &str| parse(&full_with(4, &format!("  format: raw\n  record_bytes: {bytes}")));
    for (typed, bytes) in [("3073", 3073), ("4 KiB", 4096)] {
        let expected = Format::Raw(Raw::of_records(Bytes(bytes)));
        assert_eq!(with(typed).unwrap().dataset.format, expected);
    }
    for typed in ["0", "-1", "4 KB", "0 B", "1.5"] {
        let message = format!(
            "jobs/a.yaml:5: dataset.record_bytes is `{typed}`; expected a whole number of bytes of at least 1, or a size such as `4 KiB`"
        );
        assert_eq!(with(typed).unwrap_err().to_string(), message);
    }
}

#[test]
fn a_key_that_does_not_exist_is_named_with_those_that_do() {
    check_line(
        9,
        "  sed: 42",
        "9: order.sed: unknown field `sed`, expected one of `shuffle`, `seed`, `epochs`, `drop_last`, `start`, `version`, `generator`, `persistent_workers`, `buffer`, `global_seed`, `reshuffle`, `second_seed`, `algorithm`, `shard_samples`, `canonical_nodes`, `shuffle_block`, `window`; did you mean `seed`?",
    );
    check_line(
        14,
        "  node: 1",
        "14: world.node: unknown field `node`, expected `nodes` or `ranks_per_node`; did you mean `nodes`?",
    );
    check_line(
        28,
        "  tape:",
        "28: tiers.tape: unknown field `tape`, expected one of `main-memory`, `cxl-memory`, `scratch`, `storage`",
    );
    check_line(
        27,
        "  scratch: { pth: /a }",
        "27: tiers.scratch.pth: unknown field `pth`, expected one of `path`, `numa_node`, `size`, `reserve`, `emulate`; did you mean `path`?",
    );
}

#[test]
fn a_value_of_another_type_is_named_with_what_would_be_right() {
    let whole = "expected a whole number, not negative, without a unit";
    check_line(
        14,
        "  nodes: two",
        &format!("14: world.nodes: invalid type: string \"two\", {whole}"),
    );
    check_line(
        14,
        "  nodes: -2",
        &format!("14: world.nodes: invalid value: integer `-2`, {whole}"),
    );
    check_line(
        14,
        "  nodes: 1.5",
        &format!("14: world.nodes: invalid type: floating point `1.5`, {whole}"),
    );
    check_line(
        11,
        "  drop_last: yes",
        "11: order.drop_last: invalid type: string \"yes\", expected a boolean",
    );
    let named =
        "expected a name; one that looks like a number stands in quotes, for example `\"1.0\"`";
    check_line(1, "name: [a]", &format!("1: name: invalid type: sequence, {named}"));
    check_line(
        22,
        "  main-memory: 4 GiB",
        "22: tiers.main-memory: invalid type: string \"4 GiB\", expected a mapping such as `{ size: 16 GiB }`",
    );
}

#[test]
fn a_job_that_leaves_its_epochs_out_has_more_than_a_training_reads() {
    let job = parse(&REQUIRED.replace(", epochs: 1", "")).unwrap();
    assert_eq!(job.epochs, 1000);
}

#[test]
fn a_key_that_is_missing_is_named() {
    check_line(12, "", "1: missing field `batch_size`");
    check_line(8, "", "9: order: missing field `shuffle`");
    check_line(29, "", "30: tiers.storage: missing field `path`");
}

#[test]
fn a_key_that_stands_twice_is_refused_where_it_stands_again() {
    check_line(
        16,
        "batch_size: 1",
        "16: the key `batch_size` stands here again, and on line 12 before; keep one",
    );
    check_line(
        15,
        "  nodes: 3",
        "15: world: the key `nodes` stands here again, and on line 14 before; keep one",
    );
}

#[test]
fn a_text_that_is_no_yaml_is_refused() {
    check_text("", "1: missing field `name`");
    check_text("# nothing\n", "2: missing field `name`");
    check_text(
        "name: [a",
        "2: did not find expected ',' or ']', while parsing a flow sequence at line 1 column 7",
    );
    check_text(
        "just words",
        "1: invalid type: string \"just words\", expected a mapping with the keys of a job",
    );
    check_text(
        "name: a\n---\nname: b\n",
        "1: deserializing from YAML containing more than one document is not supported",
    );
}

#[test]
fn a_text_that_grows_without_end_is_refused() {
    let mut text = "l0: &l0 [a, a]\n".to_owned();
    for level in 1..40 {
        writeln!(text, "l{level}: &l{level} [*l{0}, *l{0}]", level - 1).unwrap();
    }
    assert!(matches!(parse(&text), Err(JobError::Yaml(YamlError::Malformed { .. }))));
    let nested = "[".repeat(100_000);
    assert!(matches!(parse(&nested), Err(JobError::Yaml(YamlError::Malformed { .. }))));
}

#[test]
fn an_unreadable_file_is_named() {
    let error = Job::load(Path::new("/nowhere/a.yaml")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/nowhere/a.yaml: cannot be read: No such file or directory (os error 2)"
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.yaml");
    fs::write(&path, [b'a', b':', 0xFF]).unwrap();
    assert!(matches!(Job::load(&path), Err(JobError::Yaml(YamlError::Unreadable { .. }))));
    fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(matches!(Job::load(&path), Err(JobError::Yaml(YamlError::TooLarge { .. }))));
    assert!(matches!(
        Job::load(Path::new("/dev/zero")),
        Err(JobError::Yaml(YamlError::TooLarge { .. }))
    ));
}

#[test]
fn a_loaded_job_has_absolute_paths_from_the_directory_of_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.yaml");
    fs::write(&path, REQUIRED).unwrap();
    let expected = Location::Path(directory.path().join("data"));
    assert_eq!(Job::load(&path).unwrap().dataset.source, expected);
}

#[test]
fn a_job_gives_the_order_that_its_keys_describe() {
    let order = parse(FULL).unwrap().order(1_281_167).unwrap();
    assert_eq!((order.samples, order.seed, order.epochs), (1_281_167, 42, 90));
    assert_eq!((order.shuffle, order.drop_last), (Shuffle::TORCH_DISTRIBUTED, true));
    assert_eq!((order.batch_size, order.world.ranks()), (256, 16));
    assert_eq!(
        parse(FULL).unwrap().order(15),
        Err(SpecError::NothingLeft { samples: 15, ranks: 16 })
    );
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(text in any::<String>()) {
        drop(parse(&text));
    }

    /// Text that is almost a job reaches further into the checks than random text.
    #[test]
    fn any_change_to_a_job_is_read_without_a_panic(
        line in 1_usize..31,
        text in "[ ]{0,4}(name|tiers|size|emulate|path)?: ?[\\[\\]{}&*!|>%#,'\"a-z0-9 .:-]{0,20}",
    ) {
        if let Err(error) = parse(&full_with(line, &text)) {
            prop_assert!(error.to_string().starts_with("jobs/a.yaml:"));
        }
    }
}

#[test]
fn what_tiers_leaves_out_has_its_default_unless_main_memory_is_named() {
    let tiers = |tiers: &str| {
        let job = parse(&format!("{REQUIRED}{tiers}\n")).unwrap();
        let tier = |it: &TierRequest| (it.kind.name(), it.presence, it.budget);
        job.tiers.iter().map(tier).collect::<Vec<_>>()
    };
    let (required, reserve) = (Presence::Required, Request::Share(Percent::DEFAULT));
    let main = ("main-memory", required, reserve);
    let cxl_if_present = ("cxl-memory", Presence::IfPresent, reserve);
    let scratch = ("scratch", required, reserve);
    for nothing in ["", "tiers:", "tiers: {}"] {
        assert_eq!(tiers(nothing), [main, cxl_if_present]);
    }
    assert_eq!(tiers("tiers: { scratch: {} }"), [main, cxl_if_present, scratch]);
    assert_eq!(tiers("tiers: { main-memory: {}, scratch: { path: /ram } }"), [main, scratch]);
    let cxl = ("cxl-memory", required, reserve);
    assert_eq!(tiers("tiers: { cxl-memory: { numa_nodes: [1] } }"), [main, cxl]);
}

#[test]
fn a_ram_disk_lies_on_the_one_node_that_is_named() {
    let job = parse(&format!("{REQUIRED}tiers: {{ scratch: {{ numa_node: 2 }} }}\n")).unwrap();
    assert_eq!(
        (&job.tiers[2].path, job.tiers[2].numa_nodes.as_slice()),
        (&None, &[NumaNode(2)][..])
    );
}

#[test]
fn scratch_for_the_job_is_a_part_of_the_scratch_tier() {
    let tiers = "tiers: { main-memory: { size: 1 GiB }, scratch: { path: /ram, size: 8 GiB } }\n";
    let job = |keys: &str| parse(&format!("{REQUIRED}{keys}"));
    let wish = |keys: &str| job(&format!("{tiers}job_scratch: {keys}\n")).unwrap().job_scratch;
    let size = Bytes::mib(4096);
    let removed = JobScratch { size, after_run: AfterRun::Remove };
    assert_eq!(wish("{ size: 4 GiB }"), Some(removed));
    assert_eq!(wish("{ size: 4 GiB, keep: false }"), Some(removed));
    let kept = JobScratch { size, after_run: AfterRun::Keep };
    assert_eq!(wish("{ size: 4 GiB, keep: true }"), Some(kept));
    let error = job("job_scratch: { size: 4 GiB }\n").unwrap_err().to_string();
    assert!(error.contains("job_scratch is a part of `tiers.scratch`"), "{error}");
    let own = "tiers: { scratch: {} }\n";
    job(&format!("{own}job_scratch: {{ size: 4 GiB }}\n")).unwrap();
    let error = job(&format!("{own}job_scratch: {{ size: 4 GiB, keep: true }}\n")).unwrap_err();
    assert!(
        error.to_string().contains("job_scratch.keep keeps files, and the RAM disk"),
        "{error}"
    );
    let error = job(&format!("{tiers}job_scratch: {{ size: 1 KiB }}\n")).unwrap_err().to_string();
    let said =
        "job_scratch.size is `1 KiB`; it must be at least 64 KiB, the largest page of any machine";
    assert!(error.contains(said), "{error}");
}

#[test]
fn a_network_is_open_unless_the_job_says_that_it_is_private() {
    assert_eq!(parse(FULL).unwrap().network, Network::Open);
    for (typed, network) in [("open", Network::Open), ("private", Network::Private)] {
        let key = format!("on_error: skip\nnetwork: {typed}");
        assert_eq!(parse(&FULL.replace("on_error: skip", &key)).unwrap().network, network);
    }
    check_line(
        20,
        "on_error: skip\nnetwork: trusted",
        "21: network is `trusted`; expected one of open, private",
    );
    check_line(
        20,
        "on_error: skip\nnetwork: [open]",
        "21: network: invalid type: sequence, expected a single value",
    );
}

#[test]
fn what_is_verified_and_what_an_epoch_may_write_can_be_said() {
    let job = parse(&FULL.replace("on_error: skip", "on_error: skip\nverify: always")).unwrap();
    assert_eq!(job.verify, Verify::Always);
    check_line(
        20,
        "on_error: skip\nverify: no",
        "21: verify is `no`; expected one of shared, always",
    );
    let lines: Vec<_> = FULL.lines().collect();
    let storage = lines.iter().position(|line| line.trim_start().starts_with("storage:")).unwrap();
    let with = |more: &str| {
        let mut lines = lines.clone();
        let block = format!("  storage: {{ path: /nvme, size: 1 GiB{more} }}");
        // The keys below it are removed with it.
        lines.truncate(storage);
        lines.push(&block);
        parse(&lines.join("\n"))
    };
    let written = |job: Job| job.tiers.last().unwrap().writes_per_epoch;
    assert_eq!(written(with(", writes_per_epoch: 20 GiB").unwrap()), Some(Bytes(20 << 30)));
    assert_eq!(written(with("").unwrap()), None);
    assert!(with(", writes_per_epoch: 20").is_err(), "a size has a unit");
}

#[test]
fn where_samples_are_read_can_be_said_unless_it_can_never_be() {
    let job = |direct: &str, more: &str| {
        let tiers = format!(
            "tiers:\n  main-memory: {{ size: 1 GiB }}\n  cxl-memory: {{ size: 1 GiB{direct} }}\n"
        );
        parse(&format!("{REQUIRED}{more}{tiers}"))
    };
    for mode in InPlaceMode::ALL {
        let direct = format!(", direct: {}", mode.name());
        assert_eq!(job(&direct, "").unwrap().tiers[1].direct, mode);
        let refused = job(&direct, "verify: always\n").is_err();
        assert_eq!(refused, mode == InPlaceMode::Always);
        let refused = job(&direct, "policy: fifo\n").is_err();
        assert_eq!(refused, mode == InPlaceMode::Always);
        assert!(job(&direct, "policy: pinned\n").is_ok());
    }
    assert_eq!(job("", "").unwrap().tiers[1].direct, InPlaceMode::Auto);
    let said = job(", direct: yes", "").unwrap_err().to_string();
    assert!(
        said.contains("tiers.cxl-memory.direct is `yes`; expected one of auto, always"),
        "{said}"
    );
    let said = job(", direct: always", "policy: fifo\n").unwrap_err().to_string();
    assert!(said.contains("`policy: fifo`") && said.contains("`policy: gap`"), "{said}");
}

#[test]
fn keys_that_adjust_a_policy_arrive() {
    use policy::{Buffers, Distance, Fetches, Reuse, SampleCount, Source, Tuning};
    let tuning = |policy: &str, keys: &str| {
        parse(&format!("{REQUIRED}policy: {policy}\n{keys}\n")).unwrap().tuning
    };
    assert_eq!(
        tuning("lobster", "lobster: { reuse_count: 2, reuse_distance: 3 epochs }").lobster,
        Reuse { count: 2, distance: Distance::Epochs(3) }
    );
    assert_eq!(
        tuning("lobster", "lobster: { reuse_distance: 500 steps }").lobster,
        Reuse { count: 0, distance: Distance::Steps(500) }
    );
    assert_eq!(tuning("lobster-lazy", "lobster: { reuse_count: 1 }").lobster.count, 1);
    let (samples, share) = (SampleCount::Samples, SampleCount::Share);
    assert_eq!(
        tuning("deli", "deli: { fetch_size: 1024, threshold: 0 }").deli,
        Some(Fetches { size: samples(1024), threshold: samples(0) })
    );
    assert_eq!(
        tuning("deli", "deli: { fetch_size: 25 % }").deli,
        Some(Fetches { size: share(25), threshold: share(50) })
    );
    assert_eq!(tuning("deli", "deli: {}").deli, Some(Fetches::default()), "the 50/50 rule");
    assert_eq!(tuning("deli", "").deli, None);
    assert_eq!(tuning("nopfs", "nopfs: { source: tier }").nopfs, Source::Tier);
    assert_eq!(tuning("nopfs", "").nopfs, Source::Fastest);
    assert_eq!(
        tuning("deepmemory", "deepmemory: { threshold: 80 %, iterations: 20 }").deepmemory,
        Buffers { threshold: 80, iterations: Some(20) }
    );
    assert_eq!(tuning("gap", ""), Tuning::default());
}

#[test]
fn keys_of_another_policy_or_without_effect_are_refused() {
    let said = |keys: &str| parse(&format!("{REQUIRED}{keys}\n")).unwrap_err().to_string();
    for (key, of) in [
        ("deepmemory: { threshold: 80 % }", "deepmemory"),
        ("lobster: { reuse_count: 1 }", "lobster, lobster-lazy"),
        ("deli: { fetch_size: 5 }", "deli"),
        ("nopfs: { source: tier }", "nopfs"),
    ] {
        let name = key.split(':').next().unwrap();
        assert_eq!(
            said(key),
            format!(
                "jobs/a.yaml:5: {name} is for `policy: {of}` only, and the job has `policy: gap`; remove it"
            )
        );
    }
    let check = |policy: &str, keys: &str, message: &str| {
        assert_eq!(said(&format!("policy: {policy}\n{keys}")), format!("jobs/a.yaml:{message}"));
    };
    check(
        "lobster-lazy",
        "lobster: { reuse_distance: 1 epoch }",
        "6: lobster.reuse_distance is for `policy: lobster` only: `lobster-lazy` evicts the sample with \
         the farthest next use and has no limit; remove it",
    );
    check(
        "lobster",
        "lobster: { reuse_distance: 33 epochs }",
        "6: lobster.reuse_distance is `33 epochs`; it must be between 1 and 32",
    );
    check(
        "deli",
        "deli: { fetch_size: 0 }",
        "6: deli.fetch_size is `0`; expected a number of samples from 1 to 4294967295, or a share of the \
         cache such as `50 %`",
    );
    check(
        "deli",
        "deli: { fetch_size: 60 % }",
        "6: deli has fetch_size: 60 % and threshold: 50 %, more than the cache together; the 50/50 rule \
         is { fetch_size: 50 %, threshold: 50 % }",
    );
    check(
        "deli",
        "deli: {}\nprefetch: { look_ahead: off }",
        "7: prefetch.look_ahead stands beside `deli`, whose fetch_size and threshold say how much is \
         fetched ahead; keep one of them",
    );
    check(
        "nopfs",
        "nopfs: { source: peer }",
        "6: nopfs.source is `peer`; expected one of fastest, tier",
    );
    let unknown = said("policy: deli\ndeli: { fetch: 5 }");
    assert!(unknown.contains("deli.fetch") && unknown.contains("fetch_size"), "{unknown}");
}

#[test]
fn an_order_that_nobody_can_compute_is_divided_among_no_nodes() {
    let job = |shuffle: &str| {
        let order = format!("shuffle: {shuffle}");
        let required = REQUIRED.replace("shuffle: sequential", &order);
        parse(&format!("{required}policy: partitioned\n"))
    };
    assert_eq!(job("sequential").unwrap().policy, policy::Kind::Partitioned);
    let said = job("published").unwrap_err().to_string();
    assert!(said.contains("policy is `partitioned`, which needs an order"), "{said}");
}
