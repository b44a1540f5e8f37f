"""The fields that samples have beside the rows of a transform, as tensors.

A graph fixes types and shapes before the first batch, so they are given by the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

BESIDE_ROWS = (
    "fields= is for samples of several fields of which a transform takes one, as those of webdataset,"
    " tfrecord, mds and litdata; leave it out"
)

UNNAMED = (
    "samples of this dataset have fields beside the image or array that is transformed, and no labels"
    " in the index; name those that training needs with their types, for example"
    ' fields={"image/class/label": tf.int64}'
)


class Fields:
    """The fields of these names, each with a `tf.DType` or, for several values, a `tf.TensorSpec`."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        if not fields:
            raise ValueError('fields is empty; name one with its type, as fields={"cls": tf.int64}')
        self._specs = {name: _spec(name, wanted) for name, wanted in fields.items()}

    def request(self) -> list[dict[str, Any]]:
        """As the native half reads them."""
        return [
            {"name": name, "kind": _kind(spec), "values": spec.shape.num_elements()}
            for name, spec in self._specs.items()
        ]

    def tensors(self, packed: Any, count: int | None) -> dict[str, Any]:
        """The tensors of a batch, of which `packed` has the strings of each sample behind each other."""
        of_samples = tf.reshape(packed, [-1, len(self._specs)])
        columns = zip(self._specs.items(), tf.unstack(of_samples, axis=1), strict=True)
        return {name: _typed(column, spec, count) for (name, spec), column in columns}


def _spec(name: str, wanted: Any) -> Any:
    spec = wanted if isinstance(wanted, tf.TensorSpec) else tf.TensorSpec([], wanted)
    is_string = spec.dtype == tf.string
    values = spec.shape.num_elements()
    if not (is_string or spec.dtype.is_integer or spec.dtype.is_floating):
        raise ValueError(f"fields[{name!r}] is {spec}; it may be tf.string, or a type of numbers")
    if values is None or values == 0 or (is_string and values != 1):
        raise ValueError(f"fields[{name!r}] is {spec}; a sample has one string, or 1 number or more")
    return spec


def _kind(spec: Any) -> str:
    if spec.dtype == tf.string:
        return "bytes"
    return "integers" if spec.dtype.is_integer else "floats"


def _typed(column: Any, spec: Any, count: int | None) -> Any:
    if spec.dtype != tf.string:
        column = tf.io.decode_raw(column, tf.int64 if spec.dtype.is_integer else tf.float64)
        column = tf.cast(column, spec.dtype)
    column = tf.reshape(column, [-1, *spec.shape])
    column.set_shape([count, *spec.shape])
    return column
