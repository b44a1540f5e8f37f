"""A loader that hands out whole batches as the agent staged them, without a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Never

import torch
from torch.utils.data import default_collate

from tierfeed._native import Batch, Pipeline
from tierfeed.batches import Batches
from tierfeed.decoding import Decode, DecodeThreads
from tierfeed.loader import TRANSFORMED, Begun, Loader, Made, ShortBatch, Source, closing_new
from tierfeed.torch import cuda
from tierfeed.torch.delivery import delivery
from tierfeed.torch.iterable import TierIterableDataset
from tierfeed.torch.misuse import ELSEWHERE, check_ranks, refuse_ambiguous, refuse_worker
from tierfeed.torch.tensors import RowTensors, as_source, as_tensor
from tierfeed.torch.tracing import DECODE, NEXT_BATCH, waiting


class TierLoader(Loader):
    """Iterates over the batches of this rank, an epoch at a time.

    `TierLoader("/data/train", batch_size=256, seed=42)` starts what it needs: an agent beside the first
    rank of each node, found by the others, gone with the last. The source is a path or a URL, the
    keyword arguments are the keys of a job file (docs/job-file.md), those below `dataset` and `order`
    without the name of their section. Under `tierfeed run`, whose job file says all this, it is
    `TierLoader()`, and `TierLoader(dataset="validation")` for one of the job's `datasets`.

    Without `decode` a batch is `(tensors, labels)`: a list of 1-d uint8 tensors over the staged bytes
    themselves, writable and not copied, and a tensor of int64. A batch goes back to the agent when the
    last of its tensors is gone, so do not collect them: copy what you keep.

    With `transform`, made by `tierfeed.transforms`, the agent decodes, crops and mirrors: a batch is one
    tensor of all rows over the staged bytes, and the tensor of labels. Under `tierfeed run` the job file
    has it.

    With `decode(sample, label)` it is `collate` of what `decode` returned for each sample, by default
    PyTorch's `default_collate`. `sample` supports the buffer protocol, DLPack and `numpy()`. A function
    `decode(sample, label, rng)` also gets a generator of NumPy, made of seed, epoch and sample, for what
    it draws: any number of threads and a resumed training draw the same. With `decode_threads` the
    samples of a batch are decoded in parallel, and those of the next batch too as soon as it is staged;
    "auto" finds as many threads as training needs.

    A sample that `decode` fails for names its file in the error, or with `on_error: skip` is left out
    and listed in `skipped`. In the place of a batch of which nothing is left, another one of the epoch
    is handed out once more.

    With `device="cuda"` the tensors of a batch are on the GPU, and the next batch is on its way there.
    With `pin_memory` they are on the CPU, in memory from which `tensor.to("cuda", non_blocking=True)`
    does not wait. Either registers the staging memory with the driver, and a batch goes back to the
    agent after its copy has ended: with `pin_memory` after what the current stream of CUDA has to do
    when the next batch is asked for. So start copies before, on that stream; a prefetcher that copies
    on a stream of its own must make the current stream wait for it first, else it gets bytes of a later
    batch.

    `short_batch="drop"` leaves out batches with fewer samples, such as the last one of an epoch, as
    `drop_last=True` of a `DataLoader` does. That of a `DistributedSampler` is a key of the job,
    `order={"drop_last": True}`.

    Each pass reads the next epoch, and `set_epoch` names another one. A pass begins with its first
    batch. One pass at a time: an iterator ends when another one of the same loader begins.
    """

    def __init__(
        self,
        source: Source | None = None,
        *,
        decode: Decode | None = None,
        decode_threads: DecodeThreads = 0,
        collate: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        device: torch.device | str | None = None,
        short_batch: ShortBatch = "keep",
        **keys: Any,
    ) -> None:
        refuse_ambiguous(keys)
        target = cuda.target(device, pin_memory=pin_memory)
        as_bytes = as_tensor if target is None else as_source
        super().__init__(
            source,
            keys,
            whole=partial(_undecoded, as_bytes, collate or tensors_and_labels),
            dense=partial(_dense, collate),
            decode=decode,
            decode_threads=decode_threads,
            collate=collate or default_collate,
            short_batch=short_batch,
            elsewhere=ELSEWHERE,
        )
        if target is not None:
            with closing_new(self.feed, source):
                self._delivery = delivery(self.feed, target)

    def __iter__(self) -> Iterator[Any]:
        refuse_worker()
        check_ranks(self.feed)
        return super().__iter__()

    def __getitem__(self, index: object) -> Never:
        raise TypeError(
            "TierLoader is a loader itself: iterate over it instead of passing it to a DataLoader. Where"
            " a DataLoader is asked for, DataLoader(loader.as_dataset(), batch_size=None) is one"
        )

    def __getattr__(self, name: str) -> Never:
        advice = ELSEWHERE.get(name)
        raise AttributeError(
            f"a TierLoader has no {name}" + ("" if advice is None else f": {advice}"),
            name=name,
            obj=self,
        )

    def as_dataset(self) -> TierIterableDataset:
        """The loader as an `IterableDataset`, for `StatefulDataLoader(dataset, batch_size=None)` and the
        like: its items are whole batches."""
        return TierIterableDataset(self)

    def seek(self, epoch: int, step: int) -> None:
        """The next pass starts at a step of an epoch: for a training that counts its steps itself. As
        `load_state_dict`, but without a check that the job is the same.

        >>> loader.seek(*divmod(global_step, len(loader)))
        """
        self._position.seek(epoch, step)

    def _next(self, batches: Batches) -> Batch | None:
        with waiting(NEXT_BATCH):
            return super()._next(batches)

    def _make(self, begun: Begun) -> Made:
        with waiting(DECODE):
            return super()._make(begun)


def tensors_and_labels(samples: list[tuple[torch.Tensor, int]]) -> Any:
    """Keeps samples apart, as their sizes may differ, and gathers the labels."""
    return [tensor for tensor, _ in samples], torch.tensor([label for _, label in samples])


def _dense(collate: object, pipeline: Pipeline) -> Callable[[Batch], Any]:
    if collate is not None:
        raise ValueError(TRANSFORMED.format("collate"))
    return RowTensors(pipeline).batch


def _undecoded(as_bytes: Decode, collate: Callable[[list[Any]], Any], batch: Batch) -> Any:
    """The samples of a batch as they are."""
    return collate([as_bytes(sample, sample.label) for sample in batch])
