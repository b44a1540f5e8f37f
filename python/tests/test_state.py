"""A saved position names the whole order: another one is refused, and its part is named."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import tierfeed
from conftest import World, make_world
from tierfeed.torch import TierLoader

pytestmark = pytest.mark.filterwarnings("ignore:tierfeed. reading:RuntimeWarning")


def of(root: Path, shuffle: str, order: str) -> World:
    return make_world(root, shuffle=shuffle, order=order)


def state_after(world: World, batches: int) -> tuple[tierfeed.Feed, dict[str, Any]]:
    feed = world.direct()
    loader = TierLoader(feed)
    for _ in zip(range(batches), loader, strict=False):
        pass
    return feed, loader.state_dict()


@pytest.mark.parametrize(
    ("shuffle", "saved", "loaded", "named"),
    [
        ("mosaic", "shard_samples: 10", "shard_samples: 20", "shard_samples 10; this job has 20"),
        ("mosaic", "shard_samples: 10, algorithm: py1br", "shard_samples: 10", "algorithm 'py1br'"),
        (
            "mosaic",
            "shard_samples: 10, canonical_nodes: 2",
            "shard_samples: 10, canonical_nodes: 4",
            "canonical_nodes 2; this job has 4",
        ),
        (
            "mosaic",
            "shard_samples: 10, shuffle_block: 10",
            "shard_samples: 10, shuffle_block: 20",
            "shuffle_block 10",
        ),
        ("block", "shard_samples: 10, window: 20", "shard_samples: 10, window: 30", "window 20"),
        ("tf-shuffle", "buffer: 10", "buffer: 20", "buffer 10; this job has 20"),
        ("tf-shuffle", "buffer: 10", "buffer: 10, global_seed: 5", "global_seed"),
        ("tf-index", "second_seed: 1", "second_seed: 2", "second_seed 1"),
        ("torch-random", "generator: loader", "generator: sampler", "generator 'loader'"),
        ("torch-distributed", "drop_last: true", "drop_last: false", "drop_last True"),
    ],
)
def test_a_state_of_another_order_is_refused_with_the_part_that_differs(
    tmp_path: Path, shuffle: str, saved: str, loaded: str, named: str
) -> None:
    _, state = state_after(of(tmp_path / "a", shuffle, saved), 3)
    feed = of(tmp_path / "b", shuffle, loaded).direct()
    # The same files elsewhere: another dataset by its paths, the same by its samples.
    state = json.loads(json.dumps({**state, "fingerprint": feed.fingerprint}))
    with pytest.raises(tierfeed.Reconfigure, match=f"the state was saved with {named}"):
        TierLoader(feed).load_state_dict(state)


def test_a_state_of_the_same_order_goes_on_by_any_way_that_keeps_it(tmp_path: Path) -> None:
    world = of(tmp_path, "mosaic", "shard_samples: 10")
    feed, state = state_after(world, 3)
    for kept in (state, json.loads(json.dumps(state))):
        loader = TierLoader(world.direct(), decode=lambda sample, _: sample.id, collate=list)
        loader.load_state_dict(kept)
        assert list(loader) == [feed.order.batch(0, step, 0) for step in range(3, 13)]


def test_a_job_that_has_more_epochs_goes_on_with_the_state(tmp_path: Path) -> None:
    world = make_world(tmp_path, epochs=2)
    _, state = state_after(world, 3)
    world.job.write_text(world.job.read_text().replace("epochs: 2", "epochs: 5"))
    longer = TierLoader(world.direct())
    longer.load_state_dict(state)
    assert (longer.epoch, longer.epochs_left) == (0, range(5))


def test_a_state_of_an_earlier_release_is_taken_as_far_as_it_says_and_that_is_said(
    world: World,
) -> None:
    _, state = state_after(world, 3)
    order = state.pop("order")
    del state["nodes"]
    state |= {"version": 2, "seed": order["seed"], "shuffle": order["shuffle"]}
    loader = TierLoader(world.direct())
    with pytest.warns(RuntimeWarning, match="an earlier release, and names of its order only") as said:
        loader.load_state_dict(state)
    assert said[0].filename == __file__
    assert len(list(loader)) == 10
    with pytest.raises(tierfeed.Reconfigure, match="saved with seed 8; this job has 7"):
        loader.load_state_dict({**state, "seed": 8})


@pytest.mark.parametrize("wrong", [None, [], "state"])
def test_what_is_no_state_is_refused(world: World, wrong: object) -> None:
    with pytest.raises(TypeError, match="load_state_dict takes what state_dict returned; this is"):
        TierLoader(world.direct()).load_state_dict(wrong)  # type: ignore[arg-type]


def test_a_state_of_another_loader_is_refused(world: World) -> None:
    with pytest.raises(tierfeed.Reconfigure, match="saved with version None; this job has 3"):
        TierLoader(world.direct()).load_state_dict({"_snapshot": {}})


def test_a_node_more_is_another_mosaic(tmp_path: Path) -> None:
    keys = {"shuffle": "mosaic", "order": "shard_samples: 10, canonical_nodes: 2"}
    one = make_world(tmp_path / "a", ranks=2, nodes=1, **keys)
    _, state = state_after(one, 3)
    feed = make_world(tmp_path / "b", ranks=2, nodes=2, **keys).direct()
    with pytest.raises(tierfeed.Reconfigure, match="nodes 1; this job has 2: to go on in another world"):
        TierLoader(feed).load_state_dict({**state, "fingerprint": feed.fingerprint})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TierLoader(one.direct()).load_state_dict(state)
