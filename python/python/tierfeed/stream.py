"""Requests on their way to one agent, and the answers that nobody has taken yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tierfeed._native import Batch, Gone, Link, Refused

Place = tuple[int, int]
"""Epoch and step of a batch of the rank that the link reads for."""

Window = Callable[[Place], Iterable[Place]]
"""The batches that come after one, as far as it makes sense to ask for them."""


def no_window(_: Place) -> Iterable[Place]:
    """Nothing is asked for ahead."""
    return ()

# How long to wait for a batch while this process itself holds as many as the agent stages. The agent
# refuses such a request as soon as it knows; should it not, waiting longer would be waiting for itself.
PATIENCE_HOLDING_ALL_S = 1.0


# A loop holds the batch that it is about to let go and the one that it gets, which is no keeping.
LOOP_HOLDS = 2


class Stream:
    """A link with its open requests. Answers may come in any order; each is taken once.

    A request cannot be called back. What is not wanted any more when it arrives goes back at once.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.alive = True
        self._gone: Gone | None = None
        self._unwanted: set[Place] = set()
        self._ready: dict[Place, Batch | Refused] = {}

    def ask(self, places: Iterable[Place]) -> None:
        """Asks for batches, as far as the agent's window goes; for none twice."""
        new = []
        for place in places:
            self._unwanted.discard(place)
            if not self.has_asked(place):
                new.append(place)
        if not new or not self.alive:
            return
        try:
            self.link.request(new)
        except Gone as gone:
            # Not the end yet: what is in the ring already comes first.
            self._gone = gone

    def ask_ahead(self, place: Place, following: Place, window: Window) -> None:
        """Asks for `place` and its window, unless `place` and the one after it are on their way.

        The agent stages ahead by itself; asking ahead only hides the way there and back. So it is
        done for several batches at a time, and most batches are taken without waking the agent.
        """
        if not (self.has_asked(place) and self.has_asked(following)):
            self.ask([place, *window(place)])

    @property
    def is_exhausted(self) -> bool:
        """Whether this process keeps as many batches as the agent stages for it."""
        kept = self.link.leases - len(self._ready)
        return kept >= self.link.batches_ahead and kept > LOOP_HOLDS

    def has_asked(self, place: Place) -> bool:
        """Whether `place` is on its way or there."""
        return place in self._ready or self.link.has_asked(place)

    def want_only(self, places: Iterable[Place]) -> None:
        """Gives up what was asked for and is not among `places`."""
        wanted = set(places)
        self._unwanted = self.link.asked - wanted
        for place in self._ready.keys() - wanted:
            del self._ready[place]

    def take(self, place: Place, patience_s: float) -> Batch | Refused | None:
        """The answer for `place`; None if it could not be asked for, or waits for a batch held here.

        Raises `Gone` when nothing more will come. What the agent had put into the ring before it died
        is still delivered, at this call or a later one.
        """
        while True:
            if self._ready and place in self._ready:
                return self._ready.pop(place)
            if self.link.has_asked(place) and (answer := self.link.next(0.0)) is not None:
                if answer.place == place:
                    return answer
                self._file(answer)
                continue
            if self._gone is not None and not self.link.asked:
                raise self._gone
            if not self.alive or not self.link.has_asked(place):
                return None
            is_full = self.link.leases >= self.link.batches_ahead
            answer = self.link.next(PATIENCE_HOLDING_ALL_S if is_full else patience_s)
            if answer is not None:
                self._file(answer)
            elif is_full:
                self._unwanted.add(place)
                return None
            else:
                raise Gone(f"the agent gave no answer for {patience_s:.0f} s")

    def poll(self, place: Place) -> bool:
        """Whether the answer for `place` is there, after a look at the ring."""
        try:
            while place not in self._ready and (answer := self.link.next(0.0)) is not None:
                self._file(answer)
        except Gone:
            # Whoever waits for something will learn of it.
            return False
        return place in self._ready

    def _file(self, answer: Batch | Refused) -> None:
        place = answer.place
        if place in self._unwanted:
            self._unwanted.discard(place)
        else:
            self._ready[place] = answer
