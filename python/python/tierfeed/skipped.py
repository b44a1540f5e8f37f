"""What a job with `on_error: skip` left out."""

from __future__ import annotations

from typing import NamedTuple

# More are counted and not listed.
SKIPPED_MAX = 10_000


class Skipped(NamedTuple):
    """A sample that training did not get."""

    sample: int
    """Its number."""
    object: str
    """The file that holds it."""
    reason: str
    """Why: that it could not be read, or what `decode` raised."""
