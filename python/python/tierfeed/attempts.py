"""When an agent that is gone or silent is tried again, for all feeds of this process that ask for it.

An agent that is gone refuses at once, which costs nothing: each epoch tries it once. One that accepts
and is silent, as a stopped process does, costs the time of an attempt: so attempts are short then, and
the time between them doubles.
"""

from __future__ import annotations

# An agent that lives answers at once, unless it has staging memory to map first.
FIRST_WITHIN_S = 30.0

# One that was silent before.
AGAIN_WITHIN_S = 1.0

# Between two attempts that met silence.
PAUSE_S = 2.0
PAUSE_MAX_S = 600.0


class Attempts:
    """The attempts to connect to one agent."""

    def __init__(self) -> None:
        self.within_s = FIRST_WITHIN_S
        """How long the next attempt may take."""
        self._pause_s = PAUSE_S
        self._not_before_s = 0.0

    def is_due(self, now_s: float) -> bool:
        """Whether it is time for an attempt."""
        return now_s >= self._not_before_s

    def failed(self, now_s: float, took_s: float) -> None:
        """An attempt failed after so long."""
        if took_s >= AGAIN_WITHIN_S:
            self.silent()
            self._not_before_s = now_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)

    def silent(self) -> None:
        """The agent does not answer."""
        self.within_s = AGAIN_WITHIN_S

    def succeeded(self) -> None:
        """There is an agent again."""
        self.within_s = FIRST_WITHIN_S
        self._pause_s = PAUSE_S
        self._not_before_s = 0.0


_of_sockets: dict[str, Attempts] = {}


def attempts_at(socket: str) -> Attempts:
    """Those of this process to connect to the agent of a socket."""
    return _of_sockets.setdefault(socket, Attempts())
