"""`docs/tutorial.md`: its scripts and commands, as they stand, but for those that install."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import needs
from cluster import TORCHRUN
from node import command

pytestmark = pytest.mark.node

PAGE = (Path(__file__).parents[2] / "docs/tutorial.md").read_text()
SECTIONS = {text.split("\n", 1)[0]: text for text in PAGE.split("\n## ")[1:]}

# What the scripts use of torchvision, which is no dependency of the tests.
TORCHVISION = {
    "__init__.py": "",
    "transforms.py": """
import numpy, torch

class ToTensor:
    def __call__(self, image):
        return torch.from_numpy(numpy.array(image)).permute(2, 0, 1).float() / 255
""",
    "datasets.py": """
class ImageFolder:
    def __init__(self, root, transform=None):
        self.root, self.transform = root, transform
""",
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Where `tierfeed`, `python` and `torchrun` are those of the tests."""
    needs.module("torch")
    needs.module("PIL.Image")
    (tmp_path / "packages/torchvision").mkdir(parents=True)
    for name, text in TORCHVISION.items():
        (tmp_path / "packages/torchvision" / name).write_text(text)
    (tmp_path / "bin").mkdir()
    python = shlex.quote(sys.executable)
    for name, line in (
        ("python", python),
        ("torchrun", shlex.join(TORCHRUN)),
        ("tierfeed", shlex.join(command())),
    ):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(tmp_path / "packages")}


def test_a_reader_gets_from_images_to_torchrun(tmp_path: Path, environment: dict[str, str]) -> None:
    for name, text in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL):
        # With the line that names the file, as the reader copies it.
        (tmp_path / name).write_text(f"# {name}\n{text}")

    def typed(section: str) -> str:
        """What the commands of a section print."""
        (lines,) = re.findall(r"```sh\n(.*?)```", SECTIONS[section], re.DOTALL)[:1]
        done = subprocess.run(
            ["bash", "-e", "-c", lines],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{lines}: {done.stderr}"
        return done.stdout + done.stderr

    typed("2 Images")
    told = typed("4 A job for it")
    shown = re.findall(r"```text\n(.*?)```", SECTIONS["4 A job for it"], re.DOTALL)[0]
    assert [line for line in shown.splitlines() if line not in told.splitlines()] == []
    script = tmp_path / "train.py"
    changed, started = re.findall(r"```python\n(.*?)```", SECTIONS["5 Run"], re.DOTALL)[0].split("\n\n")
    (before,) = re.findall(r"^loader = .*$", script.read_text(), re.MULTILINE)
    script.write_text(f"{changed}\n{script.read_text().replace(before, started.strip())}")
    told = typed("5 Run")
    assert re.findall(r"epoch \d", told) == ["epoch 0", "epoch 1", "epoch 2"]
    assert "75 of 75 batches served by the agent" in told
    told = typed("6 Several processes")
    assert sorted(re.findall(r"rank \d, epoch 2: \d+ batches", told)) == [
        "rank 0, epoch 2: 13 batches",
        "rank 1, epoch 2: 13 batches",
    ]
    runs = sorted((tmp_path / ".tierfeed/runs").glob("*/report.json"), key=os.path.getmtime)
    report = json.loads(runs[-1].read_text())
    assert report["steps"] == 2 * 3 * 13
