"""A sample as a tensor."""

from __future__ import annotations

import warnings

import torch
from torch.utils.dlpack import from_dlpack

from tierfeed._native import Sample


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
