"""A training script for the tests: takes every batch and writes down what it got.

`trainer.py LOG MODE PACE_S` writes `LOG.RANK`, a line of JSON per batch, and at the end a line with
what it saw of the feed. `tierfeed run` starts it once per rank.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from collections.abc import Iterator
from typing import Any, TextIO

import tierfeed


def by_feed(feed: tierfeed.Feed) -> Iterator[dict[str, Any]]:
    """Batches of the plain feed."""
    for epoch in range(feed.epochs):
        for batch in feed.epoch(epoch):
            yield {
                "epoch": batch.epoch,
                "step": batch.step,
                "samples": batch.samples,
                "labels": batch.labels,
                "crcs": [zlib.crc32(sample) for sample in batch],
                "origin": batch.origin,
                "leases": leases(feed),
            }


def by_loader(feed: tierfeed.Feed) -> Iterator[dict[str, Any]]:
    """Batches of `TierLoader`, undecoded."""
    from tierfeed.torch import TierLoader

    loader = TierLoader(feed)
    for epoch in range(feed.epochs):
        loader.set_epoch(epoch)
        for step, (tensors, _) in enumerate(loader):
            crcs = [zlib.crc32(tensor.numpy()) for tensor in tensors]
            yield {"epoch": epoch, "step": step, "crcs": crcs, "leases": leases(feed)}


def by_decoder(feed: tierfeed.Feed) -> Iterator[dict[str, Any]]:
    """Batches of `TierLoader`, decoded on two threads."""
    from tierfeed.torch import TierLoader

    with TierLoader(feed, decode=crc, decode_threads=2, collate=list) as loader:
        for epoch in range(feed.epochs):
            loader.set_epoch(epoch)
            for step, samples in enumerate(loader):
                yield {"epoch": epoch, "step": step, "crcs": [value for value, _ in samples]}


def by_dataset(feed: tierfeed.Feed) -> Iterator[dict[str, Any]]:
    """Batches of a `DataLoader` with two workers over `TierDataset`."""
    feed.close()
    from torch.utils.data import DataLoader

    from tierfeed.torch import TierDataset, TierDistributedSampler

    dataset = TierDataset(decode=crc)
    sampler = TierDistributedSampler(dataset.feed)
    loader = DataLoader(
        dataset, batch_size=feed.batch_size, sampler=sampler, num_workers=2, collate_fn=list
    )
    for epoch in range(feed.epochs):
        dataset.set_epoch(epoch)
        sampler.set_epoch(epoch)
        for step, samples in enumerate(loader):
            yield {
                "epoch": epoch,
                "step": step,
                "crcs": [value for value, _ in samples],
            }


def crc(sample: tierfeed.Sample, label: int) -> tuple[int, int]:
    """Stands for decoding."""
    return zlib.crc32(sample), label


def leases(feed: tierfeed.Feed) -> int:
    """Batches that this process holds of the agent."""
    agent = feed.agent()
    return 0 if agent is None else agent.leases


MODES = {"feed": by_feed, "loader": by_loader, "decoder": by_decoder, "dataset": by_dataset}


def main(log: str, mode: str, pace_s: float) -> None:
    """One rank."""
    feed = tierfeed.connect()
    with open(f"{log}.{feed.rank}", "w") as lines:
        write(lines, MODES[mode](feed), pace_s)
        lines.write(json.dumps({"end": True, "mode": feed.mode, "faults": feed.faults}) + "\n")


def write(lines: TextIO, batches: Iterator[dict[str, Any]], pace_s: float) -> None:
    """A line for each batch."""
    for row in batches:
        lines.write(json.dumps(row) + "\n")
        lines.flush()
        time.sleep(pace_s)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
