"""Where a loader is in the epochs of its job: what it reads next, and what it saves to go on later.

A pass reads the epoch that was named for it, by `set_epoch` or by a state, else the one after that of
the pass before, also beyond the epochs of the job: no order comes twice by itself. What looks like a
mistake is said once: an epoch that is named again after it was read, a pass for which none was named
although passes before it had one, epochs that are counted from 1, and more passes than the job has.
None of that matters in a sequential order. A dataset beside the first one of a job is read as of the
epoch that training is in.
"""

from __future__ import annotations

import hashlib
import json
import operator
import warnings
from collections.abc import Mapping
from typing import Any

from tierfeed._native import Order, Reconfigure
from tierfeed.batches import EpochStep
from tierfeed.feed import Feed

STATE_VERSION = 3

# An earlier one, whose states name of their order only the shuffle and the seed.
_VERSION_WITHOUT_ORDER = 2

# How an order is divided into batches: a job with another division goes on at the `position` of a state.
_DIVISION = ("batch_size", "world", "nodes", "start")

# Epochs are counted in 32 bits.
_EPOCH_MAX = 2**32 - 2

# Where a warning points: from `_say_once` to the loop, or to the call of a method of the loader.
_LOOP = 5
_CALLED = 4


class Position:
    """The epoch of a loader, and its batches that training has taken."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._epoch = feed.order.start[0]
        # Where the next pass starts, and how many batches of the epoch training has taken.
        self._start_step = 0
        self._consumed = 0
        # Whether a pass over the epoch has begun.
        self._has_begun = False
        # Whether `set_epoch` named the epoch of the next pass, and whether it ever named one.
        self._is_set = False
        self._was_ever_set = False
        # Whether a pass, a name or a state has said where training is.
        self._was_placed = False
        self.warns_beyond = True
        """Whether it says that a pass is beyond the epochs of the job."""
        # The epoch that was read to its end last.
        self._finished: int | None = None
        self._said: set[str] = set()

    @property
    def epoch(self) -> int:
        """The epoch of the current or last pass; before the first one, and if one was named since,
        that of the next."""
        return self._epoch

    @property
    def epochs_left(self) -> range:
        """The epochs that are still to be read, first the one that is not read to its end."""
        is_over = 0 < self._consumed >= self.steps
        return range(self._epoch + is_over, self._feed.epochs)

    @property
    def steps(self) -> int:
        """Batches of the epoch."""
        return self._feed.order.steps_in(self._epoch, self._feed.rank)

    def set_epoch(self, epoch: int) -> None:
        """The next pass reads `epoch`, from its start, or from the position of a state in that epoch."""
        epoch = checked_epoch(epoch)
        if epoch != self._epoch or self._has_begun:
            self._go_to(epoch, 0)
        self._is_set = self._was_ever_set = self._was_placed = True

    def seek(self, epoch: int, step: int) -> None:
        """The next pass starts at a step of `epoch`."""
        epoch, step = checked_epoch(epoch), operator.index(step)
        steps = self._feed.order.steps_in(epoch, self._feed.rank)
        if not 0 <= step <= steps:
            raise IndexError(f"step {step}; epoch {epoch} has {steps}, from 0")
        self._go_to(epoch, step)

    def begin(self) -> EpochStep:
        """Where a pass starts that begins now."""
        is_over = 0 < self._start_step >= self.steps
        is_within = 0 < self._start_step < self.steps
        if self._is_set:
            self._say_repetition()
        elif self._feed.dataset is not None and not is_within:
            self._go_to(self._feed.training_epoch(), 0)
        elif self._has_begun or is_over:
            self._say_forgotten()
            self._go_to(self._epoch + 1, 0)
        self._say_beyond()
        start, self._start_step = self._start_step, 0
        self._has_begun, self._was_placed, self._is_set = True, True, False
        return self._epoch, start

    def take(self, step: int) -> None:
        """Training takes the batch of `step`."""
        self._consumed = step + 1

    def end(self, epoch: int) -> None:
        """A pass over `epoch` came to its end."""
        self._finished = epoch

    def state_dict(self) -> dict[str, Any]:
        """The position after the batch that was handed out last."""
        order, step = self._feed.order, self._consumed
        return {
            "version": STATE_VERSION,
            "fingerprint": self._feed.fingerprint,
            "order": _described(order),
            "epoch": self._epoch,
            "step": step,
            "position": order.position_after(self._epoch, step),
            "start": order.start,
            "batch_size": order.batch_size,
            "world": order.world,
            # Other orders are the same on any number of nodes.
            "nodes": order.nodes if order.shuffle == "mosaic" else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues at the position of another loader of the same job, as `TierLoader` says."""
        if not isinstance(state, Mapping):
            raise TypeError(f"load_state_dict takes what state_dict returned; this is {state!r}")
        # JSON, in which some keep a state, has no tuples.
        state = {key: tuple(it) if isinstance(it, list) else it for key, it in state.items()}
        own = self.state_dict()
        for key, theirs, ours in [*_identity(state, own), *_of_order(state, own)]:
            if theirs != ours:
                raise Reconfigure(f"the state was saved with {key} {theirs!r}; this job has {ours!r}")
        if state["version"] == _VERSION_WITHOUT_ORDER:
            self._say_once(
                "unnamed",
                "the state is of an earlier release, and names of its order only shuffle and seed: that"
                " the other keys of `order` are the same cannot be checked",
                stacklevel=_CALLED,
            )
        differing = [key for key in _DIVISION if state.get(key, own[key]) != own[key]]
        if not differing:
            self._go_to(int(state["epoch"]), int(state["step"]))
        elif own["start"] == state.get("position"):
            self._go_to(own["start"][0], 0)
        else:
            key, (epoch, samples) = differing[0], state["position"]
            raise Reconfigure(
                f"the state was saved with {key} {state.get(key)!r}; this job has {own[key]!r}: to go"
                f" on in another world, give it `order.start: {{ epoch: {epoch}, samples: {samples} }}`"
            )

    def _go_to(self, epoch: int, step: int) -> None:
        """The next pass starts there."""
        self._epoch = epoch
        self._start_step = self._consumed = step
        self._has_begun, self._is_set, self._was_placed = False, False, True

    def _say_repetition(self) -> None:
        if self._epoch == self._finished and self._start_step == 0:
            self._say_once(
                "repeated",
                f"epoch {self._epoch} was read to its end and is read again, in the same order: call"
                " set_epoch with the number of the epoch, or leave it out",
            )

    def _say_forgotten(self) -> None:
        if self._has_begun and self._was_ever_set:
            self._say_once(
                "forgotten",
                "set_epoch named the epochs of earlier passes, and none for this one: it reads the epoch"
                f" after the last one, {self._epoch + 1}",
            )

    def say_counted_from_1(self, epoch: int) -> None:
        """Says so if `epoch`, which a training names, looks as if it counted its epochs from 1."""
        first = self._feed.order.start[0]
        if epoch == first + 1 and not self._was_placed and self._feed.dataset is None:
            self._say_once(
                "counted from 1",
                f"set_epoch({epoch}) before any pass leaves epoch {first} out, as epochs count from 0:"
                f" the {self._feed.epochs} of the job end with {self._feed.epochs - 1}. Call"
                " set_epoch(epoch - 1), or leave it out",
                stacklevel=_CALLED,
            )

    def _say_beyond(self) -> None:
        if self.warns_beyond and self._epoch >= self._feed.epochs:
            self._say_once("beyond", beyond(self._epoch, self._feed.epochs))

    def _say_once(self, mistake: str, message: str, stacklevel: int = _LOOP) -> None:
        if mistake not in self._said and not self._is_sequential():
            self._said.add(mistake)
            warnings.warn(f"tierfeed: {message}", RuntimeWarning, stacklevel=stacklevel)

    def _is_sequential(self) -> bool:
        return self._feed.order.shuffle == "sequential"


def beyond(epoch: int, epochs: int) -> str:
    """What is to be said of an epoch that the job does not have."""
    return (
        f"all {epochs} epochs of the job were read: epoch {epoch} goes on in the order that more of them"
        " would have, but no agent stages it, and this process reads it itself. Give the job more epochs"
    )


def _described(order: Order) -> dict[str, Any]:
    """All that fixes the sequence of an epoch, by the names of the keys of a job file."""
    parts: dict[str, Any] = json.loads(order.sequence)
    shuffle = parts.pop("shuffle")
    if isinstance(shuffle, Mapping):
        ((shuffle, own),) = shuffle.items()
        parts |= own
    return {"shuffle": shuffle, **parts, "every": order.every}


def order_digest(feed: Feed) -> int:
    """A number of 64 bits for the dataset, its order, and how that is divided into batches."""
    order = feed.order
    division = [order.batch_size, order.world, order.nodes, order.start]
    named = json.dumps([feed.fingerprint, _described(order), division], sort_keys=True)
    return int.from_bytes(hashlib.sha256(named.encode()).digest()[:8], "little", signed=True)


Compared = tuple[str, Any, Any]
"""The name of a part, as it was saved, and as it is."""


def _identity(state: Mapping[str, Any], own: Mapping[str, Any]) -> list[Compared]:
    """What says that a state is one of this dataset."""
    version = state.get("version")
    known = STATE_VERSION if version == _VERSION_WITHOUT_ORDER else version
    return [
        ("version", known, STATE_VERSION),
        ("fingerprint", state.get("fingerprint"), own["fingerprint"]),
    ]


def _of_order(state: Mapping[str, Any], own: Mapping[str, Any]) -> list[Compared]:
    """The parts of the order of a state."""
    ours = own["order"]
    theirs = state.get("order")
    if isinstance(theirs, Mapping):
        return [(key, theirs.get(key), ours.get(key)) for key in {**ours, **theirs}]
    return [(key, state.get(key), ours[key]) for key in ("shuffle", "seed")]


def checked_epoch(epoch: int) -> int:
    """The epoch as an int; raises an `IndexError` if there is none of that number."""
    number = operator.index(epoch)
    if not 0 <= number <= _EPOCH_MAX:
        raise IndexError(f"epoch {number}; epochs count from 0 to {_EPOCH_MAX}")
    return number
