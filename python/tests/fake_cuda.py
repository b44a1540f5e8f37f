"""A stand-in for the CUDA of `tierfeed.torch.cuda`, without a GPU: copies read their source late.

Work on a stream waits until the stream is run. So a copy whose source was given back too early reads
what was written there since, as a GPU would.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tierfeed.torch.cuda import Cuda


class Stream:
    """Work in the order in which it came, done when somebody runs it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.work: deque[Callable[[], object]] = deque()
        self.waits_for: list[Event] = []

    def run(self) -> None:
        while self.work:
            self.work.popleft()()

    def wait_event(self, event: Event) -> None:
        self.waits_for.append(event)


class Event:
    """Happens when its stream has come so far."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.has_happened = False
        stream.work.append(self._happen)

    def _happen(self) -> None:
        self.has_happened = True

    def query(self) -> bool:
        return self.has_happened

    def synchronize(self) -> None:
        while not self.has_happened:
            self.stream.work.popleft()()


class FakeCuda(Cuda):
    """One device, on which tensors of the CPU play those of the GPU."""

    def __init__(self, *, fails_with: str | None = None) -> None:
        self.fails_with = fails_with
        self.registered: dict[int, int] = {}
        self.training = Stream("training")
        self.streams = [self.training]
        self.here = self.training
        self.kept: list[tuple[torch.Tensor, Stream]] = []
        self.copies = 0
        # Memory that PyTorch has pinned itself, which it keeps until copies out of it have ended.
        self.pinned_from: list[int] = []
        self.own: dict[int, torch.Tensor] = {}

    def device(self, device: torch.device) -> torch.device:
        return torch.device("cuda", 0)

    def register(self, address: int, nbytes: int, device: torch.device) -> str | None:
        if self.fails_with is None:
            self.registered[address] = nbytes
        return self.fails_with

    def unregister(self, address: int) -> None:
        del self.registered[address]

    def stream(self, device: torch.device) -> Stream:
        self.streams.append(Stream("copies"))
        return self.streams[-1]

    def current_stream(self, device: torch.device) -> Stream:
        return self.here

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        before, self.here = self.here, stream
        try:
            yield
        finally:
            self.here = before

    def event(self, stream: Stream) -> Event:
        return Event(stream)

    def copy(self, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        there = torch.empty_like(tensor)
        target, source = there.data_ptr(), tensor.data_ptr()
        nbytes = tensor.numel() * tensor.element_size()
        ranges = [(start, start + length) for start, length in self.registered.items()]
        touched = sum(start < source + nbytes and source < end for start, end in ranges)
        assert touched < 2, "the driver refuses a copy out of two registered ranges"
        # By address: like a GPU, it holds no reference to the source, which may be reused too early.
        self.here.work.append(lambda: ctypes.memmove(target, source, nbytes) and there)
        self.copies += 1
        return there

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        pinned = tensor.clone()
        self.pinned_from.append(tensor.data_ptr())
        self.own[pinned.data_ptr()] = pinned
        return pinned

    def keep_for(self, tensor: torch.Tensor, stream: Any) -> None:
        self.kept.append((tensor, stream))
