"""What this process did for its batches without the agent, sent to the agent for its report."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tierfeed._native import AgentConnection


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
        """The sum of both; of the threads the larger number."""
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

    def send(self, agent: AgentConnection, epoch: int) -> bool:
        """Sends the figures; False if the agent has no room for them now."""
        return agent.tally(
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
    """Sends a tally at once if the agent takes it, else keeps it: at most one for each epoch."""

    def __init__(self) -> None:
        self._unsent: dict[int, Tally] = {}

    def add(self, agent: AgentConnection | None, epoch: int, tally: Tally) -> None:
        """Sends a tally together with the unsent one of its epoch; keeps both if there is no agent."""
        unsent = self._unsent.pop(epoch, None)
        if unsent is not None:
            tally = unsent.plus(tally)
        if agent is None or not tally.send(agent, epoch):
            self._unsent[epoch] = tally

    def hand_over(self, agent: AgentConnection) -> None:
        """Sends a new agent what was read before it came, without the waits, which it did not cause."""
        unsent, self._unsent = self._unsent, {}
        for epoch, tally in unsent.items():
            self.add(agent, epoch, replace(tally, unanswered_ns=0, self_read_ns=0, decoding_ns=0))

    def forget(self) -> None:
        """In a forked child: the parent sends what the parent did."""
        self._unsent.clear()
