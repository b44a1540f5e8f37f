"""What a job with `on_error: skip` left out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

from tierfeed._native import Error

# More are counted and not listed.
SKIPPED_MAX = 10_000

# Warned of are the first one, and those with these numbers.
WARNED_AT = (1, 10, 100, 1_000)


class Skipped(NamedTuple):
    """A sample that training did not get."""

    sample: int
    """Its number in the index."""
    object: str
    """The file that holds it."""
    reason: str
    """Why: what kept it from being read or transformed, or what `decode` raised."""


class SkippedSamples:
    """Counts the samples that were left out, lists the first of them, and warns as they become more."""

    def __init__(self) -> None:
        self.count = 0
        self.listed: list[Skipped] = []
        self._before_epoch = 0
        # The epoch that is counted, and the samples that it lacks.
        self._epoch: int | None = None
        self._of_epoch: set[int] = set()

    def add(self, sample: int, reason: str, epoch: int, file_of: Callable[[int], str]) -> int:
        """Counts a sample; `file_of` returns the file that holds it. Returns how many of them the epoch
        lacks, each counted once."""
        if epoch != self._epoch:
            self._epoch, self._of_epoch = epoch, set()
        self._of_epoch.add(sample)
        self._note(sample, reason, file_of)
        return len(self._of_epoch)

    def _note(self, sample: int, reason: str, file_of: Callable[[int], str]) -> None:
        self.count += 1
        if len(self.listed) == SKIPPED_MAX:
            return
        try:
            name = file_of(sample)
        except Error as error:
            name = f"sample {sample} ({error})"
        self.listed.append(Skipped(sample, name, reason))
        if self.count in WARNED_AT:
            many = "" if self.count == 1 else f", the {self.count:,}th"
            _warn(f"sample {sample}, {name}, is left out ({reason}){many}", stacklevel=5)

    def end_epoch(self, epoch: int) -> None:
        """Says how many samples were left out since the epoch before, if any."""
        new, self._before_epoch = self.count - self._before_epoch, self.count
        if new:
            _warn(f"{new:,} samples were left out in epoch {epoch}", stacklevel=3)


def _warn(message: str, stacklevel: int) -> None:
    warnings.warn(
        f"tierfeed: on_error is skip: {message}; Feed.skipped lists them",
        RuntimeWarning,
        stacklevel=stacklevel,
    )
