"""tierfeed for JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy
from numpy.typing import DTypeLike, NDArray

import tierfeed.numpy
from tierfeed.decoding import Decode, DecodeThreads
from tierfeed.feed import Feed
from tierfeed.identity import refuse
from tierfeed.loader import ShortBatch, Source

__all__ = ["TierLoader"]


class TierLoader(tierfeed.numpy.TierLoader):
    """Iterates over the batches of this rank as arrays of JAX. Each pass reads an epoch, and the next
    pass the next one.

    The arguments are those of `tierfeed.numpy.TierLoader`, and so are the batches, with each array on
    the default device. With `sharding` an array is that of all processes together, of which each has put
    its own batch there (`jax.make_array_from_process_local_data`). A `record` with fields becomes a
    dictionary of arrays.

    On the CPU an array lies over the staged bytes, which go back to the agent when the array is gone.
    """

    def __init__(
        self,
        source: Source | None = None,
        *,
        sharding: jax.sharding.Sharding | None = None,
        record: DTypeLike | None = None,
        decode: Decode | None = None,
        decode_threads: DecodeThreads = 0,
        collate: Callable[[list[Any]], Any] | None = None,
        short_batch: ShortBatch = "keep",
        **keys: Any,
    ) -> None:
        super().__init__(
            source,
            record=record,
            decode=decode,
            decode_threads=decode_threads,
            collate=collate,
            short_batch=short_batch,
            **keys,
        )
        self._sharding = sharding
        transform = self.feed.transform
        self._has_fields = transform is not None and transform.has_fields

    def __iter__(self) -> Iterator[Any]:
        _check_processes(self.feed)
        for batch in super().__iter__():
            yield self._put_all(batch)

    def batch(self, epoch: int, step: int) -> Any:
        """One batch, out of turn."""
        _check_processes(self.feed)
        return self._put_all(super().batch(epoch, step))

    def _put_all(self, batch: Any) -> Any:
        if not self._has_fields:
            return jax.tree.map(self._put, batch)
        rows, fields = batch
        # What is no array is a list: of texts, bytes and the like.
        put = {name: it if isinstance(it, list) else self._put(it) for name, it in fields.items()}
        return self._put(rows), put

    def _put(self, leaf: Any) -> Any:
        """An array of this process, or its part of an array of all processes."""
        array: NDArray[Any] = numpy.asarray(leaf)
        if array.dtype.names:
            return {name: self._put(array[name]) for name in array.dtype.names}
        if self._sharding is None:
            return jax.device_put(array)
        return jax.make_array_from_process_local_data(self._sharding, array)


def _check_processes(feed: Feed) -> None:
    """Refuses a rank that JAX numbers otherwise: two processes would read the same samples."""
    process, count = jax.process_index(), jax.process_count()
    if count > 1 and (process, count) != (feed.rank, feed.world):
        refuse(
            f"jax.distributed says process {process} of {count}, the launcher of this process rank"
            f" {feed.rank} of {feed.world}: start the processes by a launcher (docs/launch.md), or set"
            " RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT before the"
            " loader is made"
        )
