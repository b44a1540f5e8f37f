"""Where a loader is in the epochs of its job: what it reads next, and what it saves to go on later.

A pass reads the epoch that was named for it, by `set_epoch` or by a state, else the one after that of
the pass before. What looks like a mistake is said once: an epoch that is named again after it was read,
and a pass for which none was named although passes before it had one. Neither matters in a sequential
order. A dataset beside the first one of a job is read as of the epoch that training is in.
"""

from __future__ import annotations

import operator
import warnings
from typing import Any

from tierfeed._native import Reconfigure
from tierfeed.batches import EpochStep
from tierfeed.feed import Feed

STATE_VERSION = 2

# Where a warning points: from `_say_once` over `begin` and the loader to the loop.
_LOOP = 5


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
        if epoch >= self._feed.epochs:
            raise IndexError(f"epoch {epoch}; the job has {self._feed.epochs}, from 0")
        if epoch != self._epoch or self._has_begun:
            self._go_to(epoch, 0)
        self._is_set = self._was_ever_set = True

    def seek(self, epoch: int, step: int) -> None:
        """The next pass starts at a step of `epoch`."""
        epoch, step = checked_epoch(epoch), operator.index(step)
        if epoch >= self._feed.epochs:
            raise IndexError(f"epoch {epoch}; the job has {self._feed.epochs}, from 0")
        steps = self._feed.order.steps_in(epoch, self._feed.rank)
        if not 0 <= step <= steps:
            raise IndexError(f"step {step}; epoch {epoch} has {steps}, from 0")
        self._go_to(epoch, step)

    def begin(self) -> EpochStep:
        """Where a pass starts that begins now.

        Raises `IndexError` if all epochs were read; a sequential order repeats the last one.
        """
        is_over = 0 < self._start_step >= self.steps
        is_within = 0 < self._start_step < self.steps
        if self._is_set:
            self._say_repetition()
        elif self._feed.dataset is not None and not is_within:
            self._go_to(self._feed.training_epoch(), 0)
        elif self._has_begun or is_over:
            self._say_forgotten()
            self._go_to(self._following(), 0)
        start, self._start_step = self._start_step, 0
        self._has_begun, self._is_set = True, False
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
            "epoch": self._epoch,
            "step": step,
            "position": order.position_after(self._epoch, step),
            "start": order.start,
            "seed": order.seed,
            "shuffle": order.shuffle,
            "batch_size": order.batch_size,
            "world": order.world,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues at the position of another loader of the same job, as `TierLoader` says."""
        # JSON, in which some keep a state, has no tuples.
        state = {key: tuple(it) if isinstance(it, list) else it for key, it in state.items()}
        own = self.state_dict()
        for key in ("version", "fingerprint", "seed", "shuffle"):
            if state.get(key) != own[key]:
                raise Reconfigure(
                    f"the state was saved with {key} {state.get(key)!r}; this job has {own[key]!r}"
                )
        differing = [key for key in ("batch_size", "world", "start") if state.get(key) != own[key]]
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
        self._has_begun = self._is_set = False

    def _following(self) -> int:
        epochs = self._feed.epochs
        if self._epoch + 1 < epochs:
            return self._epoch + 1
        if epochs > 1 and not self._is_sequential():
            raise IndexError(
                f"all {epochs} epochs of the job were read: give it more (epochs), or name one that is"
                " read again by set_epoch(epoch)"
            )
        return self._epoch

    def _say_repetition(self) -> None:
        if self._epoch == self._finished and self._start_step == 0 and self._feed.epochs > 1:
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
                f" after the last one, {self._following()}",
            )

    def _say_once(self, mistake: str, message: str) -> None:
        if mistake not in self._said and not self._is_sequential():
            self._said.add(mistake)
            warnings.warn(f"tierfeed: {message}", RuntimeWarning, stacklevel=_LOOP)

    def _is_sequential(self) -> bool:
        return self._feed.order.shuffle == "sequential"


def checked_epoch(epoch: int) -> int:
    """The epoch as an int; raises an `IndexError` if it is negative."""
    number = operator.index(epoch)
    if number < 0:
        raise IndexError(f"epoch {number}; epochs count from 0")
    return number
