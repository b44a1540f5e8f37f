"""A sample as a tensor, and a batch of rows as one."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from tierfeed._native import Batch, Pipeline, Reconfigure, Sample
from tierfeed.fields import Columns, columns_of, fields_of, is_numeric


def as_tensor(sample: Sample, label: int) -> tuple[torch.Tensor, int]:
    """The bytes themselves, not copied; a copy of a sample that is read-only (`Sample.readonly`)."""
    return from_dlpack(sample), label


def as_source(sample: Sample, label: int) -> tuple[torch.Tensor, int]:
    """The bytes themselves, also of a sample that is read-only: for what only copies them."""
    if not sample.readonly or len(sample) == 0:
        return as_tensor(sample, label)
    with warnings.catch_warnings():
        # That it is not writable is meant.
        warnings.simplefilter("ignore")
        return torch.frombuffer(sample, dtype=torch.uint8), label


def tensors_of(columns: Columns) -> dict[str, Any]:
    """Numbers as tensors, int64 or float32; lists of what else there is."""
    return {
        name: torch.tensor(values) if is_numeric(values) else values for name, values in columns.items()
    }


class RowTensors:
    """Makes tensors of the rows that the agent made of samples: not copied."""

    def __init__(self, pipeline: Pipeline) -> None:
        dtype = getattr(torch, pipeline.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise Reconfigure(
                f"the transform yields {pipeline.dtype}, which PyTorch {torch.__version__} does not"
                " have: use another dtype, or a newer PyTorch"
            )
        self._dtype = dtype
        self._pipeline = pipeline
        self._shape = pipeline.shape

    def batch(self, batch: Batch) -> tuple[torch.Tensor, Any]:
        """All rows as one tensor, and the labels or the other fields; a copy where a sample was left out
        between them."""
        try:
            rows = from_dlpack(batch.array())
        except ValueError:
            rows = torch.stack([from_dlpack(sample) for sample in batch])
        if self._pipeline.has_fields:
            return self._typed(rows), tensors_of(columns_of(self._pipeline, batch))
        return self._typed(rows), torch.tensor(batch.labels)

    def sample(self, sample: Sample, label: int) -> tuple[torch.Tensor, Any]:
        """One row, and its label or the other fields of the sample."""
        beside = fields_of(self._pipeline, sample) if self._pipeline.has_fields else label
        return self._typed(from_dlpack(sample)), beside

    def _typed(self, rows: torch.Tensor) -> torch.Tensor:
        elements = rows.view(self._dtype)
        typed: torch.Tensor = elements.view(*elements.shape[:-1], *self._shape)
        return typed
