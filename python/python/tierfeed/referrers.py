"""Finds the objects that keep a batch, for a warning that is given once: it visits every object."""

from __future__ import annotations

import gc
import sys
import types
from typing import Any

from tierfeed._native import Batch, View

# A tensor in a list in a tuple, which a loader makes, in a list where a program collects batches.
LEVELS_MAX = 4

UNSEEN = "something that the garbage collector does not see, such as an array in a variable"


def referrer_of(address: int, nbytes: int) -> str:
    """What keeps the memory at `address`: the names of types, from the object to its containers.

    It is for a warning only, so an object that raises when it is inspected is passed over.
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
    """The type names of a container and of its containers, up to a namespace."""
    names: list[str] = []
    while len(names) < LEVELS_MAX:
        names.append(_name(container))
        referrers = [it for it in gc.get_referrers(container) if _is_container(it)]
        if not referrers:
            break
        container = referrers[0]
    return names


def _is_container(it: Any) -> bool:
    """Whether `it` is an object that a user would know, rather than a namespace."""
    is_namespace = _is_a(it, dict) and "__name__" in it and "__spec__" in it
    return not is_namespace and not _is_a(it, types.FrameType, types.ModuleType)


def _is_a(it: Any, *kinds: type) -> bool:
    """As ``isinstance``, which would call the object's `__class__`: some objects warn then."""
    return issubclass(type(it), kinds)


def _name(it: Any) -> str:
    kind = type(it)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return module + kind.__qualname__


def _lies_in(it: Any, address: int, nbytes: int) -> bool:
    start = _address(it)
    return start is not None and address <= start < address + max(nbytes, 1)


def _address(it: Any) -> int | None:
    """The address of a batch, a view, an array or a tensor on the CPU; None of any other object."""
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
