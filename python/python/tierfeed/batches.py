"""Iteration over the batches of a feed, in order, with requests for the next ones on their way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierfeed._native import Batch, ReadyBatches, Reconfigure
from tierfeed.stream import Place

if TYPE_CHECKING:
    from tierfeed.feed import Feed


class Batches(ReadyBatches):
    """The batches from one place up to the start of an epoch. Made by `Feed.epoch`.

    A batch that is ready comes by way of the base class; here is what else may happen.
    """

    def __init__(self, feed: Feed, first: Place, end_epoch: int) -> None:
        self._feed = feed
        self._end_epoch = end_epoch
        # Epochs differ: the one that a job starts in, and published ones, may be shorter.
        self._steps_of = (-1, 0)
        while first[0] < end_epoch and first[1] >= self._steps(first[0]):
            first = (first[0] + 1, 0)
        self._epoch_begun: int | None = None
        self._is_over = False
        self.go_on(first, 0, None)

    def end(self) -> None:
        """Another iteration of the feed begins: this one hands nothing out any more."""
        self._is_over = True
        self.go_on(self.place, 0, None)

    def take(self) -> Batch:
        """The next batch, once it is there or read directly."""
        place = self.place
        if place[0] >= self._end_epoch:
            raise StopIteration
        if self._is_over:
            raise Reconfigure(
                "this iterator ended when another one of the same feed or loader began: a batch is"
                " handed out once. Use one at a time, or read out of turn by Feed.batch(epoch, step)"
            )
        if self._epoch_begun != place[0]:
            self._begin(place)
        following = self._after(place)
        batch = self._feed.take(place, following, self._window)
        stream = self._feed.stream() if following[0] == place[0] else None
        link = stream.link if stream is not None else None
        self.go_on(following, self._steps(place[0]), link)
        return batch

    def poll(self) -> Batch | None:
        """The next batch if it is there already, without waiting; None if not, or at the end."""
        place = self.place
        if place[0] >= self._end_epoch or self._is_over:
            return None
        if self._epoch_begun != place[0]:
            self._begin(place)
        stream = self._feed.stream()
        if stream is None:
            return None
        stream.ask_ahead(place, self._after(place), self._window)
        return next(self) if stream.poll(place) else None

    def _begin(self, place: Place) -> None:
        """At the first batch of this iteration, and of each epoch."""
        is_first = self._epoch_begun is None
        # An epoch that was looked at ahead may have been published since.
        self._steps_of = (-1, 0)
        self._epoch_begun = place[0]
        if is_first:
            self._feed.begin_iteration(self)
        self._feed.begin_epoch(place[0])
        stream = self._feed.stream()
        if is_first and stream is not None:
            stream.want_only([place, *self._window(place)])

    def _window(self, place: Place) -> list[Place]:
        """The batches beyond `place`, as many as the agent stages."""
        stream = self._feed.stream()
        places: list[Place] = []
        following = self._after(place)
        while (
            stream is not None
            and following[0] < self._end_epoch
            and len(places) + 1 < stream.link.batches_ahead
        ):
            places.append(following)
            following = self._after(following)
        return places

    def _after(self, place: Place) -> Place:
        epoch, step = place
        return (epoch, step + 1) if step + 1 < self._steps(epoch) else (epoch + 1, 0)

    def _steps(self, epoch: int) -> int:
        known, steps = self._steps_of
        if known != epoch:
            steps = self._feed.order.steps_in(epoch, self._feed.rank)
            self._steps_of = (epoch, steps)
        return steps
