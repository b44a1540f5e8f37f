"""A callback of Keras that reports what training waited for."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import tensorflow as tf

from tierfeed import current
from tierfeed._native import Gone
from tierfeed.tensorflow.source import Figures, Source


class _Moment(NamedTuple):
    time_s: float
    figures: Figures
    cold_bytes: int


class Report(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Adds `stall` and `cold` to the logs of each epoch, and prints the report of the node at the end.

    `stall` is the share of the epoch for which the pipeline waited for its batches; `cold` compares the
    bytes that the agent read from the dataset's files or bucket meanwhile with those of the batches. A
    pipeline that runs ahead of the training takes batches of the next epoch too.

    >>> model.fit(data, steps_per_epoch=steps, callbacks=[Report(source_of(data))])
    """

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self._since = self._now()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._since = self._now()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        # What happens between two epochs counts for the second one: nothing is left out.
        since, self._since = self._since, self._now()
        shares = _shares(since, self._since)
        if logs is not None:
            logs.update(shares)
        text = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
        taken = self._since.figures.batches - since.figures.batches
        print(f"\ntierfeed: epoch {epoch}: {taken} batches taken, {text}")

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        try:
            print(current().report())
        except Gone as gone:
            print(f"tierfeed: {gone}")

    def _now(self) -> _Moment:
        try:
            cold = int(current().report().figures["cold_read_bytes"])
        except Gone:
            # No agent answers, so none counts.
            cold = 0
        return _Moment(time.monotonic(), self._source.figures(), cold)


def _shares(since: _Moment, until: _Moment) -> dict[str, float]:
    lasted_s = until.time_s - since.time_s
    waited_s = (until.figures.waited_ns - since.figures.waited_ns) / 1e9
    nbytes = until.figures.bytes - since.figures.bytes
    return {
        "stall": min(1.0, waited_s / lasted_s) if lasted_s > 0 else 0.0,
        "cold": max(0, until.cold_bytes - since.cold_bytes) / nbytes if nbytes else 0.0,
    }
