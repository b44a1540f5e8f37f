"""Batches on a real GPU: the right bytes, pinned memory, and copies beside the training.

Run it by itself on a machine that has one, with PyTorch for CUDA: `pytest -s test_torch_gpu.py` prints
the rates.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import needs

torch = needs.module("torch")
if not torch.cuda.is_available():
    needs.skip("cuda", f"PyTorch {torch.__version__} finds no CUDA device")

from torch.utils.data import DataLoader, Dataset  # noqa: E402

from conftest import World, make_world  # noqa: E402
from node import Node, node  # noqa: E402
from tierfeed.torch import TierLoader  # noqa: E402

MIB = 1 << 20
# About the clock of a GPU; what a step takes is not measured by it.
CYCLES_PER_S = 1.5e9


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """1,024 samples of 1 MiB, 64 to a batch, all of which the tier holds."""
    root = tmp_path_factory.mktemp("large")
    world = make_world(root, samples=1024, batch_size=64, epochs=4, sizes=(MIB, MIB))
    world.job.write_text(world.job.read_text().replace("16 MiB", "3 GiB"))
    with node(world) as started:
        yield started


@pytest.fixture
def trained(large: Node, monkeypatch: pytest.MonkeyPatch) -> Node:
    large.adopt(monkeypatch)
    return large


def crcs(world: World, epoch: int) -> list[list[int]]:
    order = world.torch_order(epoch, 0)
    return [[zlib.crc32(world.content(id)) for id in batch] for batch in order]


@pytest.mark.parametrize("keys", [{"device": "cuda"}, {"pin_memory": True}])
def test_every_byte_arrives_while_the_gpu_is_late(trained: Node, keys: dict[str, Any]) -> None:
    given = []
    with TierLoader(**keys) as loader:
        for _ in range(2):
            for tensors, _ in loader:
                # Work that lets the copies wait, as a training step does.
                torch.cuda._sleep(20_000_000)
                given.append([tensor.to("cuda", non_blocking=True) for tensor in tensors])
    found = [[zlib.crc32(tensor.cpu().numpy()) for tensor in tensors] for tensors in given]
    assert found == crcs(trained.world, 0) + crcs(trained.world, 1)


def test_the_staging_memory_is_pinned_and_the_registration_is_reverted(trained: Node) -> None:
    loader = TierLoader(pin_memory=True)
    batches = iter(loader)
    next(batches)
    loader._delivery._registrations[0].wait()
    tensors, labels = next(batches)
    assert all(tensor.is_pinned() for tensor in tensors) and labels.is_pinned()
    del tensors
    loader.close()
    with TierLoader(pin_memory=True) as again:
        next(iter(again))
        again._delivery._registrations[0].wait()
        assert again._delivery._registrations[0]._registered, "it can be registered again"


class Files(Dataset[Any]):
    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        return torch.frombuffer(bytearray(self.files[index].read_bytes()), dtype=torch.uint8)


def rate(batches: Iterable[list[Any]], step_s: float) -> float:
    """GB/s onto the GPU of one pass, beside steps of about `step_s` on the GPU."""
    torch.cuda.synchronize()
    begin, nbytes = time.perf_counter(), 0
    for tensors in batches:
        moved = [tensor.to("cuda", non_blocking=True) for tensor in tensors]
        nbytes += sum(tensor.numel() for tensor in moved)
        torch.cuda._sleep(int(step_s * CYCLES_PER_S))
    torch.cuda.synchronize()
    return nbytes / (time.perf_counter() - begin) / 1e9


@pytest.mark.parametrize("keys", [{}, {"pin_memory": True}, {"device": "cuda"}, None])
def test_the_rate_is_said(
    trained: Node, capsys: pytest.CaptureFixture[str], keys: dict[str, Any] | None
) -> None:
    """GB/s of the second pass without steps and the third beside steps; of `DataLoader` for `None`."""
    if keys is None:
        files = Files(trained.world.files)
        way: Any = DataLoader(
            files, 64, num_workers=8, pin_memory=True, collate_fn=list, persistent_workers=True
        )
    else:
        way = TierLoader(**keys, collate=lambda samples: [tensor for tensor, _ in samples])
    rates = [rate(way, step_s) for step_s in (0.0, 0.0, 0.01)]
    with capsys.disabled():
        name = "DataLoader(pin_memory=True)" if keys is None else f"TierLoader({keys})"
        print(f"\n{name}: {rates[1]:.2f} GB/s, beside steps of 10 ms {rates[2]:.2f} GB/s")
    assert min(rates) > 0
