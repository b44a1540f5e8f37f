"""Loaders of one node of several, which reads its part of each epoch and asks no other node.

The job says how many nodes there are (`world`), as for tierfeed; this is the first. Samples are handed
over as they are stored.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import buckets


class Samples:
    """Reads a sample when it is asked for."""

    def __init__(self, data: str) -> None:
        self.places = buckets.samples_in(data)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, number: int) -> bytes:
        return self.places[number].read_bytes()  # type: ignore[no-any-return]


def data_loader(settings: Any) -> Iterator[Iterable[Any]]:
    from torch.utils.data import DataLoader, DistributedSampler

    samples = Samples(settings.data)
    nodes = settings.job["world"]["nodes"]
    sampler = DistributedSampler(samples, nodes, 0, seed=settings.seed)
    loader = DataLoader(
        samples,
        settings.batch_size,
        sampler=sampler,
        num_workers=settings.workers,
        collate_fn=list,
    )
    for epoch in range(settings.epochs):
        sampler.set_epoch(epoch)
        yield loader


def tierfeed(settings: Any) -> Iterator[Iterable[Any]]:
    import tierfeed as package

    os.environ |= {"TIERFEED_NODE": "0", "TIERFEED_RUN_DIR": f"runs-{os.getpid()}"}
    place = buckets.place_of(settings.data)
    feed = package.connect(
        place.url,
        endpoint=place.endpoint,
        format="files",
        glob="**/*",
        **settings.job,
        batch_size=settings.batch_size,
        seed=settings.seed,
        epochs=settings.epochs,
    )
    for epoch in range(settings.epochs):
        yield ([memoryview(sample) for sample in batch] for batch in feed.epoch(epoch))
    assert feed.mode == "agent", feed.mode
    leave(Path(package.current().run_dir))


def leave(run_dir: Path) -> None:
    """Ends the agent, which would wait a minute for the other nodes, when it has left its report."""
    children = [found.read_text().split() for found in Path("/proc/self/task").glob("*/children")]
    agents = [int(child) for found in children for child in found]
    for agent in agents:
        os.kill(agent, signal.SIGTERM)
    for _ in range(200):
        if (run_dir / "report.json").exists():
            break
        time.sleep(0.05)
    for agent in agents:
        os.kill(agent, signal.SIGKILL)
