"""Launchers that are run for real: each rank gets its own samples from its agent, or an error.

`make test-launchers` runs the same with the torchrun and the accelerate of a current PyTorch, whose
programs `TIERFEED_TORCH_BIN` names then. MPI comes from Debian's packages, which
`scripts/launchers/setup.sh` installs.
"""

from __future__ import annotations

import os
import re
import subprocess

import pytest

import node
from cluster import OPEN_MPI, PYTHON, STAND_IN, TORCH_BIN, assert_fed, installed
from conftest import World, make_world

LAUNCHERS = {
    "open-mpi": ["mpirun.openmpi", "-n", "2", PYTHON],
    "mpich": ["mpirun.mpich", "-n", "2", PYTHON],
    "torchrun-stand-in": [PYTHON, str(STAND_IN / "torchrun"), "--nproc-per-node", "2"],
}
if TORCH_BIN:
    accelerate = [
        "--num_processes",
        "2",
        "--num_machines",
        "1",
        "--mixed_precision",
        "no",
    ]
    LAUNCHERS |= {
        "torchrun": [f"{TORCH_BIN}/torchrun", "--standalone", "--nproc-per-node", "2"],
        "torch.distributed.run": [
            PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        ],
        "accelerate": [
            f"{TORCH_BIN}/accelerate", "launch", "--multi_gpu", "--dynamo_backend", "no", *accelerate,
        ],
    }  # fmt: skip


def run(world: World, launcher: list[str], **options: str) -> subprocess.CompletedProcess[str]:
    """`tierfeed run` of a training that a launcher starts."""
    if launcher[0].startswith("mpirun"):
        installed(launcher[0])
    given = [f"--{name}={value}" for name, value in options.items()]
    line = node.command("run", world.job, "--run-dir", world.job.with_name("run"), *given, "--")
    training = [node.TRAINER, str(node.log_path(world)), "feed", "0"]
    return subprocess.run(
        [*line, *launcher, *training],
        capture_output=True,
        text=True,
        timeout=node.TIMEOUT_S,
        env={**os.environ, **OPEN_MPI},
    )


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_launcher_in_the_command_is_started_once_and_numbers_its_ranks(tmp_path, name) -> None:
    world = make_world(tmp_path, ranks=2)
    done = run(world, LAUNCHERS[name])
    assert done.returncode == 0, done.stderr
    assert_fed(world)
    report = node.report(tmp_path / "run")
    assert report["ranks"] == {"expected": 2, "absent": [], "turned_away": 0}


@pytest.mark.parametrize("name", LAUNCHERS)
def test_more_ranks_than_the_job_has_are_refused(tmp_path, name) -> None:
    world = make_world(tmp_path, ranks=1)
    done = run(world, LAUNCHERS[name])
    assert done.returncode == 2, done.stderr
    assert re.search(r"(SIZE|LOCALNRANKS)=2 of (torchrun|Open MPI|MPICH)", done.stderr), done.stderr
    assert f"world.ranks_per_node: 1 in {world.job}:7" in done.stderr, done.stderr
    assert not list(tmp_path.glob("log.*")), "a rank that was refused has trained"


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_launcher_that_is_started_for_each_rank_is_refused(tmp_path, name) -> None:
    world = make_world(tmp_path, ranks=2)
    done = run(world, LAUNCHERS[name], launch="per-rank")
    assert done.returncode == 2, done.stderr
    assert "TIERFEED_RUN_RANK=" in done.stderr and "--launch once" in done.stderr


def test_a_plain_script_is_started_for_each_rank(tmp_path) -> None:
    world = make_world(tmp_path, ranks=2)
    done = run(world, [PYTHON])
    assert done.returncode == 0, done.stderr
    assert_fed(world)


def test_exec_under_mpi_finds_the_agent_of_its_node(tmp_path) -> None:
    world = make_world(tmp_path, ranks=2)
    with node.node(world):
        line = node.command("exec", "--run-dir", tmp_path / "agent", "--", PYTHON, node.TRAINER)
        training = [str(node.log_path(world)), "feed", "0"]
        mpirun = [installed("mpirun.openmpi"), "-n", "2"]
        subprocess.run(
            [*mpirun, *line, *training],
            check=True,
            timeout=node.TIMEOUT_S,
            env={**os.environ, **OPEN_MPI},
        )
    assert_fed(world)
