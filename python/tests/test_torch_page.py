"""The training script of docs/frameworks/pytorch.md: as it stands, killed, and started again."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import needs
import node

sys.path.append(str(Path(__file__).with_name("frameworks")))
import page

needs.module("PIL")
pytestmark = pytest.mark.node


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script over an image folder of 96 pictures, in an empty working directory."""
    from PIL import Image

    generator = random.Random(1)
    for number in range(96):
        path = tmp_path / "train" / f"class{number % 4}" / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.frombytes("RGB", (20, 16), generator.randbytes(20 * 16 * 3)).save(path)
    path = tmp_path / "train.py"
    path.write_text(page.script("pytorch", "/data/train", str(tmp_path / "train")))
    return path


def start(script: Path, folder: str) -> subprocess.Popen[str]:
    place = script.with_name(folder)
    place.mkdir(exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, str(script)], cwd=place, env=environment, stdout=subprocess.PIPE, text=True
    )


def printed(training: subprocess.Popen[str]) -> list[str]:
    output, _ = training.communicate(timeout=node.TIMEOUT_S)
    assert training.returncode == 0
    return output.splitlines()


def test_a_training_that_is_killed_and_started_again_ends_with_the_same_losses(script: Path) -> None:
    whole = printed(start(script, "whole"))
    assert [line.partition(":")[0] for line in whole] == ["epoch 0", "epoch 1", "epoch 2"]
    killed = start(script, "killed")
    node.wait_for(script.with_name("killed").joinpath("checkpoint.pt").exists, "a checkpoint")
    killed.kill()
    before = killed.communicate()[0].splitlines()
    again = printed(start(script, "killed"))
    assert before + again == whole
    assert printed(start(script, "killed")) == [], "all epochs were trained"
