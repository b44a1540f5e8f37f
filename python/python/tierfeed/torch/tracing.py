"""Waits in the trace of a training that profiles itself, beside what it computes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

NEXT_BATCH = "tierfeed.next_batch"
"""How a wait for a batch is called in a trace."""

DECODE = "tierfeed.decode"
"""How a wait for threads that decode is called."""

_nothing: AbstractContextManager[Any] = nullcontext()


def waiting(name: str) -> AbstractContextManager[Any]:
    """Stands in the trace of `torch.profiler` as `name` while a profiler runs; else it is nothing."""
    if not _is_profiled():
        return _nothing
    span: AbstractContextManager[Any] = torch.profiler.record_function(name)
    return span


def _is_profiled() -> bool:
    # Asked for every batch, so it is one call; without it nothing is ever noted.
    ask = getattr(torch.autograd, "_profiler_enabled", None)
    return ask is not None and bool(ask())
