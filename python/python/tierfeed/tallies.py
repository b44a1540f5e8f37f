"""What this process did for its batches without the agent, told to the agent for its report."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tierfeed._native import Link


@dataclass(frozen=True)
class Tally:
    """Figures of one epoch; the times are those for which training waited."""

    batches: int = 0
    samples: int = 0
    nbytes: int = 0
    skipped: int = 0
    unanswered_ns: int = 0
    self_read_ns: int = 0
    decoding_ns: int = 0
    decode_threads: int = 0

    def plus(self, other: Tally) -> Tally:
        """Both together."""
        return Tally(
            batches=self.batches + other.batches,
            samples=self.samples + other.samples,
            nbytes=self.nbytes + other.nbytes,
            skipped=self.skipped + other.skipped,
            unanswered_ns=self.unanswered_ns + other.unanswered_ns,
            self_read_ns=self.self_read_ns + other.self_read_ns,
            decoding_ns=self.decoding_ns + other.decoding_ns,
            decode_threads=max(self.decode_threads, other.decode_threads),
        )

    def tell(self, link: Link, epoch: int) -> bool:
        """Whether the agent could be told."""
        return link.tally(
            epoch,
            batches=self.batches,
            samples=self.samples,
            nbytes=self.nbytes,
            skipped=self.skipped,
            unanswered_ns=self.unanswered_ns,
            self_read_ns=self.self_read_ns,
            decoding_ns=self.decoding_ns,
            decode_threads=self.decode_threads,
        )


class Tallies:
    """Tells an agent at once what it can, and keeps the rest, at most one tally for each epoch."""

    def __init__(self) -> None:
        self._untold: dict[int, Tally] = {}

    def add(self, link: Link | None, epoch: int, tally: Tally) -> None:
        """Tells `link`, with what it could not be told before; keeps it if there is no link."""
        untold = self._untold.pop(epoch, None)
        if untold is not None:
            tally = untold.plus(tally)
        if link is None or not tally.tell(link, epoch):
            self._untold[epoch] = tally

    def hand_over(self, link: Link) -> None:
        """Tells a new agent what was read before it came, without the waits: they precede its time."""
        untold, self._untold = self._untold, {}
        for epoch, tally in untold.items():
            self.add(link, epoch, replace(tally, unanswered_ns=0, self_read_ns=0, decoding_ns=0))

    def forget(self) -> None:
        """In a forked child: what the parent did is the parent's to tell."""
        self._untold.clear()
