"""`tierfeed init`: the line that it prints is written, and the training is run with its job file."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

import needs
from node import command

pytestmark = pytest.mark.node

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

from pixels import to_tensor

images = ImageFolder("photos", transform=to_tensor)
loader = DataLoader(images, batch_size=4, shuffle=True)
network = torch.nn.Linear(3 * 8 * 8, 2)
optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
for epoch in range(2):
    for pixels, labels in loader:
        loss = torch.nn.functional.cross_entropy(network(pixels.flatten(1)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {len(labels)} samples in the last batch")
"""

# What the script needs of torchvision, which is not a dependency of the tests.
TORCHVISION = """\
class ImageFolder:
    def __init__(self, root, transform=None):
        self.root, self.transform = root, transform
"""

PIXELS = """\
import numpy
import torch

def to_tensor(image):
    return torch.from_numpy(numpy.array(image)).float() / 255
"""

SAMPLES = 18


@pytest.fixture
def project(tmp_path: Path) -> Path:
    needs.module("torch")
    image = needs.module("PIL.Image")
    pixels = numpy.random.default_rng(3)
    for number in range(SAMPLES):
        path = tmp_path / "project/photos" / ("cat" if number % 2 else "dog") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.fromarray(pixels.integers(0, 256, (8, 8, 3), "u1")).save(path)
    (tmp_path / "elsewhere/torchvision").mkdir(parents=True)
    (tmp_path / "elsewhere/torchvision/__init__.py").touch()
    (tmp_path / "elsewhere/torchvision/datasets.py").write_text(TORCHVISION)
    (tmp_path / "project/pixels.py").write_text(PIXELS)
    (tmp_path / "project/train.py").write_text(SCRIPT)
    return tmp_path / "project"


def init(folder: Path, *arguments: str) -> dict[str, Any]:
    line = command("init", "--probe", "never", "--json", *arguments)
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def test_a_script_with_the_line_that_it_is_told_is_served_by_the_agent(project: Path) -> None:
    made = init(project)
    assert made["warnings"] == []
    script = project / "train.py"
    before = "loader = DataLoader(images, batch_size=4, shuffle=True)"
    written = made["hint"]["line"].replace("decoder(transform)", "decoder(to_tensor)")
    script.write_text(made["hint"]["import"] + "\n" + SCRIPT.replace(before, written))
    env = {**os.environ, "PYTHONPATH": str(project.parent / "elsewhere")}
    line = command("run", "job.yaml", "--run-dir", "run", "--", sys.executable, "train.py")
    done = subprocess.run(line, cwd=project, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"epoch 0: {SAMPLES % 4} samples in the last batch"
    report = json.loads((project / "run/report.json").read_text())
    assert (report["steps"], report["samples"]) == (10, 2 * SAMPLES)
    assert "10 of 10 batches served by the agent" in done.stderr + done.stdout


def test_on_a_terminal_it_asks_for_what_it_does_not_know(project: Path) -> None:
    script = project / "train.py"
    script.write_text(SCRIPT.replace("batch_size=4", "batch_size=len(images)"))
    (project / "other").mkdir()
    (project / "other/train.py").write_text(SCRIPT)
    parent, child = pty.openpty()
    line = command("init", "--probe", "never")
    with subprocess.Popen(
        line, cwd=project, stdin=child, stdout=subprocess.PIPE, stderr=child, text=True
    ) as asking:
        # An empty answer is the default, the script that lies nearer; then a wrong number, and one.
        os.write(parent, b"\nmany\n6\n")
        output, _ = asking.communicate(timeout=60)
    asked = os.read(parent, 1 << 16).decode()
    os.close(child)
    os.close(parent)
    assert asking.returncode == 0, asked
    assert "the training script, by its number [1]:" in asked
    assert asked.count("batch_size (train.py:8 does not say it) [32]:") == 2
    assert "batch_size: 6\n" in (project / "job.yaml").read_text()
    assert "assumed     batch_size" not in output
