"""What `decode` draws: from a generator of the sample, which neither threads nor a resume change."""

from __future__ import annotations

import functools
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader

import tierfeed
from conftest import SEED, World, make_world
from tierfeed.torch import TierDataset, TierDistributedSampler, TierLoader

pytestmark = pytest.mark.filterwarnings("ignore:tierfeed. reading:RuntimeWarning")


def draws(sample: tierfeed.Sample, label: int, rng: numpy.random.Generator) -> int:
    """A number that an augmentation would draw."""
    return int(rng.integers(1 << 40))


def expected(epoch: int, samples: list[int]) -> list[int]:
    return [int(numpy.random.default_rng((SEED, epoch, it)).integers(1 << 40)) for it in samples]


def batches(loader: TierLoader) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_a_sample_draws_the_same_with_any_number_of_threads_and_after_a_resume(
    world: World, threads: int
) -> None:
    given = {"decode": draws, "decode_threads": threads, "collate": torch.tensor}
    with TierLoader(world.direct(), **given) as loader:
        for epoch in range(3):
            order = world.torch_order(epoch, 0)
            assert batches(loader) == [expected(epoch, samples) for samples in order]
    with TierLoader(world.direct(), **given) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with TierLoader(world.direct(), **given) as resumed:
        resumed.load_state_dict(state)
        assert batches(resumed) == [expected(0, it) for it in world.torch_order(0, 0)[1:]]


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_of_a_data_loader_draw_the_same(world: World, workers: int) -> None:
    dataset = TierDataset(world.direct(), decode=draws)
    sampler = TierDistributedSampler(dataset.feed)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        dataset.set_epoch(epoch)
        loader = DataLoader(dataset, batch_size=4, sampler=sampler, num_workers=workers)
        assert batches(loader) == [expected(epoch, it) for it in world.torch_order(epoch, 0)]


class Augmentation:
    """A function with a state, as a class of transforms is one."""

    def __call__(self, sample: tierfeed.Sample, label: int, generator: numpy.random.Generator) -> int:
        return draws(sample, label, generator)


def by_name(sample: tierfeed.Sample, label: int, *, rng: numpy.random.Generator | None = None) -> int:
    assert rng is not None
    return draws(sample, label, rng)


def scaled(scale: int, sample: tierfeed.Sample, label: int, rng: numpy.random.Generator) -> int:
    return scale * draws(sample, label, rng)


@pytest.mark.parametrize("decode", [Augmentation(), by_name, functools.partial(scaled, 1)])
def test_whatever_takes_three_arguments_or_one_called_rng_gets_a_generator(
    world: World, decode: Any
) -> None:
    batch = next(iter(TierLoader(world.direct(), decode=decode, collate=torch.tensor)))
    assert batch.tolist() == expected(0, world.torch_order(0, 0)[0])


@pytest.mark.parametrize(
    "decode",
    [lambda sample, label: label, lambda sample, label, scale=1: label * scale, lambda *given: given[1]],
)
def test_a_function_of_two_arguments_gets_two(tmp_path, decode: Any) -> None:
    world = make_world(tmp_path)
    batch = next(iter(TierLoader(world.direct(), decode=decode, collate=list)))
    assert all(label in (0, 1, 2) for label in batch)
