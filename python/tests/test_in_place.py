"""Samples read in place, in memory of a tier: they are right, read-only, and end no training."""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path

import numpy
import pytest
import torch

import node
import tierfeed
from conftest import World, make_world
from node import Node

pytestmark = pytest.mark.node

CXL = "  cxl-memory: { numa_nodes: [0], size: 8 MiB, direct: always }\n"


def in_place_world(root: Path, sizes: tuple[int, int] = (1, 9000)) -> World:
    """Main memory holds the staged batches and hardly anything else."""
    made = make_world(root, sizes=sizes, extra=CXL)
    text = made.job.read_text()
    made.job.write_text(text.replace("main-memory: { size: 16 MiB }", "main-memory: { size: 1 MiB }"))
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return in_place_world(tmp_path)


def batch_in_place(feed: tierfeed.Feed) -> tierfeed.Batch:
    """A batch with a sample that was not copied."""
    for epoch in range(feed.epochs):
        for batch in feed.epoch(epoch):
            if any(sample.readonly and len(sample) > 1 for sample in batch):
                return batch
    raise AssertionError("nothing is read in place")


def sample_in_place(batch: tierfeed.Batch) -> tierfeed.Sample:
    return next(sample for sample in batch if sample.readonly and len(sample) > 1)


@pytest.mark.parametrize("mode", ["feed", "loader", "decoder"])
def test_every_way_to_read_gets_every_byte(tmp_path: Path, mode: str) -> None:
    made = in_place_world(tmp_path)
    for rank, log in enumerate(node.run(made, mode)):
        log.assert_complete(made, rank)
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["direct_samples"] > 0
    assert report["direct_bytes"] > 0


def test_nothing_that_is_made_of_a_sample_can_write_it(world: World, running: Node) -> None:
    with tierfeed.connect() as feed:
        sample = sample_in_place(batch_in_place(feed))
        content = world.content(sample.id)
        view = memoryview(sample)
        assert view.readonly and bytes(view) == content
        with pytest.raises(TypeError):
            view[0] = 1
        array = sample.numpy()
        assert not array.flags.writeable
        with pytest.raises(ValueError):
            array[0] = 1
        with pytest.raises(ValueError):
            array.flags.writeable = True
        with open("/dev/zero", "rb") as zeros, pytest.raises((BufferError, TypeError)):
            zeros.readinto(sample)
        assert bytes(sample) == content


def test_a_tensor_is_a_copy_that_may_be_changed(world: World, running: Node) -> None:
    with tierfeed.connect() as feed, warnings.catch_warnings():
        warnings.simplefilter("error")
        sample = sample_in_place(batch_in_place(feed))
        tensor = torch.from_dlpack(sample)
        tensor.fill_(7)
        assert bytes(sample) == world.content(sample.id)
        assert bytes(tensor.numpy()) == bytes([7]) * len(sample)
        assert numpy.from_dlpack(sample).tobytes() == world.content(sample.id)
        with pytest.raises(BufferError):
            sample.__dlpack__(copy=False)


def test_a_batch_that_is_kept_is_copied_with_what_lies_elsewhere(
    world: World, running: Node
) -> None:
    with tierfeed.connect() as feed:
        batch = batch_in_place(feed)
        before = [bytes(sample) for sample in batch]
        agent = feed.agent()
        leases = agent.leases
        assert batch.detach()
        assert agent.leases == leases - 1, "the lease went back"
        assert not any(sample.readonly for sample in batch)
        assert [bytes(sample) for sample in batch] == before
        assert before == [world.content(id) for id in batch.samples]
        memoryview(batch[0])[:1] = b"x"


def test_read_only_samples_that_are_kept_are_named_and_end_no_training(
    world: World, running: Node
) -> None:
    with tierfeed.connect() as feed:
        batch_in_place(feed)  # From here on the tier holds samples.
        kept: list[tierfeed.Sample] = []
        with pytest.warns(RuntimeWarning, match="training keeps"):
            for epoch in range(1, world.epochs):
                for batch in feed.epoch(epoch):
                    kept += [sample for sample in batch if sample.readonly and len(sample) > 1]
        assert kept and all(sample.readonly for sample in kept)
        assert feed.lease_copyouts > 0


def test_views_keep_the_lease(world: World, running: Node) -> None:
    with tierfeed.connect() as feed:
        batch = batch_in_place(feed)
        sample = sample_in_place(batch)
        agent = feed.agent()
        array, content, leases = sample.numpy(), world.content(sample.id), agent.leases
        batch.release()
        del batch, sample
        assert agent.leases == leases
        assert array.tobytes() == content
        del array
        assert agent.leases == leases - 1


def test_a_batch_of_equal_samples_is_an_array_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All but one sample have one length, so most batches are even and the job is not.
    made = in_place_world(tmp_path, sizes=(100, 100))
    made.files[0].write_bytes(random.Random(1).randbytes(600))
    node.run_command(
        "index", tmp_path / "data", "--format", "image-folder", "--output", made.index
    )
    with node.node(made) as started:
        started.adopt(monkeypatch)
        with tierfeed.connect() as feed:
            evens = 0
            for epoch in range(feed.epochs):
                for batch in feed.epoch(epoch):
                    if 0 in batch.samples or not any(sample.readonly for sample in batch):
                        continue
                    rows = batch.array().numpy()
                    expected = [made.content(id) for id in batch.samples]
                    assert [row.tobytes() for row in rows] == expected
                    rows[:] = 0
                    in_place = [sample for sample in batch if sample.readonly]
                    assert all(bytes(it) == made.content(it.id) for it in in_place)
                    evens += 1
            assert evens > 0
