"""tierfeed for PyTorch: the only part of the package that imports it.

`TierLoader` is a loader of its own and the fast path: whole batches, no copy, no worker processes.
`TierDataset` works under an ordinary `DataLoader`, with workers, samplers and transforms as usual.
`announce` publishes the order of any sampler.
"""

from tierfeed.torch.announcing import announce
from tierfeed.torch.dataset import TierDataset
from tierfeed.torch.loader import TierLoader
from tierfeed.torch.sampler import TierDistributedSampler, passthrough

__all__ = ["TierDataset", "TierDistributedSampler", "TierLoader", "announce", "passthrough"]
