//! The keys of `order`: each shuffle accepts its own and refuses those of others.

use tierfeed_core::{
    id::Epoch,
    order::{
        block::Block,
        mosaic::{Algorithm, Mosaic},
        tf, torch,
    },
};

use super::*;

/// A job whose `order` has `keys` from line 4 on.
fn with(keys: &[&str]) -> Result<Job, JobError> {
    let keys = keys.iter().fold(String::new(), |text, key| text + "  " + key + "\n");
    parse(&format!(
        "name: a\ndataset: {{ source: data, format: image-folder }}\norder:\n{keys}  epochs: 9\n\
         batch_size: 8\nworld: {{ nodes: 2, ranks_per_node: 4 }}\n"
    ))
}

#[track_caller]
fn check(keys: &[&str], shuffle: Shuffle, seed: u64) {
    let job = with(keys).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((job.shuffle, job.seed), (shuffle, seed));
    assert_eq!(keys[0], format!("shuffle: {}", shuffle.name()));
}

#[track_caller]
fn check_error(keys: &[&str], message: &str) {
    assert_eq!(with(keys).unwrap_err().to_string(), format!("jobs/a.yaml:{message}"));
}

#[test]
fn the_orders_of_pytorch_are_read() {
    let version = Some(torch::Version { major: 2, minor: 10 });
    check(&["shuffle: torch-distributed"], Shuffle::TORCH_DISTRIBUTED, 0);
    for typed in ["version: 2.10.0", "version: '2.10'", "version: 2.10.0+cu124"] {
        check(&["shuffle: torch-distributed", typed], Shuffle::TorchDistributed { version }, 0);
    }
    let random = torch::Random {
        generator: torch::Generator::Default,
        workers: torch::Workers::PerEpoch,
        version: None,
    };
    check(&["shuffle: torch-random", "seed: 7"], Shuffle::TorchRandom(random), 7);
    let random = torch::Random {
        generator: torch::Generator::Sampler,
        workers: torch::Workers::Persistent,
        version,
    };
    check(
        &[
            "shuffle: torch-random",
            "seed: 7",
            "generator: sampler",
            "persistent_workers: true",
            "version: 2.10.1",
        ],
        Shuffle::TorchRandom(random),
        7,
    );
}

#[test]
fn the_orders_of_tensorflow_and_grain_are_read() {
    let buffered = tf::Buffered {
        buffer: 10_000,
        global_seed: tf::DEFAULT_GRAPH_SEED,
        reshuffle: tf::Reshuffle::EachIteration,
    };
    check(&["shuffle: tf-shuffle", "seed: 1", "buffer: 10000"], Shuffle::TfShuffle(buffered), 1);
    let buffered = tf::Buffered { global_seed: 5, reshuffle: tf::Reshuffle::Never, ..buffered };
    check(
        &["shuffle: tf-shuffle", "seed: 1", "buffer: 10000", "global_seed: 5", "reshuffle: false"],
        Shuffle::TfShuffle(buffered),
        1,
    );
    let index = |second| Shuffle::TfIndex(tf::Index { second });
    check(&["shuffle: tf-index", "seed: 5"], index(tf::SecondSeed::Epoch), 5);
    check(&["shuffle: tf-index", "seed: 5", "second_seed: 8"], index(tf::SecondSeed::Fixed(8)), 5);
    check(&["shuffle: grain", "seed: 42"], Shuffle::Grain, 42);
}

#[test]
fn mosaic_has_the_defaults_of_streaming() {
    let mosaic =
        Mosaic { algorithm: Algorithm::Py1e, shard: 1_000, canonical_nodes: 2, block: 2_000_000 };
    check(&["shuffle: mosaic", "shard_samples: 1000"], Shuffle::Mosaic(mosaic), 9_176);
    let mosaic =
        Mosaic { algorithm: Algorithm::Py1s, canonical_nodes: 128, block: 1 << 18, ..mosaic };
    check(
        &["shuffle: mosaic", "shard_samples: 1000", "algorithm: py1s"],
        Shuffle::Mosaic(mosaic),
        9_176,
    );
    let mosaic = Mosaic { algorithm: Algorithm::Py1br, canonical_nodes: 4, block: 99, ..mosaic };
    check(
        &[
            "shuffle: mosaic",
            "shard_samples: 1000",
            "algorithm: py1br",
            "canonical_nodes: 4",
            "shuffle_block: 99",
            "seed: 3",
        ],
        Shuffle::Mosaic(mosaic),
        3,
    );
}

#[test]
fn a_block_order_is_read() {
    let block = Shuffle::Block(Block { shard: 500, window: 8_000 });
    check(&["shuffle: block", "shard_samples: 500", "window: 8000"], block, 0);
}

#[test]
fn a_run_may_start_where_another_one_ended() {
    let job = with(&["shuffle: sequential", "start: { epoch: 3, samples: 40960 }"]).unwrap();
    assert_eq!(job.start, Position { epoch: Epoch(3), samples: 40_960 });
    assert_eq!(job.order(100_000).unwrap().start, job.start);
    let error = job.order(40_960).unwrap_err();
    assert_eq!(error, SpecError::StartOutside { start: job.start, epochs: 9 });
    check_error(
        &["shuffle: sequential", "start: { epoch: 9, samples: 0 }"],
        "5: order.start.epoch is `9`; it must be between 0 and 8",
    );
    let start = |keys: &str| with(&["shuffle: sequential", keys]).unwrap().start;
    assert_eq!(start("start: { epoch: 1 }"), Position { epoch: Epoch(1), samples: 0 });
    assert_eq!(start("start: { samples: 512 }"), Position { epoch: Epoch(0), samples: 512 });
}

#[test]
fn a_key_that_a_shuffle_needs_is_asked_for() {
    check_error(
        &["shuffle: torch-random"],
        "4: order has `shuffle: torch-random`, which needs `seed`, what the framework is given as seed",
    );
    check_error(
        &["shuffle: tf-shuffle", "seed: 1"],
        "4: order has `shuffle: tf-shuffle`, which needs `buffer`, the `buffer_size` of `Dataset.shuffle`",
    );
    check_error(
        &["shuffle: tf-shuffle", "buffer: 1"],
        "4: order has `shuffle: tf-shuffle`, which needs `seed`, what the framework is given as seed",
    );
    check_error(
        &["shuffle: mosaic"],
        "4: order has `shuffle: mosaic`, which needs `shard_samples`, how many samples lie together",
    );
    check_error(
        &["shuffle: block", "shard_samples: 3"],
        "4: order has `shuffle: block`, which needs `window`, how many samples are mixed",
    );
    for shuffle in ["shuffle: tf-index", "shuffle: grain"] {
        let message = with(&[shuffle]).unwrap_err().to_string();
        assert!(message.contains("which needs `seed`"), "{message}");
    }
}

#[test]
fn a_key_of_another_shuffle_is_refused() {
    let own = [
        ("version: 2.6.0", "version", "torch-distributed, torch-random"),
        ("generator: loader", "generator", "torch-random"),
        ("persistent_workers: false", "persistent_workers", "torch-random"),
        ("buffer: 3", "buffer", "tf-shuffle"),
        ("global_seed: 3", "global_seed", "tf-shuffle"),
        ("reshuffle: true", "reshuffle", "tf-shuffle"),
        ("second_seed: 1", "second_seed", "tf-index"),
        ("algorithm: py1s", "algorithm", "mosaic"),
        ("canonical_nodes: 1", "canonical_nodes", "mosaic"),
        ("shuffle_block: 9", "shuffle_block", "mosaic"),
        ("shard_samples: 1", "shard_samples", "mosaic, block"),
        ("window: 1", "window", "block"),
    ];
    for (typed, key, shuffles) in own {
        check_error(
            &["shuffle: sequential", typed],
            &format!("5: order.{key} is for `shuffle: {shuffles}` only; remove it"),
        );
    }
}

#[test]
fn an_invalid_value_names_what_would_be_right() {
    check_error(
        &["shuffle: torch-distributed", "version: two"],
        "5: order.version is `two`; expected a version as `torch.__version__` prints it, for example `2.6.0`",
    );
    let numeric = with(&["shuffle: torch-distributed", "version: 2.10"]).unwrap_err().to_string();
    assert!(numeric.contains("order.version") && numeric.contains("in quotes"), "{numeric}");
    check_error(
        &["shuffle: torch-random", "seed: 1", "generator: own"],
        "6: order.generator is `own`; expected one of default, loader, sampler",
    );
    check_error(
        &["shuffle: mosaic", "shard_samples: 9", "algorithm: py1b"],
        "6: order.algorithm is `py1b`; expected one of naive, py1s, py2s, py1e, py1br; did you mean `py1br`?",
    );
    let range = "it must be between 1 and 4294967295";
    check_error(
        &["shuffle: tf-shuffle", "seed: 1", "buffer: 0"],
        &format!("6: order.buffer is `0`; {range}"),
    );
    check_error(
        &["shuffle: block", "shard_samples: 5000000000", "window: 1"],
        &format!("5: order.shard_samples is `5000000000`; {range}"),
    );
    check_error(
        &["shuffle: mosaic", "shard_samples: 9", "shuffle_block: 1"],
        "6: order.shuffle_block is `1`; it must be between 2 and 2147483648",
    );
    check_error(
        &["shuffle: grain", "seed: 4294967296"],
        "5: order.seed is `4294967296`; it must be between 0 and 4294967295",
    );
}
