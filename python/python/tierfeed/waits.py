"""How long training waited for data."""

from __future__ import annotations

from collections import deque
from typing import TypedDict

# Percentiles are over the last so many batches, sum and maximum over all.
WAITS_KEPT = 65_536


class WaitQuantiles(TypedDict):
    """Waits in seconds."""

    p50: float
    p99: float
    max: float


class Stats(TypedDict):
    """What a loader has delivered, and how long training waited for it."""

    batches: int
    samples: int
    bytes: int
    stall_s: float
    decoding_s: float
    decode_threads: int
    batch_wait_s: WaitQuantiles


class Waits:
    """Counts batches and their waits."""

    def __init__(self) -> None:
        self._batches = 0
        self._samples = 0
        self._bytes = 0
        self._sum_s = 0.0
        self._decoding_s = 0.0
        self._max_s = 0.0
        self._recent: deque[float] = deque(maxlen=WAITS_KEPT)

    def add(self, wait_s: float, *, decoding_s: float, samples: int, nbytes: int) -> None:
        """Counts a batch that came after `wait_s`, of which the last `decoding_s` were decoding."""
        self._batches += 1
        self._samples += samples
        self._bytes += nbytes
        self._sum_s += wait_s
        self._decoding_s += decoding_s
        self._max_s = max(self._max_s, wait_s)
        self._recent.append(wait_s)

    def stats(self, *, decode_threads: int) -> Stats:
        """The figures so far."""
        ordered = sorted(self._recent)
        return Stats(
            batches=self._batches,
            samples=self._samples,
            bytes=self._bytes,
            stall_s=self._sum_s,
            decoding_s=self._decoding_s,
            decode_threads=decode_threads,
            batch_wait_s=WaitQuantiles(
                p50=_quantile(ordered, 0.50), p99=_quantile(ordered, 0.99), max=self._max_s
            ),
        )


def _quantile(ordered: list[float], share: float) -> float:
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
