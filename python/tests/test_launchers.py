"""Launchers that are run for real: each rank gets its own samples from its agent, or an error.

`make test-launchers` runs the same with the torchrun and the accelerate of a current PyTorch, whose
programs `TIERFEED_TORCH_BIN` names then. Slurm and MPI come from Debian's packages, which
`scripts/setup.sh` installs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import needs
import node
from conftest import World, make_world

REPOSITORY = Path(__file__).parents[2]
SLURM = REPOSITORY / "scripts/launchers/slurm.sh"
STAND_IN = Path(__file__).with_name("launchers")
TORCH_BIN = os.environ.get("TIERFEED_TORCH_BIN")

# Open MPI starts no processes for root, and no more than there are cores, unless it is told to.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}

PYTHON = f"{TORCH_BIN}/python" if TORCH_BIN else sys.executable

LAUNCHERS = {
    "open-mpi": ["mpirun.openmpi", "-n", "2", PYTHON],
    "mpich": ["mpirun.mpich", "-n", "2", PYTHON],
    "torchrun-stand-in": [PYTHON, str(STAND_IN / "torchrun"), "--nproc-per-node", "2"],
}
if TORCH_BIN:
    accelerate = ["--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"]
    LAUNCHERS |= {
        "torchrun": [f"{TORCH_BIN}/torchrun", "--standalone", "--nproc-per-node", "2"],
        "torch.distributed.run": [
            PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        ],
        "accelerate": [
            f"{TORCH_BIN}/accelerate", "launch", "--multi_gpu", "--dynamo_backend", "no", *accelerate,
        ],
    }  # fmt: skip


def installed(program: str) -> str:
    """The path of a program that the set-up installs."""
    path = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
    assert path is not None, f"{program} is missing: run scripts/setup.sh"
    return path


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


def assert_fed(world: World) -> None:
    """Every rank got its own samples, those of PyTorch's sampler, and all from its agent."""
    for rank in range(world.ranks):
        log = node.Log.read(node.log_path(world), rank)
        log.assert_complete(world, rank)
        origins = {row["origin"] for row in log.batches}
        assert origins == {"agent"}, f"rank {rank}"


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


@pytest.fixture(scope="module")
def slurm() -> Iterator[dict[str, str]]:
    """The environment of a user of a private Slurm with four nodes."""
    if os.geteuid() != 0:
        needs.skip("superuser", "slurmd starts tasks as root only")
    for program in ("slurmctld", "slurmd", "munged", "sbatch"):
        installed(program)
    directory = tempfile.mkdtemp(prefix="slurm.", dir="/tmp")
    subprocess.run([SLURM, "up", directory, "4"], check=True, timeout=node.TIMEOUT_S)
    try:
        yield {**os.environ, "SLURM_CONF": f"{directory}/slurm.conf"}
    finally:
        subprocess.run([SLURM, "down", directory], check=True, timeout=node.TIMEOUT_S)
        shutil.rmtree(directory)


def submit(
    script: str, home: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Runs a job script in `home`, where `tierfeed` and `python` are those of the tests."""
    programs = home / "bin"
    programs.mkdir()
    (programs / "tierfeed").symlink_to(node.command()[0])
    (programs / "python").write_text(f'#!/bin/sh\nexec {PYTHON} "$@"\n')
    (programs / "python").chmod(0o755)
    (home / "train.sh").write_text(script)
    path = f"{programs}:{environment['PATH']}"
    return subprocess.run(
        ["sbatch", "--wait", "--parsable", "--output", "out.txt", "train.sh"],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=node.TIMEOUT_S,
        env={**environment, "PATH": path, "PYTHONPATH": str(REPOSITORY / "python/python")},
    )


def script_of_readme() -> str:
    """The job script, word for word."""
    text = (REPOSITORY / "README.md").read_text()
    found = re.search(r"```sh\n(#!/bin/bash\n#SBATCH.*?)```", text, re.DOTALL)
    assert found is not None, "README has no job script"
    return found.group(1)


def write_training(world: World) -> None:
    (world.job.parent / "train.py").write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        f"import trainer\ntrainer.main({str(node.log_path(world))!r}, 'feed', 0.0)\n"
    )


def test_the_job_script_of_the_readme_feeds_four_nodes(tmp_path, slurm: dict[str, str]) -> None:
    world = make_world(tmp_path, ranks=4, nodes=4)
    write_training(world)
    done = submit(script_of_readme(), tmp_path, slurm)
    said = (tmp_path / "out.txt").read_text()
    assert done.returncode == 0, said
    assert_fed(world)
    assert "never connected" not in said and "directly" not in said
    # Each agent had a run directory of its own, though all run on this host.
    runs = Path(f"/tmp/tierfeed-{os.getuid()}/slurm-{done.stdout.strip()}")
    for number in range(4):
        report = node.report(runs / f"node-{number}")
        assert report["node"] == number and report["steps"] > 0
        assert report["ranks"] == {"expected": 1, "absent": [], "turned_away": 0}
    shutil.rmtree(runs)


def test_tasks_that_are_not_the_ranks_of_the_job_are_refused(
    tmp_path, slurm: dict[str, str]
) -> None:
    world = make_world(tmp_path, ranks=2, nodes=2)
    write_training(world)
    # There will be no agent to wait for.
    script = script_of_readme().replace("exec --", "exec --wait 3s --")
    done = submit(script, tmp_path, slurm)
    said = (tmp_path / "out.txt").read_text()
    assert "SLURM_STEP_NUM_NODES=4 of Slurm" in said and f"world.nodes: 2 in {world.job}:7" in said
    assert done.returncode == 2 and not list(tmp_path.glob("log.*"))
    shutil.rmtree(f"/tmp/tierfeed-{os.getuid()}/slurm-{done.stdout.strip()}")
