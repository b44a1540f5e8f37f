"""What a job with `on_error: skip` left out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

from tierfeed._native import Error

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
    """Counts the samples that were left out, lists the first of them, and warns of the very first."""

    def __init__(self) -> None:
        self.count = 0
        self.listed: list[Skipped] = []

    def add(self, sample: int, reason: str, file_of: Callable[[int], str]) -> None:
        """Counts a sample; `file_of` returns the file that holds it."""
        self.count += 1
        if len(self.listed) == SKIPPED_MAX:
            return
        try:
            name = file_of(sample)
        except Error as error:
            name = f"sample {sample} ({error})"
        self.listed.append(Skipped(sample, name, reason))
        if len(self.listed) == 1:
            warnings.warn(
                f"tierfeed: on_error is skip: sample {sample}, {name}, is left out ({reason});"
                " Feed.skipped lists this one and those that follow",
                RuntimeWarning,
                stacklevel=3,
            )
