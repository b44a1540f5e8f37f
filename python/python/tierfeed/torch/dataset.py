"""A dataset for an ordinary `DataLoader`, fed by the agent where the sampler follows the job's order."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

from torch.utils.data import Dataset, get_worker_info

from tierfeed import environment
from tierfeed._native import Batch, Reconfigure, Sample, SampleError
from tierfeed.decoding import LEFT_OUT, Decode, SampleDecoder
from tierfeed.feed import Feed
from tierfeed.loader import TRANSFORMED
from tierfeed.position import checked_epoch
from tierfeed.torch.misuse import checked_feed
from tierfeed.torch.tensors import RowTensors, as_tensor
from tierfeed.torch.tracing import NEXT_BATCH, waiting

# A sampler that follows the job's order is at most so many epochs ahead of the last batch. The order of
# each epoch is computed to search it.
SEARCHED_AHEAD = 100


class TierDataset(Dataset[Any]):
    """All samples of the job, by number. Use it with any sampler, workers and `collate_fn`.

    A batch that the job's order has, for this rank, comes from the agent; `TierDistributedSampler`
    and PyTorch's `DistributedSampler` with the job's seed and batch size yield such batches. Anything
    else is read directly. Each worker process connects for itself.
    """

    def __init__(
        self, feed: Feed | None = None, *, decode: Decode | None = None, epoch: int = 0
    ) -> None:
        # A second connection, also in the trainer's process: requests of a worker are counted apart.
        self._feed = reader() if feed is None else checked_feed(feed, of="TierDataset")
        transform = self._feed.transform
        if decode is not None and transform is not None:
            raise ValueError(TRANSFORMED.format("decode"))
        rows = as_tensor if transform is None else RowTensors(transform).sample
        self._decoder = SampleDecoder(self._feed, decode or rows)
        self._epoch = checked_epoch(epoch)
        self._near = 0
        self._follows = True
        self._was_warned = False
        # Whether the first batch was asked for.
        self._was_asked = False
        self._open: tuple[Batch, int] | None = None

    @property
    def feed(self) -> Feed:
        """The feed that the samples are read from."""
        return self._feed

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that is searched first for a batch. Optional: later epochs are searched too."""
        self._epoch, self._near, self._follows, self._open = checked_epoch(epoch), 0, True, None

    def __len__(self) -> int:
        return self._feed.samples

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """A whole batch, as `DataLoader` asks for it since PyTorch 2.0."""
        ids = [int(index) for index in indices]
        step = self._search(ids)
        self._say_order(step)
        with waiting(NEXT_BATCH):
            batch = self._read(ids) if step is None else self._feed.batch(self._epoch, step)
        begin_ns = time.monotonic_ns()
        decoded = self._decoder.each(batch, self._epoch)
        self._feed.note_decoding(self._epoch, time.monotonic_ns() - begin_ns, 0)
        return decoded or _NothingLeft(ids)

    def __getitem__(self, index: int) -> Any:
        """One sample. Earlier PyTorch asks so for each of a batch: the first one opens it."""
        sample = self._from_open(index)
        if sample is None:
            sample = self._from_new(index)
        begin_ns = time.monotonic_ns()
        decoded = self._decoder.one(sample, self._epoch)
        self._feed.note_decoding(self._epoch, time.monotonic_ns() - begin_ns, 0)
        if decoded is LEFT_OUT:
            raise _left_out([index])
        return decoded

    def _say_order(self, step: int | None) -> None:
        """At the first batch: whether the agent can stage what the sampler yields."""
        was_asked, self._was_asked = self._was_asked, True
        worker = get_worker_info()  # type: ignore[no-untyped-call]
        is_first_process = worker is None or worker.id == 0
        if was_asked or step is not None or not is_first_process or self._feed.agent() is None:
            return
        warnings.warn(
            f"tierfeed: the sampler's first batch is none of the job's order (shuffle:"
            f" {self._feed.order.shuffle}), so this process reads it itself, and the agent stages"
            " batches in vain: use TierDistributedSampler with the job's batch_size, or shuffle:"
            " published and tierfeed.torch.announce()",
            RuntimeWarning,
            stacklevel=4,
        )

    def _read(self, ids: Sequence[int]) -> Batch:
        return self._feed.read(ids, epoch=self._epoch)

    def __getstate__(self) -> dict[str, Any]:
        # A batch stays with the process that took it.
        return {**self.__dict__, "_open": None}

    def _search(self, ids: list[int]) -> int | None:
        """The step that reads exactly `ids`. An epoch where it is found becomes the current one."""
        order, rank = self._feed.order, self._feed.rank
        # Later epochs are searched only while the sampler follows the job's order.
        for epoch in self._searched():
            try:
                step = order.find(epoch, rank, ids, self._near)
            except Reconfigure:
                # Not published, or not in this worker process: read directly.
                break
            if step is not None:
                self._note_step(epoch, step)
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
        for epoch in self._searched():
            try:
                step = order.starting_with(epoch, rank, index, self._near)
            except Reconfigure:
                self._follows = False
                break
            if step is not None:
                self._note_step(epoch, step)
                break
        else:
            self._follows = False
        batch = self._read([index]) if step is None else self._feed.batch(self._epoch, step)
        if not batch or batch[0].id != index:
            raise _left_out([index])
        self._open = (batch, 1) if len(batch) > 1 else None
        return batch[0]

    def _searched(self) -> range:
        ahead = SEARCHED_AHEAD if self._follows else 1
        return range(self._epoch, min(self._epoch + ahead, self._feed.order.epochs))

    def _note_step(self, epoch: int, step: int) -> None:
        order, rank = self._feed.order, self._feed.rank
        is_again = step == 0 and epoch == self._epoch and self._near == order.steps_in(epoch, rank)
        if is_again and order.shuffle != "sequential" and not self._was_warned:
            self._was_warned = True
            warnings.warn(
                f"tierfeed: epoch {epoch} was read to its end and is read again, in the same order:"
                " call set_epoch(epoch) of the sampler before each epoch",
                RuntimeWarning,
                stacklevel=4,
            )
        self._epoch, self._near, self._follows = epoch, step + 1, True


class _NothingLeft(list[Any]):
    """A batch without samples. A `collate_fn` that reads its first sample gets an error."""

    def __init__(self, ids: list[int]) -> None:
        super().__init__()
        self._ids = ids

    def __getitem__(self, index: Any) -> Any:
        raise _left_out(self._ids)

    def __reduce__(self) -> tuple[object, ...]:
        return _NothingLeft, (self._ids,)


def _left_out(ids: list[int]) -> SampleError:
    """The error for samples that were left out where a `DataLoader` needs at least one."""
    few = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
    batch = f"nothing is left of the batch of samples {few}: all are"
    what = f"sample {few} is" if len(ids) == 1 else batch
    error = SampleError(
        f"{what} left out, as on_error is skip; Feed.skipped says why. Pass a collate_fn that takes an"
        " empty list, or use TierLoader, which hands out another batch of the epoch in its place"
    )
    error.sample, error.object, error.reason, error.errno = ids[0], "", "skipped", None
    return error


def reader() -> Feed:
    """A feed of this process beside that of the trainer."""
    return Feed(
        socket=environment.socket(),
        launched=environment.launched(),
        job=environment.job(),
        index=environment.index(),
    )
