"""Starts the `tierfeed` binary for tests that need an agent, and reads what the trainer wrote."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

import needs

if TYPE_CHECKING:
    from conftest import World

TARGET = Path(__file__).parents[2] / "target"
TRAINER = str(Path(__file__).with_name("trainer.py"))

# Everything here takes a second or two; a machine that is busy may take longer.
TIMEOUT_S = 120

T = TypeVar("T")


@functools.cache
def binary() -> str | None:
    """`TIERFEED_BIN`, or what cargo built last, or what is installed."""
    named = os.environ.get("TIERFEED_BIN")
    if named is not None:
        return named
    built = [TARGET / profile / "tierfeed" for profile in ("debug", "release")]
    built = sorted((path for path in built if path.exists()), key=lambda it: it.stat().st_mtime)
    return str(built[-1]) if built else shutil.which("tierfeed")


def command(*arguments: object) -> list[str]:
    """A command line of the binary."""
    path = binary()
    if path is None:
        needs.skip("tierfeed", "build it, or set TIERFEED_BIN")
    return [path, *map(str, arguments)]


def run_command(*arguments: object) -> None:
    """Runs the binary; it must succeed."""
    line = command(*arguments)
    done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr


@dataclasses.dataclass(frozen=True)
class Log:
    """What one rank wrote down."""

    batches: list[dict[str, Any]]
    end: dict[str, Any] | None

    @classmethod
    def read(cls, path: Path, rank: int) -> Log:
        lines = Path(f"{path}.{rank}").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        end = rows.pop() if rows and "end" in rows[-1] else None
        return cls(rows, end)

    def assert_complete(self, world: World, rank: int) -> None:
        """Every batch of every epoch once, in the order of PyTorch's sampler, with its bytes."""
        expected = [world.torch_order(epoch, rank) for epoch in range(world.epochs)]
        places = [(row["epoch"], row["step"]) for row in self.batches]
        steps = [range(len(epoch)) for epoch in expected]
        assert places == [(epoch, step) for epoch, of in enumerate(steps) for step in of]
        for row in self.batches:
            ids = expected[row["epoch"]][row["step"]]
            assert row.get("samples", ids) == ids
            assert row["crcs"] == [zlib.crc32(world.content(id)) for id in ids]
        assert self.end is not None, "the trainer did not come to its end"


def trainer(world: World, mode: str, pace_s: float = 0.0) -> list[str]:
    """The command line of the training script."""
    return [sys.executable, TRAINER, str(log_path(world)), mode, str(pace_s)]


def log_path(world: World) -> Path:
    """Where the training script writes, less the rank."""
    return world.job.with_name("log")


def run(world: World, mode: str, *, pace_s: float = 0.0) -> list[Log]:
    """`tierfeed run` with one process per rank; returns what each rank wrote."""
    run_dir = world.job.with_name("run")
    line = command("run", world.job, "--run-dir", run_dir, "--", *trainer(world, mode, pace_s))
    done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return [Log.read(log_path(world), rank) for rank in range(world.ranks)]


def report(run_dir: Path) -> dict[str, Any]:
    """What the agent of a run directory reported."""
    found: dict[str, Any] = json.loads((run_dir / "report.json").read_text())
    return found


@dataclasses.dataclass
class Node:
    """A manager and an agent that run apart."""

    world: World
    root: Path
    manager: subprocess.Popen[bytes]
    agent: subprocess.Popen[bytes]

    def start_agent(self) -> None:
        """Another agent in the run directory of the one before."""
        self.agent = _start_agent(self.root)

    def environment(self) -> dict[str, str]:
        """What `tierfeed exec` sets for a trainer."""
        show = "import json, os; print(json.dumps({k: os.environ[k] for k in os.environ}))"
        line = command("exec", "--run-dir", self.root / "agent", "--", sys.executable, "-c", show)
        done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        found: dict[str, str] = json.loads(done.stdout)
        return {name: value for name, value in found.items() if name.startswith("TIERFEED_")}

    def adopt(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Makes this process a trainer of the node."""
        for name, value in self.environment().items():
            monkeypatch.setenv(name, value)

    def metric(self, name: str) -> float:
        """The sum of a metric of the agent over its labels."""
        observed = Path(self.environment()["TIERFEED_SOCK"]).with_name("observe.sock")
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(TIMEOUT_S)
            asked.connect(str(observed))
            asked.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            lines = asked.makefile(encoding="utf-8").read().splitlines()
        named = [line for line in lines if line.split("{")[0].split(" ")[0] == name]
        return sum(float(line.rsplit(" ", 1)[1]) for line in named)

    def train(self, mode: str, pace_s: float = 0.0, rank: int = 0) -> subprocess.Popen[bytes]:
        """A trainer of the agent, beside this process, in a process group of its own."""
        line = command("exec", "--run-dir", self.root / "agent", "--")
        environment = {**os.environ, "TIERFEED_RANK": str(rank)}
        return subprocess.Popen(
            [*line, *trainer(self.world, mode, pace_s)], env=environment, start_new_session=True
        )


@contextmanager
def node(world: World) -> Iterator[Node]:
    """Starts manager and agent, and ends them."""
    root = world.job.parent
    line = command("manager", world.job, "--listen", "127.0.0.1:0", "--run-dir", root / "manager")
    manager = subprocess.Popen(line)
    try:
        agent = _start_agent(root)
        running = Node(world, root, manager, agent)
        try:
            yield running
        finally:
            running.agent.kill()
            running.agent.wait()
    finally:
        manager.kill()
        manager.wait()


def _start_agent(root: Path) -> subprocess.Popen[bytes]:
    address = wait_for(lambda: _read(root / "manager" / "manager.address"), "the manager to listen")
    token = ["--token-file", root / "manager" / "token"]
    ready = root / "agent" / "trainer.json"
    ready.unlink(missing_ok=True)
    agent = subprocess.Popen(
        command("agent", "--manager", address, *token, "--run-dir", root / "agent")
    )
    wait_for(ready.exists, "the agent to serve")
    return agent


def _read(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def wait_for(condition: Callable[[], T], what: str) -> T:
    """Asks again and again until the answer is true."""
    end_s = time.monotonic() + TIMEOUT_S
    while not (value := condition()):
        assert time.monotonic() < end_s, f"waited {TIMEOUT_S} s for {what}"
        time.sleep(0.01)
    return value
