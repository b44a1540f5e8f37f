"""Restores the state of random generators and samplers."""

from __future__ import annotations

import collections
import copy
import random
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler

Restore = Callable[[], object]

# What a sampler may change in place. A dataset is none of these, and is not searched.
CONTAINERS = (list, dict, set, bytearray, collections.deque)


@contextmanager
def rewound(source: object) -> Iterator[None]:
    """Restores afterwards what `source` drew from generators and changed in itself.

    Raises `TypeError`, before anything was drawn, if `source` holds a running generator function, which
    cannot be restored.
    """
    restores = [*_default_generators(), *_restores_of(source, set())]
    try:
        yield
    finally:
        for restore in reversed(restores):
            restore()


def _default_generators() -> Iterator[Restore]:
    state, python_state = torch.get_rng_state(), random.getstate()
    yield lambda: torch.set_rng_state(state)
    yield lambda: random.setstate(python_state)
    # If NumPy is not imported, nothing can have drawn from it.
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy_state = numpy.random.get_state()
        yield lambda: numpy.random.set_state(numpy_state)


def _restores_of(value: Any, seen: set[int]) -> Iterator[Restore]:
    """What restores a sampler and the objects that it holds; each object is visited once."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if (restore := _generator(value)) is not None:
        yield restore
    elif isinstance(value, types.GeneratorType):
        if value.gi_frame is not None:
            raise TypeError(
                f"the sampler holds a running generator, {value.__name__}(): to read it ahead would use"
                " it up; make it anew in __iter__, or publish its samples with Feed.publish()"
            )
    elif isinstance(value, Sampler) or _is_own_sampler(value):
        kept = {name: _copied(attribute) for name, attribute in vars(value).items()}
        own = dict(vars(value))
        yield lambda: _restore(value, own, kept)
        for attribute in own.values():
            yield from _restores_of(attribute, seen)
    elif isinstance(value, DataLoader):
        for name in ("generator", "sampler", "batch_sampler"):
            yield from _restores_of(getattr(value, name, None), seen)
    elif isinstance(value, (list, tuple)) and len(value) <= SAMPLERS_MAX:
        for entry in value:
            yield from _restores_of(entry, seen)


# A longer list holds indices, not samplers.
SAMPLERS_MAX = 64


def _is_own_sampler(value: object) -> bool:
    """Whether it is iterable and has attributes of Python, but is no dataset, which could be indexed."""
    kind = type(value)
    return (
        hasattr(kind, "__iter__")
        and not hasattr(kind, "__getitem__")
        and hasattr(value, "__dict__")
        and kind.__module__ != "builtins"
        and not isinstance(value, DataLoader)
    )


def _generator(value: Any) -> Restore | None:
    if isinstance(value, torch.Generator):
        state = value.get_state()
        return lambda: value.set_state(state)
    if isinstance(value, random.Random):
        python_state = value.getstate()
        return lambda: value.setstate(python_state)
    if (numpy := sys.modules.get("numpy")) is not None:
        if isinstance(value, numpy.random.Generator):
            value = value.bit_generator
        if isinstance(value, numpy.random.BitGenerator):
            numpy_state = value.state
            return lambda: setattr(value, "state", numpy_state)
        if isinstance(value, numpy.random.RandomState):
            legacy_state = value.get_state()
            return lambda: value.set_state(legacy_state)
    return None


def _copied(value: Any) -> Any:
    """A copy of a value that may be changed in place, or of an iterator; else the value itself."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, (*CONTAINERS, Iterator)) and not isinstance(value, types.GeneratorType):
        try:
            return copy.copy(value)
        except TypeError:
            raise TypeError(
                f"the sampler holds a {type(value).__name__}, which cannot be copied: to read it ahead"
                " would use it up; publish its samples with Feed.publish()"
            ) from None
    if (numpy := sys.modules.get("numpy")) is not None and isinstance(value, numpy.ndarray):
        return value.copy()
    return value


def _restore(sampler: Any, own: dict[str, Any], kept: dict[str, Any]) -> None:
    """Restores attributes: the same objects with the same content, and the copy of an iterator."""
    attributes = vars(sampler)
    attributes.clear()
    for name, value in own.items():
        attributes[name] = _refilled(value, kept[name])


def _refilled(value: Any, kept: Any) -> Any:
    if isinstance(value, (list, bytearray)):
        value[:] = kept
    elif isinstance(value, (dict, set)):
        value.clear()
        value.update(kept)
    elif isinstance(value, collections.deque):
        value.clear()
        value.extend(kept)
    elif isinstance(value, torch.Tensor):
        value.copy_(kept)
    elif value is not kept and hasattr(value, "shape"):
        value[...] = kept
    else:
        return kept
    return value
