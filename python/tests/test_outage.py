"""A trainer that reads by itself tells a bad store from bad samples, and goes without few of them."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import tierfeed
from conftest import World, make_world
from tierfeed.torch import TierLoader

pytestmark = pytest.mark.filterwarnings("ignore:tierfeed. reading:RuntimeWarning")


@contextlib.contextmanager
def away_until_it_is_said(world: World) -> Iterator[list[str]]:
    """Takes the dataset away, and brings it back when the warning comes."""
    data, aside = world.job.with_name("data"), world.job.with_name("aside")
    said: list[str] = []

    def show(message: Warning | str, *_: object) -> None:
        said.append(str(message))
        if "waits for the store" in said[-1]:
            aside.rename(data)

    data.rename(aside)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield said


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_store_that_is_away_is_waited_for_and_no_sample_is_left_out(
    tmp_path: Path, on_error: str
) -> None:
    world = make_world(tmp_path, on_error=on_error)
    feed = world.direct()
    batches = feed.epoch(0)
    read = [next(batches).samples]
    with away_until_it_is_said(world) as said:
        read += [batch.samples for batch in batches]
    assert read == world.torch_order(0, 0)
    assert feed.faults == 0
    (waits,) = (text for text in said if "waits for the store" in text)
    assert str(world.job.with_name("data")) in waits


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_store_that_stays_away_is_an_error_and_no_sample_is_left_out(
    tmp_path: Path, on_error: str
) -> None:
    world = make_world(tmp_path, on_error=on_error)
    text = world.job.read_text()
    world.job.write_text(text.replace("format: image-folder", "format: image-folder\n  patience: 0 s"))
    feed = world.direct()
    world.job.with_name("data").rename(world.job.with_name("aside"))
    with pytest.raises(tierfeed.SampleError, match="see whether its file system is mounted") as caught:
        list(feed.epoch(0))
    assert caught.value.reason == "io" and feed.faults == 0


def test_a_job_goes_without_a_share_of_its_samples_and_no_more(tmp_path: Path) -> None:
    world = make_world(tmp_path, on_error="{ skip: 10 % }")
    feed = world.direct()
    order = [sample for batch in world.torch_order(0, 0) for sample in batch]
    for sample in order[:3] + order[40:42]:
        world.files[sample].unlink()
    with pytest.warns(RuntimeWarning, match="5 samples were left out in epoch 0"):
        list(feed.epoch(0))
    # In another epoch they count anew; those that decode fails for count with them.
    lost = {*order[:3], *order[40:42]}
    sixth = next(it for batch in world.torch_order(1, 0) for it in batch if it not in lost)

    def decode(sample: tierfeed.Sample, label: int) -> int:
        if sample.id == sixth:
            raise ValueError("no picture")
        return sample.id

    loader = TierLoader(feed, decode=decode, collate=list)
    loader.seek(1, 0)
    with pytest.raises(tierfeed.SampleError, match="6 samples .* epoch 1 .* leaves out 5 at most"):
        list(loader)


def test_a_sample_that_is_left_out_twice_in_an_epoch_counts_once(tmp_path: Path) -> None:
    world = make_world(tmp_path, on_error="{ skip: 2 % }")
    feed = world.direct()
    world.files[7].unlink()
    with pytest.warns(RuntimeWarning, match="sample 7"):
        for _ in range(3):
            feed.read([7, 8], epoch=1)
    assert feed.faults == 3
    world.files[9].unlink()
    with pytest.raises(tierfeed.SampleError, match="2 samples .* leaves out 1 at most"):
        feed.read([9], epoch=1)
