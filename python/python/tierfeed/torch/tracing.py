"""Marks waits in the trace of `torch.profiler`, while a training is profiled."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

NEXT_BATCH = "tierfeed.next_batch"
"""The name of a wait for a batch in a trace."""

DECODE = "tierfeed.decode"
"""The name of a wait for decode threads in a trace."""

_nothing: AbstractContextManager[Any] = nullcontext()


def waiting(name: str) -> AbstractContextManager[Any]:
    """A span called `name` in the trace of `torch.profiler`; does nothing while no profiler runs."""
    if not _is_profiled():
        return _nothing
    span: AbstractContextManager[Any] = torch.profiler.record_function(name)
    return span


def _is_profiled() -> bool:
    # One call, as it runs for every batch. A PyTorch without it gets no spans.
    ask = getattr(torch.autograd, "_profiler_enabled", None)
    return ask is not None and bool(ask())
