"""Batches for TensorFlow: a `tf.data.Dataset` over the staged bytes themselves.

>>> import tierfeed.tensorflow
>>> data = tierfeed.tensorflow.dataset("/data/train", batch_size=256, seed=42, epochs=90)
>>> for samples, labels in data:
...     train(samples, labels)
"""

from tierfeed.tensorflow.dataset import Rows, dataset, source_of
from tierfeed.tensorflow.report import Report
from tierfeed.tensorflow.source import Figures, Source

__all__ = [
    "Figures",
    "Report",
    "Rows",
    "Source",
    "dataset",
    "source_of",
]
