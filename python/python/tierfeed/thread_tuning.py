"""How many threads decode, where the loader chooses: as many as decode a batch while training computes.

After Algorithm 2 of DLCache: the threads that a batch needs are the time of its
decoding over the time between two requests, within a bound. Adapted:

- Threads decode samples, not batches, so that memory does not grow with their number and bounds nothing.
- The time between two requests is that in which training computes, without its waits: with them,
  decoding that is too slow would pass for a training that needs no more.
- Threads are added only while training waits for decoding, at most as many again at a time. If that
  decodes no more, since the decode function holds Python's lock or the processors are taken, they are
  given up again, and not tried for a while.
- It never stops: what samples cost changes in a run.

It reads no clock: the loader tells it what took how long.
"""

from __future__ import annotations

import math

BATCHES_PER_ROUND = 8
"""So many batches lie between two decisions."""

WAIT_SHARE = 0.02
"""The part of its time that training may wait for decoding before threads are added."""

GAIN_LEAST = 1.05
"""Threads that were added stay if so much more is decoded at a time."""

ROUNDS_BARRED = 32
"""For so many rounds, more threads are not tried after some gained nothing."""

SPARE_SHARE = 0.8
"""A thread is given up if the others are busy for no more than this part of their time without it."""


class ThreadTuning:
    """Chooses the number of threads from what decoding takes and how long training computes."""

    def __init__(self, most: int) -> None:
        if most < 1:
            raise ValueError(f"at most {most} decode threads; at least 1 is needed")
        self.threads = 1
        self._most = most
        self._barred_rounds = 0
        self._allowed = most
        self._raised_from: tuple[int, float] | None = None
        self._begin_round()

    def _begin_round(self) -> None:
        self._batches = self._samples = 0
        self._computing_s = self._busy_s = self._waited_s = 0.0

    def computed(self, seconds: float) -> None:
        """Training worked with a batch for so long before it asked for the next one."""
        self._computing_s += seconds

    def decoded(self, samples: int, *, busy_s: float, waited_s: float) -> None:
        """A batch was decoded; its samples took `busy_s` one by one, and training waited for them."""
        self._batches += 1
        self._samples += samples
        self._busy_s += busy_s
        self._waited_s += waited_s
        if self._batches == BATCHES_PER_ROUND:
            self._decide()
            self._begin_round()

    def _decide(self) -> None:
        self._barred_rounds -= 1
        if self._barred_rounds <= 0:
            self._allowed = self._most
        # Samples a second that the threads decode if they always have one.
        rate = self.threads * self._samples / max(self._busy_s, 1e-9)
        raised_from, self._raised_from = self._raised_from, None
        if raised_from is not None and rate < raised_from[1] * GAIN_LEAST:
            self.threads, self._barred_rounds = raised_from[0], ROUNDS_BARRED
            self._allowed = self.threads
            return
        wanted = min(self._wanted(), self._allowed)
        if wanted > self.threads:
            self._raised_from = (self.threads, rate)
        self.threads = wanted

    def _wanted(self) -> int:
        computing_s = max(self._computing_s, 1e-9)
        if self._waited_s > WAIT_SHARE * (self._computing_s + self._waited_s):
            needed = math.ceil(min(self._busy_s / computing_s, float(self._most)))
            return min(max(needed, self.threads + 1), 2 * self.threads)
        # The others keep some time to spare, so that batches which cost a little more change nothing.
        is_spare = self._busy_s < SPARE_SHARE * (self.threads - 1) * computing_s
        return self.threads - 1 if is_spare else self.threads
