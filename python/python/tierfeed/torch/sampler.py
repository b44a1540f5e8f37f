"""The job's order as a sampler, for a `DataLoader` over a `TierDataset`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from torch.utils.data import Sampler

from tierfeed.feed import Feed
from tierfeed.position import checked_epoch
from tierfeed.torch.dataset import reader
from tierfeed.torch.misuse import checked_feed

T = TypeVar("T")


class TierDistributedSampler(Sampler[int]):
    """Yields what this rank reads in an epoch, as `torch.utils.data.DistributedSampler` would.

    Pass it to a `DataLoader` with `batch_size=feed.batch_size`: then every batch is one that the agent
    stages.
    """

    def __init__(self, feed: Feed | None = None, *, epoch: int = 0) -> None:
        self._feed = reader() if feed is None else checked_feed(feed, of="TierDistributedSampler")
        self._epoch = checked_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Call before each epoch, as with PyTorch's own sampler."""
        self._epoch = checked_epoch(epoch)

    def __len__(self) -> int:
        order, rank = self._feed.order, self._feed.rank
        steps = order.steps_in(self._epoch, rank)
        if steps == 0:
            return 0
        return (steps - 1) * order.batch_size + len(order.batch(self._epoch, steps - 1, rank))

    def __iter__(self) -> Iterator[int]:
        order, rank = self._feed.order, self._feed.rank
        for step in range(order.steps_in(self._epoch, rank)):
            yield from order.batch(self._epoch, step, rank)


def passthrough(samples: T) -> T:
    """A `collate_fn` that returns the samples unchanged."""
    return samples
