"""The wheel of this build, in an environment that holds nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import venv
from pathlib import Path

import pytest

from conftest import SEED

ROOT = Path(__file__).resolve().parents[2]
TRAINER = """
import sys, tierfeed
assert tierfeed.__file__.startswith(sys.prefix), tierfeed.__file__
feed = tierfeed.connect()
read = [bytes(sample) for epoch in range(2) for batch in feed.epoch(epoch) for sample in batch]
print(len(read), sum(map(len, read)))
"""


def said(*command: str | Path, **settings: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **settings)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return str(done.stdout)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    settings = {**os.environ, "TIERFEED_PROFILE": "dev", "CARGO_TARGET_DIR": target}
    wheel = said(ROOT / "scripts/wheel.sh", folder / "built", env=settings).strip()
    assert wheel.endswith("-cp311-abi3-manylinux_2_34_x86_64.whl")
    venv.create(folder / "empty", with_pip=True)
    said(folder / "empty/bin/pip", "install", "--no-index", "--quiet", wheel)
    return folder / "empty"


def alone(environment: Path) -> dict[str, str]:
    """Variables that lead to no other tierfeed."""
    return {"PATH": f"{environment}/bin:/usr/bin:/bin", "HOME": str(environment)}


def test_a_wheel_brings_the_program_and_all_that_it_links_but_glibc(environment: Path) -> None:
    assert said("tierfeed", "--version", env=alone(environment)).startswith("tierfeed ")
    package = next(environment.glob("lib/python3*/site-packages/tierfeed"))
    linked = said("ldd", package / "_bin/tierfeed", env=alone(environment))
    glibc = ("linux-vdso", "libc.so", "libm.so", "libgcc_s.so", "ld-linux")
    ours = [line for line in linked.splitlines() if not any(name in line for name in glibc)]
    assert ours and all(f"{environment}/" in line for line in ours), linked
    # What is for TensorFlow finds it in the process, and links nothing of it.
    linked = said("ldd", package / "_tensorflow.so", env=alone(environment))
    assert not [line for line in linked.splitlines() if not any(name in line for name in glibc)]


def test_the_doctor_of_a_wheel_judges_this_machine(environment: Path) -> None:
    document = subprocess.run(
        ["tierfeed", "doctor", "--json"], env=alone(environment), capture_output=True, timeout=120
    )
    assert document.returncode in (0, 1), document.stderr
    assert json.loads(document.stdout)


def test_a_job_runs_in_an_environment_that_holds_the_wheel_only(
    environment: Path, tmp_path: Path
) -> None:
    (tmp_path / "data/a").mkdir(parents=True)
    for number in range(40):
        (tmp_path / f"data/a/{number:02}.jpg").write_bytes(bytes([number]) * (100 + number))
    job = tmp_path / "job.yaml"
    job.write_text(
        "name: wheel\n"
        f"dataset: {{ source: {tmp_path}/data, format: image-folder }}\n"
        f"order: {{ shuffle: torch-distributed, seed: {SEED}, epochs: 2 }}\n"
        "batch_size: 8\nworld: { nodes: 1, ranks_per_node: 1 }\nchunk: 1 MiB\n"
    )
    (tmp_path / "train.py").write_text(TRAINER)
    length = 2 * sum(100 + number for number in range(40))
    output = said(
        "tierfeed", "run", job, "--run-dir", tmp_path / "run", "--", "python", tmp_path / "train.py",
        env=alone(environment),
        cwd=tmp_path,
    )  # fmt: skip
    assert output.splitlines()[0] == f"80 {length}"
    report = json.loads((tmp_path / "run/report.json").read_text())
    assert report["samples"] == 80 and report["bytes"] == length


def test_three_lines_lead_from_nothing_to_the_first_batch(environment: Path) -> None:
    (wheel,) = (environment.parent / "built").glob("*.whl")
    told = said(ROOT / "scripts/first-batch.sh", wheel)
    assert re.fullmatch(
        r"environment [\d.]+ s, wheel [\d.]+ s, first batch [\d.]+ s \(32 samples by the agent\);"
        r" together [\d.]+ s\n",
        told,
    )
