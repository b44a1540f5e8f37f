//! Datasets and functions that read files, with the format of tierfeed that holds such files.

use super::spec::{
    Default::{self, Bool, Int, Text},
    Parameter, Spec, at, at_or, named, named_or,
};
use crate::script::finding::Kind::{Dataset, Reader};

/// Which format of a job file holds what a call reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::script) enum Format {
    Named(&'static str),
    /// As the name of the file ends.
    ByName,
    /// Made up in memory: nothing is read.
    Synthetic,
    /// Read into memory as a whole before training.
    Whole,
    /// In files that tierfeed has no format for.
    Foreign(&'static str),
    /// Of something else that is read.
    Inner,
}

const ROOT: &[Parameter] = &[at(0, "root"), named("transform")];
const VISION: &[Parameter] =
    &[at(0, "root"), at_or(1, "train", Bool(true)), named("transform"), named("download")];
const SPLIT: &[Parameter] = &[at(0, "root"), at(1, "split"), named("transform")];
const FAKE: &[Parameter] =
    &[at_or(0, "size", Int(1000)), at(1, "image_size"), at(2, "num_classes"), at(3, "transform")];
const SHARDS: &[Parameter] = &[
    at(0, "urls"),
    named("shardshuffle"),
    named("nodesplitter"),
    named("resampled"),
    named("seed"),
    named("cache_dir"),
];

/// # Source
///
/// `streaming/base/dataset.py` of version 0.13.
const MOSAIC: &[Parameter] = &[
    named("remote"),
    named("local"),
    named("split"),
    named_or("shuffle", Bool(false)),
    named_or("shuffle_algo", Text("py1e")),
    named_or("shuffle_seed", Int(9_176)),
    named("shuffle_block_size"),
    named("num_canonical_nodes"),
    named("batch_size"),
    named("batching_method"),
    named("predownload"),
    named("cache_limit"),
    named("streams"),
    named("epoch_size"),
];
const LITDATA: &[Parameter] = &[
    at(0, "input_dir"),
    named_or("shuffle", Bool(false)),
    named("drop_last"),
    named("seed"),
    named("max_cache_size"),
];
const HUGGING_FACE: &[Parameter] = &[
    at(0, "path"),
    at(1, "name"),
    named("data_files"),
    named("data_dir"),
    named("split"),
    named_or("streaming", Bool(false)),
];
const RECORDS: &[Parameter] = &[
    at(0, "filenames"),
    at(1, "compression_type"),
    at(2, "buffer_size"),
    at_or(3, "num_parallel_reads", Default::None),
];
const FIXED: &[Parameter] = &[at(0, "filenames"), at(1, "record_bytes")];
const FILENAMES: &[Parameter] = &[at(0, "filenames")];
/// The documented default of `shuffle` is to shuffle.
const PATTERN: &[Parameter] =
    &[at(0, "file_pattern"), at_or(1, "shuffle", Bool(true)), at(2, "seed")];
const TFDS: &[Parameter] = &[
    at(0, "name"),
    named("split"),
    named("data_dir"),
    named_or("shuffle_files", Bool(false)),
    named("batch_size"),
];

/// # Source
///
/// `keras/src/utils/image_dataset_utils.py`.
const KERAS_FOLDER: &[Parameter] = &[
    at(0, "directory"),
    named("label_mode"),
    named_or("batch_size", Int(32)),
    named("image_size"),
    named_or("shuffle", Bool(true)),
    named("seed"),
    named("validation_split"),
    named("subset"),
];
const RECORDS_OF_ARRAYS: &[Parameter] = &[at(0, "paths")];
const TENSORS: &[Parameter] = &[at(0, "tensors")];
const MONAI: &[Parameter] = &[
    at(0, "data"),
    at(1, "transform"),
    named("cache_rate"),
    named("cache_num"),
    named("cache_dir"),
    named("num_workers"),
];
const INNER: &[Parameter] = &[at(0, "dataset")];
const SPLITTER: &[Parameter] = &[at(0, "dataset"), at(1, "lengths"), at(2, "generator")];
const SEVERAL: &[Parameter] = &[at(0, "datasets")];
const FILE: &[Parameter] = &[at(0, "file"), at(1, "mmap_mode")];
const RAW: &[Parameter] = &[at(0, "filename"), at(1, "dtype"), at(2, "mode")];
const PATH: &[Parameter] = &[at(0, "path")];

/// What a loader can be given.
pub(in crate::script) const DATASETS: &[Spec] = &[
    Spec::new(Dataset, "torchvision.datasets.ImageFolder", "", ROOT),
    Spec::new(Dataset, "torchvision.datasets.DatasetFolder", "", ROOT),
    Spec::new(Dataset, "torchvision.datasets.ImageNet", "", SPLIT),
    Spec::new(Dataset, "torchvision.datasets.CIFAR10", "", VISION),
    Spec::new(Dataset, "torchvision.datasets.CIFAR100", "", VISION),
    Spec::new(Dataset, "torchvision.datasets.MNIST", "", VISION),
    Spec::new(Dataset, "torchvision.datasets.FashionMNIST", "", VISION),
    Spec::new(Dataset, "torchvision.datasets.SVHN", "", SPLIT),
    Spec::new(Dataset, "torchvision.datasets.STL10", "", SPLIT),
    Spec::new(Dataset, "torchvision.datasets.FakeData", "", FAKE),
    Spec::new(Dataset, "torch.utils.data.TensorDataset", "", TENSORS),
    Spec::new(Dataset, "webdataset.WebDataset", "", SHARDS),
    Spec::new(Dataset, "streaming.StreamingDataset", "", MOSAIC),
    Spec::new(Dataset, "litdata.StreamingDataset", "", LITDATA),
    Spec::new(Dataset, "datasets.load_dataset", "", HUGGING_FACE),
    Spec::new(Dataset, "datasets.load_from_disk", "", PATH),
    Spec::new(Dataset, "tensorflow.data.TFRecordDataset", "", RECORDS),
    Spec::new(Dataset, "tensorflow.data.FixedLengthRecordDataset", "", FIXED),
    Spec::new(Dataset, "tensorflow.data.TextLineDataset", "", FILENAMES),
    Spec::new(Dataset, "tensorflow.data.Dataset.list_files", "", PATTERN),
    Spec::new(Dataset, "tensorflow.data.Dataset.from_tensor_slices", "", TENSORS),
    Spec::new(Dataset, "tensorflow.data.Dataset.from_tensors", "", TENSORS),
    Spec::new(Dataset, "tensorflow.data.Dataset.from_generator", "", &[at(0, "generator")]),
    Spec::new(Dataset, "tensorflow.data.Dataset.range", "", &[at(0, "stop")]),
    Spec::new(Dataset, "tensorflow_datasets.load", "", TFDS),
    Spec::new(Dataset, "keras.utils.image_dataset_from_directory", "", KERAS_FOLDER),
    Spec::new(Dataset, "grain.ArrayRecordDataSource", "", RECORDS_OF_ARRAYS),
    Spec::new(Dataset, "grain.TFDSDataSource", "", &[]),
    Spec::new(Dataset, "tensorflow_datasets.data_source", "", TFDS),
    Spec::new(Dataset, "monai.data.Dataset", "", MONAI),
    Spec::new(Dataset, "monai.data.CacheDataset", "", MONAI),
    Spec::new(Dataset, "monai.data.PersistentDataset", "", MONAI),
    Spec::new(Dataset, "monai.data.SmartCacheDataset", "", MONAI),
    Spec::new(Dataset, "monai.data.LMDBDataset", "", MONAI),
    Spec::new(Dataset, "torch.utils.data.Subset", "", INNER),
    Spec::new(Dataset, "torch.utils.data.random_split", "", SPLITTER),
    Spec::new(Dataset, "torch.utils.data.ConcatDataset", "", SEVERAL),
    Spec::new(Dataset, "torch.utils.data.ChainDataset", "", SEVERAL),
];

/// Datasets over other ones, which are their first argument.
pub(in crate::script) const WRAPPERS: [&str; 7] = [
    "webdataset.WebLoader",
    "torch.utils.data.Subset",
    "torch.utils.data.random_split",
    "torch.utils.data.ConcatDataset",
    "torch.utils.data.ChainDataset",
    "grain.MapDataset.source",
    "datasets.concatenate_datasets",
];

/// Those of them that leave samples out, and number the others anew.
pub(in crate::script) const PARTS: [&str; 2] =
    ["torch.utils.data.Subset", "torch.utils.data.random_split"];

/// Functions that read files.
pub(in crate::script) const OUT_OF_FILES: &[Spec] = &[
    Spec::new(Reader, "numpy.load", "", FILE),
    Spec::new(Reader, "numpy.memmap", "", RAW),
    Spec::new(Reader, "numpy.fromfile", "", &[at(0, "file"), at(1, "dtype")]),
    Spec::new(Reader, "h5py.File", "", &[at(0, "name"), at(1, "mode")]),
    Spec::new(Reader, "tables.open_file", "", PATH),
    Spec::new(Reader, "pyarrow.parquet.read_table", "", &[at(0, "source"), named("columns")]),
    Spec::new(Reader, "pyarrow.parquet.ParquetFile", "", &[at(0, "source")]),
    Spec::new(Reader, "pyarrow.parquet.ParquetDataset", "", &[at(0, "path")]),
    Spec::new(Reader, "pyarrow.dataset.dataset", "", &[at(0, "source"), named("format")]),
    Spec::new(Reader, "pandas.read_parquet", "", PATH),
    Spec::new(Reader, "pandas.read_csv", "", PATH),
    Spec::new(Reader, "lmdb.open", "", PATH),
    Spec::new(Reader, "zarr.open", "", &[at(0, "store")]),
    Spec::new(Reader, "torch.load", "", &[at(0, "f"), named("mmap")]),
    Spec::new(Reader, "pickle.load", "", &[at(0, "file")]),
    Spec::new(Reader, "safetensors.torch.load_file", "", &[at(0, "filename")]),
    Spec::new(Reader, "PIL.Image.open", "", &[at(0, "fp")]),
    Spec::new(Reader, "cv2.imread", "", &[at(0, "filename")]),
    Spec::new(Reader, "imageio.imread", "", &[at(0, "uri")]),
    Spec::new(Reader, "skimage.io.imread", "", &[at(0, "fname")]),
    Spec::new(Reader, "torchvision.io.read_image", "", PATH),
    Spec::new(Reader, "torchvision.io.decode_image", "", &[at(0, "input")]),
    Spec::new(Reader, "tensorflow.io.read_file", "", &[at(0, "filename")]),
    Spec::new(Reader, "torchaudio.load", "", &[at(0, "uri")]),
    Spec::new(Reader, "soundfile.read", "", &[at(0, "file")]),
    Spec::new(Reader, "librosa.load", "", PATH),
    Spec::new(Reader, "nibabel.load", "", &[at(0, "filename")]),
    Spec::new(Reader, "SimpleITK.ReadImage", "", &[at(0, "fileName")]),
];

/// The formats of a job file are those of `job::Format`, by name.
const FORMATS: [(&str, Format); 63] = [
    ("torchvision.datasets.ImageFolder", Format::Named("image-folder")),
    ("torchvision.datasets.ImageNet", Format::Named("image-folder")),
    ("keras.utils.image_dataset_from_directory", Format::Named("image-folder")),
    ("nvidia.dali.fn.readers.file", Format::Named("image-folder")),
    ("torchvision.datasets.DatasetFolder", Format::Named("files")),
    ("torchvision.datasets.CIFAR10", Format::Whole),
    ("torchvision.datasets.CIFAR100", Format::Whole),
    ("torchvision.datasets.MNIST", Format::Whole),
    ("torchvision.datasets.FashionMNIST", Format::Whole),
    ("torchvision.datasets.SVHN", Format::Whole),
    ("torchvision.datasets.STL10", Format::Whole),
    ("torchvision.datasets.FakeData", Format::Synthetic),
    ("torch.utils.data.TensorDataset", Format::Whole),
    ("tensorflow.data.Dataset.from_tensor_slices", Format::Whole),
    ("tensorflow.data.Dataset.from_tensors", Format::Whole),
    ("tensorflow.data.Dataset.range", Format::Synthetic),
    ("webdataset.WebDataset", Format::Named("webdataset")),
    ("nvidia.dali.fn.readers.webdataset", Format::Named("webdataset")),
    ("streaming.StreamingDataset", Format::Named("mds")),
    ("litdata.StreamingDataset", Format::Named("litdata")),
    ("datasets.load_dataset", Format::Named("arrow")),
    ("datasets.load_from_disk", Format::Named("arrow")),
    ("tensorflow.data.TFRecordDataset", Format::Named("tfrecord")),
    ("nvidia.dali.fn.readers.tfrecord", Format::Named("tfrecord")),
    ("tensorflow_datasets.load", Format::Named("tfrecord")),
    ("tensorflow.data.FixedLengthRecordDataset", Format::Named("raw")),
    ("tensorflow.data.Dataset.list_files", Format::Named("files")),
    ("ffcv.loader.Loader", Format::Named("ffcv")),
    ("numpy.load", Format::ByName),
    ("nvidia.dali.fn.readers.numpy", Format::Named("npy")),
    ("numpy.memmap", Format::Named("raw")),
    ("numpy.fromfile", Format::Named("raw")),
    ("h5py.File", Format::Named("hdf5")),
    ("tables.open_file", Format::Named("hdf5")),
    ("pyarrow.parquet.read_table", Format::Named("parquet")),
    ("pyarrow.parquet.ParquetFile", Format::Named("parquet")),
    ("pyarrow.parquet.ParquetDataset", Format::Named("parquet")),
    ("pyarrow.dataset.dataset", Format::Named("parquet")),
    ("pandas.read_parquet", Format::Named("parquet")),
    ("lmdb.open", Format::Named("lmdb")),
    ("monai.data.LMDBDataset", Format::Named("lmdb")),
    ("torch.load", Format::Named("files")),
    ("pickle.load", Format::Named("files")),
    ("safetensors.torch.load_file", Format::Named("files")),
    ("PIL.Image.open", Format::Named("files")),
    ("cv2.imread", Format::Named("files")),
    ("imageio.imread", Format::Named("files")),
    ("skimage.io.imread", Format::Named("files")),
    ("torchvision.io.read_image", Format::Named("files")),
    ("tensorflow.io.read_file", Format::Named("files")),
    ("torchaudio.load", Format::Named("files")),
    ("soundfile.read", Format::Named("files")),
    ("librosa.load", Format::Named("files")),
    ("nibabel.load", Format::Named("files")),
    ("SimpleITK.ReadImage", Format::Named("files")),
    ("monai.data.Dataset", Format::Named("files")),
    ("monai.data.CacheDataset", Format::Named("files")),
    ("monai.data.PersistentDataset", Format::Named("files")),
    ("monai.data.SmartCacheDataset", Format::Named("files")),
    ("grain.ArrayRecordDataSource", Format::Foreign("array_record")),
    ("zarr.open", Format::Foreign("zarr")),
    ("pandas.read_csv", Format::Foreign("csv")),
    ("torch.utils.data.Subset", Format::Inner),
];

impl Format {
    /// The format of what a call of `path` reads.
    pub(in crate::script) fn of(path: &str) -> Option<Self> {
        FORMATS.iter().find(|(known, _)| *known == path).map(|(_, format)| *format)
    }
}
