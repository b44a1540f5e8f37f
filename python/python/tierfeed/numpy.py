"""tierfeed for NumPy, and for every framework that takes its arrays."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy
from numpy.typing import DTypeLike, NDArray

from tierfeed._native import Batch, Pipeline, Reconfigure
from tierfeed.decoding import Decode, DecodeThreads
from tierfeed.fields import Columns, columns_of, is_numeric
from tierfeed.loader import TRANSFORMED, Loader, ShortBatch, Source

__all__ = ["TierLoader", "stack"]


class TierLoader(Loader):
    """Iterates over the batches of this rank as arrays. Each pass reads an epoch, and the next pass the
    next one.

    `TierLoader("/data/train", batch_size=256, seed=42)` starts what it needs, as
    `tierfeed.torch.TierLoader` does; under `tierfeed run` it is `TierLoader()`, and
    `TierLoader(dataset="validation")` for one of the job's `datasets`.

    Without `decode` a batch is `(array, labels)`. The samples have one length and are the rows of
    `array`, which lies over the staged bytes: writable, and not copied. `record` is what a sample is, as
    a dtype of NumPy: `"float32"` for a row of numbers, `"(224,224,3)uint8"` for an image, fields for a
    record of several parts; without, a row has bytes. A batch goes back to the agent when the last array
    over it is gone: copy what you keep.

    With `transform`, made by `tierfeed.transforms`, the agent decodes: a batch is `(array, labels)` of
    rows of one shape and type, not copied either. Under `tierfeed run` the job file has it.

    With `decode(sample, label)` a batch is `collate` of what `decode` returned for each sample, by
    default `stack`. `sample` supports the buffer protocol and `numpy()`.

    `short_batch="drop"` leaves out batches with fewer samples, such as the last one of an epoch.
    """

    def __init__(
        self,
        source: Source | None = None,
        *,
        record: DTypeLike | None = None,
        decode: Decode | None = None,
        decode_threads: DecodeThreads = 0,
        collate: Callable[[list[Any]], Any] | None = None,
        short_batch: ShortBatch = "keep",
        **keys: Any,
    ) -> None:
        if decode is not None and record is not None:
            raise ValueError("decode and record: both say what a sample is")
        if decode is None and collate is not None:
            raise ValueError("collate without decode: there is nothing to collate")
        super().__init__(
            source,
            keys,
            whole=Rows(record),
            dense=lambda pipeline: _rows_of(pipeline, record),
            decode=decode,
            decode_threads=decode_threads,
            collate=collate or stack,
            short_batch=short_batch,
        )


class Rows:
    """Makes of a batch `(array, labels)`, where all samples are records of one dtype; `(array, fields)`
    where samples have fields beside the one that became the row."""

    def __init__(self, record: DTypeLike | None, pipeline: Pipeline | None = None) -> None:
        self._fields = pipeline if pipeline is not None and pipeline.has_fields else None
        self._base: numpy.dtype[Any] = numpy.dtype(numpy.uint8 if record is None else record)
        self._shape: tuple[int, ...] = ()
        if self._base.subdtype is not None:
            self._base, self._shape = self._base.subdtype

    def __call__(self, batch: Batch) -> tuple[NDArray[Any], Any]:
        rows = self._records(rows_of(batch))
        if self._fields is not None:
            return rows, arrays_of(columns_of(self._fields, batch))
        return rows, numpy.array(batch.labels, numpy.int64)

    def _records(self, rows: NDArray[numpy.uint8]) -> NDArray[Any]:
        count, nbytes = rows.shape
        values = nbytes // self._base.itemsize
        wanted = int(numpy.prod(self._shape)) if self._shape or self._base.names else values
        if nbytes != wanted * self._base.itemsize:
            record = numpy.dtype((self._base, self._shape))
            raise Reconfigure(
                f"the samples have {nbytes} bytes, and a record of {record} has {record.itemsize}: give"
                " record= the dtype of a sample"
            )
        array = rows.view(self._base)
        return array.reshape(count, *self._shape) if self._shape or self._base.names else array


def _rows_of(pipeline: Pipeline, record: DTypeLike | None) -> Rows:
    if record is not None:
        raise ValueError(TRANSFORMED.format("record"))
    return Rows(row_dtype(pipeline), pipeline)


def row_dtype(pipeline: Pipeline) -> numpy.dtype[Any]:
    """What a row is, with its dimensions."""
    return numpy.dtype((_dtype(pipeline.dtype), pipeline.shape))


def _dtype(name: str) -> Any:
    if name != "bfloat16":
        return numpy.dtype(name)
    try:
        # NumPy has no such type itself.
        return importlib.import_module("ml_dtypes").bfloat16
    except ModuleNotFoundError:
        raise Reconfigure(
            "the transform has dtype: bfloat16, which NumPy has with the package ml_dtypes only: install"
            " it, or use float32"
        ) from None


def arrays_of(columns: Columns) -> dict[str, Any]:
    """Numbers as arrays, int64 or float64; lists of what else there is."""
    return {
        name: numpy.array(values) if is_numeric(values) else values for name, values in columns.items()
    }


def rows_of(batch: Batch) -> NDArray[numpy.uint8]:
    """The samples of a batch as rows, not copied; a copy where one was left out between them."""
    try:
        return batch.array().numpy()
    except ValueError:
        lengths = {sample.nbytes for sample in batch}
        if len(lengths) > 1:
            raise Reconfigure(
                f"the samples of a batch have between {min(lengths)} and {max(lengths)} bytes, which"
                " makes no array: pass decode=, which gets each sample and its label"
            ) from None
        return numpy.stack([sample.numpy() for sample in batch])


def stack(decoded: list[Any]) -> Any:
    """Stacks arrays and numbers; of tuples, lists and dictionaries each part by itself."""
    first = decoded[0]
    if isinstance(first, Mapping):
        return {name: stack([it[name] for it in decoded]) for name in first}
    if isinstance(first, (tuple, list)):
        return tuple(stack(list(part)) for part in zip(*decoded, strict=True))
    return numpy.stack(decoded)
