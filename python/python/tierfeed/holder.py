"""Finds out what keeps a batch, for a warning that is given once: it looks at every object there is."""

from __future__ import annotations

import gc
import sys
import types
from typing import Any

from tierfeed._native import Batch, View

# A tensor in a list in a tuple in a list: what a loader makes, and whoever collects it.
LEVELS_MAX = 4

UNSEEN = "something that the garbage collector does not see, such as an array in a variable"


def holder_of(address: int, nbytes: int) -> str:
    """What keeps the memory at `address`, by the names of its types from the inside out.

    It is only for a warning, so what cannot be looked at is passed over: this never raises.
    """
    for container in gc.get_objects():
        if _is_a(container, types.FrameType):
            continue
        for item in gc.get_referents(container):
            try:
                if _lies_in(item, address, nbytes):
                    return " in ".join([_name(item), *_names_around(container)])
            except Exception:
                continue
    return UNSEEN


def _names_around(container: Any) -> list[str]:
    """The names of a container and of what holds it, up to a namespace."""
    names: list[str] = []
    while len(names) < LEVELS_MAX:
        names.append(_name(container))
        holders = [it for it in gc.get_referrers(container) if _is_container(it)]
        if not holders:
            break
        container = holders[0]
    return names


def _is_container(it: Any) -> bool:
    """Whether `it` is a thing that a user would know, rather than a namespace."""
    is_namespace = _is_a(it, dict) and "__name__" in it and "__spec__" in it
    return not is_namespace and not _is_a(it, types.FrameType, types.ModuleType)


def _is_a(it: Any, *kinds: type) -> bool:
    """As ``isinstance``, which would ask the object: some warn when they are looked at."""
    return issubclass(type(it), kinds)


def _name(it: Any) -> str:
    kind = type(it)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return module + kind.__qualname__


def _lies_in(it: Any, address: int, nbytes: int) -> bool:
    start = _address(it)
    return start is not None and address <= start < address + max(nbytes, 1)


def _address(it: Any) -> int | None:
    """Where the bytes of a batch, a view, an array or a tensor on the CPU are; None of anything else."""
    if _is_a(it, Batch):
        return None if it.memory is None else it.memory[0]
    if _is_a(it, View):
        return int(it.address)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and _is_a(it, numpy.ndarray):
        return int(it.__array_interface__["data"][0])
    if torch is not None and _is_a(it, torch.Tensor):
        return int(it.data_ptr()) if it.is_cpu and it.layout is torch.strided else None
    return None
