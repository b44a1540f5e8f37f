"""Trainings on several nodes, started as on a cluster: by Slurm, mpirun and torchrun, on this host.

Every batch of every rank comes from the agent of its node, and is that of PyTorch's sampler. `make
test-cluster` runs these alone; with `TIERFEED_TORCH_BIN` torchrun is that of a current PyTorch.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import needs
import node
from cluster import (
    OPEN_MPI,
    REPOSITORY,
    STAND_IN,
    assert_fed,
    installed,
    private_slurm,
    put_programs,
    scripts_in,
    submit,
    write_training,
)
from conftest import World, make_world


@pytest.fixture(scope="module")
def slurm() -> Iterator[dict[str, str]]:
    """The environment of a user of a private Slurm with four nodes."""
    with private_slurm() as environment:
        yield environment


def job_report(home: Path) -> dict[str, Any]:
    """The report of the only job that ran in `home`."""
    (found,) = (home / ".tierfeed/runs").iterdir()
    assert not (found / "rendezvous").exists(), "the address of an ended manager is left behind"
    report: dict[str, Any] = json.loads((found / "report.json").read_text())
    return report


def assert_whole(report: dict[str, Any], world: World, nodes: int) -> None:
    """The report has every node and every rank, with all batches that each was given."""
    assert report["ended_with"] == 0 and report["silent_nodes"] == [], report["verdict"]
    assert [it["node"] for it in report["nodes"]] == list(range(nodes))
    batches = {it["rank"]: it["batches"] for of in report["nodes"] for it in of["ranks"]}
    expected = {rank: len(node.Log.read(node.log_path(world), rank).batches) for rank in batches}
    assert batches == expected and len(batches) == world.ranks
    assert report["used_batches"] == sum(expected.values())
    assert "waited" in report["verdict"]


def run_in(world: World, line: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Starts a command beside the job, where the programs are those of the tests."""
    home = world.job.parent
    write_training(world)
    path = f"{put_programs(home)}:{os.environ['PATH']}"
    paths = {"PATH": path, "PYTHONPATH": str(REPOSITORY / "python/python")}
    return subprocess.run(
        line,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=node.TIMEOUT_S,
        env={**os.environ, **OPEN_MPI, **paths, **variables},
    )


def test_the_job_script_of_the_readme_feeds_four_nodes(tmp_path, slurm: dict[str, str]) -> None:
    world = make_world(tmp_path, ranks=4, nodes=4)
    write_training(world)
    (script,) = scripts_in("README.md")
    done = submit(script, tmp_path, slurm)
    said = (tmp_path / "out.txt").read_text()
    assert done.returncode == 0, said
    assert_fed(world)
    assert_whole(job_report(tmp_path), world, nodes=4)
    assert "never connected" not in said and "directly" not in said
    assert "report.txt" in said, "where the report of the job is, is printed"


def test_the_parts_apart_feed_four_nodes(tmp_path, slurm: dict[str, str]) -> None:
    world = make_world(tmp_path, ranks=4, nodes=4)
    write_training(world)
    (script,) = scripts_in("docs/launch.md")
    done = submit(script, tmp_path, slurm)
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
    (script,) = scripts_in("docs/launch.md")
    # There will be no agent to wait for.
    done = submit(script.replace("exec --", "exec --wait 3s --"), tmp_path, slurm)
    said = (tmp_path / "out.txt").read_text()
    assert "SLURM_STEP_NUM_NODES=4 of Slurm" in said and f"world.nodes: 2 in {world.job}:7" in said
    assert done.returncode == 2 and not list(tmp_path.glob("log.*"))
    shutil.rmtree(f"/tmp/tierfeed-{os.getuid()}/slurm-{done.stdout.strip()}")


SBATCH = "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node="


def test_srun_may_start_a_task_for_each_rank(tmp_path, slurm: dict[str, str]) -> None:
    world = make_world(tmp_path, ranks=4, nodes=2)
    write_training(world)
    done = submit(f"{SBATCH}2\nsrun tierfeed run job.yaml -- python train.py\n", tmp_path, slurm)
    assert done.returncode == 0, (tmp_path / "out.txt").read_text()
    assert_fed(world)
    assert_whole(job_report(tmp_path), world, nodes=2)


def test_torchrun_on_two_nodes_is_told_where_they_meet(tmp_path, slurm: dict[str, str]) -> None:
    world = make_world(tmp_path, ranks=4, nodes=2)
    write_training(world)
    line = "srun tierfeed run job.yaml -- torchrun --nproc-per-node 2 train.py"
    done = submit(f"{SBATCH}1\n{line}\n", tmp_path, slurm)
    assert done.returncode == 0, (tmp_path / "out.txt").read_text()
    assert_fed(world)
    assert_whole(job_report(tmp_path), world, nodes=2)


def test_a_rank_that_fails_ends_the_job_with_its_code(tmp_path, slurm: dict[str, str]) -> None:
    world = make_world(tmp_path, ranks=4, nodes=2)
    (tmp_path / "train.py").write_text(
        "import os, sys, time\nsys.exit(7) if os.environ['RANK'] == '3' else time.sleep(600)\n"
    )
    done = submit(f"{SBATCH}1\nsrun tierfeed run job.yaml -- python train.py\n", tmp_path, slurm)
    said = (tmp_path / "out.txt").read_text()
    assert done.returncode == 7, said
    assert "node 1 (" in said and "ended with code 7" in said
    assert job_report(world.job.parent)["ended_with"] == 7


def test_a_job_that_is_cancelled_leaves_no_process(tmp_path, slurm: dict[str, str]) -> None:
    make_world(tmp_path, ranks=4, nodes=2)
    (tmp_path / "train.py").write_text("import time\ntime.sleep(600)\n")
    ready = "until ls .tierfeed/runs/*/node-1/trainer.json; do sleep 0.1; done"
    scancel = f"({ready}; sleep 1; scancel $SLURM_JOB_ID)"
    script = f"{SBATCH}2\n{scancel} &\nsrun tierfeed run job.yaml -- python train.py\n"
    done = submit(script, tmp_path, slurm)
    assert done.returncode != 0
    deadline = time.monotonic() + node.TIMEOUT_S
    while left := processes_in(tmp_path):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_signal_of_slurm_reaches_ranks_that_save_and_end_well(
    tmp_path, slurm: dict[str, str], tasks: int
) -> None:
    make_world(tmp_path, ranks=4, nodes=2)
    (tmp_path / "train.py").write_text(
        "import os, pathlib, signal, sys, time\n"
        "def save(*_):\n"
        "    pathlib.Path('saved.' + os.environ['RANK']).touch()\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGUSR1, save)\n"
        "pathlib.Path('ready.' + os.environ['RANK']).touch()\n"
        "while True:\n"
        "    time.sleep(1)\n"
    )
    ready = "until [ $(ls ready.* | wc -l) = 4 ]; do sleep 0.1; done"
    signal = f"({ready}; scancel --signal=USR1 $SLURM_JOB_ID.0)"
    script = f"{SBATCH}{tasks}\n{signal} &\nsrun tierfeed run job.yaml -- python train.py\n"
    done = submit(script, tmp_path, slurm)
    assert done.returncode == 0, (tmp_path / "out.txt").read_text()
    assert len(list(tmp_path.glob("saved.*"))) == 4
    assert not processes_in(tmp_path)


def processes_in(home: Path) -> list[str]:
    """The command lines of processes that work in a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve() == home:
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def sample_of_site(name: str, local_disk: Path) -> str:
    """A file of `configs/slurm`, with the paths of this test."""
    text = (REPOSITORY / "configs/slurm" / name).read_text()
    return text.replace("/usr/local/bin/tierfeed", node.command()[0]).replace(
        "/local/tierfeed", str(local_disk)
    )


# Slurm gives root no burst buffer.
NOBODY = 65534


def test_the_samples_for_a_site_prepare_a_job_and_clean_up_after_it() -> None:
    names = ["burst_buffer.lua", "prolog.sh", "epilog.sh"]
    configuration = (
        "BurstBufferType=burst_buffer/lua\nProlog=DIR/prolog.sh\nEpilog=DIR/epilog.sh\n"
        "PrologFlags=Alloc\n"
    )
    begin = "#!/bin/bash\n#SBATCH --nodes=4 --ntasks-per-node=1\n"
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        home, disk = Path(folder), Path(folder, "disk")
        world, index = make_world(home, ranks=4, nodes=4), home / "a.tfx"
        index_key = f"format: image-folder\n  index: {index}"
        world.job.write_text(world.job.read_text().replace("format: image-folder", index_key))
        subprocess.run(["chown", "--recursive", str(NOBODY), home], check=True)
        files = {name: sample_of_site(name, disk) for name in names}
        body = f"test -s {index} && touch {disk}/mine && ls -d {disk}\n"
        with private_slurm(configuration, files) as slurm:
            job = f"#BB_LUA tierfeed job={world.job}\n"
            done = submit(f"{begin}{job}{body}", home, slurm, user=NOBODY)
            assert done.returncode == 0, done.stderr
            assert str(disk) in (home / "out.txt").read_text()
            deadline = time.monotonic() + node.TIMEOUT_S
            while disk.exists():
                assert time.monotonic() < deadline, "the epilog leaves the directory of the job"
                time.sleep(0.05)
            script = f"{begin}#BB_LUA tierfeed index\n{body}"
            refused = submit(script, home, slurm, user=NOBODY)
            assert refused.returncode != 0
            assert "#BB_LUA tierfeed job=" in refused.stderr, refused.stderr


def test_the_epilog_frees_what_its_job_left_and_nothing_else(tmp_path) -> None:
    if os.geteuid() != 0:
        needs.skip("superuser", "only root mounts and is another user")
    user, job = 64321, "4711"
    outer = tmp_path / f"runs/one-slurm-{job}.0-1-2/scratch"
    nested, other = outer / "node-0/scratch", tmp_path / "runs/one-slurm-4712.0-1-2/scratch"
    victim, disk = tmp_path / "victim" / f"slurm-{job}", tmp_path / "disk"
    own = Path(f"/tmp/tierfeed-{user}")
    for folder in (victim, disk):
        folder.mkdir(parents=True)
    own.symlink_to(victim.parent)
    mounted: list[Path] = []
    try:
        for folder in (outer, nested, other):
            folder.mkdir(parents=True)
            subprocess.run(["mount", "-t", "tmpfs", "tierfeed-scratch", folder], check=True)
            mounted.append(folder)
        variables = {
            **{"SLURM_JOB_ID": job, "SLURM_JOB_UID": str(user), "TIERFEED_LOCAL_DISK": str(disk)},
            "PATH": os.environ["PATH"],
        }
        for of_disk, is_left in (("4712", True), (job, False)):
            Path(f"{disk}.job").write_text(f"{of_disk} boot\n")
            epilog = ["bash", str(REPOSITORY / "configs/slurm/epilog.sh")]
            subprocess.run(epilog, env=variables, check=True)
            assert disk.exists() == is_left
        assert [os.path.ismount(it) for it in (outer, other)] == [False, True]
        assert victim.exists()
    finally:
        for folder in reversed([it for it in mounted if os.path.ismount(it)]):
            subprocess.run(["umount", folder], check=True)
        own.unlink()


def of_local_disk(script: str, disk: Path, job: str = "4711", user: int = 64321) -> None:
    """Runs the prolog or the epilog of a job."""
    variables = {
        **{"SLURM_JOB_ID": job, "SLURM_JOB_UID": str(user), "TIERFEED_LOCAL_DISK": str(disk)},
        "PATH": os.environ["PATH"],
    }
    command = ["bash", str(REPOSITORY / "configs/slurm" / script)]
    subprocess.run(command, env=variables, check=True)


def owner_and_mode(path: Path) -> tuple[int, int]:
    return path.stat().st_uid, path.stat().st_mode & 0o777


def test_the_prolog_gives_an_empty_directory_to_one_job(tmp_path) -> None:
    if os.geteuid() != 0:
        needs.skip("superuser", "only root gives a directory to another user")
    disk = tmp_path / "site/of/disk"
    mark = Path(f"{disk}.job")
    of_local_disk("prolog.sh", disk)
    assert owner_and_mode(disk) == (64321, 0o700), "also without the directory above it"
    of_local_disk("prolog.sh", disk, job="4712", user=64322)
    of_local_disk("epilog.sh", disk, job="4712", user=64322)
    assert owner_and_mode(disk) == (64321, 0o700) and mark.read_text().startswith("4711 ")
    of_local_disk("epilog.sh", disk)
    assert not disk.exists() and not mark.exists()

    disk.mkdir(mode=0o755)
    of_local_disk("prolog.sh", disk, job="4713")
    assert owner_and_mode(disk) == (64321, 0o700), "the site has made it"
    of_local_disk("epilog.sh", disk, job="4713")

    disk.mkdir()
    (disk / "mine").touch()
    of_local_disk("prolog.sh", disk)
    assert owner_and_mode(disk)[0] == 0 and not mark.exists() and (disk / "mine").exists()

    (disk / "mine").rename(tmp_path / "mine")
    disk.rmdir()
    victim = tmp_path / "victim"
    victim.mkdir()
    disk.symlink_to(victim)
    of_local_disk("prolog.sh", disk)
    assert owner_and_mode(victim)[0] == 0 and not mark.exists(), "a link is not followed"


def test_a_mount_point_is_emptied_and_given_to_the_next_job(tmp_path) -> None:
    if os.geteuid() != 0:
        needs.skip("superuser", "only root mounts and is another user")
    disk = tmp_path / "disk"
    mark, busy = Path(f"{disk}.job"), disk / "busy"
    disk.mkdir()
    tmpfs = ["mount", "-t", "tmpfs", "tierfeed-test"]
    subprocess.run([*tmpfs, disk], check=True)
    try:
        of_local_disk("prolog.sh", disk)
        assert owner_and_mode(disk) == (64321, 0o700)
        busy.mkdir()
        (disk / "file").touch()
        subprocess.run([*tmpfs, busy], check=True)
        of_local_disk("epilog.sh", disk)
        assert list(disk.iterdir()) == [busy] and mark.exists(), "what could not be removed stays"
        of_local_disk("prolog.sh", disk, job="4712", user=64322)
        assert owner_and_mode(disk) == (0, 0o700), "and is given to no one"
        subprocess.run(["umount", busy], check=True)
        of_local_disk("epilog.sh", disk)
        assert not list(disk.iterdir()) and not mark.exists() and disk.is_mount()
        of_local_disk("prolog.sh", disk, job="4712", user=64322)
        assert owner_and_mode(disk) == (64322, 0o700)
    finally:
        for folder in (busy, disk):
            if folder.is_mount():
                subprocess.run(["umount", folder], check=True)


# Open MPI reaches its hosts by this instead of ssh, and takes each for another one. Its daemons do not
# share the topology of the host: on some kernels the hole that Open MPI 4.1 finds for it in its address
# space is none, and writing there kills the daemon.
REMOTE = [
    *("--mca", "plm_rsh_agent", str(STAND_IN / "rsh")),
    *("--mca", "rtc_hwloc_vmhole", "none"),
]


@pytest.mark.parametrize("tasks", [1, 2])
def test_open_mpi_starts_nodes_or_ranks(tmp_path, tasks: int) -> None:
    world = make_world(tmp_path, ranks=4, nodes=2)
    hosts = f"one:{tasks},two:{tasks}"
    mpirun = [
        installed("mpirun.openmpi"),
        *REMOTE,
        "--host",
        hosts,
        "-n",
        str(2 * tasks),
    ]
    done = run_in(world, [*mpirun, "tierfeed", "run", "job.yaml", "--", "python", "train.py"])
    assert done.returncode == 0, done.stderr
    assert_fed(world)
    assert_whole(job_report(tmp_path), world, nodes=2)


def test_mpich_starts_ranks_that_meet_in_a_directory(tmp_path) -> None:
    world = make_world(tmp_path, ranks=4, nodes=2)
    mpirun = [
        installed("mpirun.mpich"),
        "-launcher",
        "fork",
        "-hosts",
        "one,two",
        "-ppn",
        "2",
    ]
    run = [
        "tierfeed",
        "run",
        "job.yaml",
        "--run-dir",
        "here",
        "--",
        "python",
        "train.py",
    ]
    done = run_in(world, [*mpirun, "-n", "4", *run])
    assert done.returncode == 0, done.stderr
    assert_fed(world)
    assert_whole(json.loads((tmp_path / "here/report.json").read_text()), world, nodes=2)
