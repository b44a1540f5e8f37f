"""Decoding of samples, on the caller's thread or on threads that the user asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

from tierfeed._native import Error, Reconfigure, Sample
from tierfeed.feed import Feed

Decode = Callable[[Sample, int], Any]
"""Turns the bytes and the label of a sample into the input of training."""

LEFT_OUT = object()
"""Marks a sample that could not be decoded, in a job with `on_error: skip`."""

CLOSED = "the loader was closed while it was iterated; a new iteration begins anew"


def decode_each(feed: Feed, decode: Decode, samples: Iterable[Sample]) -> list[Any]:
    """The decoded samples, without those that are left out."""
    return present(decode_one(feed, decode, sample) for sample in samples)


def decode_one(feed: Feed, decode: Decode, sample: Sample) -> Any:
    """A decoded sample. If `decode` fails, the error names the file, or with `on_error: skip` the sample
    is left out."""
    try:
        return decode(sample, sample.label)
    except Exception as error:
        if feed.on_error == "skip":
            feed.leave_out(sample.id, f"{type(error).__name__}: {error}")
            return LEFT_OUT
        error.add_note(f"while decoding sample {sample.id}, {_file_of(feed, sample)}")
        raise


def present(decoded: Iterable[Any]) -> list[Any]:
    """Those that were not left out."""
    return [it for it in decoded if it is not LEFT_OUT]


def _file_of(feed: Feed, sample: Sample) -> str:
    try:
        return feed.file_of(sample.id)
    except Error as error:
        return f"a file that cannot be named ({error})"


class Decoder:
    """Applies a decode function. Its threads, if any, start with the first sample."""

    def __init__(self, feed: Feed, decode: Decode, threads: int) -> None:
        if threads < 0:
            raise ValueError(f"{threads} decode threads; ask for 0 or more")
        self.threads = threads
        self._feed = feed
        self._decode = decode
        self._pool: ThreadPoolExecutor | None = None

    def start(self, samples: Iterable[Sample]) -> list[Future[Any]] | list[Sample]:
        """Starts to decode on the threads; without threads, `finish` decodes."""
        if self.threads == 0:
            return list(samples)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, "tierfeed-decode")
        return [self._pool.submit(decode_one, self._feed, self._decode, it) for it in samples]

    def is_done(self, started: list[Future[Any]] | list[Sample]) -> bool:
        """Whether `finish` has nothing to wait for and nothing to decode."""
        return self.threads > 0 and all(isinstance(it, Future) and it.done() for it in started)

    def finish(self, started: list[Future[Any]] | list[Sample]) -> list[Any]:
        """The decoded samples, in the order of `start`, without those that are left out."""
        try:
            return present(
                it.result() if isinstance(it, Future) else decode_one(self._feed, self._decode, it)
                for it in started
            )
        except CancelledError:
            raise Reconfigure(CLOSED) from None

    def close(self) -> None:
        """Ends the threads after the samples that they are decoding now."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)

    def __getstate__(self) -> dict[str, Any]:
        # Threads cannot be pickled; a copy starts its own.
        return {**self.__dict__, "_pool": None}
