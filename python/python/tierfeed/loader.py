"""A loader of whole batches, epoch by epoch: what the loaders of all frameworks have in common."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle, islice
from typing import Any, Literal, NamedTuple, Never, Self

from tierfeed._native import Batch, Pipeline, Reconfigure
from tierfeed.arguments import ARGUMENTS, own_arguments, refuse_unknown
from tierfeed.batches import Batches
from tierfeed.decoding import CLOSED, Decode, Decoder, DecodeThreads
from tierfeed.delivery import Delivery
from tierfeed.feed import Feed, connect, embedded_feed
from tierfeed.position import Position
from tierfeed.skipped import Skipped
from tierfeed.waits import Stats, Waits

Source = Feed | str | os.PathLike[str]
"""A feed, or a path or URL of a dataset, for which an agent is started."""

ShortBatch = Literal["keep", "drop"]
"""What becomes of a batch with fewer samples than the others, such as the last one of an epoch."""


TRANSFORMED = (
    "{0}= in a job with a transform: a batch is one tensor of rows already, and the agent made it. Leave"
    " {0}= out, or the transform"
)


class Begun(NamedTuple):
    """A batch whose samples are being decoded."""

    batch: Batch
    started: list[Any]


class Made(NamedTuple):
    """What training gets of a batch."""

    value: Any
    samples: int


class _Sent(NamedTuple):
    """A batch on its way to training, at the latest when training asks for it."""

    step: int
    value: Any


class Samples:
    """The samples of a loader, which are counted here and read by the loader."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def __len__(self) -> int:
        return self._feed.samples

    @property
    def classes(self) -> list[str]:
        """The names of the classes in the order of their labels, as those of an `ImageFolder`."""
        return self._feed.class_names

    def __getitem__(self, index: object) -> Never:
        raise TypeError(
            "the dataset of a TierLoader gives no single samples: Feed.read([number]) does, and"
            " tierfeed.torch.TierDataset is a dataset for a DataLoader"
        )


class Loader:
    """Iterates over the batches of this rank. Each pass reads an epoch, and the next pass the next one.

    `whole` makes of a batch what training gets, in a job with a transform what `dense` returned for it.
    With `decode` it is `collate` of what `decode` returned for each sample; samples are decoded on
    `decode_threads`, those of the next batch as soon as it is staged. With "auto" their number follows
    from what decoding takes and how long training computes. One pass at a time: an iterator ends when
    another one of the same loader begins.

    All ranks hand out equally many batches of an epoch. In the place of one of which `on_error: skip`
    left nothing, another one of the epoch is handed out once more. With `short_batch="drop"`, which is
    for trainings that need batches of one size, what is left of a batch is repeated up to that.

    A subclass may replace `_delivery`. `elsewhere` has the advice for arguments of other loaders.
    """

    def __init__(
        self,
        source: Source | None,
        keys: Mapping[str, Any],
        *,
        whole: Callable[[Batch], Any],
        dense: Callable[[Pipeline], Callable[[Batch], Any]],
        decode: Decode | None,
        decode_threads: DecodeThreads,
        collate: Callable[[list[Any]], Any],
        short_batch: ShortBatch = "keep",
        elsewhere: Mapping[str, str] | None = None,
    ) -> None:
        if short_batch not in ("keep", "drop"):
            raise ValueError(f"short_batch is {short_batch!r}; keep or drop is meant")
        if decode is None and decode_threads:
            raise ValueError("decode_threads without decode: there is nothing to decode")
        if decode is not None and keys.get("transform") is not None:
            raise ValueError(TRANSFORMED.format("decode"))
        self.feed = feed_of(source, keys, of=type(self), elsewhere=elsewhere)
        with closing_new(self.feed, source):
            transform = self.feed.transform
            if decode is not None and transform is not None:
                raise ValueError(TRANSFORMED.format("decode"))
            self._whole = whole if transform is None else dense(transform)
            self._decoder = None if decode is None else Decoder(self.feed, decode, decode_threads)
        self._collate = collate
        self._short_batch = short_batch
        self._delivery = Delivery()
        self._position = Position(self.feed)
        self._waits = Waits()
        self._closings = 0
        # Whether it said that a batch is handed out in the place of another one.
        self._was_said = False

    @property
    def dataset(self) -> Samples:
        """What the loader reads: its length is the number of samples, as that of any dataset."""
        return Samples(self.feed)

    @property
    def batch_size(self) -> int:
        """Samples in a batch of this rank."""
        return self.feed.batch_size

    @property
    def epoch(self) -> int:
        """The epoch of the current or last pass; before the first one, and after `set_epoch` or
        `load_state_dict`, that of the next."""
        return self._position.epoch

    @property
    def epochs_left(self) -> range:
        """The epochs that are still to be read, first the one that is not read to its end."""
        return self._position.epochs_left

    def set_epoch(self, epoch: int) -> None:
        """Names the epoch of the next pass. Optional: without it each pass reads the next epoch.

        Naming the epoch that `load_state_dict` resumed keeps its position.
        """
        self._position.say_counted_from_1(epoch)
        self._position.set_epoch(epoch)

    @property
    def skipped(self) -> list[Skipped]:
        """The samples that were left out, with their files (`on_error: skip`)."""
        return self.feed.skipped

    def __len__(self) -> int:
        """Batches of the epoch."""
        return self._handed_out(self._position.epoch)

    def _handed_out(self, epoch: int) -> int:
        """Batches of an epoch, without a short last one that is left out."""
        steps = self.feed.order.steps_in(epoch, self.feed.rank)
        return steps - (steps > 0 and self._is_dropped(epoch, steps - 1))

    def _is_dropped(self, epoch: int, step: int) -> bool:
        """Whether the order has fewer samples for a batch than for others, and such are not wanted."""
        order, rank = self.feed.order, self.feed.rank
        is_last = step + 1 == order.steps_in(epoch, rank)
        wants_whole = self._short_batch == "drop"
        return wants_whole and is_last and len(order.batch(epoch, step, rank)) < order.batch_size

    def __iter__(self) -> Iterator[Any]:
        (epoch, start), closings = self._position.begin(), self._closings
        # A pass that was left early did not ask after its last batch.
        self._delivery.asked()
        batches = self.feed.epoch(epoch, start)
        begun: list[Begun] = []
        sent: list[_Sent] = []
        wanted_ns = time.monotonic_ns()
        while sent or (begun := begun or self._begin(self._next(batches))):
            if not sent:
                there_ns = time.monotonic_ns()
                current, begun = begun, self._begin(self._staged(batches))
                sent = self._finish(current.pop(), wanted_ns, there_ns)
            if sent:
                value = [self._hand_out(sent.pop())]
                if self._delivery.goes_ahead:
                    begun = begun or self._begin(self._staged(batches))
                    sent = self._finish_ahead(begun)
                # Popped, so that the loader does not keep a batch while training uses it.
                handed_ns = time.monotonic_ns()
                yield value.pop()
                wanted_ns = time.monotonic_ns()
                if self._decoder is not None:
                    self._decoder.computed((wanted_ns - handed_ns) / 1e9)
                self._delivery.asked()
            if closings != self._closings:
                raise Reconfigure(CLOSED)
        self._position.end(epoch)

    def batch(self, epoch: int, step: int) -> Any:
        """One batch, out of turn."""
        (begun,) = self._begin(self.feed.batch(epoch, step))
        made = self._make(begun)
        value = made.value if made.samples else self._instead(epoch, step)
        return self._delivery.hand_out(value)

    def state_dict(self) -> dict[str, Any]:
        """The position after the batch that was handed out last."""
        return self._position.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues at the position of another loader of the same job, also with another framework.

        A job with another world or batch size continues there too if its `order.start` is the `position`
        of the state: all ranks load the same state, and no sample of the epoch is lost or read twice.

        Raises `Reconfigure` if the state is of another dataset or another order.
        """
        self._position.load_state_dict(state)

    def stats(self) -> Stats:
        """Batches, samples and bytes so far, how long training waited for them in seconds, and how many
        threads decode now."""
        return self._waits.stats(decode_threads=self._decode_threads())

    def _decode_threads(self) -> int:
        return 0 if self._decoder is None else self._decoder.threads

    def close(self) -> None:
        """Ends the decode threads and disconnects."""
        self._closings += 1
        if self._decoder is not None:
            self._decoder.close()
        self._delivery.close()
        self.feed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _next(self, batches: Batches) -> Batch | None:
        """Waits for the next batch; `None` at the end of the epoch."""
        return next(batches, None)

    def _staged(self, batches: Batches) -> Batch | None:
        """The next batch, if it is staged and something can be done with it meanwhile."""
        is_decoded = self._decoder is not None and self._decoder.threads
        return batches.poll() if is_decoded or self._delivery.goes_ahead else None

    def _begin(self, batch: Batch | None) -> list[Begun]:
        """Starts to decode a batch; an empty list if there is none."""
        if batch is None:
            return []
        decoder = self._decoder
        return [Begun(batch, [] if decoder is None else decoder.start(batch, batch.epoch))]

    def _finish_ahead(self, begun: list[Begun]) -> list[_Sent]:
        """Sends the next batch before training asks for it, if it is decoded already."""
        if not begun or (self._decoder is not None and not self._decoder.is_done(begun[0].started)):
            return []
        now_ns = time.monotonic_ns()
        return self._finish(begun.pop(), now_ns, now_ns)

    def _finish(self, begun: Begun, wanted_ns: int, there_ns: int) -> list[_Sent]:
        """Sends a batch, in a list; an empty list if training gets nothing of it.

        Training asked for it at `wanted_ns`; its bytes had come at `there_ns`."""
        batch = begun.batch
        made = self._make(begun)
        ready_ns = time.monotonic_ns()
        if self._decoder is not None:
            self.feed.note_decoding(batch.epoch, ready_ns - there_ns, self._decode_threads())
        self._waits.add(
            (ready_ns - wanted_ns) / 1e9,
            decoding_s=(ready_ns - there_ns) / 1e9,
            samples=len(batch),
            nbytes=batch.nbytes,
        )
        if self._is_dropped(batch.epoch, batch.step):
            self._position.take(batch.step)
            return []
        value = made.value if made.samples else self._instead(batch.epoch, batch.step)
        return [_Sent(batch.step, value)]

    def _make(self, begun: Begun) -> Made:
        """Decodes the rest of a batch and sends it, if anything is left of it."""
        batch, started = begun
        if self._decoder is None:
            if (count := self._filled(batch, len(batch))) > len(batch):
                batch = self.feed.read(islice(cycle(batch.samples), count), epoch=batch.epoch)
            value = self._delivery.send(batch, self._whole(batch)) if count else None
            return Made(value, count)
        decoded = self._decoder.finish(started)
        count = self._filled(batch, len(decoded))
        decoded = list(islice(cycle(decoded), count))
        value = self._delivery.send(batch, self._collate(decoded)) if decoded else None
        return Made(value, count)

    def _filled(self, batch: Batch, left: int) -> int:
        """The samples that a batch is handed out with, of which so many are left."""
        is_whole = self._short_batch == "keep" or self._is_dropped(batch.epoch, batch.step)
        return left if is_whole or not left else self.feed.batch_size

    def _instead(self, epoch: int, step: int) -> Any:
        """What is handed out in the place of a batch of which nothing is left: the batch before it, or
        if that is no better, the nearest of the epoch."""
        steps = self._handed_out(epoch)
        for other in (*range(step - 1, -1, -1), *range(step + 1, steps)):
            batch = self.feed.read_again(epoch, other)
            started = [] if self._decoder is None else self._decoder.start(batch, epoch)
            made = self._make(Begun(batch, started))
            if made.samples:
                self._say_instead(epoch, step, other)
                return made.value
        raise Reconfigure(
            f"no batch of epoch {epoch} is left for rank {self.feed.rank}, as on_error is skip and all"
            " of its samples failed: `skipped` names them, and says why"
        )

    def _say_instead(self, epoch: int, step: int, other: int) -> None:
        if not self._was_said:
            self._was_said = True
            warnings.warn(
                f"tierfeed: nothing is left of step {step} of epoch {epoch}, as on_error is skip: in its"
                f" place step {other} is handed out once more, so that all ranks have equally many"
                " batches",
                RuntimeWarning,
                stacklevel=5,
            )

    def _hand_out(self, sent: _Sent) -> Any:
        self._position.take(sent.step)
        return self._delivery.hand_out(sent.value)


@contextmanager
def closing_new(feed: Feed, source: object) -> Iterator[None]:
    """Closes a feed that was made for `source` if what a loader needs beside it cannot be made."""
    try:
        yield
    except BaseException:
        if not isinstance(source, Feed):
            feed.close()
        raise


def feed_of(
    source: object,
    keys: Mapping[str, Any],
    *,
    of: Callable[..., Any],
    elsewhere: Mapping[str, str] | None = None,
) -> Feed:
    """The feed of a loader: the given one, one with an agent of its own, or that of `tierfeed run`."""
    own = own_arguments(of)
    if isinstance(source, (str, os.PathLike)):
        refuse_unknown(keys, [*own, *ARGUMENTS], of=of.__name__, elsewhere=elsewhere)
        return embedded_feed(source, keys)
    if source is None:
        refuse_unknown(keys, [*own, "dataset"], of=of.__name__, elsewhere=elsewhere)
        return connect(**keys)
    if not isinstance(source, Feed):
        raise TypeError(
            f"the source of {of.__name__} is {source!r}; pass what tierfeed.connect() returned, a path"
            " or a URL, or nothing under `tierfeed run`"
        )
    one = {"dataset": "a feed is of one dataset, that of tierfeed.connect(dataset=...)"}
    refuse_unknown(keys, own, of=of.__name__, elsewhere={**(elsewhere or {}), **one})
    return source
