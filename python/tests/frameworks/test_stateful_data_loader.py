"""`StatefulDataLoader` of torchdata around a loader: it stops and goes on exactly where it was."""

from __future__ import annotations

import pickle

import pytest

import needs

needs.module("torch")
stateful = needs.module("torchdata.stateful_dataloader")

from conftest import World  # noqa: E402
from tierfeed.torch import TierLoader  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:tierfeed. reading:RuntimeWarning")


def around(world: World) -> stateful.StatefulDataLoader:
    loader = TierLoader(world.direct(), decode=lambda sample, _: sample.id, collate=list)
    return stateful.StatefulDataLoader(loader.as_dataset(), batch_size=None, num_workers=0)


def test_a_loader_has_the_protocol_itself(world: World) -> None:
    loader = TierLoader(world.direct())
    assert isinstance(loader, stateful.stateful.Stateful)
    assert isinstance(loader.as_dataset(), stateful.stateful.Stateful)


@pytest.mark.parametrize("stop", [0, 7, 13, 20])
def test_it_goes_on_exactly_where_it_was(world: World, stop: int) -> None:
    expected = [batch for epoch in range(3) for batch in world.torch_order(epoch, 0)]
    loader, given = around(world), []
    while len(given) < stop:
        for batch in loader:
            given.append(batch)
            if len(given) == stop:
                break
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    resumed = around(world)
    resumed.load_state_dict(state)
    while len(given) < len(expected):
        before = len(given)
        given.extend(resumed)
        assert len(given) > before, "no empty pass"
    assert given == expected
