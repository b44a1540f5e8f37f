"""How a batch comes to training: pinned, or on the GPU.

A copy to a GPU goes on after the call that started it, and reads the staging memory of the batch
meanwhile. So a batch is held, and its lease with it, until an event says that the copy has ended.
PyTorch does the same for memory that it has pinned itself; that of others it does not know.

1. A batch whose memory a copy may read is given back after the event of that copy.
2. When training asks for a batch, at most `HELD_MAX` others are held: the loader waits for older ones.
"""

from __future__ import annotations

import copy
import os
import weakref
from collections import deque
from collections.abc import Callable, MutableMapping
from typing import Any

import torch

from tierfeed._native import Batch
from tierfeed.delivery import Delivery
from tierfeed.feed import Feed
from tierfeed.torch.cuda import Cuda, Target
from tierfeed.torch.registration import Registration

# With the batch that training asks for as many as a loop holds anyway. So a training that never waits
# for its GPU is one step ahead of it.
HELD_MAX = 1


class HeldBatches:
    """Batches whose memory copies read, and those that training uses."""

    def __init__(self, cuda: Cuda, device: torch.device) -> None:
        self._cuda = cuda
        self._named = device
        self._held: deque[tuple[Any, Batch]] = deque()
        self.in_use: list[Batch] = []
        """Handed out since training asked last, with tensors in staging memory."""

    @property
    def device(self) -> torch.device:
        """The device with its number."""
        return self._cuda.device(self._named)

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, event: Any, batch: Batch) -> None:
        """Holds `batch` until `event` has happened."""
        self._held.append((event, batch))

    def hold_those_in_use(self) -> None:
        """Training has started its copies of them by now, on its own stream."""
        while self.in_use:
            event = self._cuda.event(self._cuda.current_stream(self.device))
            self.hold(event, self.in_use.pop())

    def give_back(self, but: int) -> None:
        """Gives back the batches whose event has happened, and waits until at most `but` are left."""
        while self._held and (len(self._held) > but or self._held[0][0].query()):
            event, _ = self._held[0]
            event.synchronize()
            self._held.popleft()


class Pinning(Delivery):
    """Hands out tensors in pinned memory: those of the staging memory as they are, others as copies."""

    def __init__(self, feed: Feed, cuda: Cuda, device: torch.device) -> None:
        self._feed = feed
        self._cuda = cuda
        self._named = device
        self._held = HeldBatches(cuda, device)
        self._registrations: list[Registration] = []
        feed.pin()
        # Also for a loader that is dropped without `close`.
        weakref.finalize(self, _close, self._held, self._registrations, os.getpid()).atexit = False

    def asked(self) -> None:
        self._held.hold_those_in_use()
        self._held.give_back(HELD_MAX)

    def send(self, batch: Batch, value: Any) -> Any:
        registration = self._registration()
        is_leased = False

        def pinned(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal is_leased
            if tensor.device.type != "cpu" or tensor.layout != torch.strided:
                return tensor
            if registration is None or not registration.holds(tensor) or registration.is_split(tensor):
                return self._cuda.pin(tensor)
            is_leased = True
            return tensor

        value = mapped(value, pinned)
        return value, batch if is_leased else None

    def hand_out(self, sent: Any) -> Any:
        value, leased = sent
        if leased is not None:
            self._held.in_use.append(leased)
        return value

    def close(self) -> None:
        _close(self._held, self._registrations, os.getpid())

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._feed, self._cuda, self._named)

    def _registration(self) -> Registration | None:
        """That of the agent that the feed is connected to now."""
        agent = self._feed.agent()
        known = self._registrations[-1] if self._registrations else None
        if agent is None or (known is not None and known.agent is agent):
            return known
        if known is not None:
            _close(self._held, self._registrations, os.getpid())
        self._registrations.append(Registration(self._cuda, agent, self._held.device))
        return self._registrations[-1]


class ToDevice(Pinning):
    """Hands out tensors on the GPU. Their copies run on a stream of their own, one batch ahead."""

    goes_ahead = True

    def __init__(self, feed: Feed, cuda: Cuda, device: torch.device) -> None:
        super().__init__(feed, cuda, device)
        self._streams: dict[torch.device, Any] = {}

    def send(self, batch: Batch, value: Any) -> Any:
        value, leased = super().send(batch, value)
        device = self._held.device
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = self._cuda.stream(device)
        with self._cuda.on(stream):
            value = mapped(value, lambda tensor: self._cuda.copy(tensor, device))
        event = self._cuda.event(stream)
        if leased is not None:
            self._held.hold(event, leased)
        return value, event, device

    def hand_out(self, sent: Any) -> Any:
        value, event, device = sent
        current = self._cuda.current_stream(device)
        current.wait_event(event)
        # Allocated on the stream of the copies: training must be done before it is written to again.
        mapped(value, lambda tensor: self._cuda.keep_for(tensor, current))
        return value


def delivery(feed: Feed, target: Target) -> Delivery:
    """How batches of `feed` come to `target`."""
    kind = ToDevice if target.is_copied_to else Pinning
    return kind(feed, target.cuda, target.device)


def mapped(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The value with its tensors changed, as `collate` functions nest them; other objects stay."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, MutableMapping):
        # A copy, for mappings that are not made of their entries alone, such as a `defaultdict`.
        changed = copy.copy(value)
        changed.update({key: mapped(entry, change) for key, entry in value.items()})
        return changed
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(entry, change) for entry in value))
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(entry, change) for entry in value)
    return value


def _close(held: HeldBatches, registrations: list[Registration], pid: int) -> None:
    # A forked child has no part in what its parent has at the driver.
    if os.getpid() != pid:
        return
    held.hold_those_in_use()
    held.give_back(0)
    while registrations:
        registrations.pop().close()
