//! Calls that say something by themselves: checkpoints, caches, processes, seeds.

use super::spec::{
    Default::{self, Bool, Int, Text},
    Parameter, Spec, at, at_or, named, named_or,
};
use crate::script::finding::Kind::{Cache, Checkpoint, Distribution, Seed};

const PATH: &[Parameter] = &[at(0, "path")];

/// # Source
///
/// `ModelCheckpoint` of Lightning 2 and of Keras 3.
const LIGHTNING_CHECKPOINT: &[Parameter] = &[
    named("dirpath"),
    named("every_n_epochs"),
    named("every_n_train_steps"),
    named("save_top_k"),
    named("monitor"),
];
const KERAS_CHECKPOINT: &[Parameter] = &[
    at(0, "filepath"),
    named_or("save_freq", Text("epoch")),
    named("save_best_only"),
    named("save_weights_only"),
];
const TF_MANAGER: &[Parameter] =
    &[at(1, "directory"), at(2, "max_to_keep"), named("checkpoint_interval")];
const HUGGING_FACE: &[Parameter] =
    &[at(0, "output_dir"), named("save_strategy"), named("save_steps"), named("save_total_limit")];
const COMPOSER: &[Parameter] =
    &[named("save_folder"), named("save_interval"), named("save_num_checkpoints_to_keep")];
const ORBAX: &[Parameter] = &[at(0, "directory"), named("options")];
const ORBAX_OPTIONS: &[Parameter] = &[named("save_interval_steps"), named("max_to_keep")];

pub(in crate::script) const CHECKPOINTS: &[Spec] = &[
    Spec::new(Checkpoint, "torch.save", "", &[at(1, "path")]),
    Spec::new(Checkpoint, "torch.distributed.checkpoint.save", "", &[named("checkpoint_id")]),
    Spec::new(Checkpoint, "torch.distributed.checkpoint.async_save", "", &[named("checkpoint_id")]),
    Spec::new(Checkpoint, "safetensors.torch.save_file", "", &[at(1, "path")]),
    Spec::new(Checkpoint, "*.save_pretrained", "", PATH),
    Spec::new(Checkpoint, "*.save_checkpoint", "", PATH),
    Spec::new(Checkpoint, "*.save_weights", "", PATH),
    Spec::new(Checkpoint, "*.save_state", "", PATH),
    Spec::new(Checkpoint, "*.save_model", "", PATH),
    Spec::new(Checkpoint, "tensorflow.train.Checkpoint.save", "", PATH),
    Spec::new(Checkpoint, "tensorflow.train.Checkpoint.write", "", PATH),
    Spec::new(Checkpoint, "tensorflow.train.CheckpointManager", "", TF_MANAGER),
    Spec::new(Checkpoint, "tensorflow.train.CheckpointManager.save", "", &[]),
    Spec::new(Checkpoint, "tensorflow.saved_model.save", "", &[at(1, "export_dir")]),
    Spec::new(Checkpoint, "keras.models.save_model", "", &[at(1, "filepath")]),
    Spec::new(Checkpoint, "keras.callbacks.ModelCheckpoint", "", KERAS_CHECKPOINT),
    Spec::new(
        Checkpoint,
        "keras.callbacks.BackupAndRestore",
        "",
        &[at(0, "backup_dir"), at_or(1, "save_freq", Text("epoch"))],
    ),
    Spec::new(Checkpoint, "lightning.callbacks.ModelCheckpoint", "", LIGHTNING_CHECKPOINT),
    Spec::new(Checkpoint, "transformers.TrainingArguments", "", HUGGING_FACE),
    Spec::new(Checkpoint, "transformers.Seq2SeqTrainingArguments", "", HUGGING_FACE),
    Spec::new(Checkpoint, "composer.Trainer", "", COMPOSER),
    Spec::new(Checkpoint, "orbax.checkpoint.CheckpointManager", "", ORBAX),
    Spec::new(Checkpoint, "orbax.checkpoint.CheckpointManagerOptions", "", ORBAX_OPTIONS),
    Spec::new(Checkpoint, "orbax.checkpoint.CheckpointManager.save", "", &[at(0, "step")]),
    Spec::new(Checkpoint, "orbax.checkpoint.PyTreeCheckpointer.save", "", &[at(0, "directory")]),
    Spec::new(Checkpoint, "orbax.checkpoint.StandardCheckpointer.save", "", &[at(0, "directory")]),
    Spec::new(
        Checkpoint,
        "flax.training.checkpoints.save_checkpoint",
        "",
        &[named("ckpt_dir"), named("step"), named("keep")],
    ),
];

const MONAI: &[Parameter] = &[named("cache_rate"), named("cache_num"), named("cache_dir")];

pub(in crate::script) const CACHES: &[Spec] = &[
    Spec::new(Cache, "tensorflow.data.Dataset.cache", "", &[at_or(0, "filename", Text("memory"))]),
    Spec::new(Cache, "tensorflow.data.Dataset.snapshot", "", PATH),
    Spec::new(
        Cache,
        "monai.data.CacheDataset",
        "samples after their deterministic transforms, in memory",
        MONAI,
    ),
    Spec::new(
        Cache,
        "monai.data.PersistentDataset",
        "samples after their deterministic transforms, in files",
        MONAI,
    ),
    Spec::new(
        Cache,
        "monai.data.SmartCacheDataset",
        "part of the samples, replaced epoch by epoch",
        MONAI,
    ),
    Spec::new(
        Cache,
        "streaming.StreamingDataset",
        "shards are kept in `local`",
        &[named("local"), named_or("cache_limit", Default::None)],
    ),
    Spec::new(
        Cache,
        "litdata.StreamingDataset",
        "chunks are kept on disk",
        &[named_or("max_cache_size", Text("100GB"))],
    ),
    Spec::new(
        Cache,
        "webdataset.WebDataset",
        "shards are kept in `cache_dir`",
        &[named("cache_dir"), named("cache_size")],
    ),
    Spec::new(
        Cache,
        "functools.lru_cache",
        "results of a function, in memory",
        &[at_or(0, "maxsize", Int(128))],
    ),
    Spec::new(Cache, "functools.cache", "results of a function, in memory", &[]),
    Spec::new(Cache, "joblib.Memory", "results of functions, in files", &[at(0, "location")]),
    Spec::new(Cache, "*.cache_dataset", "", &[]),
    Spec::new(
        Cache,
        "ffcv.loader.Loader",
        "the operating system keeps the file",
        &[at(3, "os_cache")],
    ),
];

const LIGHTNING: &[Parameter] =
    &[named("accelerator"), named("devices"), named("num_nodes"), named("strategy")];
const REPLICAS: &[Parameter] = &[
    at(1, "num_replicas"),
    at(2, "rank"),
    at_or(3, "shuffle", Bool(true)),
    at_or(4, "seed", Int(0)),
    at_or(5, "drop_last", Bool(false)),
];

pub(in crate::script) const DISTRIBUTION: &[Spec] = &[
    Spec::new(Distribution, "torch.utils.data.DistributedSampler", "", REPLICAS),
    Spec::new(Distribution, "torch.nn.parallel.DistributedDataParallel", "", &[]),
    Spec::new(Distribution, "torch.nn.DataParallel", "one process, several GPUs", &[]),
    Spec::new(Distribution, "torch.distributed.fsdp.FullyShardedDataParallel", "", &[]),
    Spec::new(Distribution, "torch.distributed.fsdp.fully_shard", "", &[]),
    Spec::new(
        Distribution,
        "torch.distributed.init_process_group",
        "",
        &[at(0, "backend"), named("world_size")],
    ),
    Spec::new(Distribution, "torch.multiprocessing.spawn", "", &[at(2, "nprocs")]),
    Spec::new(
        Distribution,
        "accelerate.Accelerator",
        "",
        &[named("gradient_accumulation_steps"), named("dispatch_batches"), named("split_batches")],
    ),
    Spec::new(Distribution, "lightning.Trainer", "", LIGHTNING),
    Spec::new(Distribution, "lightning.fabric.Fabric", "", LIGHTNING),
    Spec::new(Distribution, "lightning.Fabric", "", LIGHTNING),
    Spec::new(Distribution, "deepspeed.initialize", "", &[]),
    Spec::new(Distribution, "horovod.init", "", &[]),
    Spec::new(
        Distribution,
        "tensorflow.distribute.MirroredStrategy",
        "one process, several GPUs",
        &[at(0, "devices")],
    ),
    Spec::new(Distribution, "tensorflow.distribute.MultiWorkerMirroredStrategy", "", &[]),
    Spec::new(
        Distribution,
        "tensorflow.distribute.experimental.MultiWorkerMirroredStrategy",
        "",
        &[],
    ),
    Spec::new(Distribution, "tensorflow.distribute.TPUStrategy", "", &[]),
    Spec::new(Distribution, "tensorflow.distribute.ParameterServerStrategy", "", &[]),
    Spec::new(
        Distribution,
        "tensorflow.data.Dataset.shard",
        "",
        &[at(0, "num_shards"), at(1, "index")],
    ),
    Spec::new(Distribution, "jax.distributed.initialize", "", &[named("num_processes")]),
    Spec::new(
        Distribution,
        "grain.ShardByJaxProcess",
        "",
        &[named_or("drop_remainder", Bool(false))],
    ),
    Spec::new(
        Distribution,
        "grain.ShardOptions",
        "",
        &[named("shard_index"), named("shard_count"), named_or("drop_remainder", Bool(false))],
    ),
    Spec::new(Distribution, "grain.NoSharding", "", &[]),
];

pub(in crate::script) const SEEDS: &[Spec] = &[
    Spec::new(Seed, "torch.manual_seed", "", &[at(0, "seed")]),
    Spec::new(Seed, "torch.cuda.manual_seed_all", "", &[at(0, "seed")]),
    Spec::new(Seed, "torch.Generator.manual_seed", "", &[at(0, "seed")]),
    Spec::new(Seed, "random.seed", "", &[at(0, "seed")]),
    Spec::new(Seed, "numpy.random.seed", "", &[at(0, "seed")]),
    Spec::new(Seed, "numpy.random.default_rng", "", &[at(0, "seed")]),
    Spec::new(Seed, "tensorflow.random.set_seed", "", &[at(0, "seed")]),
    Spec::new(Seed, "tensorflow.set_random_seed", "", &[at(0, "seed")]),
    Spec::new(Seed, "keras.utils.set_random_seed", "", &[at(0, "seed")]),
    Spec::new(Seed, "lightning.seed_everything", "", &[at(0, "seed"), named("workers")]),
    Spec::new(Seed, "accelerate.utils.set_seed", "", &[at(0, "seed")]),
    Spec::new(Seed, "transformers.set_seed", "", &[at(0, "seed")]),
    Spec::new(Seed, "composer.utils.reproducibility.seed_all", "", &[at(0, "seed")]),
    Spec::new(Seed, "jax.random.PRNGKey", "", &[at(0, "seed")]),
    Spec::new(Seed, "jax.random.key", "", &[at(0, "seed")]),
    Spec::new(
        Seed,
        "grain.IndexSampler",
        "",
        &[named_or("shuffle", Bool(false)), named("seed"), named("num_epochs")],
    ),
    Spec::new(Seed, "grain.MapDataset.seed", "", &[at(0, "seed")]),
];
