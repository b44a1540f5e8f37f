"""A training with a stop-watch for the tests of reports: `timed_trainer.py WATCH SHAPE`.

It takes every batch of its rank in one of the ways below, and writes `WATCH.RANK`: what came, and the
seconds for which the training waited for it, by a watch around the call that gets the next batch. Beside
them stands for how long the kernel kept the training from a processor meanwhile: so much two watches may
differ.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import tierfeed
from tierfeed.torch import TierDataset, TierLoader


def spend(seconds: float) -> None:
    """Stands for work that takes a while."""
    time.sleep(seconds)


def delayed_s() -> float:
    """For how long this thread could have run and was given no processor."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


@dataclasses.dataclass
class Watch:
    """Counts batches and the time spent waiting for them."""

    batches: int = 0
    samples: int = 0
    direct_batches: int = 0
    """Of these, as far as the training can see it."""
    waited_s: float = 0.0
    decoded_s: float = 0.0
    """Summed over the threads that decode."""
    delayed_s: float = 0.0
    """While it waited."""
    lived_s: float = 0.0
    """From before it connected until after it disconnected."""
    starved_s: float = 0.0
    """For how long of this the kernel kept it from a processor, waiting or not."""

    def over(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The same batches, watched."""
        iterator = iter(batches)
        while True:
            delayed = delayed_s()
            begin_s = time.perf_counter()
            batch = next(iterator, None)
            end_s = time.perf_counter()
            if batch is None:
                return
            self.waited_s += end_s - begin_s
            self.delayed_s += delayed_s() - delayed
            self.batches += 1
            self.samples += len(batch)
            self.direct_batches += getattr(batch, "origin", "agent") == "direct"
            yield batch

    def slow_decode(self, sample: tierfeed.Sample, label: int) -> int:
        """Stands for decoding."""
        begin_s = time.perf_counter()
        spend(0.004)
        self.decoded_s += time.perf_counter() - begin_s
        return label


def by_feed(watch: Watch, step_s: float) -> int:
    """The plain feed."""
    with tierfeed.connect() as feed:
        for epoch in range(feed.epochs):
            for batch in watch.over(feed.epoch(epoch)):
                del batch
                spend(step_s)
    return feed.rank


def by_published_feed(watch: Watch) -> int:
    """Nothing can be read before the training says what it wants, and then it wants it at once."""
    with tierfeed.connect() as feed:
        feed.publish(0, range(feed.samples))
        for _ in watch.over(feed.epoch(0)):
            pass
    return feed.rank


def by_ranks(watch: Watch, meeting: Path) -> int:
    """A plain feed that is slow in rank 1; both are connected from the first batch to the last."""
    with tierfeed.connect() as feed:
        meet(meeting / "begin", feed.rank, feed.world)
        for epoch in range(feed.epochs):
            for batch in watch.over(feed.epoch(epoch)):
                del batch
                spend(0.1 if feed.rank == 1 else 0.002)
        meet(meeting / "end", feed.rank, feed.world)
    return feed.rank


def meet(place: Path, rank: int, world: int) -> None:
    """Waits for the other ranks."""
    place.mkdir(parents=True, exist_ok=True)
    (place / str(rank)).touch()
    while len(list(place.iterdir())) < world:
        time.sleep(0.005)


def by_loader(watch: Watch, step_s: float, **options: Any) -> int:
    """`TierLoader`."""
    with TierLoader(collate=list, **options) as loader:
        for epoch in range(loader.feed.epochs):
            loader.set_epoch(epoch)
            for batch in watch.over(loader):
                del batch
                spend(step_s)
    return loader.feed.rank


def by_dataset(watch: Watch, step_s: float) -> int:
    """A `DataLoader` whose sampler does not follow the job's order."""
    from torch.utils.data import DataLoader

    dataset = TierDataset()
    loader = DataLoader(dataset, batch_size=dataset.feed.batch_size, shuffle=False, collate_fn=list)
    for epoch in range(dataset.feed.epochs):
        dataset.set_epoch(epoch)
        for batch in watch.over(loader):
            del batch
            spend(step_s)
    dataset.feed.close()
    return dataset.feed.rank


def by_starved_feed(watch: Watch) -> int:
    """A plain feed whose training shares its processor with two processes that never rest."""
    processor = {min(os.sched_getaffinity(0))}
    os.sched_setaffinity(0, processor)
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        with tierfeed.connect() as feed:
            for epoch in range(feed.epochs):
                for batch in watch.over(feed.epoch(epoch)):
                    del batch
                    compute(0.01)
    finally:
        for other in others:
            other.kill()
            other.wait()
    return feed.rank


def compute(seconds: float) -> None:
    """Takes so much time of a processor."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


def decoding(watch: Watch, threads: int) -> int:
    """Decoding that takes longer than the training."""
    return by_loader(watch, 0.005, decode=watch.slow_decode, decode_threads=threads)


SHAPES: dict[str, Callable[[Watch, Path], int]] = {
    "feed": lambda watch, _: by_feed(watch, 0.002),
    "slow": lambda watch, _: by_feed(watch, 0.03),
    "published": lambda watch, _: by_published_feed(watch),
    "ranks": lambda watch, path: by_ranks(watch, path.with_name("meeting")),
    "starved": lambda watch, _: by_starved_feed(watch),
    "loader": lambda watch, _: by_loader(watch, 0.02),
    "decoding": lambda watch, _: decoding(watch, 0),
    "threads": lambda watch, _: decoding(watch, 2),
    "direct": lambda watch, _: by_dataset(watch, 0.002),
}


def main(path: str, shape: str) -> None:
    """One rank."""
    watch = Watch()
    begin_s, starved = time.perf_counter(), delayed_s()
    rank = SHAPES[shape](watch, Path(path))
    watch.lived_s = time.perf_counter() - begin_s
    watch.starved_s = delayed_s() - starved
    Path(f"{path}.{rank}").write_text(json.dumps(dataclasses.asdict(watch)))


if __name__ == "__main__":
    main(*sys.argv[1:])
