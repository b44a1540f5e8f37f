//! Loaders, with the defaults that their libraries document.

use super::spec::{
    Default::{Bool, Int, None, Text},
    Parameter, Spec, at, at_or, named, named_or,
};
use crate::script::finding::Kind::Loader;

/// # Source
///
/// `torch/utils/data/dataloader.py` of PyTorch 2.
const TORCH: &[Parameter] = &[
    at(0, "dataset"),
    at_or(1, "batch_size", Int(1)),
    at_or(2, "shuffle", Bool(false)),
    at_or(3, "sampler", None),
    at(4, "batch_sampler"),
    at_or(5, "num_workers", Int(0)),
    at(6, "collate_fn"),
    at_or(7, "pin_memory", Bool(false)),
    at_or(8, "drop_last", Bool(false)),
    named("generator"),
    named("worker_init_fn"),
    named("prefetch_factor"),
    named_or("persistent_workers", Bool(false)),
];

/// # Source
///
/// `ffcv/loader/loader.py` of FFCV 1.0.
const FFCV: &[Parameter] = &[
    at(0, "fname"),
    at(1, "batch_size"),
    at(2, "num_workers"),
    at(3, "os_cache"),
    at_or(4, "order", Text("OrderOption.SEQUENTIAL")),
    at_or(5, "distributed", Bool(false)),
    at(6, "seed"),
    at(7, "indices"),
    named_or("drop_last", Bool(true)),
    named("batches_ahead"),
];

const WEB: &[Parameter] = &[
    at(0, "dataset"),
    at_or(1, "batch_size", Int(1)),
    named_or("shuffle", Bool(false)),
    named_or("num_workers", Int(0)),
    named("pin_memory"),
    named("drop_last"),
    named("prefetch_factor"),
    named("persistent_workers"),
];

/// # Source
///
/// `grain/_src/python/data_loader.py` and `samplers.py`.
const GRAIN: &[Parameter] = &[
    named("data_source"),
    named("sampler"),
    named("operations"),
    named_or("worker_count", Int(0)),
    named("worker_buffer_size"),
    named("shard_options"),
    named("read_options"),
];

const LITDATA: &[Parameter] = &[
    at(0, "dataset"),
    at_or(1, "batch_size", Int(1)),
    at_or(2, "num_workers", Int(0)),
    named("shuffle"),
    named("drop_last"),
    named("pin_memory"),
    named("prefetch_factor"),
    named("persistent_workers"),
    named("collate_fn"),
];

/// The dataset shuffles, not the loader.
const STREAMING: &[Parameter] = &[
    at(0, "dataset"),
    at_or(1, "batch_size", Int(1)),
    named_or("num_workers", Int(0)),
    named("collate_fn"),
    named_or("pin_memory", Bool(false)),
    named_or("drop_last", Bool(false)),
    named("prefetch_factor"),
    named_or("persistent_workers", Bool(false)),
];

const DALI: &[Parameter] = &[
    named("file_root"),
    named("file_list"),
    named("path"),
    named("paths"),
    named("index_path"),
    named_or("random_shuffle", Bool(false)),
    named("initial_fill"),
    named("shard_id"),
    named("num_shards"),
    named("seed"),
];

pub(in crate::script) const LOADERS: &[Spec] = &[
    Spec::new(Loader, "torch.utils.data.DataLoader", "", TORCH),
    Spec::new(Loader, "torchdata.stateful_dataloader.StatefulDataLoader", "", TORCH),
    Spec::new(Loader, "torch_geometric.loader.DataLoader", "", TORCH),
    Spec::new(Loader, "monai.data.DataLoader", "", TORCH),
    Spec::new(Loader, "monai.data.ThreadDataLoader", "", TORCH),
    Spec::new(Loader, "ffcv.loader.Loader", "", FFCV),
    Spec::new(Loader, "webdataset.WebLoader", "", WEB),
    Spec::new(Loader, "streaming.StreamingDataLoader", "", STREAMING),
    Spec::new(Loader, "litdata.StreamingDataLoader", "", LITDATA),
    Spec::new(Loader, "grain.DataLoader", "", GRAIN),
    Spec::new(Loader, "nvidia.dali.fn.readers.file", "", DALI),
    Spec::new(Loader, "nvidia.dali.fn.readers.tfrecord", "", DALI),
    Spec::new(Loader, "nvidia.dali.fn.readers.webdataset", "", DALI),
    Spec::new(Loader, "nvidia.dali.fn.readers.numpy", "", DALI),
    Spec::new(Loader, "nvidia.dali.fn.readers.mxnet", "", DALI),
];
