"""A loader that hands over what the agent has staged: the whole batch, where it lies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import default_collate

from tierfeed._native import Batch, Reconfigure
from tierfeed.batches import Batches
from tierfeed.feed import Feed, connect
from tierfeed.torch.decoding import Decode, Decoder, as_tensor
from tierfeed.torch.tracing import DECODE, NEXT_BATCH, waiting
from tierfeed.torch.waits import Stats, Waits

STATE_VERSION = 2


class _Begun(NamedTuple):
    """A batch whose samples are being decoded."""

    batch: Batch
    started: list[Any]
    wait_s: float


class TierLoader:
    """Iterates over the batches of one epoch of this rank.

    Without `decode` a batch is `(tensors, labels)`: a list of 1-d uint8 tensors over the staged bytes
    themselves, writable and not copied, and a tensor of int64. A batch goes back to the agent when the
    last of its tensors is gone, so do not collect them: copy what you keep.

    With `decode(sample, label)` it is `collate` of what `decode` returned for each sample, by default
    PyTorch's `default_collate`. `sample` supports the buffer protocol, DLPack and `numpy()`. With
    `decode_threads` the samples of a batch are decoded in parallel, and those of the next batch too as
    soon as it is staged.
    """

    def __init__(
        self,
        feed: Feed | None = None,
        *,
        decode: Decode | None = None,
        decode_threads: int = 0,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        self.feed = connect() if feed is None else feed
        if decode is None and decode_threads:
            raise ValueError("decode_threads without decode: there is nothing to decode")
        self._decoder = Decoder(decode or as_tensor, decode_threads)
        self._collate = collate or (tensors_and_labels if decode is None else default_collate)
        self._epoch = 0
        self._start_step = 0
        self._consumed = 0
        self._waits = Waits()

    @property
    def epoch(self) -> int:
        """The epoch of the next or current pass."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Call before each epoch, as with PyTorch's `DistributedSampler`.

        Naming the epoch that `load_state_dict` resumed keeps its position.
        """
        if epoch != self._epoch:
            self._epoch, self._start_step, self._consumed = epoch, 0, 0

    def __len__(self) -> int:
        """Batches of the epoch."""
        return self.feed.order.steps_in(self._epoch, self.feed.rank)

    def __iter__(self) -> Iterator[Any]:
        start, self._start_step = self._start_step, 0
        self._consumed = start
        batches = self.feed.epoch(self._epoch, start)
        ahead: list[_Begun] = []
        while current := ahead or self._begin(batches):
            ahead = self._begin_if_there(batches)
            # Popped, so that while training uses a batch nothing here keeps it.
            yield self._finish(current.pop())

    def state_dict(self) -> dict[str, Any]:
        """Where training is: the position after the batch that was handed out last."""
        order, step = self.feed.order, self._start_step or self._consumed
        return {
            "version": STATE_VERSION,
            "fingerprint": self.feed.fingerprint,
            "epoch": self._epoch,
            "step": step,
            "position": order.position_after(self._epoch, step),
            "start": order.start,
            "seed": order.seed,
            "shuffle": order.shuffle,
            "batch_size": order.batch_size,
            "world": order.world,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where another loader of the same job was.

        A job with another world or batch size goes on there too if its `order.start` is the `position`
        of the state: all ranks load the same state, and no sample of the epoch is lost or read twice.

        Raises `Reconfigure` if the state is of another dataset or another order: its position would
        mean other samples here.
        """
        own = self.state_dict()
        for key in ("version", "fingerprint", "seed", "shuffle"):
            if state.get(key) != own[key]:
                raise Reconfigure(
                    f"the state was saved with {key} {state.get(key)!r}; this job has {own[key]!r}"
                )
        differing = [key for key in ("batch_size", "world", "start") if state.get(key) != own[key]]
        if not differing:
            self._epoch = int(state["epoch"])
            self._start_step = self._consumed = int(state["step"])
        elif own["start"] == state.get("position"):
            self._epoch, self._start_step, self._consumed = own["start"][0], 0, 0
        else:
            key, (epoch, samples) = differing[0], state["position"]
            raise Reconfigure(
                f"the state was saved with {key} {state.get(key)!r}; this job has {own[key]!r}: to go"
                f" on in another world, give it `order.start: {{ epoch: {epoch}, samples: {samples} }}`"
            )

    def stats(self) -> Stats:
        """Batches, samples and bytes so far, and how long training waited for them in seconds."""
        return self._waits.stats()

    def close(self) -> None:
        """Ends the decode threads and disconnects."""
        self._decoder.close()
        self.feed.close()

    def __enter__(self) -> TierLoader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _begin(self, batches: Batches) -> list[_Begun]:
        """Waits for the next batch; none at the end of the epoch."""
        begin_s = time.perf_counter()
        with waiting(NEXT_BATCH):
            batch = next(batches, None)
        wait_s = time.perf_counter() - begin_s
        return [] if batch is None else [_Begun(batch, self._decoder.start(batch), wait_s)]

    def _begin_if_there(self, batches: Batches) -> list[_Begun]:
        """Has the threads start on the next batch, if there are threads and the batch is staged."""
        batch = batches.poll() if self._decoder.threads else None
        return [] if batch is None else [_Begun(batch, self._decoder.start(batch), 0.0)]

    def _finish(self, begun: _Begun) -> Any:
        batch, started, wait_s = begun
        begin_s = time.perf_counter()
        with waiting(DECODE):
            decoded = self._decoder.finish(started)
        if self._decoder.threads:
            wait_s += time.perf_counter() - begin_s
        self._waits.add(wait_s, samples=len(batch), nbytes=batch.nbytes)
        self._consumed = batch.step + 1
        return self._collate(decoded)


def tensors_and_labels(samples: list[tuple[torch.Tensor, int]]) -> Any:
    """Keeps samples apart, as their sizes may differ, and gathers the labels."""
    return [tensor for tensor, _ in samples], torch.tensor([label for _, label in samples])
