"""A sample as a tensor."""

from __future__ import annotations

import torch
from torch.utils.dlpack import from_dlpack

from tierfeed._native import Sample


def as_tensor(sample: Sample, label: int) -> tuple[torch.Tensor, int]:
    """The bytes themselves, not copied; a copy of a sample that is read-only (`Sample.readonly`)."""
    return from_dlpack(sample), label
