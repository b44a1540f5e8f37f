"""tierfeed feeds deep-learning training from tiers of memory and storage.

>>> import tierfeed
>>> feed = tierfeed.connect("/data/train", batch_size=256)
>>> for batch in feed.epoch(0):
...     train(batch.array().numpy(), batch.labels)

`tierfeed.torch` has a loader and a dataset for PyTorch, `tierfeed.memory` lends memory of the CXL
tier, `tierfeed.Index` reads a dataset sample by sample. Neither PyTorch nor NumPy is imported unless
it is asked for.
"""

from tierfeed import memory, transforms
from tierfeed._native import (
    Batch,
    Bug,
    Error,
    Gone,
    Reconfigure,
    Retry,
    Sample,
    SampleError,
    View,
    __version__,
)
from tierfeed.batches import Batches
from tierfeed.feed import Feed, connect
from tierfeed.identity import IdentityError
from tierfeed.index import Extent, Index
from tierfeed.skipped import Skipped
from tierfeed.training import Report, Training, current

__all__ = [
    "Batch",
    "Batches",
    "Bug",
    "Error",
    "Extent",
    "Feed",
    "Gone",
    "IdentityError",
    "Index",
    "Reconfigure",
    "Report",
    "Retry",
    "Sample",
    "SampleError",
    "Skipped",
    "Training",
    "View",
    "__version__",
    "connect",
    "current",
    "memory",
    "transforms",
]
