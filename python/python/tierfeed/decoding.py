"""Decoding of samples, on the caller's thread or on threads: as many as the user says, or as the loader
finds (`thread_tuning.py`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

from tierfeed._native import Error, Reconfigure, Sample, cores
from tierfeed.feed import Feed
from tierfeed.thread_tuning import ThreadTuning

Decode = Callable[[Sample, int], Any]
"""Turns the bytes and the label of a sample into the input of training."""

DecodeThreads = int | Literal["auto"]
"""How many threads decode: a number, or as many as the loader finds to be enough."""

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


class Timed(NamedTuple):
    """What a thread decoded, and how long it took."""

    decoded: Any
    seconds: float


def decode_timed(feed: Feed, decode: Decode, sample: Sample) -> Timed:
    """As `decode_one`, with its time."""
    begin_s = time.perf_counter()
    decoded = decode_one(feed, decode, sample)
    return Timed(decoded, time.perf_counter() - begin_s)


def threads_max(feed: Feed) -> int:
    """The threads that decode at most where the loader chooses: the processors that this rank may use.
    That on which it trains is among them: threads are added only while training waits for them."""
    return max(1, cores() // feed.order.ranks_per_node)


class Decoder:
    """Applies a decode function. Its threads, if any, start with the first sample."""

    def __init__(self, feed: Feed, decode: Decode, threads: DecodeThreads) -> None:
        if isinstance(threads, str) and threads != "auto":
            raise ValueError(f"decode_threads is {threads!r}; a number or 'auto' is meant")
        if threads != "auto" and threads < 0:
            raise ValueError(f"{threads} decode threads; ask for 0 or more")
        self._tuning = ThreadTuning(threads_max(feed)) if threads == "auto" else None
        self._threads = 0 if threads == "auto" else threads
        self._feed = feed
        self._decode = decode
        self._pool: ThreadPoolExecutor | None = None
        self._pool_threads = 0
        # Those that were replaced, while they may still decode.
        self._replaced: list[ThreadPoolExecutor] = []

    @property
    def threads(self) -> int:
        """The threads that decode now; 0 if the caller's does."""
        return self._threads if self._tuning is None else self._tuning.threads

    def start(self, samples: Iterable[Sample]) -> list[Future[Timed]] | list[Sample]:
        """Starts to decode on the threads; without threads, `finish` decodes."""
        if self.threads == 0:
            return list(samples)
        pool = self._pool_of(self.threads)
        return [pool.submit(decode_timed, self._feed, self._decode, it) for it in samples]

    def is_done(self, started: list[Future[Timed]] | list[Sample]) -> bool:
        """Whether `finish` has nothing to wait for and nothing to decode."""
        return self.threads > 0 and all(isinstance(it, Future) and it.done() for it in started)

    def finish(self, started: list[Future[Timed]] | list[Sample]) -> list[Any]:
        """The decoded samples, in the order of `start`, without those that are left out."""
        begin_s = time.perf_counter()
        try:
            timed = [
                it.result()
                if isinstance(it, Future)
                else decode_timed(self._feed, self._decode, it)
                for it in started
            ]
        except CancelledError:
            raise Reconfigure(CLOSED) from None
        if self._tuning is not None:
            busy_s = sum(it.seconds for it in timed)
            waited_s = time.perf_counter() - begin_s
            self._tuning.decoded(len(timed), busy_s=busy_s, waited_s=waited_s)
        return present(it.decoded for it in timed)

    def computed(self, seconds: float) -> None:
        """Training worked with a batch for so long."""
        if self._tuning is not None:
            self._tuning.computed(seconds)

    def close(self) -> None:
        """Ends the threads after the samples that they are decoding now."""
        pools, self._replaced = self._replaced, []
        if self._pool is not None:
            pools.append(self._pool)
            self._pool = None
        for pool in pools:
            pool.shutdown(wait=True, cancel_futures=True)

    def _pool_of(self, threads: int) -> ThreadPoolExecutor:
        if self._pool is not None and self._pool_threads != threads:
            # The batch that it decodes now is finished there.
            for ended in self._replaced:
                ended.shutdown(wait=True)
            self._pool.shutdown(wait=False)
            self._replaced, self._pool = [self._pool], None
        if self._pool is None:
            self._pool = ThreadPoolExecutor(threads, "tierfeed-decode")
            self._pool_threads = threads
        return self._pool

    def __getstate__(self) -> dict[str, Any]:
        # Threads cannot be pickled; a copy starts its own.
        return {**self.__dict__, "_pool": None, "_replaced": []}
