"""Publishes the order of any sampler, and leaves the sampler unchanged.

The sampler is read once, ahead of the epoch, from the state that the epoch will begin with: its own
generators, its attributes, and the default generators of PyTorch, NumPy and Python are restored
afterwards. So training draws the same numbers as without tierfeed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler

from tierfeed._native import Reconfigure
from tierfeed.feed import Feed
from tierfeed.torch.dataset import TierDataset
from tierfeed.torch.misuse import checked_feed
from tierfeed.torch.rewinding import rewound


def announce(
    source: DataLoader[Any] | Sampler[Any] | Iterable[Any],
    *,
    epoch: int,
    feed: Feed | None = None,
) -> list[int]:
    """Publishes what this rank will read in `epoch`, for a job with `shuffle: published`.

    Call it before each epoch, after `set_epoch` where the sampler has that, and with nothing drawn
    from its random generators between this call and the epoch. Returns the samples.

    Pass the `DataLoader` if there is one: it draws from the same generator as its sampler, before it.
    Its feed is that of its `TierDataset`, which is told the epoch. A sampler alone, or a batch sampler,
    is for your own loop, and needs `feed`. Persistent workers know what was announced before they
    started; what comes later they read directly.

    Raises `TypeError` for what can be read only once, and `Reconfigure` if the job takes no published
    order, its batches have another size, or a rank reads another number of samples.
    """
    feed = _feed_of(source) if feed is None else checked_feed(feed, of="announce")
    _say_persistent(source)
    sampler, batch_size = _sampler_of(source)
    if isinstance(sampler, Iterator):
        raise TypeError(
            f"{_name(source)} is an iterator: to read it ahead would use it up; pass the sampler that"
            " it was made from, or give its samples to Feed.publish() and to your loader"
        )
    ids: list[int] = []
    with rewound(source):
        _draw_as_loader(source)
        for entry in sampler:
            if isinstance(entry, (list, tuple)):
                _check_batch(len(ids), feed)
                batch_size = batch_size or len(entry)
                ids.extend(int(index) for index in entry)
            else:
                ids.append(int(entry))
    if batch_size not in (None, feed.batch_size) and len(ids) > min(batch_size, feed.batch_size):
        raise Reconfigure(f"batches of {batch_size}; the job's batch_size is {feed.batch_size}")
    feed.publish(epoch, ids)
    feed.order.forget_before(epoch)
    dataset = getattr(source, "dataset", None)
    if isinstance(dataset, TierDataset):
        dataset.set_epoch(epoch)
    return ids


def _say_persistent(source: object) -> None:
    """Persistent workers have a copy of what was announced before they started."""
    if isinstance(source, DataLoader) and source.persistent_workers:
        warnings.warn(
            "tierfeed: persistent_workers=True: the workers of this DataLoader hear of the first epoch"
            " that is announced, and read the batches of later ones themselves, more slowly: leave it"
            " out",
            RuntimeWarning,
            stacklevel=3,
        )


def _check_batch(before: int, feed: Feed) -> None:
    """Only the last batch may be shorter: the job cuts all others at its batch size."""
    if before % feed.batch_size:
        raise Reconfigure(
            f"the sampler yields a batch before its last one that is not full: the next begins at sample"
            f" {before} of the rank's epoch, and the job's batch_size is {feed.batch_size}. An agent"
            " stages batches of one size; for others leave announce() out, and the DataLoader reads them"
            " itself"
        )


def _feed_of(source: object) -> Feed:
    dataset = getattr(source, "dataset", None)
    if isinstance(dataset, TierDataset):
        return dataset.feed
    raise TypeError(f"{_name(source)} has no TierDataset: pass the feed, announce(..., feed=feed)")


def _sampler_of(source: Any) -> tuple[Iterable[Any], int | None]:
    """The iterable that yields the indices, and the batch size of its loader, if it has one."""
    if not isinstance(source, DataLoader):
        return source, getattr(source, "batch_size", None)
    if isinstance(source.dataset, IterableDataset):
        raise TypeError("a loader over an IterableDataset has no sampler: its samples have no numbers")
    if source.batch_sampler is None:
        return source.sampler, None
    return source.batch_sampler, getattr(source.batch_sampler, "batch_size", None)


def _draw_as_loader(source: object) -> None:
    """A loader draws the base seed of its workers before its sampler starts; one with persistent workers
    does so in its first epoch only."""
    if not isinstance(source, DataLoader):
        return
    if source.persistent_workers and getattr(source, "_iterator", None) is not None:
        return
    torch.empty((), dtype=torch.int64).random_(generator=source.generator)


def _name(source: object) -> str:
    return f"a {type(source).__name__}"
