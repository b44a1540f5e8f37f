"""Decoding of samples, on the caller's thread or on threads: as many as the user says, or as the loader
finds (`thread_tuning.py`)."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tierfeed._native import Error, Reconfigure, Sample, cores
from tierfeed.feed import Feed
from tierfeed.thread_tuning import ThreadTuning

if TYPE_CHECKING:
    import numpy

Decode = Callable[..., Any]
"""Turns the bytes and the label of a sample into the input of training: `decode(sample, label)`, or
`decode(sample, label, rng)` with a generator of NumPy for what it draws."""

DecodeThreads = int | Literal["auto"]
"""How many threads decode: a number, or as many as the loader finds to be enough."""

LEFT_OUT = object()
"""Marks a sample that could not be decoded, in a job with `on_error: skip`."""

CLOSED = "the loader was closed while it was iterated; a new iteration begins anew"


class SampleDecoder:
    """A decode function, and what it gets beside the sample.

    A generator is made of the seed of the job, the epoch and the sample: what is drawn depends neither
    on threads, nor on other samples, nor on where training was resumed.
    """

    def __init__(self, feed: Feed, decode: Decode) -> None:
        self._feed = feed
        self._decode = decode
        self._draws = _takes_rng(decode)

    def each(self, samples: Iterable[Sample], epoch: int) -> list[Any]:
        """The decoded samples, without those that are left out."""
        return present(self.one(sample, epoch) for sample in samples)

    def one(self, sample: Sample, epoch: int) -> Any:
        """A decoded sample. If `decode` fails, the error names the file, or with `on_error: skip` the
        sample is left out."""
        feed = self._feed
        try:
            if self._draws is None:
                return self._decode(sample, sample.label)
            rng = generator_of(feed.order.seed, epoch, sample.id)
            if self._draws == "by name":
                return self._decode(sample, sample.label, rng=rng)
            return self._decode(sample, sample.label, rng)
        except Exception as error:
            if feed.on_error == "skip":
                feed.leave_out(sample.id, f"{type(error).__name__}: {error}", epoch)
                return LEFT_OUT
            error.add_note(f"while decoding sample {sample.id}, {_file_of(feed, sample)}")
            raise

    def timed(self, sample: Sample, epoch: int) -> Timed:
        """As `one`, with its time."""
        begin_s = time.perf_counter()
        decoded = self.one(sample, epoch)
        return Timed(decoded, time.perf_counter() - begin_s)


def generator_of(seed: int, epoch: int, sample: int) -> numpy.random.Generator:
    """The generator of NumPy for one sample in one epoch."""
    # Not needed by who draws nothing.
    import numpy

    return numpy.random.default_rng((seed, epoch, sample))


def _takes_rng(decode: Decode) -> Literal["by name", "in order"] | None:
    """Whether a function takes a third argument, or one called `rng`."""
    try:
        parameters = inspect.signature(decode).parameters
    except (TypeError, ValueError):
        # Functions of C may tell nothing.
        return None
    own = parameters.get("rng")
    if own is not None and own.kind is not own.POSITIONAL_ONLY:
        return "by name"
    ordered = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [it for it in parameters.values() if it.kind in ordered and it.default is it.empty]
    return "in order" if len(needed) == _ARGUMENTS_WITH_RNG else None


_ARGUMENTS_WITH_RNG = 3


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


class Waiting(NamedTuple):
    """A sample that is decoded when it is needed."""

    sample: Sample
    epoch: int


Started = Future[Timed] | Waiting
"""A sample that a thread decodes, or one that waits."""


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
        self._decoder = SampleDecoder(feed, decode)
        self._pool: ThreadPoolExecutor | None = None
        self._pool_threads = 0
        # Those that were replaced, while they may still decode.
        self._replaced: list[ThreadPoolExecutor] = []

    @property
    def threads(self) -> int:
        """The threads that decode now; 0 if the caller's does."""
        return self._threads if self._tuning is None else self._tuning.threads

    def start(self, samples: Iterable[Sample], epoch: int) -> list[Started]:
        """Starts to decode on the threads; without threads, `finish` decodes."""
        if self.threads == 0:
            return [Waiting(sample, epoch) for sample in samples]
        pool = self._pool_of(self.threads)
        return [pool.submit(self._decoder.timed, it, epoch) for it in samples]

    def is_done(self, started: list[Started]) -> bool:
        """Whether `finish` has nothing to wait for and nothing to decode."""
        return self.threads > 0 and all(isinstance(it, Future) and it.done() for it in started)

    def finish(self, started: list[Started]) -> list[Any]:
        """The decoded samples, in the order of `start`, without those that are left out."""
        begin_s = time.perf_counter()
        try:
            timed = [
                it.result() if isinstance(it, Future) else self._decoder.timed(*it) for it in started
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
