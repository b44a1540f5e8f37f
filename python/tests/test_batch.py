"""A batch: its bytes, where they lie, and how long they stay."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import numpy
import pytest
import torch

import tierfeed
from conftest import World, make_world


@pytest.fixture
def batch(world: World) -> tierfeed.Batch:
    return world.direct().batch(0, 0)


@pytest.fixture
def equal(tmp_path) -> tierfeed.Batch:
    """Samples of 100 bytes: the rows of `array()` have gaps between them."""
    return make_world(tmp_path, sizes=(100, 100)).direct().batch(0, 0)


def address(view: tierfeed.View) -> int:
    return view.numpy().__array_interface__["data"][0]


def mapped_at(place: int) -> bool:
    """Whether `place` is mapped, as the kernel says."""
    with open("/proc/self/maps") as maps:
        ranges = (line.split(maxsplit=1)[0].split("-") for line in maps)
        return any(int(start, 16) <= place < int(end, 16) for start, end in ranges)


def test_every_sample_has_the_bytes_of_its_file(world: World, batch: tierfeed.Batch) -> None:
    assert len(batch) == 4
    for sample in batch:
        assert bytes(sample) == world.content(sample.id)
        assert sample.nbytes == len(sample) == len(world.content(sample.id))


def test_samples_and_labels_follow_the_order(world: World, batch: tierfeed.Batch) -> None:
    assert batch.samples == [sample.id for sample in batch]
    assert batch.labels == [int(world.files[id].parent.name[-1]) for id in batch.samples]
    assert (batch.epoch, batch.step, batch.rank) == (0, 0, 0)


def test_indices_are_those_of_a_sequence(batch: tierfeed.Batch) -> None:
    assert batch[-1].id == batch[3].id
    for outside in (4, -5, 1 << 40):
        with pytest.raises(IndexError, match="batch of 4"):
            batch[outside]


def test_every_sample_starts_on_64_bytes_and_a_batch_on_a_page(batch: tierfeed.Batch) -> None:
    assert all(address(sample) % 64 == 0 for sample in batch)
    assert address(batch[0]) % 4096 == 0


def test_all_views_of_a_sample_are_the_same_memory(batch: tierfeed.Batch) -> None:
    sample = batch[1]
    place = address(sample)
    assert address(batch[1]) == place
    assert torch.from_dlpack(sample).data_ptr() == place
    assert numpy.from_dlpack(sample).__array_interface__["data"][0] == place
    assert numpy.frombuffer(memoryview(sample), numpy.uint8).__array_interface__["data"][0] == place


def test_views_are_writable_and_see_each_other(batch: tierfeed.Batch) -> None:
    sample = batch[0]
    memoryview(sample)[0] = 17
    tensor = torch.from_dlpack(sample)
    assert tensor[0] == 17
    tensor[0] = 18
    assert sample.numpy()[0] == 18


def test_both_dlpack_abis_are_offered(batch: tierfeed.Batch) -> None:
    sample = batch[0]
    assert sample.__dlpack_device__() == (1, 0)
    assert "dltensor_versioned" in repr(sample.__dlpack__(max_version=(1, 0)))
    legacy = repr(sample.__dlpack__())
    assert "dltensor" in legacy and "versioned" not in legacy


def test_a_dlpack_copy_or_another_device_is_refused(batch: tierfeed.Batch) -> None:
    with pytest.raises(BufferError):
        batch[0].__dlpack__(copy=True)
    with pytest.raises(BufferError):
        batch[0].__dlpack__(dl_device=(2, 0))


def test_an_unused_capsule_lets_go_of_the_memory(batch: tierfeed.Batch) -> None:
    place = address(batch[0])
    capsule = batch[0].__dlpack__()
    batch.release()
    assert mapped_at(place)
    del capsule
    assert not mapped_at(place)


@pytest.mark.parametrize(
    "view",
    [
        memoryview,
        torch.from_dlpack,
        numpy.from_dlpack,
        lambda sample: sample.numpy()[10:20],
        lambda sample: torch.from_dlpack(sample).view(-1)[:5],
        lambda sample: numpy.asarray(sample),
        lambda sample: sample,
    ],
)
def test_memory_lives_exactly_as_long_as_the_last_view(
    world: World, view: Callable[[tierfeed.Sample], object]
) -> None:
    batch = next(iter(world.direct().epoch(1)))
    place = address(batch[2])
    kept = view(batch[2])
    gone = weakref.ref(batch)
    batch.release()
    del batch
    assert gone() is None
    assert mapped_at(place)
    del kept
    assert not mapped_at(place)


def test_a_released_batch_gives_no_new_views_but_leaves_the_old(
    world: World, batch: tierfeed.Batch
) -> None:
    tensor = torch.from_dlpack(batch[0])
    with batch:
        pass
    batch.release()
    assert batch.released
    with pytest.raises(ValueError, match="released"):
        batch[0]
    with pytest.raises(ValueError, match="released"):
        batch.array()
    assert bytes(tensor.numpy()) == world.content(batch.samples[0])


def test_equal_samples_are_rows_of_one_array(equal: tierfeed.Batch) -> None:
    rows = equal.array()
    array = rows.numpy()
    assert rows.shape == [4, 100] and len(rows) == 4 and rows.nbytes == 400
    assert array.strides == (128, 1)
    for row, sample in zip(array, equal, strict=True):
        assert row.tobytes() == bytes(sample)
        assert row.__array_interface__["data"][0] == address(sample)
    tensor = torch.from_dlpack(rows)
    assert tensor.stride() == (128, 1) and tensor.data_ptr() == address(equal[0])


def test_rows_with_gaps_are_not_shown_as_contiguous(equal: tierfeed.Batch) -> None:
    rows = equal.array()
    assert not memoryview(rows).c_contiguous
    assert bytes(rows) == b"".join(bytes(sample) for sample in equal)
    with pytest.raises((BufferError, ValueError)):
        numpy.frombuffer(rows, numpy.uint8)


def test_unequal_samples_are_no_array(batch: tierfeed.Batch) -> None:
    with pytest.raises(ValueError, match="one length"):
        batch.array()


def test_empty_samples_are_there(tmp_path) -> None:
    world = make_world(tmp_path, samples=8, sizes=(0, 1))
    for batch in world.direct().epoch(0):
        for sample in batch:
            assert bytes(sample) == world.content(sample.id)
            assert torch.from_dlpack(sample).shape == (len(sample),)


def test_a_batch_may_die_on_another_thread(world: World) -> None:
    import threading

    batch = world.direct().batch(0, 0)
    place = address(batch[0])
    tensors = [torch.from_dlpack(sample) for sample in batch]
    batch.release()
    thread = threading.Thread(target=tensors.clear)
    thread.start()
    thread.join()
    assert not mapped_at(place)


def test_nothing_is_left_after_an_epoch(world: World) -> None:
    def mappings() -> int:
        gc.collect()
        with open("/proc/self/maps") as maps:
            return sum(1 for _ in maps)

    feed = world.direct()
    feed.batch(0, 0)
    before = mappings()
    for batch in feed.epoch(0):
        for sample in batch:
            torch.from_dlpack(sample)
    del batch, sample
    assert mappings() <= before + 1
