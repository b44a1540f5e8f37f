"""Decoding of samples, on the caller's thread or on threads that the user asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from tierfeed._native import Sample

Decode = Callable[[Sample, int], Any]
"""Turns the bytes and the label of a sample into what training wants."""


def as_tensor(sample: Sample, label: int) -> tuple[torch.Tensor, int]:
    """The bytes themselves, not copied; a copy of a sample that is read-only (`Sample.readonly`)."""
    return from_dlpack(sample), label


class Decoder:
    """Applies a decode function. Its threads, if any, start with the first sample."""

    def __init__(self, decode: Decode, threads: int) -> None:
        if threads < 0:
            raise ValueError(f"{threads} decode threads; ask for 0 or more")
        self.threads = threads
        self._decode = decode
        self._pool: ThreadPoolExecutor | None = None

    def start(self, samples: Iterable[Sample]) -> list[Future[Any]] | list[Sample]:
        """Begins to decode on the threads; without threads, keeps the samples for later."""
        if self.threads == 0:
            return list(samples)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, "tierfeed-decode")
        return [self._pool.submit(self._decode, sample, sample.label) for sample in samples]

    def finish(self, started: list[Future[Any]] | list[Sample]) -> list[Any]:
        """The decoded samples, in the order of `start`."""
        return [
            entry.result() if isinstance(entry, Future) else self._decode(entry, entry.label)
            for entry in started
        ]

    def close(self) -> None:
        """Ends the threads after what they are doing now."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)

    def __getstate__(self) -> dict[str, Any]:
        # Threads stay behind; a copy starts its own.
        return {**self.__dict__, "_pool": None}
