"""Datasets and jobs for the tests: small image folders of random bytes, and files of records.

Most of the client works without an agent; tests that need one use `node.py`.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import node
import tierfeed
from tierfeed._native import launch_variables

SEED = 7


@dataclasses.dataclass(frozen=True)
class World:
    """A dataset on disk and the job over it."""

    job: Path
    index: Path
    files: list[Path]
    """One per sample, in the order of the index."""
    epochs: int
    batch_size: int
    ranks: int

    def content(self, sample: int) -> bytes:
        return self.files[sample].read_bytes()

    def torch_order(self, epoch: int, rank: int) -> list[list[int]]:
        """What PyTorch's own sampler gives a rank, in batches."""
        from torch.utils.data.distributed import DistributedSampler

        sampler = DistributedSampler(
            self.files, num_replicas=self.ranks, rank=rank, shuffle=True, seed=SEED
        )
        sampler.set_epoch(epoch)
        ids = list(sampler)
        return [ids[i : i + self.batch_size] for i in range(0, len(ids), self.batch_size)]

    def direct(self, rank: int = 0) -> tierfeed.Feed:
        """A feed without an agent."""
        with pytest.warns(RuntimeWarning, match="directly"):
            return tierfeed.connect(rank=rank, job=str(self.job), index=str(self.index))


def make_world(
    root: Path,
    *,
    samples: int = 50,
    batch_size: int = 4,
    ranks: int = 1,
    nodes: int = 1,
    epochs: int = 3,
    sizes: tuple[int, int] = (1, 9000),
    contents: Callable[[int], bytes] | None = None,
    shuffle: str = "torch-distributed",
    on_error: str = "fail",
    order: str = "",
    extra: str = "",
) -> World:
    """An image folder of `samples` files with lengths within `sizes`, or with `contents` by number, and
    a job over it: of `ranks` in all, the same number on each of its `nodes`. With `skip` it goes without
    any number of samples."""
    generator = random.Random(samples)
    for number in range(samples):
        path = root / "data" / f"class{number % 3}" / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        given = None if contents is None else contents(number)
        path.write_bytes(given or generator.randbytes(generator.randint(*sizes)))
    job = root / "job.yaml"
    on_error = "{ skip: 100 % }" if on_error == "skip" else on_error
    job.write_text(
        f"""\
name: test
dataset:
  source: file://{root / "data"}
  format: image-folder
order: {{ shuffle: {shuffle}, seed: {SEED}, epochs: {epochs}{order and ", " + order} }}
batch_size: {batch_size}
world: {{ nodes: {nodes}, ranks_per_node: {ranks // nodes} }}
on_error: {on_error}
chunk: 1 MiB
tiers:
  main-memory: {{ size: 16 MiB }}
{extra}"""
    )
    index = root / "dataset.tfx"
    node.run_command("index", root / "data", "--format", "image-folder", "--output", index)
    files = sorted((root / "data").glob("*/*.jpg"))
    return World(job, index, files, epochs, batch_size, ranks)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


@pytest.fixture
def running(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[node.Node]:
    """A node that serves the world, and which this process is a trainer of."""
    with node.node(world) as started:
        started.adopt(monkeypatch)
        yield started


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the launcher that runs the tests; all find the program."""
    bare(monkeypatch)


def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a test, also for a fixture that lasts longer than one."""
    for name in list(os.environ):
        is_ours = name.startswith("TIERFEED_") and name != "TIERFEED_BIN"
        if is_ours or name in launch_variables():
            monkeypatch.delenv(name)
    if (binary := node.binary()) is not None:
        monkeypatch.setenv("TIERFEED_EXE", binary)
