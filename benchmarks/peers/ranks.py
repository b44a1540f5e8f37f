"""Trains with several ranks, which wait for each other after every step as for an exchange of gradients.

`ranks.py rank SETTINGS RESULT` is one rank, that the launcher numbered (`tierfeed run` does).
`ranks.py node SETTINGS RESULT NODE` starts the ranks of a node, for loaders that bring no launcher. All
ranks meet at `MASTER_ADDR` and `MASTER_PORT`.

SETTINGS is a JSON file: that of `loaders.py`, with `nodes` and `ranks_per_node`. Each rank writes the
file RESULT with its number at the end: seconds of each epoch, and for each step how long the rank waited
for its batch and how long, after its step, for the other ranks. RESULT.began is there from the first
step on.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import multiprocessing.connection
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loaders import LOADERS, Epochs, Settings, look_at

PATIENCE_S = 120.0

# What all ranks of a node import. It is imported once, since that takes seconds of a processor.
IMPORTED = {"dataloader": ["torch", "torchvision.transforms.v2"]}


def from_agent(settings: Settings) -> Epochs:
    """Batches of the agent of this node, whose job file says the rest."""
    import tierfeed
    import tierfeed.numpy

    feed = tierfeed.connect()
    rows = tierfeed.numpy.TierLoader(feed) if settings.decode else None
    for epoch in range(settings.epochs):
        if rows is not None:
            yield (samples for samples, _labels in rows)
        else:
            yield ([sample.numpy() for sample in batch] for batch in feed.epoch(epoch))
    assert feed.mode == "agent", feed.mode


class Ranks:
    """The other ranks of the training: rank 0 hears all of them, and answers when all are there."""

    def __init__(self, settings: Settings) -> None:
        place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        if settings.rank == 0:
            with socket.create_server(place, backlog=settings.world) as server:
                server.settimeout(PATIENCE_S)
                self.peers = [server.accept()[0] for _ in range(1, settings.world)]
        else:
            self.peers = [connected(place)]
        self.is_first = settings.rank == 0
        for peer in self.peers:
            peer.settimeout(PATIENCE_S)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def wait(self) -> float:
        """Waits until all are here; returns how long."""
        start = time.perf_counter()
        if self.is_first:
            self._hear()
            self._tell()
        else:
            self._tell()
            self._hear()
        return time.perf_counter() - start

    def _hear(self) -> None:
        for peer in self.peers:
            if peer.recv(1) != b".":
                raise ConnectionError("another rank has ended")

    def _tell(self) -> None:
        for peer in self.peers:
            peer.sendall(b".")


def connected(place: tuple[str, int]) -> socket.socket:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(place)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def train(settings: Settings, ranks: Ranks, began: Path) -> Iterator[dict[str, Any]]:
    """What each epoch was."""
    epochs = from_agent if settings.loader == "tierfeed" else LOADERS[settings.loader][1]
    for batches in epochs(settings):
        waits, idles, images = [], [], 0
        ranks.wait()
        start = asked = time.perf_counter()
        for batch in batches:
            waits.append(time.perf_counter() - asked)
            images += look_at(batch)
            del batch
            time.sleep(settings.step_s)
            idles.append(ranks.wait())
            if len(waits) == 1:
                began.touch()
            asked = time.perf_counter()
        yield {"seconds": asked - start, "waits": waits, "idles": idles, "images": images}


def rank(keys: dict[str, Any], result: str, nodes: int, ranks_per_node: int) -> None:
    # A rank that is alone may have no number.
    number = int(os.environ.get("RANK", "0"))
    settings = Settings(**keys, rank=number, world=nodes * ranks_per_node)
    epochs = list(train(settings, Ranks(settings), Path(f"{result}.began")))
    Path(f"{result}.{number}").write_text(json.dumps(epochs))


def node(number: int, keys: dict[str, Any], result: str, nodes: int, ranks_per_node: int) -> None:
    """Starts all ranks of a node, and fails with the first that fails."""
    for name in IMPORTED.get(keys["loader"], []):
        importlib.import_module(name)
    forks = multiprocessing.get_context("fork")
    started = []
    for local in range(ranks_per_node):
        os.environ["RANK"] = str(number * ranks_per_node + local)
        started.append(forks.Process(target=rank, args=(keys, result, nodes, ranks_per_node)))
        started[-1].start()
    while started:
        multiprocessing.connection.wait([it.sentinel for it in started])
        if any(it.exitcode for it in started):
            for it in started:
                it.kill()
            sys.exit("a rank failed")
        started = [it for it in started if it.is_alive()]


def main() -> None:
    command, settings_file, result, *number = sys.argv[1:]
    keys = json.loads(Path(settings_file).read_text())
    world = keys.pop("nodes"), keys.pop("ranks_per_node")
    if command == "node":
        node(int(number[0]), keys, result, *world)
    else:
        rank(keys, result, *world)


if __name__ == "__main__":
    main()
