"""Ranks that `torchrun` starts: each its part, one agent, gradients of all ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import needs
import node

torch = needs.module("torch")

import tierfeed  # noqa: E402
from cluster import STAND_IN  # noqa: E402
from conftest import SEED, make_world  # noqa: E402

SCRIPT = """
import json, sys
from pathlib import Path
import torch
import torch.distributed as dist
from tierfeed.torch import TierLoader
from tiny import Classifier, decode

dist.init_process_group("gloo")
loader = TierLoader(sys.argv[1], decode=decode, **json.loads(sys.argv[2]))
model = Classifier()
replica = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(2):
    for batch in loader:
        optimizer.zero_grad()
        replica(**batch)["loss"].backward()
        optimizer.step()
total = sum(float(it.sum()) for it in model.parameters())
Path(f"rank{dist.get_rank()}.json").write_text(json.dumps([loader.feed.mode, model.seen, total]))
loader.close()
dist.destroy_process_group()
"""


def torchrun() -> list[str]:
    """PyTorch's own; that of 1.13, as Debian has it, does not start."""
    if torch.__version__.startswith("1."):
        return [sys.executable, str(STAND_IN / "torchrun"), "--nproc-per-node", "2"]
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def test_torchrun_starts_ranks_that_share_an_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, samples=52, ranks=2, epochs=2, sizes=(192, 400))
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)
    keys = {"batch_size": 4, "seed": SEED, "epochs": 2, "chunk": "1 MiB"}
    keys["tiers"] = {"main-memory": {"size": "16 MiB"}}
    line = [*torchrun(), "train.py", str(tmp_path / "data"), json.dumps(keys)]
    paths = [str(Path(node.__file__).parent), str(Path(tierfeed.__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        line, env=environment, capture_output=True, text=True, timeout=node.TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    totals = []
    for rank in range(2):
        mode, seen, total = json.loads(Path(f"rank{rank}.json").read_text())
        expected = [batch for epoch in range(2) for batch in world.torch_order(epoch, rank)]
        assert (mode, seen) == ("agent", expected)
        totals.append(total)
    assert totals[0] == totals[1], "all ranks have the same model"
    assert len(list(Path(".tierfeed/runs").iterdir())) == 1
