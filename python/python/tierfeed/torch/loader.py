"""A loader that hands out whole batches as the agent staged them, without a copy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Never

import torch
from torch.utils.data import default_collate

from tierfeed._native import Batch, Reconfigure
from tierfeed.batches import Batches
from tierfeed.decoding import CLOSED, Decode, Decoder
from tierfeed.loader import Source, feed_of
from tierfeed.position import Position
from tierfeed.skipped import Skipped
from tierfeed.torch import cuda
from tierfeed.torch.delivery import delivery
from tierfeed.torch.iterable import TierIterableDataset
from tierfeed.torch.misuse import ELSEWHERE, check_ranks
from tierfeed.torch.tensors import as_source, as_tensor
from tierfeed.torch.tracing import DECODE, NEXT_BATCH, waiting
from tierfeed.waits import Stats, Waits


class _Begun(NamedTuple):
    """A batch whose samples are being decoded."""

    batch: Batch
    started: list[Any]


class _Sent(NamedTuple):
    """A batch on its way to training, at the latest when training asks for it."""

    step: int
    value: Any


class TierLoader:
    """Iterates over the batches of this rank, an epoch at a time.

    `TierLoader("/data/train", batch_size=256, seed=42)` starts what it needs: an agent beside the first
    rank of each node, found by the others, gone with the last. The source is a path or a URL, the
    keyword arguments are the keys of a job file (docs/job-file.md), those below `dataset` and `order`
    without the name of their section. Under `tierfeed run`, whose job file says all this, it is
    `TierLoader()`, and `TierLoader(dataset="validation")` for one of the job's `datasets`.

    Without `decode` a batch is `(tensors, labels)`: a list of 1-d uint8 tensors over the staged bytes
    themselves, writable and not copied, and a tensor of int64. A batch goes back to the agent when the
    last of its tensors is gone, so do not collect them: copy what you keep.

    With `decode(sample, label)` it is `collate` of what `decode` returned for each sample, by default
    PyTorch's `default_collate`. `sample` supports the buffer protocol, DLPack and `numpy()`. With
    `decode_threads` the samples of a batch are decoded in parallel, and those of the next batch too as
    soon as it is staged.

    A sample that `decode` fails for names its file in the error, or with `on_error: skip` is left out
    and listed in `skipped`. A batch of which nothing is left is not handed out.

    With `device="cuda"` the tensors of a batch are on the GPU, and the next batch is on its way there.
    With `pin_memory` they are on the CPU, in memory from which `tensor.to("cuda", non_blocking=True)`
    does not wait. Either registers the staging memory with the driver, and a batch goes back to the
    agent after its copy has ended: with `pin_memory` after what the current stream of CUDA has to do
    when the next batch is asked for. So start copies before, on that stream; a prefetcher that copies
    on a stream of its own must make the current stream wait for it first, else it gets bytes of a later
    batch.

    Each pass reads the next epoch, and `set_epoch` names another one. A pass begins with its first
    batch. One pass at a time: an iterator ends when another one of the same loader begins.
    """

    def __init__(
        self,
        source: Source | None = None,
        *,
        decode: Decode | None = None,
        decode_threads: int = 0,
        collate: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        device: torch.device | str | None = None,
        **keys: Any,
    ) -> None:
        if decode is None and decode_threads:
            raise ValueError("decode_threads without decode: there is nothing to decode")
        target = cuda.target(device, pin_memory=pin_memory)
        self.feed = feed_of(source, keys, of=type(self), elsewhere=ELSEWHERE)
        undecoded = as_tensor if target is None else as_source
        self._decoder = Decoder(self.feed, decode or undecoded, decode_threads)
        self._collate = collate or (tensors_and_labels if decode is None else default_collate)
        self._decodes = decode is not None
        self._delivery = delivery(self.feed, target)
        self._position = Position(self.feed)
        self._waits = Waits()
        self._closings = 0

    @property
    def epoch(self) -> int:
        """The epoch of the current or last pass; before the first one, and after `set_epoch` or
        `load_state_dict`, that of the next."""
        return self._position.epoch

    def set_epoch(self, epoch: int) -> None:
        """Names the epoch of the next pass, as with PyTorch's `DistributedSampler`. Optional: without it
        each pass reads the next epoch.

        Naming the epoch that `load_state_dict` resumed keeps its position.
        """
        self._position.set_epoch(epoch)

    @property
    def epochs_left(self) -> range:
        """The epochs that are still to be read, first the one that is not read to its end."""
        return self._position.epochs_left

    @property
    def skipped(self) -> list[Skipped]:
        """The samples that were left out, with their files (`on_error: skip`)."""
        return self.feed.skipped

    def __len__(self) -> int:
        """Batches of the epoch."""
        return self._position.steps

    def __iter__(self) -> Iterator[Any]:
        check_ranks(self.feed)
        (epoch, start), closings = self._position.begin(), self._closings
        # A pass that was left early did not ask after its last batch.
        self._delivery.asked()
        batches = self.feed.epoch(epoch, start)
        begun: list[_Begun] = []
        sent: list[_Sent] = []
        wanted_ns = time.monotonic_ns()
        while sent or (begun := begun or self._begin(batches)):
            if not sent:
                there_ns = time.monotonic_ns()
                current, begun = begun, self._begin_if_there(batches)
                sent = self._finish(current.pop(), wanted_ns, there_ns)
            if sent:
                value = [self._hand_out(sent.pop())]
                if self._delivery.goes_ahead:
                    begun = begun or self._begin_if_there(batches)
                    sent = self._finish_ahead(begun)
                # Popped, so that the loader does not keep a batch while training uses it.
                yield value.pop()
                wanted_ns = time.monotonic_ns()
                self._delivery.asked()
            if closings != self._closings:
                raise Reconfigure(CLOSED)
        self._position.end(epoch)

    def __getitem__(self, index: object) -> Never:
        raise TypeError(
            "TierLoader is a loader itself: iterate over it instead of passing it to a DataLoader. Where"
            " a DataLoader is asked for, DataLoader(loader.as_dataset(), batch_size=None) is one"
        )

    def as_dataset(self) -> TierIterableDataset:
        """The loader as an `IterableDataset`, for `StatefulDataLoader(dataset, batch_size=None)` and the
        like: its items are whole batches."""
        return TierIterableDataset(self)

    def state_dict(self) -> dict[str, Any]:
        """The position after the batch that was handed out last."""
        return self._position.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues at the position of another loader of the same job.

        A job with another world or batch size continues there too if its `order.start` is the `position`
        of the state: all ranks load the same state, and no sample of the epoch is lost or read twice.

        Raises `Reconfigure` if the state is of another dataset or another order: its position would
        mean other samples here.
        """
        self._position.load_state_dict(state)

    def seek(self, epoch: int, step: int) -> None:
        """The next pass starts at a step of an epoch: for a training that counts its steps itself. As
        `load_state_dict`, but without a check that the job is the same.

        >>> loader.seek(*divmod(global_step, len(loader)))
        """
        self._position.seek(epoch, step)

    def stats(self) -> Stats:
        """Batches, samples and bytes so far, and how long training waited for them in seconds."""
        return self._waits.stats()

    def close(self) -> None:
        """Ends the decode threads and disconnects."""
        self._closings += 1
        self._decoder.close()
        self._delivery.close()
        self.feed.close()

    def __enter__(self) -> TierLoader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _begin(self, batches: Batches) -> list[_Begun]:
        """Waits for the next batch and starts to decode it; an empty list at the end of the epoch."""
        with waiting(NEXT_BATCH):
            batch = next(batches, None)
        return [] if batch is None else [_Begun(batch, self._decoder.start(batch))]

    def _begin_if_there(self, batches: Batches) -> list[_Begun]:
        """Starts to decode the next batch, if it is staged and something can be done meanwhile."""
        batch = batches.poll() if self._decoder.threads or self._delivery.goes_ahead else None
        return [] if batch is None else [_Begun(batch, self._decoder.start(batch))]

    def _finish_ahead(self, begun: list[_Begun]) -> list[_Sent]:
        """Sends the next batch before training asks for it, if it is decoded already."""
        if not begun or (self._decodes and not self._decoder.is_done(begun[0].started)):
            return []
        now_ns = time.monotonic_ns()
        return self._finish(begun.pop(), now_ns, now_ns)

    def _finish(self, begun: _Begun, wanted_ns: int, there_ns: int) -> list[_Sent]:
        """Decodes the rest of a batch and sends it, in a list; an empty list if nothing is left of it.

        Training asked for it at `wanted_ns`; its bytes had come at `there_ns`."""
        batch, started = begun
        with waiting(DECODE):
            decoded = self._decoder.finish(started)
            sent = [self._delivery.send(batch, self._collate(decoded))] if decoded else []
        ready_ns = time.monotonic_ns()
        self.feed.note_decoding(batch.epoch, ready_ns - there_ns, self._decoder.threads)
        self._waits.add(
            (ready_ns - wanted_ns) / 1e9,
            decoding_s=(ready_ns - there_ns) / 1e9,
            samples=len(batch),
            nbytes=batch.nbytes,
        )
        if not sent:
            self._position.take(batch.step)
        return [_Sent(batch.step, sent.pop())] if sent else []

    def _hand_out(self, sent: _Sent) -> Any:
        self._position.take(sent.step)
        return self._delivery.hand_out(sent.value)


def tensors_and_labels(samples: list[tuple[torch.Tensor, int]]) -> Any:
    """Keeps samples apart, as their sizes may differ, and gathers the labels."""
    return [tensor for tensor, _ in samples], torch.tensor([label for _, label in samples])
