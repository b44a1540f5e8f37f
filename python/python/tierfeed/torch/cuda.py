"""The functions of PyTorch's CUDA that a loader uses, in one place: tests put a stand-in here."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple

import torch

from tierfeed._native import Reconfigure

# `cudaHostRegisterPortable`: the memory is registered for every context of the process.
_PORTABLE = 1


class Cuda:
    """CUDA of this process, by way of PyTorch."""

    def device(self, device: torch.device) -> torch.device:
        """The device with its number, which is that of `torch.cuda.set_device` if none is named."""
        return torch.device("cuda", torch.cuda.current_device()) if device.index is None else device

    def register(self, address: int, nbytes: int, device: torch.device) -> str | None:
        """Registers mapped memory with the driver, for copies that do not wait. Returns what failed.

        The runtime keeps an error of this call, and later reports it for a kernel that has nothing to do
        with it; a kernel that is started here takes it away.
        """
        with torch.cuda.device(device):
            code = int(_runtime().cudaHostRegister(address, nbytes, _PORTABLE))
            if code == 0:
                return None
            with suppress(RuntimeError):
                torch.ones(1, device=device)
            return f"cudaHostRegister of {nbytes} bytes failed with error {code} of CUDA"

    def unregister(self, address: int) -> None:
        """Reverts `register`."""
        _runtime().cudaHostUnregister(address)

    def stream(self, device: torch.device) -> Any:
        """A stream of its own."""
        return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def current_stream(self, device: torch.device) -> Any:
        """The stream that training uses now."""
        return torch.cuda.current_stream(device)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """What is done within it is done on `stream`."""
        context: AbstractContextManager[Any] = torch.cuda.stream(stream)
        return context

    def event(self, stream: Any) -> Any:
        """An event that happens when `stream` has come so far."""
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(stream)
        return event

    def copy(self, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        """The tensor on the device, once the current stream has come so far."""
        there: torch.Tensor = tensor.to(device, non_blocking=True)
        return there

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy in memory that PyTorch has registered."""
        pinned: torch.Tensor = tensor.pin_memory()
        return pinned

    def keep_for(self, tensor: torch.Tensor, stream: Any) -> None:
        """The memory of a tensor of the device is not used again before `stream` is done with it."""
        tensor.record_stream(stream)


def _runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def driver() -> Cuda | None:
    """CUDA of this process; `None` without a GPU."""
    return Cuda() if torch.cuda.is_available() else None


class Target(NamedTuple):
    """Where the batches of a loader go."""

    cuda: Cuda
    device: torch.device
    is_copied_to: bool
    """Whether batches are copied there; else their memory is pinned for it."""


def target(device: torch.device | str | None, *, pin_memory: bool) -> Target | None:
    """Where a loader with these arguments hands batches out; `None` if they stay as they are.

    Without a GPU pinning is left out, with a warning, and a device of CUDA is an error.
    """
    named = torch.device("cpu" if device is None else device)
    if named.type not in ("cpu", "cuda"):
        raise Reconfigure(
            f"device is {str(named)!r}; batches are handed out on cpu or cuda: leave device out, and"
            " copy what the loader yields"
        )
    is_copied_to = named.type == "cuda"
    if not is_copied_to and not pin_memory:
        return None
    if (found := driver()) is not None:
        return Target(found, named if is_copied_to else torch.device("cuda"), is_copied_to)
    why = f"PyTorch {torch.__version__} finds no CUDA device"
    if is_copied_to:
        raise Reconfigure(f"device is {str(named)!r}, but {why}: leave it out, batches stay on the CPU")
    warnings.warn(f"tierfeed: {why}, so pin_memory does nothing", RuntimeWarning, stacklevel=3)
    return None
