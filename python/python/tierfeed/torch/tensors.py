"""A sample as a tensor, and a batch of rows as one."""

from __future__ import annotations

import warnings

import torch
from torch.utils.dlpack import from_dlpack

from tierfeed._native import Batch, Pipeline, Reconfigure, Sample


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
        self._shape = pipeline.shape

    def batch(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """All rows as one tensor, and the labels; a copy where a sample was left out between them."""
        try:
            rows = from_dlpack(batch.array())
        except ValueError:
            rows = torch.stack([from_dlpack(sample) for sample in batch])
        return self._typed(rows), torch.tensor(batch.labels)

    def sample(self, sample: Sample, label: int) -> tuple[torch.Tensor, int]:
        """One row."""
        return self._typed(from_dlpack(sample)), label

    def _typed(self, rows: torch.Tensor) -> torch.Tensor:
        elements = rows.view(self._dtype)
        typed: torch.Tensor = elements.view(*elements.shape[:-1], *self._shape)
        return typed
