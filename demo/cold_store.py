"""A folder that answers as slowly as a store behind a shared network link.

The plain loader reads through this, and tierfeed imposes the same two numbers on its own cold reads
(``dataset.emulate`` in the job file): a latency per request, and one link that all requests share.
Without it the comparison would be unfair, because the files lie on a fast local disk.
"""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path


class ColdStore:
    """Reads whole files over an emulated link. Worker processes of one loader share the link.

    The link carries one request after the other at ``bytes_per_s``; the latency of requests
    overlaps, as it does with a real store. ``time.monotonic`` is one clock for all processes of a
    Linux machine, so the moment at which the link is free again can live in shared memory.
    """

    def __init__(self, *, latency_s: float, bytes_per_s: float) -> None:
        self._latency_s = latency_s
        self._bytes_per_s = bytes_per_s
        self._link_free_at_s = multiprocessing.Value("d", 0.0)
        self._read_bytes = multiprocessing.Value("Q", 0)

    def read(self, path: Path) -> bytes:
        """The bytes of ``path``, returned when the link would have delivered the last of them."""
        with self._link_free_at_s.get_lock():
            begin_s = max(time.monotonic(), self._link_free_at_s.value)
            sent_s = begin_s + path.stat().st_size / self._bytes_per_s
            self._link_free_at_s.value = sent_s
        content = path.read_bytes()
        with self._read_bytes.get_lock():
            self._read_bytes.value += len(content)
        time.sleep(max(0.0, sent_s + self._latency_s - time.monotonic()))
        return content

    @property
    def read_bytes(self) -> int:
        """Bytes read so far, by all processes together."""
        return self._read_bytes.value
