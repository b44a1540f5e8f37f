"""What a job with `on_error: skip` left out."""

from __future__ import annotations

import warnings
from typing import NamedTuple

# More are counted and not listed.
SKIPPED_MAX = 10_000


class Skipped(NamedTuple):
    """A sample that training did not get."""

    sample: int
    """Its number in the index."""
    object: str
    """The file that holds it."""
    reason: str
    """Why: what kept it from being read or transformed, or what `decode` raised."""


class SkippedSamples:
    """Counts the samples that were left out, and lists the first of them."""

    def __init__(self) -> None:
        self.count = 0
        self.listed: list[Skipped] = []
        self._before_epoch = 0

    def add(self, skipped: Skipped) -> None:
        self.count += 1
        if len(self.listed) < SKIPPED_MAX:
            self.listed.append(skipped)

    def end_epoch(self, epoch: int) -> None:
        """Says how many samples were left out since the epoch before, if any."""
        new, self._before_epoch = self.count - self._before_epoch, self.count
        if new:
            said = f"on_error is skip: {new:,} samples were left out in epoch {epoch}"
            warn_of_skipped(said, stacklevel=3)


def warn_of_skipped(message: str, stacklevel: int) -> None:
    warnings.warn(
        f"tierfeed: {message}; Feed.skipped lists them", RuntimeWarning, stacklevel=stacklevel
    )
