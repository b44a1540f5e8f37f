"""What tests of launchers share: the launchers of this machine, and a private Slurm with four nodes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import needs
import node
from conftest import World

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
TORCHRUN = [f"{TORCH_BIN}/torchrun"] if TORCH_BIN else [PYTHON, str(STAND_IN / "torchrun")]


def installed(program: str) -> str:
    """The path of a program that the set-up installs."""
    path = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
    assert path is not None, f"{program} is missing: run scripts/setup.sh"
    return path


def assert_fed(world: World) -> None:
    """Every rank got its own samples, those of PyTorch's sampler, and all from its agent."""
    for rank in range(world.ranks):
        log = node.Log.read(node.log_path(world), rank)
        log.assert_complete(world, rank)
        origins = {row["origin"] for row in log.batches}
        assert origins == {"agent"}, f"rank {rank}"


@contextmanager
def private_slurm(
    configuration: str = "", files: dict[str, str] | None = None
) -> Iterator[dict[str, str]]:
    """The environment of a user of a private Slurm with four nodes.

    There are more lines of `slurm.conf`, and files beside it; `DIR` stands for its directory.
    """
    if os.geteuid() != 0:
        needs.skip("superuser", "slurmd starts tasks as root only")
    for program in ("slurmctld", "slurmd", "munged", "sbatch"):
        installed(program)
    directory = tempfile.mkdtemp(prefix="slurm.", dir="/tmp")
    Path(directory).chmod(0o755)
    for name, text in {**(files or {}), "more.conf": configuration}.items():
        path = Path(directory, name)
        path.write_text(text.replace("DIR/", f"{directory}/"))
        path.chmod(0o755)
    up = [SLURM, "up", directory, "4", f"{directory}/more.conf"]
    subprocess.run(up, check=True, timeout=node.TIMEOUT_S)
    try:
        yield {**os.environ, "SLURM_CONF": f"{directory}/slurm.conf"}
    finally:
        subprocess.run([SLURM, "down", directory], check=True, timeout=node.TIMEOUT_S)
        shutil.rmtree(directory)


def put_programs(home: Path) -> Path:
    """A folder for `PATH` where `tierfeed`, `python` and `torchrun` are those of the tests."""
    programs = home / "bin"
    programs.mkdir(exist_ok=True)
    if not (programs / "tierfeed").exists():
        (programs / "tierfeed").symlink_to(node.command()[0])
    for name, line in (("python", [PYTHON]), ("torchrun", TORCHRUN)):
        (programs / name).write_text(f'#!/bin/sh\nexec {" ".join(line)} "$@"\n')
        (programs / name).chmod(0o755)
    return programs


def submit(
    script: str, home: Path, environment: dict[str, str], user: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a job script in `home`, where the programs are those of the tests."""
    programs = put_programs(home)
    (home / "train.sh").write_text(script)
    path = f"{programs}:{environment['PATH']}"
    return subprocess.run(
        ["sbatch", "--wait", "--parsable", "--output", "out.txt", "train.sh"],
        cwd=home,
        user=user,
        capture_output=True,
        text=True,
        timeout=node.TIMEOUT_S,
        env={**environment, "PATH": path, "PYTHONPATH": str(REPOSITORY / "python/python")},
    )


def scripts_in(page: str) -> list[str]:
    """The job scripts of a page of the documentation, word for word."""
    text = (REPOSITORY / page).read_text()
    found = re.findall(r"```sh\n(#!/bin/bash\n#SBATCH.*?)```", text, re.DOTALL)
    assert found, f"{page} has no job script"
    return [str(script) for script in found]


def write_training(world: World) -> None:
    """A `train.py` beside the job."""
    (world.job.parent / "train.py").write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        f"import trainer\ntrainer.main({str(node.log_path(world))!r}, 'feed', 0.0)\n"
    )
