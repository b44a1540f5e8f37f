"""Memory of the CXL tier for the workload itself, lent by the agent in whole chunks.

>>> with tierfeed.memory.allocate(1 << 30) as memory:
...     arrays = memory.numpy()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierfeed import embedded, environment
from tierfeed._native import Gone, Grant

if TYPE_CHECKING:
    import numpy
    import numpy.typing


def allocate(nbytes: int, *, socket: str | None = None) -> Memory:
    """Borrows at least `nbytes` bytes, rounded up to whole chunks.

    Raises `Retry` if the tier has no room now, `Reconfigure` if it never will, and `Gone` without an
    agent: the agent owns the memory of the tiers.
    """
    if nbytes < 1:
        raise ValueError(f"{nbytes} bytes; ask for at least 1")
    path = environment.socket() if socket is None else socket
    if path is None and (last := embedded.last_started()) is not None:
        path = last.socket
    if path is None:
        raise Gone("no agent to borrow memory from: TIERFEED_SOCK is not set, and no loader started one")
    return Memory(Grant.allocate(path, nbytes))


class Memory:
    """Chunks of memory. They go back when it is closed and the last view of them is dropped."""

    def __init__(self, grant: Grant) -> None:
        self._grant = grant

    @property
    def nbytes(self) -> int:
        """Bytes of all chunks together; at least what was asked for."""
        return sum(chunk.nbytes for chunk in self._grant.chunks())

    @property
    def chunks(self) -> list[memoryview]:
        """One writable view per chunk; chunks are not adjacent in memory."""
        return [memoryview(chunk) for chunk in self._grant.chunks()]

    def numpy(self) -> list[numpy.typing.NDArray[numpy.uint8]]:
        """One array of uint8 per chunk, over the same bytes."""
        return [chunk.numpy() for chunk in self._grant.chunks()]

    def close(self) -> None:
        """Drops the chunks; their memory goes back with the last view of it."""
        self._grant.close()

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError(
            "memory belongs to the process that borrowed it; borrow it where it is used"
        )
