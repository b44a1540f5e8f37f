"""tierfeed for Grain: its samples at random, or the batches of a job in their order."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Never, SupportsIndex

from grain import python as grain

import tierfeed.numpy
from tierfeed import environment
from tierfeed._native import Reconfigure
from tierfeed.index import Index
from tierfeed.loader import Source

__all__ = ["TierDataSource", "TierIterDataset"]

# Where the index of a source is kept, below the working directory, as runs are.
INDEXES = Path(".tierfeed", "indexes")


class TierDataSource:
    """The samples of a dataset by number, as `(bytes, label)`: a `grain.sources.RandomAccessDataSource`.

    `TierDataSource("/data/train", format="webdataset")` finds the samples in the files of any format
    that tierfeed knows; the keyword arguments are those of `tierfeed.Index.build`, and `path` says where
    the index is kept, which the worker processes of Grain open too. Under `tierfeed run` it is
    `TierDataSource()`.

    Samples are read from the files by the caller, one at a time: no agent takes part, and nothing is
    read ahead but by Grain itself. `TierIterDataset` is what an agent feeds.
    """

    def __init__(
        self,
        source: Index | str | os.PathLike[str] | None = None,
        *,
        path: str | os.PathLike[str] | None = None,
        **keys: Any,
    ) -> None:
        self._index = _index_of(source, path, keys)
        if "://" in self._index.source:
            raise Reconfigure(
                f"{self._index.source} is a bucket, and samples at random are read from files only: use"
                " TierIterDataset, whose batches an agent reads ahead"
            )

    @property
    def index(self) -> Index:
        """Where the samples lie."""
        return self._index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, sample: SupportsIndex) -> tuple[bytes, int]:
        number = sample.__index__()
        return self._index.read(number), self._index.label(number)

    def __repr__(self) -> str:
        # The same in each process and each run: Grain compares it when it restores a checkpoint.
        index = self._index
        return f"TierDataSource({index.source!r}, format={index.format!r}, {index.fingerprint})"


class TierIterDataset(grain.IterDataset):  # type: ignore[misc]
    """The batches of this rank, epoch after epoch, as a `grain.IterDataset`.

    The arguments, the batches and the order are those of `tierfeed.numpy.TierLoader`. A checkpoint of
    the iterator, or of one over it, is the position in the order. A further dataset of the job, such as
    `TierIterDataset(dataset="validation")`, is one pass.
    """

    def __init__(self, source: Source | None = None, **arguments: Any) -> None:
        super().__init__()
        self._loader = tierfeed.numpy.TierLoader(source, **arguments)
        own = ("record", "decode", "decode_threads", "collate", "short_batch")
        self._arguments = {name: arguments[name] for name in own if name in arguments}

    def __iter__(self) -> TierDatasetIterator:
        return TierDatasetIterator(tierfeed.numpy.TierLoader(self._loader.feed, **self._arguments))

    def close(self) -> None:
        """Disconnects, as `tierfeed.numpy.TierLoader.close`."""
        self._loader.close()

    def __reduce__(self) -> Never:
        raise Reconfigure(
            "the agent reads the batches of a TierIterDataset ahead, and each process would read all of"
            " them: leave mp_prefetch out; decode_threads= decodes in parallel"
        )


class TierDatasetIterator(grain.DatasetIterator):  # type: ignore[misc]
    """Iterates over the batches that are left, and over the epochs. One at a time."""

    def __init__(self, loader: tierfeed.numpy.TierLoader) -> None:
        super().__init__()
        self._loader = loader
        self._batches = self._left()

    def __next__(self) -> Any:
        return next(self._batches)

    def get_state(self) -> dict[str, Any]:
        """The position after the batch that was handed out last."""
        return self._loader.state_dict()

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on at the position of another iterator."""
        self._loader.load_state_dict(state)
        self._batches = self._left()

    def _left(self) -> Iterator[Any]:
        epochs = self._loader.epochs_left
        if self._loader.feed.dataset is not None:
            # A validation is one pass, in the epoch that training is in.
            epochs = range(epochs.start, self._loader.epoch + 1)
        for _ in epochs:
            yield from self._loader


def _index_of(
    source: Index | str | os.PathLike[str] | None,
    path: str | os.PathLike[str] | None,
    keys: dict[str, Any],
) -> Index:
    if isinstance(source, (str, os.PathLike)):
        return Index.build(source, path=path or _place_of(source, keys), **keys)
    if keys or path is not None:
        name = next(iter(keys), "path")
        raise TypeError(f"TierDataSource takes {name}= only beside the path of a dataset")
    if source is not None:
        return source
    if (indexed := environment.index()) is None:
        raise Reconfigure("TierDataSource() needs a dataset, or a training under `tierfeed run`")
    return Index.open(indexed)


def _place_of(source: str | os.PathLike[str], keys: dict[str, Any]) -> Path:
    """The file of the index: the same for the same arguments in the same working directory."""
    described = json.dumps([os.path.abspath(source), keys], default=os.fspath, sort_keys=True)
    INDEXES.mkdir(parents=True, exist_ok=True)
    return INDEXES / f"{hashlib.sha256(described.encode()).hexdigest()[:16]}.tfx"
