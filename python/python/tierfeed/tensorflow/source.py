"""What the ops of a dataset read: the batches of one rank, by a connection of their own."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from tierfeed.feed import Feed
from tierfeed.tensorflow.library import library


class Figures(NamedTuple):
    """What the pipeline of a dataset took so far."""

    batches: int
    samples: int
    bytes: int
    waited_ns: int
    """For how long it waited for batches."""
    read_directly: int
    """Batches that this process read from the cold store itself."""
    copied: int
    """Batches that were copied because TensorFlow keeps as many as the agent stages."""
    skipped: int
    is_connected: bool
    """Whether an agent delivers."""
    held: list[tuple[int, int, int, int]]
    """Batches in staging memory that tensors refer to: epoch, step, address and length."""


class Source:
    """Where the batches of a dataset come from. It ends when it is closed, or its datasets are gone."""

    def __init__(
        self, feed: Feed, form: str | None, fields: list[dict[str, Any]], *, owns_feed: bool
    ) -> None:
        self.feed = feed
        access = feed.access()
        opened = library().ask({"open": {**access, "form": form, "fields": fields}}, "opened")
        self.number: int = opened["feed"]
        self.batches_ahead: int = access["briefing"]["batches_ahead"]
        """How many batches the agent stages."""
        self.sample_bytes: int | None = opened["sample_bytes"]
        """The length of every sample, if the batches are arrays."""
        self.is_without_copy: bool = opened["is_without_copy"]
        """Whether tensors are the bytes that the agent staged."""
        self.has_labels: bool = opened["has_labels"]
        self._finalizer = weakref.finalize(self, _close, self.number, feed if owns_feed else None)

    def figures(self) -> Figures:
        """What the pipelines took so far."""
        return Figures(**library().ask({"figures": {"feed": self.number}}, "figures"))

    @property
    def steps_per_epoch(self) -> int:
        """Batches of a whole epoch, for `model.fit(..., steps_per_epoch=...)`."""
        return self.feed.steps_per_epoch

    def close(self) -> None:
        """Calls that wait get an error, and later ones too. Ends the agent if the dataset started it."""
        self._finalizer()


def _close(number: int, feed: Feed | None) -> None:
    library().ask({"close": {"feed": number}}, "done")
    if feed is not None:
        feed.close()
