"""Where a loader is in the epochs of its job: what it reads next, and what it saves to go on later."""

from __future__ import annotations

import operator
from typing import Any

from tierfeed._native import Reconfigure
from tierfeed.batches import Place
from tierfeed.feed import Feed

STATE_VERSION = 2


class Position:
    """The epoch of a loader, and its batches that training has taken."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._epoch = 0
        # Where the next pass starts, and how many batches of the epoch training has taken.
        self._start_step = 0
        self._consumed = 0

    @property
    def epoch(self) -> int:
        """The epoch of the next or current pass."""
        return self._epoch

    @property
    def steps(self) -> int:
        """Batches of the epoch."""
        return self._feed.order.steps_in(self._epoch, self._feed.rank)

    def set_epoch(self, epoch: int) -> None:
        """The next pass reads `epoch`: from its start, unless the position is in it already."""
        epoch = checked_epoch(epoch)
        if epoch >= self._feed.epochs:
            raise IndexError(f"epoch {epoch}; the job has {self._feed.epochs}, from 0")
        if epoch != self._epoch:
            self._epoch, self._start_step, self._consumed = epoch, 0, 0

    def begin(self) -> Place:
        """Where a pass starts that begins now; one after it starts at the first step."""
        start, self._start_step = self._start_step, 0
        self._consumed = start
        return self._epoch, start

    def take(self, step: int) -> None:
        """Training takes the batch of `step`."""
        self._consumed = step + 1

    def state_dict(self) -> dict[str, Any]:
        """The position after the batch that was handed out last."""
        order, step = self._feed.order, self._start_step or self._consumed
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
        own = self.state_dict()
        for key in ("version", "fingerprint", "seed", "shuffle"):
            if state.get(key) != own[key]:
                raise Reconfigure(
                    f"the state was saved with {key} {state.get(key)!r}; this job has {own[key]!r}"
                )
        differing = [key for key in ("batch_size", "world", "start") if state.get(key) != own[key]]
        if not differing:
            self._epoch = int(state["epoch"])
            self._start_step = self._consumed = int(state["step"])
        elif own["start"] == state.get("position"):
            self._epoch, self._start_step, self._consumed = own["start"][0], 0, 0
        else:
            key, (epoch, samples) = differing[0], state["position"]
            raise Reconfigure(
                f"the state was saved with {key} {state.get(key)!r}; this job has {own[key]!r}: to go"
                f" on in another world, give it `order.start: {{ epoch: {epoch}, samples: {samples} }}`"
            )


def checked_epoch(epoch: int) -> int:
    """The epoch as an int; raises an `IndexError` if it is negative."""
    number = operator.index(epoch)
    if number < 0:
        raise IndexError(f"epoch {number}; epochs count from 0")
    return number
