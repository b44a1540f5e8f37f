"""Hugging Face's `Trainer` over loaders of tierfeed.

>>> class TierTrainer(TierTrainerMixin, transformers.Trainer): pass
>>> TierTrainer(model, args, train_dataset=TierLoader("/data/train", batch_size=64, decode=decode))

It needs PyTorch, and imports nothing of `transformers`. A `Trainer` that resumes skips batches by a new
`DataLoader` over the samplers of the old one (`skip_first_batches`). Here what is skipped are numbers of
batches, so none is read, and epoch and step alone say which batch is next: the rest of the epoch is the
one that an uninterrupted training would have read. The loader shards by itself, and Accelerate, which
would shard it again, never gets it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from tierfeed.batches import EpochStep
from tierfeed.torch.loader import TierLoader


class TierTrainerMixin:
    """For a subclass of `Trainer`: its datasets may be instances of `TierLoader`."""

    train_dataset: Any
    eval_dataset: Any

    def get_train_dataloader(self) -> Any:
        """The batches of `train_dataset`, or those of `Trainer` if it is no loader."""
        if isinstance(self.train_dataset, TierLoader):
            return by_number(self.train_dataset)
        return super().get_train_dataloader()  # type: ignore[misc]

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """The batches of `eval_dataset`, or of the one of that name, or of that of the trainer."""
        chosen = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(chosen, str):
            chosen = self.eval_dataset[chosen]
        if isinstance(chosen, TierLoader):
            return by_number(chosen)
        return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]


def by_number(loader: TierLoader) -> DataLoader[Any]:
    """The batches of a loader as a `DataLoader` that draws numbers of batches, and reads only those that
    are drawn: for code that skips the first ones by its `batch_sampler`."""
    numbers = _Numbers(loader)
    # A generator of its own: a DataLoader draws from that of training otherwise.
    drawn: DataLoader[Any] = DataLoader(
        _NumberedBatches(loader),
        batch_sampler=numbers,
        collate_fn=_only,
        generator=torch.Generator(),
    )
    drawn.set_epoch = numbers.set_epoch
    return drawn


class _NumberedBatches(Dataset[Any]):
    """The batch at an epoch and a step. In order they come from one pass over the loader."""

    def __init__(self, loader: TierLoader) -> None:
        self._loader = loader
        self._pass: Iterator[Any] = iter(())
        self._next: EpochStep | None = None

    def __len__(self) -> int:
        # What a trainer calls its examples.
        return self._loader.feed.samples

    def __getitem__(self, place: EpochStep) -> Any:
        epoch, step = place
        if place != self._next:
            self._loader.seek(epoch, step)
            self._pass = iter(self._loader)
        self._next = (epoch, step + 1)
        return next(self._pass)


class _Numbers(Sampler[list[EpochStep]]):
    """The places of an epoch, each a batch of its own; then those of the next epoch."""

    def __init__(self, loader: TierLoader) -> None:
        self._loader = loader
        self._epoch = loader.epoch

    @property
    def batch_sampler(self) -> _Numbers:
        """Where a trainer looks for `set_epoch`, as in what Accelerate makes of a batch sampler."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Names the epoch that is drawn next."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._loader._handed_out(self._epoch)

    def __iter__(self) -> Iterator[list[EpochStep]]:
        epoch, steps = self._epoch, len(self)
        self._epoch += 1
        for step in range(steps):
            yield [(epoch, step)]


def _only(batches: list[Any]) -> Any:
    (batch,) = batches
    return batch
