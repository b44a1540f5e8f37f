"""What the names of libraries mean: tables, and functions that look names up in them.

A library is known by the name that its own documentation uses. In a table `a.{b,c}` stands for `a.b`
and `a.c`, and `*.name` for a method of any object.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple


class Parameter(NamedTuple):
    """An argument that is worth knowing, as a table writes it: `name!@place=default`."""

    name: str
    place: int | None = None  # Where it may stand without its name, from 0.
    default: object = ...  # What the library takes if it is left out; `...` is not told.
    is_needed: bool = False  # Marked by `!`: without it the call says nothing.


class Spec(NamedTuple):
    """A call that says something, as a table writes it: `path: parameters => format -- says`."""

    kind: str  # Of a finding, or `transform`.
    path: str
    parameters: list[Parameter]
    format: str = ""  # The format of a job file that holds what is read.
    says: str = ""  # What it does, in words; of a transform, what it sets.


def parameters(text: str) -> list[Parameter]:
    found = []
    for word in text.split():
        head, equals, default = word.partition("=")
        name, _, place = head.partition("@")
        value = ast.literal_eval(default) if equals else ...
        found.append(Parameter(name.rstrip("!"), int(place) if place else None, value, "!" in name))
    return found


def names(text: str) -> list[str]:
    """The names that `a.{b,c}` stands for."""
    found = []
    for word in text.split():
        head, brace, rest = word.partition("{")
        inner, _, tail = rest.partition("}")
        found += [f"{head}{it}{tail}" for it in inner.split(",")] if brace else [word]
    return found


def by_word(text: str) -> dict[str, str]:
    """The name of each word, of `name: words; name: words`."""
    lists = (part.split(":") for part in text.split(";"))
    return {word: name.strip() for name, words in lists for word in words.split()}


def specs(text: str) -> dict[str, list[Spec]]:
    """By the path; `# kind` is above the lines of a kind."""
    found: dict[str, list[Spec]] = {}
    kind = ""
    for line in text.strip().split("\n"):
        head, _, says = line.partition(" -- ")
        head, _, format = head.partition(" => ")
        paths, _, arguments = head.partition(":")
        kind = line[2:] if line.startswith("# ") else kind
        for path in names(paths) if not line.startswith("# ") else ():
            found.setdefault(path, []).append(Spec(kind, path, parameters(arguments), format, says))
    return found


ALIASES = dict(it.split("=") for it in names("""
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
"""))  # fmt: skip
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
FOREIGN = ("array_record", "zarr", "csv")
"""Formats that tierfeed does not have."""


# Of the formats, `whole` is read into memory before training, and `synthetic` is made up.
# Loaders as in `torch/utils/data/dataloader.py` of PyTorch 2, `ffcv/loader/loader.py` of FFCV 1.0 and
# `grain/_src/python/data_loader.py`; of `streaming` the dataset shuffles, not the loader, as in
# `streaming/base/dataset.py` of version 0.13. The documented default of `list_files` is to shuffle.
# Checkpoints as `ModelCheckpoint` of Lightning 2 and of Keras 3.
DALI = """file_root file_list path paths index_path random_shuffle=False initial_fill shard_id
num_shards seed""".replace("\n", " ")
CALLS = specs(f"""
# loader
{{torch.utils.data,torch_geometric.loader,monai.data}}.DataLoader monai.data.ThreadDataLoader \
torchdata.stateful_dataloader.StatefulDataLoader: dataset@0 batch_size@1=1 shuffle@2=False \
sampler@3=None batch_sampler@4 num_workers@5=0 collate_fn@6 pin_memory@7=False drop_last@8=False \
generator worker_init_fn prefetch_factor persistent_workers=False
ffcv.loader.Loader: fname@0 batch_size@1 num_workers@2 os_cache@3 order@4='OrderOption.SEQUENTIAL' \
distributed@5=False seed@6 indices@7 drop_last=True batches_ahead => ffcv
webdataset.WebLoader: dataset@0 batch_size@1=1 shuffle=False num_workers=0 pin_memory drop_last \
prefetch_factor persistent_workers
streaming.StreamingDataLoader: dataset@0 batch_size@1=1 num_workers=0 collate_fn pin_memory=False \
drop_last=False prefetch_factor persistent_workers=False
litdata.StreamingDataLoader: dataset@0 batch_size@1=1 num_workers@2=0 shuffle drop_last pin_memory \
prefetch_factor persistent_workers collate_fn
grain.DataLoader: data_source sampler operations worker_count=0 worker_buffer_size shard_options \
read_options
nvidia.dali.fn.readers.file: {DALI} => image-folder
nvidia.dali.fn.readers.tfrecord: {DALI} => tfrecord
nvidia.dali.fn.readers.webdataset: {DALI} => webdataset
nvidia.dali.fn.readers.numpy: {DALI} => npy
nvidia.dali.fn.readers.mxnet: {DALI}
# dataset
torchvision.datasets.ImageFolder: root@0 transform target_transform@2 loader@3 is_valid_file@4 \
=> image-folder
torchvision.datasets.DatasetFolder: root@0 transform loader@1 target_transform@4 is_valid_file@5 \
=> files
torchvision.datasets.ImageNet: root@0 split@1 transform target_transform loader => image-folder
torchvision.datasets.{{SVHN,STL10}}: root@0 split@1 transform => whole
torchvision.datasets.{{CIFAR10,CIFAR100,MNIST,FashionMNIST}}: root@0 train@1=True transform download \
=> whole
torchvision.datasets.FakeData: size@0=1000 image_size@1 num_classes@2 transform@3 => synthetic
torch.utils.data.TensorDataset: tensors@0 => whole
webdataset.WebDataset: urls@0 shardshuffle nodesplitter resampled seed cache_dir => webdataset
streaming.StreamingDataset: remote local split shuffle=False shuffle_algo='py1e' shuffle_seed=9176 \
shuffle_block_size num_canonical_nodes batch_size batching_method predownload cache_limit streams \
epoch_size => mds
litdata.StreamingDataset: input_dir@0 shuffle=False drop_last seed max_cache_size => litdata
datasets.load_dataset: path@0 name@1 data_files data_dir split streaming=False => arrow
datasets.load_from_disk: path@0 => arrow
tensorflow.data.TFRecordDataset: filenames@0 compression_type@1 buffer_size@2 \
num_parallel_reads@3=None => tfrecord
tensorflow.data.FixedLengthRecordDataset: filenames@0 record_bytes@1 => raw
tensorflow.data.TextLineDataset: filenames@0
tensorflow.data.Dataset.list_files: file_pattern@0 shuffle@1=True seed@2 => files
tensorflow.data.Dataset.{{from_tensor_slices,from_tensors}}: tensors@0 => whole
tensorflow.data.Dataset.from_generator: generator@0
tensorflow.data.Dataset.range: stop@0 => synthetic
tensorflow_datasets.load: name@0 split data_dir shuffle_files=False batch_size => tfrecord
tensorflow_datasets.data_source: name@0 split data_dir shuffle_files=False batch_size
keras.utils.image_dataset_from_directory: directory@0 label_mode batch_size=32 image_size \
shuffle=True seed validation_split subset => image-folder
grain.ArrayRecordDataSource: paths@0 => array_record
grain.TFDSDataSource:
monai.data.{{Dataset,CacheDataset,PersistentDataset,SmartCacheDataset}}: data@0 transform@1 \
cache_rate cache_num cache_dir num_workers => files
monai.data.LMDBDataset: data@0 transform@1 cache_rate cache_num cache_dir num_workers => lmdb
torch.utils.data.Subset: dataset@0
torch.utils.data.random_split: dataset@0 lengths@1 generator@2
torch.utils.data.{{ConcatDataset,ChainDataset}}: datasets@0
# reader
numpy.load: file@0 mmap_mode@1 => by name
numpy.memmap: filename@0 dtype@1 mode@2 => raw
numpy.fromfile: file@0 dtype@1 => raw
h5py.File: name@0 mode@1 => hdf5
tables.open_file: path@0 => hdf5
pyarrow.parquet.{{ParquetFile,read_table}} pyarrow.dataset.dataset: source@0 columns format => parquet
pyarrow.parquet.ParquetDataset pandas.read_parquet: path@0 => parquet
pandas.read_csv: path@0 => csv
lmdb.open: path@0 => lmdb
zarr.open: store@0 => zarr
torch.load: f@0 mmap => files
torchvision.io.read_image librosa.load: path@0 => files
PIL.Image.open: fp@0 => files
skimage.io.imread: fname@0 => files
SimpleITK.ReadImage: fileName@0 => files
pickle.load soundfile.read: file@0 => files
safetensors.torch.load_file cv2.imread tensorflow.io.read_file nibabel.load: filename@0 => files
imageio.imread torchaudio.load: uri@0 => files
torchvision.io.decode_image: input@0
# checkpoint
torch.save safetensors.torch.save_file: path@1
torch.distributed.checkpoint.{{save,async_save}}: checkpoint_id
*.{{save_pretrained,save_checkpoint,save_weights,save_state,save_model}}: path@0
tensorflow.train.Checkpoint.{{save,write}}: path@0
tensorflow.train.CheckpointManager.save:
tensorflow.train.CheckpointManager: directory@1 max_to_keep@2 checkpoint_interval
tensorflow.saved_model.save: export_dir@1
keras.models.save_model: filepath@1
keras.callbacks.ModelCheckpoint: filepath@0 save_freq='epoch' save_best_only save_weights_only
keras.callbacks.BackupAndRestore: backup_dir@0 save_freq@1='epoch'
lightning.callbacks.ModelCheckpoint: dirpath every_n_epochs every_n_train_steps save_top_k monitor
transformers.{{TrainingArguments,Seq2SeqTrainingArguments}}: output_dir@0 save_strategy save_steps \
save_total_limit
composer.Trainer: save_folder save_interval save_num_checkpoints_to_keep
orbax.checkpoint.CheckpointManager: directory@0 options
orbax.checkpoint.CheckpointManagerOptions: save_interval_steps max_to_keep
orbax.checkpoint.CheckpointManager.save: step@0
orbax.checkpoint.{{PyTreeCheckpointer,StandardCheckpointer}}.save: directory@0
flax.training.checkpoints.save_checkpoint: ckpt_dir step keep
# cache
tensorflow.data.Dataset.cache: filename@0='memory'
tensorflow.data.Dataset.snapshot: path@0
monai.data.CacheDataset: cache_rate cache_num cache_dir \
-- samples after their deterministic transforms, in memory
monai.data.PersistentDataset: cache_rate cache_num cache_dir \
-- samples after their deterministic transforms, in files
monai.data.SmartCacheDataset: cache_rate cache_num cache_dir \
-- part of the samples, replaced epoch by epoch
streaming.StreamingDataset: local! cache_limit=None -- shards are kept in `local`
litdata.StreamingDataset: max_cache_size='100GB' -- chunks are kept on disk
webdataset.WebDataset: cache_dir! cache_size -- shards are kept in `cache_dir`
functools.lru_cache: maxsize@0=128 -- results of a function, in memory
functools.cache: -- results of a function, in memory
joblib.Memory: location@0 -- results of functions, in files
*.cache_dataset:
ffcv.loader.Loader: os_cache!@3 -- the operating system keeps the file
# distribution
torch.utils.data.DistributedSampler: num_replicas@1 rank@2 shuffle@3=True seed@4=0 drop_last@5=False
torch.nn.parallel.DistributedDataParallel deepspeed.initialize horovod.init grain.NoSharding:
torch.distributed.fsdp.{{FullyShardedDataParallel,fully_shard}}:
torch.distributed.init_process_group: backend@0 world_size
torch.multiprocessing.spawn: nprocs@2
accelerate.Accelerator: gradient_accumulation_steps dispatch_batches split_batches
lightning.{{Trainer,fabric.Fabric,Fabric}}: accelerator devices num_nodes strategy
torch.nn.DataParallel: -- one process, several GPUs
tensorflow.distribute.MirroredStrategy: devices@0 -- one process, several GPUs
tensorflow.distribute.{{MultiWorkerMirroredStrategy,TPUStrategy,ParameterServerStrategy}}:
tensorflow.distribute.experimental.MultiWorkerMirroredStrategy:
tensorflow.data.Dataset.shard: num_shards@0 index@1
jax.distributed.initialize: num_processes
grain.ShardByJaxProcess: drop_remainder=False
grain.ShardOptions: shard_index shard_count drop_remainder=False
# seed
torch.{{manual_seed,cuda.manual_seed_all,Generator.manual_seed}} random.seed: seed@0
numpy.random.{{seed,default_rng}} tensorflow.{{random.set_seed,set_random_seed}}: seed@0
keras.utils.set_random_seed accelerate.utils.set_seed transformers.set_seed: seed@0
composer.utils.reproducibility.seed_all jax.random.{{PRNGKey,key}} grain.MapDataset.seed: seed@0
lightning.seed_everything: seed@0 workers
grain.IndexSampler: shuffle=False seed num_epochs
# epochs
lightning.Trainer: max_epochs max_steps check_val_every_n_epoch
transformers.{{TrainingArguments,Seq2SeqTrainingArguments}}: num_train_epochs max_steps
composer.Trainer: max_duration eval_interval
grain.IndexSampler: num_epochs
tensorflow.data.Dataset.repeat: count@0
grain.MapDataset.repeat: num_epochs@0
*.fit: epochs steps_per_epoch validation_freq initial_epoch
# preprocessing
{{torchvision.transforms,albumentations,monai.transforms,composer.datasets.utils}}.Compose:
torch.nn.Sequential keras.Sequential:
# transform
torchvision.transforms.{{RandomResizedCrop,CenterCrop,RandomCrop,FiveCrop}}: size@0 -- sides
torchvision.transforms.Resize: size@0 -- resize
torchvision.transforms.Grayscale tensorflow.image.rgb_to_grayscale: -- gray
torchvision.transforms.ToTensor: -- float32
torchvision.transforms.{{PILToTensor,ToImage}} albumentations.pytorch.ToTensorV2: -- uint8
torchvision.transforms.{{ConvertImageDtype,ToDtype}}: dtype@0 -- type
albumentations.{{RandomResizedCrop,Resize,CenterCrop,RandomCrop}}: height@0 width@1 -- sides
monai.transforms.Resize: spatial_size@0 -- sides
monai.transforms.Resized: spatial_size@1 -- sides
monai.transforms.{{RandSpatialCrop,CenterSpatialCrop}}: roi_size@0 -- sides
monai.transforms.{{RandSpatialCropd,CenterSpatialCropd}}: roi_size@1 -- sides
monai.transforms.RandCropByPosNegLabeld: spatial_size@2 -- sides
tensorflow.io.{{decode_jpeg,decode_image,decode_png}}: channels@1 -- channels
tensorflow.image.{{decode_jpeg,decode_image,decode_png}}: channels@1 -- channels
tensorflow.image.{{resize,resize_images}}: size@1 -- sides
tensorflow.image.{{resize_with_crop_or_pad,resize_with_pad}}: target_height@1 target_width@2 -- sides
tensorflow.image.random_crop: size@1 -- shape
tensorflow.reshape: shape@1 -- shape
tensorflow.cast tensorflow.image.convert_image_dtype: dtype@1 -- type
tensorflow.io.decode_raw: out_type@1 -- type
""")
"""`sides` are height and width, or more, and a single number stands for all sides of an image;
`resize` with one number keeps the proportions; `shape` is the whole shape, channels last."""
GLOBAL_SEEDS = names("""torch.manual_seed lightning.seed_everything transformers.set_seed
accelerate.utils.set_seed composer.utils.reproducibility.seed_all""")
WRAPPERS = names("""torch.utils.data.{Subset,random_split,ConcatDataset,ChainDataset}
webdataset.WebLoader grain.MapDataset.source datasets.concatenate_datasets""")
"""Datasets over other ones, which are their first argument."""
PARTS = {it: f"a part of the samples, by {it}" for it in names("""Subset random_split SubsetRandomSampler
take skip filter select train_test_split""")}
PARTS.update({it: f"several datasets as one, by {it}" for it in names("ConcatDataset ChainDataset")})
"""Wrappers, samplers and steps of pipelines whose samples are not those of one source."""
# As `TrainingArguments` of Transformers 4 and 5; some have the names that every loader has.
TRAINER = parameters("""per_device_train_batch_size=8 dataloader_num_workers=0
dataloader_drop_last=False dataloader_prefetch_factor gradient_accumulation_steps group_by_length seed=42
data_seed""")

TF_DATA = "tensorflow.data.Dataset"
METHODS = {
    TF_DATA: names("""apply batch cache concatenate enumerate filter flat_map ignore_errors interleave
        map padded_batch prefetch ragged_batch rebatch repeat shard shuffle skip snapshot take unbatch
        window with_options"""),
    "webdataset.WebDataset": names("""batched compose decode map map_dict map_tuple rename repeat rsample
        select shuffle slice to_tuple unbatched with_epoch with_length"""),
    "grain.MapDataset": names("""batch filter map map_with_index mix mp_prefetch random_map repeat seed
        shuffle slice to_iter_dataset"""),
    "datasets.Dataset": names("""batch cast_column filter map remove_columns rename_column select shard
        shuffle skip take to_iterable_dataset train_test_split with_format with_transform"""),
}
"""The methods of pipelines that give another pipeline of the same family."""
ROOTS = by_word(f"""
{TF_DATA}: tensorflow.data tensorflow_datasets.load keras.utils.image_dataset_from_directory;
webdataset.WebDataset: webdataset.WebDataset webdataset.DataPipeline webdataset.WebLoader;
grain.MapDataset: grain.MapDataset grain.IterDataset;
datasets.Dataset: datasets.load_dataset datasets.load_from_disk datasets.Dataset
datasets.concatenate_datasets""")
"""What begins a pipeline, with all below it, and its family."""
TELLING = names("batch cache interleave map padded_batch prefetch repeat shuffle")
"""Methods of tf.data that few other objects have."""
PLACES = {
    f"{TF_DATA}.shuffle": "buffer_size seed reshuffle_each_iteration",
    f"{TF_DATA}.batch": "batch_size drop_remainder",
    f"{TF_DATA}.padded_batch": "batch_size padded_shapes",
    f"{TF_DATA}.prefetch": "buffer_size",
    f"{TF_DATA}.cache": "filename",
    **dict.fromkeys(names(f"{TF_DATA}.{{repeat,take,skip}}"), "count"),
    f"{TF_DATA}.shard": "num_shards index",
    f"{TF_DATA}.map": "map_func num_parallel_calls",
    f"{TF_DATA}.interleave": "map_func cycle_length block_length num_parallel_calls",
    "webdataset.WebDataset.shuffle": "size",
    "webdataset.WebDataset.batched": "batchsize collation_fn partial",
    "grain.MapDataset.batch": "batch_size",
}
"""The names of arguments of pipelines that are given without them."""
ELEMENT_BYTES = by_word("""1: bool uint8 int8; 2: float16 bfloat16 half uint16 int16;
4: float32 float int32 uint32; 8: float64 double int64 long uint64""")

PHASES = ("training", "validation", "evaluation")
PHASE_OF_WORD = by_word("""training: train training trainloader trainset trn fit;
validation: val valid validate validation dev valloader valset;
evaluation: test testing testloader testset eval evaluate evaluation predict prediction inference
infer""")
PHASE_OF_METHOD = by_word("""training: backward apply_gradients GradientTape value_and_grad
train_on_batch train_batch zero_grad train fit; validation: validate;
evaluation: eval no_grad inference_mode evaluate test test_on_batch predict predict_on_batch""")
"""Methods that only one phase calls."""
HOOKS = names("{training,validation,test,predict}_step {train,val,test,predict}_dataloader")
"""Methods that Lightning calls; their names say the phase."""


def phase_of_name(name: str) -> str | None:
    """The phase that a name speaks of, by its words: `val_loader`, `/data/test`, `trainSet`."""
    spaced = re.sub(r"(?<=[a-zß-öø-ÿ])(?=[A-ZÀ-ÖØ-Þ])", " ", name)
    words = re.split(r"[\W\d_]+", spaced.lower())
    return next((PHASE_OF_WORD[it] for it in words if it in PHASE_OF_WORD), None)


def last(path: str) -> str:
    return path.rpartition(".")[2]


def canonical(path: str) -> str:
    """The name that a library's own documentation uses."""
    for alias, name in ALIASES.items():
        if path == alias or path.startswith(f"{alias}."):
            path = name + path[len(alias) :]
    return path


def family(path: str) -> str | None:
    """The pipelines in `METHODS` that a call of `path` gives one of."""
    return next((ROOTS[it] for it in ROOTS if path == it or path.startswith(f"{it}.")), None)


def is_step(path: str) -> bool:
    """Whether a call of `path` is a step of a pipeline."""
    of = family(path)
    return of is not None and path.startswith(f"{of}.") and last(path) in METHODS[of]


def specs_of(path: str) -> list[Spec]:
    return [*CALLS.get(path, ()), *CALLS.get(f"*.{last(path)}", ())]


def spec_of(path: str, *kinds: str) -> Spec | None:
    return next((it for it in specs_of(path) if it.kind in kinds), None)


def format_of(path: str) -> str:
    return next((it.format for it in specs_of(path) if it.format), "")


def is_known(path: str) -> bool:
    """Whether a table has this name."""
    return path in CALLS or family(path) is not None
