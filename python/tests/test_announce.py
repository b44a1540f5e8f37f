"""`announce`: any sampler is published, and yields afterwards what it would have yielded anyway."""

from __future__ import annotations

import pickle
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

import tierfeed
from conftest import World, make_world
from tierfeed.torch import TierDataset, announce

pytestmark = pytest.mark.filterwarnings("ignore:tierfeed:RuntimeWarning")

SAMPLES = 50
EPOCHS = 3


def seeded(seed: int = 5) -> torch.Generator:
    generator = torch.Generator()
    generator.manual_seed(seed)
    return generator


class FromPython(Sampler[int]):
    """A user's own, with the generators of Python and NumPy, and a count of its passes."""

    def __init__(self, *, own: bool) -> None:
        self.python = random.Random(3) if own else random
        self.numpy = numpy.random.default_rng(3) if own else numpy.random
        self.passes: list[int] = []
        self.weights = numpy.ones(SAMPLES)

    def __iter__(self) -> Iterator[int]:
        self.passes.append(len(self.passes))
        ids = list(range(SAMPLES))
        self.python.shuffle(ids)
        self.numpy.shuffle(ids)
        self.weights *= 0.5
        return iter(ids[len(self.passes) - 1 :])


class Resumable(Sampler[int]):
    """As torchdata's stateful samplers: it knows how far it came, and where to begin once."""

    def __init__(self) -> None:
        self.sampler = RandomSampler(range(SAMPLES), generator=seeded())
        self.yielded = 0
        self.begin: int | None = 7

    def __iter__(self) -> Iterator[int]:
        begin, self.begin, self.yielded = self.begin or 0, None, 0
        for place, index in enumerate(self.sampler):
            if place >= begin:
                self.yielded += 1
                yield index


class HoldsIterator(Sampler[int]):
    """Goes through one shuffled list, a part in each epoch."""

    def __init__(self) -> None:
        self.ids = iter(list(torch.randperm(SAMPLES, generator=seeded()).tolist()))

    def __iter__(self) -> Iterator[int]:
        for _ in range(SAMPLES // EPOCHS):
            yield next(self.ids)


SAMPLERS: dict[str, Callable[[], Sampler[Any]]] = {
    "sequential": lambda: SequentialSampler(range(SAMPLES)),
    "random": lambda: RandomSampler(range(SAMPLES)),
    "random with a generator": lambda: RandomSampler(range(SAMPLES), generator=seeded()),
    "random with replacement": lambda: RandomSampler(range(SAMPLES), replacement=True),
    "subset": lambda: SubsetRandomSampler(range(5, 25)),
    "weighted": lambda: WeightedRandomSampler(torch.arange(1.0, SAMPLES + 1), SAMPLES),
    "distributed": lambda: DistributedSampler(range(SAMPLES), num_replicas=1, rank=0, seed=3),
    "numpy and python": lambda: FromPython(own=False),
    "own generators": lambda: FromPython(own=True),
    "resumable": Resumable,
    "holding an iterator": HoldsIterator,
}

any_sampler = pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS.keys())


@pytest.fixture
def published(tmp_path) -> World:
    return make_world(tmp_path, samples=SAMPLES, shuffle="published", epochs=EPOCHS)


def start() -> None:
    """All default generators at a known place."""
    torch.manual_seed(42)
    numpy.random.seed(42)
    random.seed(42)


def state() -> tuple[Any, ...]:
    place = numpy.random.get_state()
    return torch.get_rng_state().tolist(), random.getstate(), place[1].tolist(), place[2:]


def passes(sampler: Any, before: Callable[[int], object]) -> list[list[Any]]:
    """Three epochs with something else drawn between them, as augmentation does."""
    orders = []
    for epoch in range(EPOCHS):
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        before(epoch)
        orders.append([entry for entry in sampler])
        torch.rand(3), numpy.random.rand(2), random.random()
    return orders


@any_sampler
def test_a_sampler_yields_what_was_announced_and_what_it_would_anyway(
    published: World, make: Callable[[], Sampler[Any]]
) -> None:
    start()
    alone = passes(make(), lambda _: None)
    end = state()
    feed, sampler = published.direct(), make()
    start()
    announced: list[list[int]] = []

    def tell(epoch: int) -> None:
        before = state()
        announced.append(announce(sampler, epoch=epoch, feed=feed))
        assert state() == before

    assert passes(sampler, tell) == alone
    assert announced == alone
    assert state() == end


@any_sampler
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_batch_sampler_is_announced_through_to_its_sampler(
    published: World, make: Callable[[], Sampler[Any]], drop_last: bool
) -> None:
    start()
    alone = passes(BatchSampler(make(), 4, drop_last), lambda _: None)
    feed, sampler = published.direct(), BatchSampler(make(), 4, drop_last)
    start()
    announced: list[list[int]] = []
    told = passes(
        sampler, lambda epoch: announced.append(announce(sampler, epoch=epoch, feed=feed))
    )
    assert told == alone
    assert announced == [[index for batch in epoch for index in batch] for epoch in alone]


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("own_generator", [False, True])
def test_a_loader_draws_its_base_seed_first_and_gets_its_bytes(
    published: World, workers: int, persistent: bool, own_generator: bool
) -> None:
    def make(dataset: Any) -> DataLoader[Any]:
        return DataLoader(
            dataset,
            batch_size=4,
            shuffle=True,
            num_workers=workers,
            persistent_workers=persistent,
            generator=seeded() if own_generator else None,
        )

    start()
    plain = make(range(SAMPLES))
    alone = [[int(index) for batch in plain for index in batch] for _ in range(EPOCHS)]
    dataset = TierDataset(published.direct(), decode=lambda sample, _: zlib.crc32(sample))
    loader = make(dataset)
    start()
    for epoch in range(EPOCHS):
        assert announce(loader, epoch=epoch) == alone[epoch]
        given = [int(crc) for batch in loader for crc in batch]
        assert given == [zlib.crc32(published.content(id)) for id in alone[epoch]]
        if workers == 0:
            assert dataset._epoch == epoch and dataset._near == 13, "found in the order"


def test_workers_follow_what_was_announced(published: World) -> None:
    dataset = TierDataset(published.direct(), decode=lambda sample, _: int(sample.id))
    loader = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=1, collate_fn=list)
    for epoch in range(2):
        ids = announce(loader, epoch=epoch)
        assert [id for batch in loader for id in batch] == ids
        copied = pickle.loads(pickle.dumps(dataset.feed)).order.published(0)
        assert copied == {epoch: ids}, "one epoch is kept, and goes to workers"


def test_a_short_epoch_ends_early(published: World) -> None:
    feed = published.direct()
    ids = announce(SubsetRandomSampler(range(10)), epoch=1, feed=feed)
    assert [batch.samples for batch in feed.epoch(1)] == [ids[:4], ids[4:8], ids[8:]]


def test_an_iterator_is_refused_and_not_used_up(published: World) -> None:
    feed = published.direct()
    generator = (index for index in range(SAMPLES))
    for source in (generator, iter([1, 2, 3]), iter(RandomSampler(range(9)))):
        with pytest.raises(TypeError, match="is an iterator"):
            announce(source, epoch=0, feed=feed)
    assert next(generator) == 0


def test_a_sampler_that_holds_a_running_generator_is_refused_and_not_used_up(
    published: World,
) -> None:
    class Holds(Sampler[int]):
        def __init__(self) -> None:
            self.stream = (index for index in range(SAMPLES))

        def __iter__(self) -> Iterator[int]:
            yield from self.stream

    sampler = Holds()
    with pytest.raises(TypeError, match="running generator"):
        announce(BatchSampler(sampler, 4, False), epoch=0, feed=published.direct())
    assert list(sampler) == list(range(SAMPLES))


def test_what_a_failing_sampler_drew_is_put_back(published: World) -> None:
    class Fails(Sampler[int]):
        def __init__(self) -> None:
            self.count = 0

        def __iter__(self) -> Iterator[int]:
            self.count += 1
            yield int(torch.randint(SAMPLES, ()))
            raise RuntimeError("no more")

    sampler = Fails()
    before = state()
    with pytest.raises(RuntimeError, match="no more"):
        announce(sampler, epoch=0, feed=published.direct())
    assert state() == before and sampler.count == 0


def test_batches_of_another_size_are_refused(published: World) -> None:
    feed = published.direct()
    for size in (3, 8):
        with pytest.raises(tierfeed.Reconfigure, match="batch_size is 4"):
            announce(BatchSampler(range(SAMPLES), size, False), epoch=0, feed=feed)
    loader = DataLoader(TierDataset(feed), batch_size=5)
    with pytest.raises(tierfeed.Reconfigure, match="batch_size is 4"):
        announce(loader, epoch=0)


def test_what_has_no_numbers_or_no_feed_is_refused(published: World) -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    with pytest.raises(TypeError, match="IterableDataset"):
        announce(DataLoader(Stream()), epoch=0, feed=published.direct())
    with pytest.raises(TypeError, match="pass the feed"):
        announce(DataLoader(range(3)), epoch=0)


def test_a_computed_order_takes_no_announcement(world: World) -> None:
    with pytest.raises(tierfeed.Reconfigure, match="torch-distributed"):
        announce(RandomSampler(range(SAMPLES)), epoch=0, feed=world.direct())


def test_persistent_workers_are_told_that_they_hear_of_one_epoch_only(published: World) -> None:
    dataset = TierDataset(published.direct())
    loader = DataLoader(dataset, batch_size=4, num_workers=1, persistent_workers=True)
    with pytest.warns(RuntimeWarning, match="hear of the first epoch .* leave it out") as said:
        announce(loader, epoch=0)
    assert said[-1].filename == __file__


def test_a_batch_in_the_middle_that_is_not_full_is_said_in_words(published: World) -> None:
    buckets = [[0, 1, 2, 3], [4, 5], [6, 7, 8, 9]]
    with pytest.raises(tierfeed.Reconfigure, match="before its last one that is not full: .*sample 6"):
        announce(buckets, epoch=0, feed=published.direct())
