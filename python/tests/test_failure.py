"""What dies: the agent, the manager, a trainer. Training goes on, in order, with the right bytes.

Contract 1 of tierfeed. Times are drawn at random and printed, so that a failure can be had again.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

import node
from conftest import make_world
from node import Log, Node, wait_for

pytestmark = pytest.mark.node

# Kills of the agent at random moments. The promise is made for 20.
KILLS = int(os.environ.get("TIERFEED_KILLS", "4"))
PACE_S = 0.005


def finish(running: Node, trainer: subprocess.Popen[bytes]) -> Log:
    assert trainer.wait(timeout=node.TIMEOUT_S) == 0
    return Log.read(node.log_path(running.world), 0)


def batches_done(running: Node) -> int:
    """Lines that the trainer has written so far."""
    path = Path(f"{node.log_path(running.world)}.0")
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for_batches(running: Node, count: int) -> None:
    wait_for(lambda: batches_done(running) >= count, f"{count} batches")


@pytest.mark.parametrize("seed", range(KILLS))
@pytest.mark.parametrize("mode", ["feed", "loader", "decoder"])
def test_a_killed_agent_costs_no_batch(tmp_path, mode: str, seed: int) -> None:
    world = make_world(tmp_path, samples=120)
    delay_s = random.Random(seed).random() * 80 * PACE_S
    print(f"agent killed {delay_s:.4f} s after the first batch")
    with node.node(world) as running:
        trainer = running.train(mode, PACE_S)
        wait_for_batches(running, 1)
        time.sleep(delay_s)
        running.agent.send_signal(signal.SIGKILL)
        log = finish(running, trainer)
        log.assert_complete(world, 0)
        assert log.end["mode"] == "direct"


def test_workers_of_a_data_loader_survive_a_killed_agent(tmp_path) -> None:
    world = make_world(tmp_path, samples=120)
    with node.node(world) as running:
        trainer = running.train("dataset", PACE_S)
        wait_for_batches(running, 10)
        running.agent.send_signal(signal.SIGKILL)
        finish(running, trainer).assert_complete(world, 0)


def test_an_agent_that_comes_back_serves_the_next_epoch(tmp_path) -> None:
    world = make_world(tmp_path, samples=120)
    with node.node(world) as running:
        trainer = running.train("feed", 0.02)
        wait_for_batches(running, 5)
        running.agent.send_signal(signal.SIGKILL)
        running.agent.wait()
        running.start_agent()
        assert batches_done(running) < 55, "the agent came back too late for this test"
        log = finish(running, trainer)
        log.assert_complete(world, 0)
        origins = [(row["epoch"], row["origin"]) for row in log.batches]
        assert (0, "direct") in origins
        assert (2, "agent") in origins and (2, "direct") not in origins


def test_a_killed_manager_is_not_noticed(tmp_path) -> None:
    world = make_world(tmp_path, samples=120)
    with node.node(world) as running:
        trainer = running.train("feed", PACE_S)
        wait_for_batches(running, 10)
        running.manager.send_signal(signal.SIGKILL)
        log = finish(running, trainer)
        log.assert_complete(world, 0)
        assert log.end["mode"] == "agent"


def test_an_agent_that_hangs_does_not_hang_the_end_of_the_trainer(tmp_path) -> None:
    world = make_world(tmp_path, samples=120)
    with node.node(world) as running:
        trainer = running.train("feed", PACE_S)
        wait_for_batches(running, 10)
        running.agent.send_signal(signal.SIGSTOP)
        try:
            time.sleep(0.5)
            trainer.send_signal(signal.SIGTERM)
            assert trainer.wait(timeout=10) != 0
        finally:
            running.agent.send_signal(signal.SIGCONT)


def test_a_killed_trainer_leaves_the_agent_to_the_next(tmp_path) -> None:
    world = make_world(tmp_path, samples=120)
    with node.node(world) as running:
        for _ in range(3):
            trainer = running.train("feed", PACE_S)
            wait_for_batches(running, 10)
            os.killpg(trainer.pid, signal.SIGKILL)
            trainer.wait()
            Path(f"{node.log_path(world)}.0").unlink()
        log = finish(running, running.train("feed"))
        log.assert_complete(world, 0)
        assert {row["origin"] for row in log.batches} == {"agent"}
