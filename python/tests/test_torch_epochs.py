"""Which epoch a pass over a loader reads: the next one, or the one that was named."""

from __future__ import annotations

import warnings

import pytest
from torch.utils.data import DataLoader, IterableDataset

import node
import tierfeed
from conftest import World, make_world
from tierfeed.torch import TierLoader

pytestmark = pytest.mark.filterwarnings("ignore:tierfeed. reading:RuntimeWarning")


def by_number(feed: tierfeed.Feed) -> TierLoader:
    """A loader whose batches are the numbers of their samples."""
    return TierLoader(feed, decode=lambda sample, _: sample.id, collate=list)


def test_epochs_advance_by_themselves(world: World) -> None:
    loader = by_number(world.direct())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for epoch in range(3):
            assert list(loader) == world.torch_order(epoch, 0)
            assert loader.epoch == epoch


@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("is_resumed", [False, True])
def test_passes_beyond_the_epochs_go_on_in_the_order_of_more_and_say_so(
    tmp_path, epochs: int, is_resumed: bool
) -> None:
    world = make_world(tmp_path, epochs=epochs)
    loader = by_number(world.direct())
    for epoch in range(epochs):
        assert list(loader) == world.torch_order(epoch, 0)
    assert not loader.epochs_left
    if is_resumed:
        ended, loader = loader, by_number(world.direct())
        loader.load_state_dict(ended.state_dict())
    with pytest.warns(RuntimeWarning, match=f"all {epochs} epochs of the job were read") as caught:
        for epoch in range(epochs, epochs + 3):
            assert list(loader) == world.torch_order(epoch, 0), "no order comes twice"
    assert len(caught) == 1 and caught[0].filename == __file__
    resumed = by_number(world.direct())
    resumed.load_state_dict(loader.state_dict())
    assert list(resumed) == world.torch_order(epochs + 3, 0)


@pytest.mark.node
def test_an_agent_that_knows_no_further_epoch_is_in_nobodys_way(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, epochs=1)
    with node.node(world) as running:
        running.adopt(monkeypatch)
        with by_number(tierfeed.connect()) as loader:
            with pytest.warns(RuntimeWarning, match="Give the job more epochs"):
                passes = [list(loader) for _ in range(3)]
            assert passes == [world.torch_order(epoch, 0) for epoch in range(3)]
            assert loader.feed.batch(0, 3).origin == "agent"
            assert loader.feed.batch(7, 3).samples == world.torch_order(7, 0)[3]


def test_epochs_that_are_counted_from_1_are_said_at_once(world: World) -> None:
    loader = by_number(world.direct())
    with pytest.warns(RuntimeWarning, match="leaves epoch 0 out, as epochs count from 0") as caught:
        for epoch in range(1, 3):
            loader.set_epoch(epoch)
            list(loader)
    assert len(caught) == 1 and caught[0].filename == __file__
    resumed = by_number(world.direct())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed.load_state_dict(loader.state_dict())
        by_number(world.direct()).set_epoch(2)


def test_a_single_epoch_that_is_named_again_is_said_too(tmp_path) -> None:
    loader = by_number(make_world(tmp_path, epochs=1).direct())
    list(loader)
    loader.set_epoch(0)
    with pytest.warns(RuntimeWarning, match="epoch 0 was read to its end and is read again"):
        list(loader)


def test_a_pass_that_was_left_early_is_an_epoch_and_one_that_never_began_is_none(world: World) -> None:
    loader = by_number(world.direct())
    assert next(iter(loader)) == world.torch_order(0, 0)[0]
    iter(loader)
    len(loader), loader.state_dict()
    assert list(loader) == world.torch_order(1, 0)


def test_a_job_that_starts_later_starts_there(tmp_path) -> None:
    world = make_world(tmp_path, order="start: { epoch: 1, samples: 8 }")
    loader = by_number(world.direct())
    assert loader.epoch == 1
    assert list(loader) == world.torch_order(1, 0)[2:]
    assert list(loader) == world.torch_order(2, 0)


def test_a_named_epoch_is_read_and_passes_go_on_from_there(world: World) -> None:
    loader = by_number(world.direct())
    with pytest.warns(RuntimeWarning, match="count from 0"):
        loader.set_epoch(1)
    assert list(loader) == world.torch_order(1, 0)
    with pytest.warns(RuntimeWarning, match="none for this one: it reads .* last one, 2"):
        assert list(loader) == world.torch_order(2, 0)


def test_set_epoch_that_is_forgotten_is_said_once(tmp_path) -> None:
    loader = by_number(make_world(tmp_path, epochs=5).direct())
    loader.set_epoch(0)
    with pytest.warns(RuntimeWarning, match="set_epoch named the epochs of earlier passes") as caught:
        for _ in range(4):
            list(loader)
    assert len(caught) == 1
    assert caught[0].filename == __file__, "it points at the loop"


def test_an_epoch_that_is_named_again_is_said_once(world: World) -> None:
    loader = by_number(world.direct())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader.set_epoch(0)
        next(iter(loader))
        loader.set_epoch(0)
        assert list(loader) == world.torch_order(0, 0), "what was not read to its end begins again"
    with pytest.warns(RuntimeWarning, match="epoch 0 was read to its end and is read again") as caught:
        for _ in range(3):
            loader.set_epoch(0)
            assert list(loader) == world.torch_order(0, 0)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_a_sequential_order_repeats_in_silence(tmp_path) -> None:
    world = make_world(tmp_path, shuffle="sequential", epochs=2)
    loader = by_number(world.direct())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        passes = [list(loader) for _ in range(5)]
        loader.set_epoch(0)
        passes.append(list(loader))
    assert passes == [passes[0]] * 6


@pytest.mark.parametrize("stop", [1, 12, 13])
def test_a_resumed_loader_goes_on_with_the_epoch_and_those_after_it(world: World, stop: int) -> None:
    loader = by_number(world.direct())
    list(loader)
    for step, _ in enumerate(loader, 1):
        if step == stop:
            break
    resumed = by_number(world.direct())
    resumed.load_state_dict(loader.state_dict())
    if stop < 13:
        assert list(resumed) == world.torch_order(1, 0)[stop:]
    assert list(resumed) == world.torch_order(2, 0)


@pytest.mark.parametrize("names_epochs", [False, True])
def test_a_loop_from_the_epoch_of_the_state_is_exact(world: World, names_epochs: bool) -> None:
    for stop in (5, 13):
        loader = by_number(world.direct())
        batches = iter(loader)
        given = [next(batches) for _ in range(stop)]
        resumed = by_number(world.direct())
        resumed.load_state_dict(loader.state_dict())
        for epoch in range(resumed.epoch, 3):
            if names_epochs:
                resumed.set_epoch(epoch)
            given += resumed if names_epochs or resumed.epoch < 2 else []
        assert given == [batch for epoch in range(3) for batch in world.torch_order(epoch, 0)]


def test_a_loader_as_a_dataset_gives_its_batches_to_a_data_loader(world: World) -> None:
    loader = by_number(world.direct())
    around = DataLoader(loader.as_dataset(), batch_size=None)
    assert len(around) == 13
    assert list(around) == world.torch_order(0, 0)
    assert list(around) == world.torch_order(1, 0)
    workers = DataLoader(loader.as_dataset(), batch_size=None, num_workers=1)
    with pytest.raises(tierfeed.Reconfigure, match="each worker would read all of"):
        next(iter(workers))


def test_a_data_loader_around_a_loader_is_told_how(world: World) -> None:
    with pytest.raises(TypeError, match=r"DataLoader\(loader.as_dataset\(\), batch_size=None\)"):
        next(iter(DataLoader(by_number(world.direct()))))


def test_a_loader_within_a_worker_is_refused(world: World) -> None:
    class Stream(IterableDataset):
        def __init__(self, loader: TierLoader) -> None:
            self.loader = loader

        def __iter__(self):
            return iter(self.loader)

    stream = DataLoader(Stream(by_number(world.direct())), batch_size=None, num_workers=2)
    with pytest.raises(tierfeed.Reconfigure, match="each worker would read all of them"):
        next(iter(stream))


def test_a_loader_has_what_others_ask_it_for(world: World) -> None:
    loader = TierLoader(world.direct())
    assert (len(loader.dataset), loader.batch_size, len(loader)) == (50, 4, 13)
    assert loader.dataset.classes == ["class0", "class1", "class2"]
    with pytest.raises(TypeError, match="TierDataset is a dataset for a DataLoader"):
        loader.dataset[0]
    for name, advice in [("sampler", "order is that of the job"), ("num_workers", "decode_threads=")]:
        assert not hasattr(loader, name)
        with pytest.raises(AttributeError, match=f"a TierLoader has no {name}: .*{advice}"):
            getattr(loader, name)
    with pytest.raises(AttributeError, match="has no nonsense$"):
        getattr(loader, "nonsense")  # noqa: B009
