"""Accelerate: a loader is sharded once, and `save_state` and `load_state` keep its position."""

from __future__ import annotations

from pathlib import Path

import pytest

import needs

needs.module("torch")
accelerate = needs.module("accelerate")

from conftest import World  # noqa: E402
from tierfeed.torch import TierLoader  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def numbers(world: World) -> TierLoader:
    return TierLoader(world.direct(), decode=lambda sample, _: sample.id, collate=list)


def test_a_loader_passes_through_prepare_as_it_is(world: World) -> None:
    loader = numbers(world)
    accelerator = accelerate.Accelerator(cpu=True)
    assert accelerator.prepare(loader) is loader, "so it is not sharded again"


@pytest.mark.parametrize("stop", [7, 13, 20])
def test_a_state_of_accelerate_has_the_position(world: World, tmp_path: Path, stop: int) -> None:
    expected = [batch for epoch in range(3) for batch in world.torch_order(epoch, 0)]
    loader, given = numbers(world), []
    accelerator = accelerate.Accelerator(cpu=True)
    accelerator.register_for_checkpointing(loader)
    while len(given) < stop:
        for batch in loader:
            given.append(batch)
            if len(given) == stop:
                break
    accelerator.save_state(str(tmp_path / "state"))
    resumed = numbers(world)
    again = accelerate.Accelerator(cpu=True)
    again.register_for_checkpointing(resumed)
    again.load_state(str(tmp_path / "state"))
    while len(given) < len(expected):
        given.extend(resumed)
    assert given == expected
