"""A training that starts its agent itself: `embedded_trainer.py LOG MODE PACE_S SOURCE KEYS`.

Writes what `trainer.py` writes, and into `LOG.RANK.pids` its process and that of its agent. `KEYS` are
the arguments of the loader as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tierfeed
import trainer


def by_loader(source: str, keys: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The one line of most trainings."""
    from tierfeed.torch import TierLoader

    loader = TierLoader(source, **keys)
    note_processes(sys.argv[1], loader.feed)
    for epoch in range(keys["epochs"]):
        loader.set_epoch(epoch)
        for step, (tensors, _) in enumerate(loader):
            crcs = [zlib.crc32(tensor.numpy()) for tensor in tensors]
            yield {"epoch": epoch, "step": step, "crcs": crcs, "mode": loader.feed.mode}


def by_feed(source: str, keys: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Without a framework."""
    feed = tierfeed.connect(source, **keys)
    note_processes(sys.argv[1], feed)
    yield from trainer.by_feed(feed)


def note_processes(log: str, feed: tierfeed.Feed) -> None:
    """Writes down who runs."""
    assert feed._embedded is not None
    pids = [os.getpid(), feed._embedded._process.pid]
    (feed._embedded.run_dir / "socket.json").write_text(json.dumps(feed._embedded.socket))
    beside = Path(f"{log}.{feed.rank}.pids.part")
    beside.write_text(json.dumps(pids))
    beside.rename(beside.with_suffix(""))


def main(log: str, mode: str, pace_s: float, source: str, keys: dict[str, Any]) -> None:
    """One rank."""
    rank = os.environ.get("RANK", "0")
    with open(f"{log}.{rank}", "w") as lines:
        trainer.write(lines, {"loader": by_loader, "feed": by_feed}[mode](source, keys), pace_s)
        lines.write(json.dumps({"end": True}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4], json.loads(sys.argv[5]))
