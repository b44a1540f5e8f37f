"""The vectors of sample orders are what the installed PyTorch and NumPy give."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import needs

SCRIPT = Path(__file__).parents[2] / "scripts" / "fixtures" / "orders.py"


def load() -> ModuleType:
    """By its path: the folder has scripts with the names of packages."""
    needs.module("torch")
    spec = importlib.util.spec_from_file_location("orders", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name",
    [
        "randperm.json",
        "engine.json",
        "distributed_sampler.json",
        "dataloader.json",
        "dataloader_rng.json",
        "numpy_mosaic_shuffle.json",
    ],
)
def test_the_library_gives_every_case_of_the_vectors_again(name: str) -> None:
    count, wrong = load().differing(name)
    assert count > 0
    assert wrong == []
