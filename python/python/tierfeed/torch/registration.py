"""The staging memory of a rank, registered with the driver of its GPU.

The driver then copies out of it without a copy of its own and without the CPU. It takes a tenth of a
second for each gigabyte, so a thread does it beside the first batches; until it is done, and for good
if it fails, copies take the way of ordinary memory.

The memory is that of one connection to an agent. The connection was made with `pinned`, so the agent
gives no pages of it back: the driver would go on with those that it holds.
"""

from __future__ import annotations

import threading
import warnings

import torch

from tierfeed._native import AgentConnection
from tierfeed.torch.cuda import Cuda

# The driver refuses very long ranges (512 GiB fail). A multiple of what batches are aligned to.
RANGE_MAX = 64 << 30


class Registration:
    """The arena of a connection, which stays mapped until `close`."""

    def __init__(self, cuda: Cuda, agent: AgentConnection, device: torch.device) -> None:
        self.agent = agent
        self._cuda = cuda
        self._device = device
        self._start, self._len = agent.arena
        self._ranges = _ranges(self._start, self._len)
        self._registered: list[tuple[int, int]] = []
        self._is_closing = False
        self._thread = threading.Thread(target=self._register, name="tierfeed-register", daemon=True)
        self._thread.start()

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether the bytes of a tensor lie in the arena."""
        first: int = tensor.data_ptr()
        return self._start <= first < self._start + self._len

    def is_split(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in two ranges: no copy may, whether or not both are registered."""
        # Rows may have gaps between them, which a copy of all passes over.
        last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
        first = tensor.data_ptr()
        end = first + (last + 1) * tensor.element_size()
        return any(first < start < end for start, _ in self._ranges)

    def wait(self) -> None:
        """Waits until all is registered, or failed."""
        self._thread.join()

    def close(self) -> None:
        """Reverts the registration. No copy may be under way."""
        self._is_closing = True
        self._thread.join()
        while self._registered:
            self._cuda.unregister(self._registered.pop()[0])

    def _register(self) -> None:
        for start, length in self._ranges:
            if self._is_closing:
                return
            if (failure := self._cuda.register(start, length, self._device)) is not None:
                warnings.warn(
                    f"tierfeed: {failure}; batches are copied from memory that is not pinned",
                    RuntimeWarning,
                    stacklevel=1,
                )
                return
            self._registered.append((start, length))


def _ranges(start: int, length: int) -> list[tuple[int, int]]:
    offsets = range(0, length, RANGE_MAX)
    return [(start + offset, min(RANGE_MAX, length - offset)) for offset in offsets]
