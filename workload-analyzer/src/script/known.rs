//! What the names of libraries mean: tables, and nothing that decides.
//!
//! A library is known by the name that its own documentation uses; [`canonical`] turns the others into
//! it.

mod calls;
mod data;
mod loaders;
mod spec;
mod training;
mod transforms;

pub(super) use calls::{CACHES, CHECKPOINTS, DISTRIBUTION, SEEDS};
pub(super) use data::{DATASETS, Format, OUT_OF_FILES, PARTS, WRAPPERS};
pub(super) use loaders::LOADERS;
pub(super) use spec::{Default, Parameter, Spec};
pub(super) use training::{EPOCHS, FRAMEWORKS, Phase, TRAINING};
pub(super) use transforms::{Effect, LISTS, TRANSFORMS, element_bytes};

/// Names that mean the same as others.
const ALIASES: [(&str, &str); 27] = [
    ("tensorflow.compat.v1", "tensorflow"),
    ("tensorflow.compat.v2", "tensorflow"),
    ("tensorflow.keras", "keras"),
    ("tensorflow.python.keras", "keras"),
    (
        "keras.preprocessing.image_dataset_from_directory",
        "keras.utils.image_dataset_from_directory",
    ),
    ("pytorch_lightning", "lightning"),
    ("lightning.pytorch", "lightning"),
    ("lightning.callbacks.model_checkpoint", "lightning.callbacks"),
    ("lightning_fabric", "lightning.fabric"),
    ("torch.utils.data.dataloader", "torch.utils.data"),
    ("torch.utils.data.dataset", "torch.utils.data"),
    ("torch.utils.data.sampler", "torch.utils.data"),
    ("torch.utils.data.distributed", "torch.utils.data"),
    ("torch.nn.parallel.distributed", "torch.nn.parallel"),
    ("torchvision.datasets.folder", "torchvision.datasets"),
    ("torchvision.transforms.v2", "torchvision.transforms"),
    ("torchvision.transforms.transforms", "torchvision.transforms"),
    ("torchdata.stateful_dataloader.stateful_dataloader", "torchdata.stateful_dataloader"),
    ("torchvision.io.image", "torchvision.io"),
    ("grain.python", "grain"),
    ("streaming.base", "streaming"),
    ("horovod.torch", "horovod"),
    ("horovod.tensorflow.keras", "horovod"),
    ("horovod.tensorflow", "horovod"),
    ("horovod.keras", "horovod"),
    ("PIL.Image.Image", "PIL.Image"),
    ("monai.data.dataset", "monai.data"),
];

/// The name that a library's own documentation uses.
pub(super) fn canonical(path: &str) -> String {
    let mut path = path.to_owned();
    // One alias may lead to another, but never in a circle.
    for (alias, name) in ALIASES {
        if let Some(rest) = path.strip_prefix(alias)
            && (rest.is_empty() || rest.starts_with('.'))
        {
            path = format!("{name}{rest}");
        }
    }
    path
}

/// Objects whose methods give another such object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Family {
    /// The class.
    pub(super) name: &'static str,
    /// What such an object begins with; a dot at the end stands for everything below.
    roots: &'static [&'static str],
    methods: &'static [&'static str],
    /// Methods that few other objects have.
    telling: &'static [&'static str],
}

impl Family {
    pub(super) fn has(&self, method: &str) -> bool {
        self.methods.contains(&method)
    }

    pub(super) fn is_telling(&self, method: &str) -> bool {
        self.telling.contains(&method)
    }
}

const FAMILIES: [Family; 4] = [
    Family {
        name: "tensorflow.data.Dataset",
        roots: &[
            "tensorflow.data.",
            "tensorflow_datasets.load",
            "keras.utils.image_dataset_from_directory",
        ],
        methods: &[
            "apply",
            "batch",
            "cache",
            "concatenate",
            "enumerate",
            "filter",
            "flat_map",
            "ignore_errors",
            "interleave",
            "map",
            "padded_batch",
            "prefetch",
            "ragged_batch",
            "rebatch",
            "repeat",
            "shard",
            "shuffle",
            "skip",
            "snapshot",
            "take",
            "unbatch",
            "window",
            "with_options",
        ],
        telling: &[
            "batch",
            "cache",
            "interleave",
            "map",
            "padded_batch",
            "prefetch",
            "repeat",
            "shuffle",
        ],
    },
    Family {
        name: "webdataset.WebDataset",
        roots: &["webdataset.WebDataset", "webdataset.DataPipeline", "webdataset.WebLoader"],
        methods: &[
            "batched",
            "compose",
            "decode",
            "map",
            "map_dict",
            "map_tuple",
            "rename",
            "repeat",
            "rsample",
            "select",
            "shuffle",
            "slice",
            "to_tuple",
            "unbatched",
            "with_epoch",
            "with_length",
        ],
        telling: &[],
    },
    Family {
        name: "grain.MapDataset",
        roots: &["grain.MapDataset", "grain.IterDataset"],
        methods: &[
            "batch",
            "filter",
            "map",
            "map_with_index",
            "mix",
            "mp_prefetch",
            "random_map",
            "repeat",
            "seed",
            "shuffle",
            "slice",
            "to_iter_dataset",
        ],
        telling: &[],
    },
    Family {
        name: "datasets.Dataset",
        roots: &[
            "datasets.load_dataset",
            "datasets.load_from_disk",
            "datasets.Dataset.",
            "datasets.concatenate_datasets",
        ],
        methods: &[
            "batch",
            "cast_column",
            "filter",
            "map",
            "remove_columns",
            "rename_column",
            "select",
            "shard",
            "shuffle",
            "skip",
            "take",
            "to_iterable_dataset",
            "train_test_split",
            "with_format",
            "with_transform",
        ],
        telling: &[],
    },
];

/// The family of what a call of `path` gives.
pub(super) fn family(path: &str) -> Option<&'static Family> {
    let is_root = |root: &&str| match root.strip_suffix('.') {
        Some(_) => path.starts_with(*root),
        None => {
            path.strip_prefix(*root).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        }
    };
    FAMILIES.iter().find(|family| family.roots.iter().any(is_root) || path.starts_with(family.name))
}

/// Whether a call gives the options of the command line.
pub(super) fn gives_options(path: &str) -> bool {
    ["parse_args", "parse_known_args", "parse_intermixed_args"]
        .iter()
        .any(|method| path.strip_suffix(method).is_some_and(|rest| rest.ends_with('.')))
}

/// Whether a table has this name.
pub(super) fn is_known(path: &str) -> bool {
    let tables = [LOADERS, DATASETS, OUT_OF_FILES, CHECKPOINTS, DISTRIBUTION, CACHES, SEEDS];
    tables.iter().any(|table| table.iter().any(|spec| spec.path == path)) || family(path).is_some()
}
