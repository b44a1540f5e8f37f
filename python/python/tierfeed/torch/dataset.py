"""A dataset for an ordinary `DataLoader`, fed by the agent where the sampler follows the job's order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils.data import Dataset

from tierfeed import environment
from tierfeed._native import Batch, Reconfigure, Sample, SampleError
from tierfeed.feed import Feed
from tierfeed.torch.decoding import Decode, as_tensor
from tierfeed.torch.tracing import NEXT_BATCH, waiting


class TierDataset(Dataset[Any]):
    """All samples of the job, by number. Use it with any sampler, workers and `collate_fn`.

    A batch that the job's order has, for this rank, comes from the agent; `TierDistributedSampler`
    and PyTorch's `DistributedSampler` with the job's seed and batch size yield such batches. Anything
    else is read directly. Each worker process connects for itself.
    """

    def __init__(
        self, feed: Feed | None = None, *, decode: Decode | None = None, epoch: int = 0
    ) -> None:
        # A second connection, also of the same process: a worker's requests are not the trainer's.
        self._feed = _reader() if feed is None else feed
        self._decode = decode or as_tensor
        self._epoch = epoch
        self._near = 0
        self._follows = True
        self._open: tuple[Batch, int] | None = None

    @property
    def feed(self) -> Feed:
        """Where the samples come from."""
        return self._feed

    def set_epoch(self, epoch: int) -> None:
        """Where to look first for a batch. Optional: later epochs are searched too."""
        self._epoch, self._near, self._follows, self._open = epoch, 0, True, None

    def __len__(self) -> int:
        return self._feed.samples

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """A whole batch, as `DataLoader` asks for it since PyTorch 2.0."""
        ids = [int(index) for index in indices]
        step = self._search(ids)
        with waiting(NEXT_BATCH):
            batch = self._feed.read(ids) if step is None else self._feed.batch(self._epoch, step)
        return [self._decode(sample, sample.label) for sample in batch]

    def __getitem__(self, index: int) -> Any:
        """One sample. Earlier PyTorch asks so for each of a batch: the first one opens it."""
        sample = self._from_open(index) or self._from_new(index)
        return self._decode(sample, sample.label)

    def __getstate__(self) -> dict[str, Any]:
        # A batch belongs to the process that got it.
        return {**self.__dict__, "_open": None}

    def _search(self, ids: list[int]) -> int | None:
        """The step that reads exactly `ids`, in this epoch or a later one, which becomes this one."""
        order, rank = self._feed.order, self._feed.rank
        # A sampler that did not follow the job's order once is not searched for in all epochs again.
        end = order.epochs if self._follows else self._epoch + 1
        for epoch in range(self._epoch, min(end, order.epochs)):
            try:
                step = order.find(epoch, rank, ids, self._near)
            except Reconfigure:
                # Not published, or not in this worker process: read directly.
                break
            if step is not None:
                self._epoch, self._near, self._follows = epoch, step + 1, True
                return step
        self._follows = False
        return None

    def _from_open(self, index: int) -> Sample | None:
        if self._open is None:
            return None
        batch, position = self._open
        sample = batch[position]
        if sample.id != index:
            self._open = None
            return None
        self._open = (batch, position + 1) if position + 1 < len(batch) else None
        return sample

    def _from_new(self, index: int) -> Sample:
        order, rank = self._feed.order, self._feed.rank
        step = None
        end = order.epochs if self._follows else self._epoch + 1
        for epoch in range(self._epoch, min(end, order.epochs)):
            try:
                step = order.starting_with(epoch, rank, index, self._near)
            except Reconfigure:
                self._follows = False
                break
            if step is not None:
                self._epoch, self._near, self._follows = epoch, step + 1, True
                break
        else:
            self._follows = False
        batch = self._feed.read([index]) if step is None else self._feed.batch(self._epoch, step)
        if not batch or batch[0].id != index:
            raise SampleError(f"sample {index} cannot be read and the job skips such samples")
        self._open = (batch, 1) if len(batch) > 1 else None
        return batch[0]


def _reader() -> Feed:
    return Feed(
        socket=environment.socket(),
        rank=environment.rank(),
        job=environment.job(),
        index=environment.index(),
        role="worker",
    )
