"""tierfeed for Keras 3, under any of its backends."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
from numpy.typing import DTypeLike

import tierfeed.numpy
from tierfeed._native import Reconfigure
from tierfeed.decoding import Decode, DecodeThreads
from tierfeed.loader import ShortBatch, Source
from tierfeed.position import beyond
from tierfeed.transforms import Transform

__all__ = ["TierEpochs", "TierPyDataset"]

# Keras looks at the first two batches before it trains (the TensorFlow backend: what types they have),
# and asks for them once more then.
KEPT = 2


class TierPyDataset(keras.utils.PyDataset):  # type: ignore[misc]
    """The batches of this rank for `fit`, `evaluate` and `predict`.

    The arguments are those of `tierfeed.numpy.TierLoader`, also `transform` where it is made by
    `tierfeed.transforms`. A function `transform(array, labels)` makes of a batch what Keras takes:
    `(inputs, targets)` or `(inputs,)`. With `decode` its arguments are what `collate` returned.

    Pass `shuffle=False` to `fit`: the order of the job is shuffled already, and Keras would ask for its
    batches out of turn. Each epoch of Keras reads the next epoch of the job, from `initial_epoch` on, or
    from where the job starts; `TierEpochs` makes it the one with the number that Keras says.
    """

    def __init__(
        self,
        source: Source | None = None,
        *,
        transform: Transform | Callable[..., Any] | None = None,
        initial_epoch: int | None = None,
        record: DTypeLike | None = None,
        decode: Decode | None = None,
        decode_threads: DecodeThreads = 0,
        collate: Callable[[list[Any]], Any] | None = None,
        short_batch: ShortBatch = "keep",
        **keys: Any,
    ) -> None:
        super().__init__(workers=1, use_multiprocessing=False)
        if transform is not None and not callable(transform):
            keys["transform"], transform = transform, None
        self.loader = tierfeed.numpy.TierLoader(
            source,
            record=record,
            decode=decode,
            decode_threads=decode_threads,
            collate=collate,
            short_batch=short_batch,
            **keys,
        )
        self._transform = transform
        # TensorFlow asks from threads of its own, and beyond the last epoch for what nothing takes: not
        # what is asked for is more than the job has, but what is begun.
        self._lock = threading.Lock()
        self.loader._position.warns_beyond = False
        self._was_warned = False
        self.set_epoch(self._due(self.loader.epoch) if initial_epoch is None else initial_epoch)

    def set_epoch(self, epoch: int) -> None:
        """The next batch that Keras asks for is one of `epoch`."""
        with self._lock:
            self._begin(epoch)

    @property
    def epoch(self) -> int:
        """The epoch of the job whose batches are handed out."""
        return self._epoch

    @property
    def num_batches(self) -> int:
        """Batches of the epoch, as Keras asks for it: when all were handed out, of the next one.

        `fit` asks once, before its first epoch; that of a job may have fewer (`order.start`).
        """
        with self._lock:
            if self.loader.feed.dataset is None:
                self._go_on()
            return self._steps

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, index: int) -> Any:
        """A batch of the epoch. When the last one was handed out, the next one is of the next epoch."""
        with self._lock:
            # TensorFlow asks for the first batches of an epoch before that begins.
            self._go_on()
            if index not in self._kept:
                batch = self._in_turn() if index == self._following else self._out_of_turn(index)
                if index >= KEPT:
                    self._kept.clear()
                    return self._for_keras(batch)
                self._kept[index] = batch
            return self._for_keras(self._kept[index])

    def on_epoch_begin(self) -> None:
        """Called by Keras: goes to the next epoch of the job, if all of this one was handed out."""
        with self._lock:
            if self._is_over:
                self._begin(self._due(self._epoch + 1))
            feed = self.loader.feed
            if self._epoch >= feed.epochs and feed.order.shuffle != "sequential":
                warnings.warn(
                    f"tierfeed: {beyond(self._epoch, feed.epochs)}", RuntimeWarning, stacklevel=3
                )

    def close(self) -> None:
        """Disconnects."""
        self.loader.close()

    @property
    def _is_over(self) -> bool:
        return self._following >= self._steps

    def _begin(self, epoch: int) -> None:
        start, _ = self.loader.feed.order.start
        if epoch < start:
            # Keras fails without batches, and does not say why.
            raise Reconfigure(
                f"epoch {epoch} has no batches, as the job starts in epoch {start} (order.start): pass"
                f" initial_epoch={start} to fit"
            )
        self.loader._position.set_epoch(epoch)
        self._epoch = epoch
        self._steps = len(self.loader)
        self._following = 0
        self._batches: Iterator[Any] = iter(self.loader)
        self._kept: dict[int, Any] = {}

    def _go_on(self) -> None:
        """Goes to the next epoch, if all of this one was handed out."""
        if self._is_over:
            self._begin(self._due(self._epoch + 1))

    def _due(self, epoch: int) -> int:
        """`epoch`, or for a validation the one that training is in, to which it belongs."""
        feed = self.loader.feed
        return epoch if feed.dataset is None else feed.training_epoch()

    def _in_turn(self) -> Any:
        self._following += 1
        return next(self._batches)

    def _out_of_turn(self, index: int) -> Any:
        if not self._was_warned and not self._is_over:
            self._was_warned = True
            warnings.warn(
                f"tierfeed: Keras asks for batch {index} of epoch {self._epoch} and not for"
                f" {self._following}, whose turn it is: pass shuffle=False to fit, as the order of the"
                " job is shuffled already. Batches out of turn are slower, and no run repeats them",
                RuntimeWarning,
                stacklevel=3,
            )
        # Each batch counts once: when all were asked for, the epoch is over.
        self._following += 1
        return self.loader.batch(self._epoch, index)

    def _for_keras(self, batch: Any) -> Any:
        if self._transform is None:
            return batch
        return self._transform(*batch) if isinstance(batch, tuple) else self._transform(batch)


class TierEpochs(keras.callbacks.Callback):  # type: ignore[misc]
    """Makes each epoch of Keras read the epoch of the job with its number, also when
    `keras.callbacks.BackupAndRestore` or `initial_epoch` begins with a later one."""

    def __init__(self, dataset: TierPyDataset) -> None:
        super().__init__()
        self._dataset = dataset

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Called by Keras before the first batch of an epoch."""
        if epoch != self._dataset.epoch:
            self._dataset.set_epoch(epoch)
