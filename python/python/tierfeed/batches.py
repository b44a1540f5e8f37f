"""Iteration over the batches of a feed, in order, with requests for the next ones in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierfeed._native import AgentConnection, Batch, BatchIterator, Reconfigure

if TYPE_CHECKING:
    from tierfeed.feed import Feed

EpochStep = tuple[int, int]
"""Epoch and step of a batch; the rank is that of the feed."""


class Batches(BatchIterator):
    """The batches from one place up to the start of an epoch. Made by `Feed.epoch`.

    The base class hands out a batch that is ready, and calls `wait_or_read` for any other.
    """

    def __init__(self, feed: Feed, first: EpochStep, end_epoch: int) -> None:
        self._feed = feed
        self._end_epoch = end_epoch
        while first[0] < end_epoch and first[1] >= self._steps(first[0]):
            first = (first[0] + 1, 0)
        self._epoch_begun: int | None = None
        # Of this epoch: the first step, and the batches that were read directly.
        self._first_step = self._direct = 0
        self.place = first

    def wait_or_read(self, place: EpochStep) -> tuple[Batch, EpochStep, int, AgentConnection | None]:
        """The batch at `place`, when it has come or was read directly.

        With it, what the base class needs for the batches after it: their first place, the steps of the
        epoch of `place`, and the connection that they come from.
        """
        if place[0] >= self._end_epoch:
            self._end_epoch_begun()
            raise StopIteration
        if self.is_ended:
            raise Reconfigure(
                "this iterator ended when another one of the same feed or loader began: a batch is"
                " handed out once. Use one at a time, or read out of turn by Feed.batch(epoch, step)"
            )
        if self._epoch_begun != place[0]:
            self._begin(place)
        following = self._after(place)
        before = self._feed.direct_reads
        batch = self._feed.wait_or_read(place, following, self._window)
        self._direct += self._feed.direct_reads - before
        return batch, following, self._steps(place[0]), self._feed.agent()

    def poll(self) -> Batch | None:
        """The next batch if it is there already, without waiting; None if not, or at the end."""
        if (batch := self.take_ready()) is not None:
            return batch
        place = self.place
        if place[0] >= self._end_epoch or self.is_ended:
            return None
        if self._epoch_begun != place[0]:
            self._begin(place)
        is_there = self._feed.is_answered(place, self._after(place), self._window)
        return next(self) if is_there else None

    def _begin(self, place: EpochStep) -> None:
        """At the first batch of this iteration, and of each epoch."""
        is_first = self._epoch_begun is None
        self._end_epoch_begun()
        self._epoch_begun, self._first_step = place
        if is_first:
            self._feed.begin_iteration(self)
        self._feed.begin_epoch(place[0])
        agent = self._feed.agent()
        if is_first and agent is not None:
            agent.requests.keep_only([place, *self._window(place)])

    def left(self) -> None:
        """This iteration goes no further: it may have left its epoch early."""
        if self._epoch_begun == self.place[0]:
            self._end_epoch_begun(self.place[1])
        self.end()

    def _end_epoch_begun(self, steps: int | None = None) -> None:
        """Tells the feed what became of the epoch, which ended after so many steps."""
        if self._epoch_begun is not None and not self.is_ended:
            end = self._steps(self._epoch_begun) if steps is None else steps
            self._feed.end_epoch(self._epoch_begun, end - self._first_step, self._direct)
        self._epoch_begun, self._direct = None, 0

    def _window(self, place: EpochStep) -> list[EpochStep]:
        """The batches after `place`, as many as the agent stages."""
        agent, rank = self._feed.agent(), self._feed.rank
        if agent is None:
            return []
        return self._feed.order.window(place, rank, self._end_epoch, agent.batches_ahead)

    def _after(self, place: EpochStep) -> EpochStep:
        return self._feed.order.following(place, self._feed.rank)

    def _steps(self, epoch: int) -> int:
        """Epochs differ: the one that a job starts in may be shorter, and so may published ones."""
        return self._feed.order.steps_in(epoch, self._feed.rank)
