"""Batches for TensorFlow: a `tf.data.Dataset` over the staged bytes themselves.

>>> import tierfeed.tensorflow
>>> data = tierfeed.tensorflow.dataset("/data/train", batch_size=256, seed=42, epochs=90)
>>> for samples, labels in data:
...     train(samples, labels)
"""

from tierfeed.tensorflow.dataset import Rows, dataset, source_of
from tierfeed.tensorflow.files import FilesRead, files_read, register_files
from tierfeed.tensorflow.report import Report
from tierfeed.tensorflow.source import Figures, Source

__all__ = [
    "Figures",
    "FilesRead",
    "Report",
    "Rows",
    "Source",
    "dataset",
    "files_read",
    "register_files",
    "source_of",
]
