"""Which rank a process is: its launcher tells, the job agrees, or it is refused with exit code 2."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest

import node
import tierfeed
from conftest import make_world

READ_ONE = "import tierfeed; feed = tierfeed.connect(); print(feed.rank, feed.batch(0, 0).origin)"


def run(started: node.Node, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A process beside this one, under `tierfeed exec`."""
    line = node.command(
        "exec", "--run-dir", started.root / "agent", "--", sys.executable, "-c", script
    )
    environment = {**os.environ, **variables}
    return subprocess.run(
        line, capture_output=True, text=True, timeout=node.TIMEOUT_S, env=environment
    )


# Variables, ranks of the job, and what the message names; without that the process is let in.
CASES = [
    ({}, 1, ()),
    ({"RANK": "0", "WORLD_SIZE": "1"}, 1, ()),
    ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, 2, ()),
    ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, 2, ()),
    ({"PMI_RANK": "1", "PMI_SIZE": "2"}, 2, ()),
    ({"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}, 2, ()),
    ({"TIERFEED_RANK": "1"}, 2, ()),
    ({}, 2, ("which of the 2 ranks", "world.ranks_per_node: 2", "job.yaml:7")),
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, 2, ("which of the 2 ranks",)),
    ({"RANK": "0", "WORLD_SIZE": "1"}, 2, ("WORLD_SIZE=1 of torchrun", "2 ranks", "job.yaml:7")),
    ({"RANK": "0", "WORLD_SIZE": "2"}, 1, ("WORLD_SIZE=2 of torchrun", "1 ranks", "job.yaml:7")),
    ({"RANK": "1", "WORLD_SIZE": "2"}, 1, ("WORLD_SIZE=2 of torchrun", "1 ranks", "job.yaml:7")),
    ({"PMI_RANK": "2", "PMI_SIZE": "4"}, 2, ("PMI_SIZE=4 of MPICH", "2 ranks")),
    ({"TIERFEED_RANK": "2"}, 2, ("TIERFEED_RANK=2 of the environment", "ranks 0 to 1")),
    ({"TIERFEED_RANK": "0", "RANK": "1", "WORLD_SIZE": "2"}, 2, ("TIERFEED_RANK=0", "RANK=1 of")),
    (
        {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
        2,
        ("RANK=1 of torchrun", "LOCAL_RANK=0"),
    ),
    ({"RANK": "1", "WORLD_SIZE": "2", "GROUP_RANK": "1"}, 2, ("GROUP_RANK=1", "works as node 0")),
    ({"RANK": "x"}, 1, ("RANK is 'x'",)),
]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_process_is_a_rank_of_the_job_or_ends_with_code_2(tmp_path, ranks: int) -> None:
    world = make_world(tmp_path, samples=16, ranks=ranks)
    with node.node(world) as started:
        for variables, _, said in (case for case in CASES if case[1] == ranks):
            done = run(started, READ_ONE, **variables)
            if said:
                assert done.returncode == 2, (variables, done.stdout, done.stderr)
                assert not done.stdout, variables
                for part in said:
                    assert part in done.stderr, (variables, done.stderr)
            else:
                assert done.stdout == f"{ranks - 1} agent\n", (variables, done.stderr)


def test_two_processes_with_one_rank_are_not_let_in_at_once(tmp_path) -> None:
    world = make_world(tmp_path, samples=16, ranks=2)
    hold = READ_ONE + "; import sys; sys.stdout.flush(); sys.stdin.read()"
    line = ["exec", "--run-dir", tmp_path / "agent", "--", sys.executable, "-c", hold]
    with node.node(world) as started:
        first = subprocess.Popen(
            node.command(*line),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TIERFEED_RANK": "0"},
        )
        assert first.stdin is not None and first.stdout is not None
        assert first.stdout.readline() == "0 agent\n"
        second = run(started, READ_ONE, RANK="0", WORLD_SIZE="2")
        assert second.returncode == 2 and not second.stdout
        assert f"rank 0 is read by process {first.pid} (TIERFEED_RANK=0" in second.stderr
        assert "RANK=0 of torchrun" in second.stderr
        assert run(started, READ_ONE, RANK="1", WORLD_SIZE="2").stdout == "1 agent\n"
        # A rank that is started again finds its place free, however it ended.
        first.kill()
        first.wait()
        assert run(started, READ_ONE, RANK="0", WORLD_SIZE="2").stdout == "0 agent\n"


def test_workers_and_copies_of_a_trainer_are_no_second_rank(tmp_path, monkeypatch) -> None:
    world = make_world(tmp_path, samples=16)
    with node.node(world) as started:
        started.adopt(monkeypatch)
        with tierfeed.connect() as feed, tierfeed.connect() as again:
            assert feed.mode == again.mode == "agent"
            load = "import pickle, sys; feed = pickle.load(sys.stdin.buffer)"
            script = f"{load}; print(feed.rank, feed.mode)"
            done = subprocess.run(
                [sys.executable, "-c", script], input=pickle.dumps(feed), capture_output=True
            )
            assert done.stdout == b"0 agent\n", done.stderr
            child = os.fork()
            if child == 0:
                os._exit(0 if feed.mode == "agent" else 1)
            assert os.waitpid(child, 0)[1] == 0


def test_who_was_turned_away_and_who_never_came_stands_in_the_report(tmp_path) -> None:
    world = make_world(tmp_path, samples=16, ranks=2)
    line = node.command("run", world.job, "--run-dir", tmp_path / "run", "--launch", "once", "--")
    done = subprocess.run(
        [*line, sys.executable, "-c", READ_ONE],
        capture_output=True,
        text=True,
        timeout=node.TIMEOUT_S,
    )
    assert done.returncode == 2, done.stderr
    assert "which of the 2 ranks" in done.stderr
    report = node.report(tmp_path / "run")
    assert report["ranks"]["absent"] == [0, 1] and report["ranks"]["turned_away"] == 1
