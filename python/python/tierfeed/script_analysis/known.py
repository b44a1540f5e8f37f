"""What the names of libraries mean: tables, and functions that look names up in them.

A library is known by the name that its own documentation uses. In a table `a.{b,c}` stands for `a.b`
and `a.c`, and `*.name` for a method of any object. An argument is written `name@place=default`: where
it may stand without its name, from 0, and what the library takes if it is left out.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple


class Parameter(NamedTuple):
    """An argument that is worth knowing."""

    name: str
    place: int | None = None
    default: object = ...  # What the library takes if it is left out; `...` is not told.


class Spec(NamedTuple):
    """A call that says something."""

    path: str
    says: str  # What it does, in words; its name if empty.
    parameters: list[Parameter]


def parameters(text: str) -> list[Parameter]:
    found = []
    for word in text.split():
        head, equals, default = word.partition("=")
        name, _, place = head.partition("@")
        value = ast.literal_eval(default) if equals else ...
        found.append(Parameter(name, int(place) if place else None, value))
    return found


def names(text: str) -> list[str]:
    """The names that `a.{b,c}` stands for."""
    found = []
    for word in text.split():
        head, brace, rest = word.partition("{")
        inner, _, tail = rest.partition("}")
        found += [f"{head}{it}{tail}" for it in inner.split(",")] if brace else [word]
    return found


def table(text: str) -> list[Spec]:
    """Of lines `names: arguments`, with `-- words` behind them."""
    specs = []
    for line in text.strip().split("\n"):
        head, _, says = line.partition(" -- ")
        paths, _, arguments = head.partition(":")
        specs += [Spec(path, says, parameters(arguments)) for path in names(paths)]
    return specs


ALIASES = """
tensorflow.compat.v1=tensorflow tensorflow.compat.v2=tensorflow tensorflow.keras=keras
tensorflow.python.keras=keras
keras.preprocessing.image_dataset_from_directory=keras.utils.image_dataset_from_directory
pytorch_lightning=lightning lightning.pytorch=lightning lightning_fabric=lightning.fabric
lightning.callbacks.model_checkpoint=lightning.callbacks torch.utils.data.dataloader=torch.utils.data
torch.utils.data.dataset=torch.utils.data torch.utils.data.sampler=torch.utils.data
torch.utils.data.distributed=torch.utils.data torch.nn.parallel.distributed=torch.nn.parallel
torchvision.datasets.folder=torchvision.datasets torchvision.transforms.v2=torchvision.transforms
torchvision.transforms.transforms=torchvision.transforms torchvision.io.image=torchvision.io
torchdata.stateful_dataloader.stateful_dataloader=torchdata.stateful_dataloader grain.python=grain
streaming.base=streaming horovod.torch=horovod horovod.tensorflow.keras=horovod
horovod.tensorflow=horovod horovod.keras=horovod PIL.Image.Image=PIL.Image
monai.data.dataset=monai.data
"""
FRAMEWORKS = names("""
torch torchvision torchdata tensorflow keras jax flax optax lightning transformers datasets accelerate
deepspeed horovod composer streaming litdata webdataset ffcv grain monai nvidia tensorflow_datasets
torch_geometric megatron mxnet paddle ray
""")
BUILTINS = names("""
abs bool dict enumerate float getattr hasattr int isinstance iter len list map max min next open print
range round set sorted staticmethod str sum super tuple type zip filter property vars any all
""")
"""Functions of Python that `import *` of a library is not taken to hide."""
OPTION_NAMES = names("""
FLAGS arg args argv cfg conf config flags hparams hp opt options opts params parsed settings
""")
"""What options are called where nothing says what the name holds."""
NAMESPACES = names("""
argparse.Namespace dict easydict.EasyDict ml_collections.ConfigDict omegaconf.OmegaConf.create
types.SimpleNamespace
""")
"""Objects that keep what they are made with under its own name."""
LAUNCHER = names("""
LOCAL_RANK LOCAL_WORLD_SIZE OMPI_COMM_WORLD_RANK RANK SLURM_LOCALID SLURM_PROCID TF_CONFIG WORLD_SIZE
""")
"""Variables that a launcher sets for each process."""


TORCH = """dataset@0 batch_size@1=1 shuffle@2=False sampler@3=None batch_sampler@4 num_workers@5=0
collate_fn@6 pin_memory@7=False drop_last@8=False generator worker_init_fn prefetch_factor
persistent_workers=False""".replace("\n", " ")
DALI = """file_root file_list path paths index_path random_shuffle=False initial_fill shard_id
num_shards seed""".replace("\n", " ")
# As in `torch/utils/data/dataloader.py` of PyTorch 2, `ffcv/loader/loader.py` of FFCV 1.0 and
# `grain/_src/python/data_loader.py`. Of `streaming` the dataset shuffles, not the loader.
LOADERS = table(f"""
torch.utils.data.DataLoader torchdata.stateful_dataloader.StatefulDataLoader: {TORCH}
torch_geometric.loader.DataLoader monai.data.{{DataLoader,ThreadDataLoader}}: {TORCH}
ffcv.loader.Loader: fname@0 batch_size@1 num_workers@2 os_cache@3 order@4='OrderOption.SEQUENTIAL' \
distributed@5=False seed@6 indices@7 drop_last=True batches_ahead
webdataset.WebLoader: dataset@0 batch_size@1=1 shuffle=False num_workers=0 pin_memory drop_last \
prefetch_factor persistent_workers
streaming.StreamingDataLoader: dataset@0 batch_size@1=1 num_workers=0 collate_fn pin_memory=False \
drop_last=False prefetch_factor persistent_workers=False
litdata.StreamingDataLoader: dataset@0 batch_size@1=1 num_workers@2=0 shuffle drop_last pin_memory \
prefetch_factor persistent_workers collate_fn
grain.DataLoader: data_source sampler operations worker_count=0 worker_buffer_size shard_options \
read_options
nvidia.dali.fn.readers.{{file,tfrecord,webdataset,numpy,mxnet}}: {DALI}
""")
# As in `streaming/base/dataset.py` of version 0.13 and `keras/src/utils/image_dataset_utils.py`. The
# documented default of `list_files` is to shuffle.
DATASETS = table("""
torchvision.datasets.{ImageFolder,DatasetFolder}: root@0 transform
torchvision.datasets.{ImageNet,SVHN,STL10}: root@0 split@1 transform
torchvision.datasets.{CIFAR10,CIFAR100,MNIST,FashionMNIST}: root@0 train@1=True transform download
torchvision.datasets.FakeData: size@0=1000 image_size@1 num_classes@2 transform@3
torch.utils.data.TensorDataset: tensors@0
webdataset.WebDataset: urls@0 shardshuffle nodesplitter resampled seed cache_dir
streaming.StreamingDataset: remote local split shuffle=False shuffle_algo='py1e' shuffle_seed=9176 \
shuffle_block_size num_canonical_nodes batch_size batching_method predownload cache_limit streams \
epoch_size
litdata.StreamingDataset: input_dir@0 shuffle=False drop_last seed max_cache_size
datasets.load_dataset: path@0 name@1 data_files data_dir split streaming=False
datasets.load_from_disk: path@0
tensorflow.data.TFRecordDataset: filenames@0 compression_type@1 buffer_size@2 num_parallel_reads@3=None
tensorflow.data.FixedLengthRecordDataset: filenames@0 record_bytes@1
tensorflow.data.TextLineDataset: filenames@0
tensorflow.data.Dataset.list_files: file_pattern@0 shuffle@1=True seed@2
tensorflow.data.Dataset.{from_tensor_slices,from_tensors}: tensors@0
tensorflow.data.Dataset.from_generator: generator@0
tensorflow.data.Dataset.range: stop@0
tensorflow_datasets.{load,data_source}: name@0 split data_dir shuffle_files=False batch_size
keras.utils.image_dataset_from_directory: directory@0 label_mode batch_size=32 image_size shuffle=True \
seed validation_split subset
grain.ArrayRecordDataSource: paths@0
grain.TFDSDataSource:
monai.data.{Dataset,CacheDataset,PersistentDataset,SmartCacheDataset,LMDBDataset}: data@0 transform@1 \
cache_rate cache_num cache_dir num_workers
torch.utils.data.Subset: dataset@0
torch.utils.data.random_split: dataset@0 lengths@1 generator@2
torch.utils.data.{ConcatDataset,ChainDataset}: datasets@0
""")
WRAPPERS = names("""
webdataset.WebLoader torch.utils.data.{Subset,random_split,ConcatDataset,ChainDataset}
grain.MapDataset.source datasets.concatenate_datasets
""")
"""Datasets over other ones, which are their first argument."""
PARTS = names("torch.utils.data.{Subset,random_split}")
"""Those of them that leave samples out, and number the others anew."""
READERS = table("""
numpy.load: file@0 mmap_mode@1
numpy.memmap: filename@0 dtype@1 mode@2
numpy.fromfile: file@0 dtype@1
h5py.File: name@0 mode@1
tables.open_file pyarrow.parquet.ParquetDataset pandas.{read_parquet,read_csv} lmdb.open: path@0
torchvision.io.read_image librosa.load: path@0
pyarrow.parquet.read_table: source@0 columns
pyarrow.parquet.ParquetFile: source@0
pyarrow.dataset.dataset: source@0 format
zarr.open: store@0
torch.load: f@0 mmap
pickle.load soundfile.read: file@0
safetensors.torch.load_file cv2.imread tensorflow.io.read_file nibabel.load: filename@0
PIL.Image.open: fp@0
imageio.imread torchaudio.load: uri@0
skimage.io.imread: fname@0
torchvision.io.decode_image: input@0
SimpleITK.ReadImage: fileName@0
""")
"""Functions that read files."""
FORMATS = {
    "image-folder": """torchvision.datasets.{ImageFolder,ImageNet} nvidia.dali.fn.readers.file
        keras.utils.image_dataset_from_directory""",
    "files": """torchvision.datasets.DatasetFolder tensorflow.data.Dataset.list_files torch.load
        pickle.load safetensors.torch.load_file PIL.Image.open cv2.imread imageio.imread
        skimage.io.imread torchvision.io.read_image tensorflow.io.read_file torchaudio.load
        soundfile.read librosa.load nibabel.load SimpleITK.ReadImage
        monai.data.{Dataset,CacheDataset,PersistentDataset,SmartCacheDataset}""",
    "whole": """torchvision.datasets.{CIFAR10,CIFAR100,MNIST,FashionMNIST,SVHN,STL10}
        torch.utils.data.TensorDataset tensorflow.data.Dataset.{from_tensor_slices,from_tensors}""",
    "synthetic": "torchvision.datasets.FakeData tensorflow.data.Dataset.range",
    "webdataset": "webdataset.WebDataset nvidia.dali.fn.readers.webdataset",
    "mds": "streaming.StreamingDataset",
    "litdata": "litdata.StreamingDataset",
    "arrow": "datasets.{load_dataset,load_from_disk}",
    "tfrecord": """tensorflow.data.TFRecordDataset nvidia.dali.fn.readers.tfrecord
        tensorflow_datasets.load""",
    "raw": "tensorflow.data.FixedLengthRecordDataset numpy.{memmap,fromfile}",
    "ffcv": "ffcv.loader.Loader",
    "by name": "numpy.load",
    "npy": "nvidia.dali.fn.readers.numpy",
    "hdf5": "h5py.File tables.open_file",
    "parquet": """pyarrow.parquet.{read_table,ParquetFile,ParquetDataset} pyarrow.dataset.dataset
        pandas.read_parquet""",
    "lmdb": "lmdb.open monai.data.LMDBDataset",
    "array_record": "grain.ArrayRecordDataSource",
    "zarr": "zarr.open",
    "csv": "pandas.read_csv",
}
"""The format of a job file that holds what a call reads. `whole` is read into memory before training,
`synthetic` is made up, and for the last three tierfeed has no format."""
FORMAT_OF = {path: format for format, paths in FORMATS.items() for path in names(paths)}
FOREIGN = ("array_record", "zarr", "csv")
# As `ModelCheckpoint` of Lightning 2 and of Keras 3.
CHECKPOINTS = table("""
torch.save safetensors.torch.save_file: path@1
torch.distributed.checkpoint.{save,async_save}: checkpoint_id
*.{save_pretrained,save_checkpoint,save_weights,save_state,save_model}: path@0
tensorflow.train.Checkpoint.{save,write}: path@0
tensorflow.train.CheckpointManager: directory@1 max_to_keep@2 checkpoint_interval
tensorflow.train.CheckpointManager.save:
tensorflow.saved_model.save: export_dir@1
keras.models.save_model: filepath@1
keras.callbacks.ModelCheckpoint: filepath@0 save_freq='epoch' save_best_only save_weights_only
keras.callbacks.BackupAndRestore: backup_dir@0 save_freq@1='epoch'
lightning.callbacks.ModelCheckpoint: dirpath every_n_epochs every_n_train_steps save_top_k monitor
transformers.{TrainingArguments,Seq2SeqTrainingArguments}: output_dir@0 save_strategy save_steps \
save_total_limit
composer.Trainer: save_folder save_interval save_num_checkpoints_to_keep
orbax.checkpoint.CheckpointManager: directory@0 options
orbax.checkpoint.CheckpointManagerOptions: save_interval_steps max_to_keep
orbax.checkpoint.CheckpointManager.save: step@0
orbax.checkpoint.{PyTreeCheckpointer,StandardCheckpointer}.save: directory@0
flax.training.checkpoints.save_checkpoint: ckpt_dir step keep
""")
CACHES = table("""
tensorflow.data.Dataset.cache: filename@0='memory'
tensorflow.data.Dataset.snapshot: path@0
monai.data.CacheDataset: cache_rate cache_num cache_dir \
-- samples after their deterministic transforms, in memory
monai.data.PersistentDataset: cache_rate cache_num cache_dir \
-- samples after their deterministic transforms, in files
monai.data.SmartCacheDataset: cache_rate cache_num cache_dir \
-- part of the samples, replaced epoch by epoch
streaming.StreamingDataset: local cache_limit=None -- shards are kept in `local`
litdata.StreamingDataset: max_cache_size='100GB' -- chunks are kept on disk
webdataset.WebDataset: cache_dir cache_size -- shards are kept in `cache_dir`
functools.lru_cache: maxsize@0=128 -- results of a function, in memory
functools.cache: -- results of a function, in memory
joblib.Memory: location@0 -- results of functions, in files
*.cache_dataset:
ffcv.loader.Loader: os_cache@3 -- the operating system keeps the file
""")
CACHE_NEEDS = {"webdataset.WebDataset": "cache_dir", "streaming.StreamingDataset": "local",
               "ffcv.loader.Loader": "os_cache"}  # fmt: skip
"""What is only a cache with this argument."""
DISTRIBUTION = table("""
torch.utils.data.DistributedSampler: num_replicas@1 rank@2 shuffle@3=True seed@4=0 drop_last@5=False
torch.nn.parallel.DistributedDataParallel deepspeed.initialize horovod.init grain.NoSharding:
torch.nn.DataParallel: -- one process, several GPUs
torch.distributed.fsdp.{FullyShardedDataParallel,fully_shard}:
torch.distributed.init_process_group: backend@0 world_size
torch.multiprocessing.spawn: nprocs@2
accelerate.Accelerator: gradient_accumulation_steps dispatch_batches split_batches
lightning.{Trainer,fabric.Fabric,Fabric}: accelerator devices num_nodes strategy
tensorflow.distribute.MirroredStrategy: devices@0 -- one process, several GPUs
tensorflow.distribute.{MultiWorkerMirroredStrategy,TPUStrategy,ParameterServerStrategy}:
tensorflow.distribute.experimental.MultiWorkerMirroredStrategy:
tensorflow.data.Dataset.shard: num_shards@0 index@1
jax.distributed.initialize: num_processes
grain.ShardByJaxProcess: drop_remainder=False
grain.ShardOptions: shard_index shard_count drop_remainder=False
""")
SEEDS = table("""
torch.{manual_seed,cuda.manual_seed_all,Generator.manual_seed} random.seed: seed@0
numpy.random.{seed,default_rng} tensorflow.{random.set_seed,set_random_seed}: seed@0
keras.utils.set_random_seed accelerate.utils.set_seed transformers.set_seed: seed@0
composer.utils.reproducibility.seed_all jax.random.{PRNGKey,key} grain.MapDataset.seed: seed@0
lightning.seed_everything: seed@0 workers
grain.IndexSampler: shuffle=False seed num_epochs
""")
GLOBAL_SEEDS = names("""torch.manual_seed lightning.seed_everything transformers.set_seed
accelerate.utils.set_seed composer.utils.reproducibility.seed_all""")
EPOCHS = table("""
lightning.Trainer: max_epochs max_steps check_val_every_n_epoch
transformers.{TrainingArguments,Seq2SeqTrainingArguments}: num_train_epochs max_steps
composer.Trainer: max_duration eval_interval
grain.IndexSampler: num_epochs
tensorflow.data.Dataset.repeat: count@0
grain.MapDataset.repeat: num_epochs@0
*.fit: epochs steps_per_epoch validation_freq initial_epoch
""")
# As `TrainingArguments` of Transformers 4 and 5; some have the names that every loader has.
TRAINER = parameters("""per_device_train_batch_size=8 dataloader_num_workers=0
dataloader_drop_last=False dataloader_prefetch_factor gradient_accumulation_steps group_by_length seed=42
data_seed""")
TRAINER_NAMES = {"per_device_train_batch_size": "batch_size", "dataloader_num_workers": "num_workers",
                 "dataloader_drop_last": "drop_last",
                 "dataloader_prefetch_factor": "prefetch_factor"}  # fmt: skip

TF_DATA = "tensorflow.data.Dataset"
FAMILIES = {
    TF_DATA: (
        "tensorflow.data. tensorflow_datasets.load keras.utils.image_dataset_from_directory",
        names("""apply batch cache concatenate enumerate filter flat_map ignore_errors interleave map
        padded_batch prefetch ragged_batch rebatch repeat shard shuffle skip snapshot take unbatch window
        with_options"""),
    ),
    "webdataset.WebDataset": (
        "webdataset.WebDataset webdataset.DataPipeline webdataset.WebLoader",
        names("""batched compose decode map map_dict map_tuple rename repeat rsample select shuffle slice
        to_tuple unbatched with_epoch with_length"""),
    ),
    "grain.MapDataset": (
        "grain.MapDataset grain.IterDataset",
        names("""batch filter map map_with_index mix mp_prefetch random_map repeat seed shuffle slice
        to_iter_dataset"""),
    ),
    "datasets.Dataset": (
        "datasets.load_dataset datasets.load_from_disk datasets.Dataset. datasets.concatenate_datasets",
        names("""batch cast_column filter map remove_columns rename_column select shard shuffle skip take
        to_iterable_dataset train_test_split with_format with_transform"""),
    ),
}
"""Objects whose methods give another such object: what they begin with (a dot at the end stands for
all below), and the methods."""
TELLING = names("batch cache interleave map padded_batch prefetch repeat shuffle")
"""Methods of tf.data that few other objects have."""
PLACES = {
    f"{TF_DATA}.shuffle": "buffer_size seed reshuffle_each_iteration",
    f"{TF_DATA}.batch": "batch_size drop_remainder",
    f"{TF_DATA}.padded_batch": "batch_size padded_shapes",
    f"{TF_DATA}.prefetch": "buffer_size",
    f"{TF_DATA}.cache": "filename",
    f"{TF_DATA}.repeat": "count",
    f"{TF_DATA}.shard": "num_shards index",
    f"{TF_DATA}.take": "count",
    f"{TF_DATA}.skip": "count",
    f"{TF_DATA}.map": "map_func num_parallel_calls",
    f"{TF_DATA}.interleave": "map_func cycle_length block_length num_parallel_calls",
    "webdataset.WebDataset.shuffle": "size",
    "webdataset.WebDataset.batched": "batchsize collation_fn partial",
    "grain.MapDataset.batch": "batch_size",
}
"""The names of arguments of pipelines that are given without them."""

# What transforms make of a sample, with the argument that says so:
# `sides` are height and width, or more, and a single number stands for all sides of an image;
# `resize` with one number keeps the proportions; `shape` is the whole shape, channels last;
# `size` is height and width as two arguments; `channels` is for the decoder to say.
TRANSFORMS = {
    path: (effect, argument)
    for effect, argument, paths in (
        ("sides", "size@0", "torchvision.transforms.{RandomResizedCrop,CenterCrop,RandomCrop,FiveCrop}"),
        ("resize", "size@0", "torchvision.transforms.Resize"),
        ("gray", "", "torchvision.transforms.Grayscale tensorflow.image.rgb_to_grayscale"),
        ("floats", "", "torchvision.transforms.ToTensor"),
        ("bytes", "", "torchvision.transforms.{PILToTensor,ToImage} albumentations.pytorch.ToTensorV2"),
        ("type", "dtype@0", "torchvision.transforms.{ConvertImageDtype,ToDtype}"),
        ("size", "@0", "albumentations.{RandomResizedCrop,Resize,CenterCrop,RandomCrop}"),
        ("sides", "spatial_size@0", "monai.transforms.Resize"),
        ("sides", "spatial_size@1", "monai.transforms.Resized"),
        ("sides", "roi_size@0", "monai.transforms.{RandSpatialCrop,CenterSpatialCrop}"),
        ("sides", "roi_size@1", "monai.transforms.{RandSpatialCropd,CenterSpatialCropd}"),
        ("sides", "spatial_size@2", "monai.transforms.RandCropByPosNegLabeld"),
        ("channels", "channels@1", "tensorflow.io.{decode_jpeg,decode_image,decode_png}"),
        ("channels", "channels@1", "tensorflow.image.{decode_jpeg,decode_image,decode_png}"),
        ("sides", "size@1", "tensorflow.image.{resize,resize_images}"),
        ("size", "@1", "tensorflow.image.{resize_with_crop_or_pad,resize_with_pad}"),
        ("shape", "size@1", "tensorflow.image.random_crop"),
        ("shape", "shape@1", "tensorflow.reshape"),
        ("type", "dtype@1", "tensorflow.cast tensorflow.image.convert_image_dtype"),
        ("type", "out_type@1", "tensorflow.io.decode_raw"),
    )
    for path in names(paths)
}
LISTS = names("""
{torchvision.transforms,albumentations,monai.transforms,composer.datasets.utils}.Compose
torch.nn.Sequential keras.Sequential
""")
"""Calls that hold a list of transforms."""
ELEMENT_BYTES = {
    name: size
    for size, types in (
        (1, "bool uint8 int8"),
        (2, "float16 bfloat16 half uint16 int16"),
        (4, "float32 float int32 uint32"),
        (8, "float64 double int64 long uint64"),
    )
    for name in types.split()
}

PHASES = ("training", "validation", "evaluation")
PHASE_OF_WORD = {
    word: phase
    for phase, words in zip(
        PHASES,
        (
            "train training trn trainloader trainset fit",
            "val valid validate validation dev valloader valset",
            """test testing eval evaluate evaluation predict prediction inference infer testloader
            testset""",
        ),
    )
    for word in words.split()
}
PHASE_OF_METHOD = dict.fromkeys(
    names("""backward apply_gradients GradientTape value_and_grad train_on_batch train_batch zero_grad
    train fit"""),
    "training",
)
PHASE_OF_METHOD["validate"] = "validation"
PHASE_OF_METHOD |= dict.fromkeys(
    names("eval no_grad inference_mode evaluate test test_on_batch predict predict_on_batch"),
    "evaluation",
)
"""Methods that only one phase calls."""
HOOKS = names("""training_step validation_step test_step predict_step train_dataloader val_dataloader
test_dataloader predict_dataloader""")
"""Methods that Lightning calls; their names say the phase."""


def phase_of_name(name: str) -> str | None:
    """The phase that a name speaks of, by its words: `val_loader`, `/data/test`, `trainSet`."""
    spaced = re.sub(r"(?<=[a-zß-öø-ÿ])(?=[A-ZÀ-ÖØ-Þ])", " ", name)
    words = re.split(r"[\W\d_]+", spaced.lower())
    return next((PHASE_OF_WORD[it] for it in words if it in PHASE_OF_WORD), None)


def canonical(path: str) -> str:
    """The name that a library's own documentation uses."""
    for pair in ALIASES.split():
        alias, name = pair.split("=")
        if path == alias or path.startswith(f"{alias}."):
            path = name + path[len(alias) :]
    return path


def family(path: str) -> str | None:
    """The name in `FAMILIES` of what a call of `path` gives."""
    for name, (roots, _) in FAMILIES.items():
        for root in (*roots.split(), name):
            is_below = path.startswith(root if root in (name,) or root.endswith(".") else f"{root}.")
            if is_below or path == root:
                return name
    return None


def is_about(name: str, path: str) -> bool:
    return path.endswith(name[1:]) if name.startswith("*") else path == name


def spec_of(table: list[Spec], path: str) -> Spec | None:
    return next((it for it in table if is_about(it.path, path)), None)


def is_known(path: str) -> bool:
    """Whether a table has this name."""
    tables = (LOADERS, DATASETS, READERS, CHECKPOINTS, DISTRIBUTION, CACHES, SEEDS)
    is_named = any(spec.path == path for table in tables for spec in table)
    return is_named or family(path) is not None
