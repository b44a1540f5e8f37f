"""The PyTorch loader and dataset over a feed without an agent."""

from __future__ import annotations

import multiprocessing
import pickle

import pytest
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import tierfeed
from conftest import World, make_world
from tierfeed.torch import TierDataset, TierDistributedSampler, TierLoader, passthrough, tracing

pytestmark = pytest.mark.filterwarnings("ignore:tierfeed:RuntimeWarning")


def crc(sample: tierfeed.Sample, label: int) -> tuple[int, int]:
    """A stand-in for decoding: something that depends on every byte."""
    import zlib

    return zlib.crc32(sample), label


def crcs(world: World, ids: list[int]) -> list[int]:
    import zlib

    return [zlib.crc32(world.content(id)) for id in ids]


def test_a_loader_gives_the_bytes_and_labels_of_every_batch(world: World) -> None:
    feed = world.direct()
    loader = TierLoader(feed)
    loader.set_epoch(1)
    given = list(loader)
    assert len(given) == len(loader) == 13
    for step, (tensors, labels) in enumerate(given):
        ids = feed.order.batch(1, step, 0)
        assert [bytes(tensor.numpy()) for tensor in tensors] == [world.content(id) for id in ids]
        assert labels.dtype == torch.int64
        assert labels.tolist() == [int(world.files[id].parent.name[-1]) for id in ids]


def test_a_loader_copies_nothing_and_holds_nothing(world: World) -> None:
    from test_batch import mapped_at

    places = []
    for tensors, _ in TierLoader(world.direct()):
        places.append(tensors[0].data_ptr())
        assert places[-1] % 4096 == 0
        del tensors
        assert not mapped_at(places[-1])


def spans(world: World, named: str) -> int:
    """How often a span stands in the profile of an epoch of 13 batches."""
    loader = TierLoader(world.direct(), decode=crc)
    with torch.autograd.profiler.profile() as profile:
        assert len(list(loader)) == 13
    return sum(event.name == named for event in profile.function_events)


def test_waits_stand_in_the_trace_of_a_training_that_profiles_itself(world: World) -> None:
    assert spans(world, tracing.NEXT_BATCH) == 14, "each batch, and the end of the epoch"
    assert spans(world, tracing.DECODE) == 13


def test_without_a_profiler_nothing_is_noted(world: World) -> None:
    nothing = tracing.waiting(tracing.NEXT_BATCH)
    assert tracing.waiting(tracing.DECODE) is nothing
    with torch.autograd.profiler.profile():
        assert tracing.waiting(tracing.NEXT_BATCH) is not nothing


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_decoding_keeps_the_order_with_any_number_of_threads(world: World, threads: int) -> None:
    feed = world.direct()
    with TierLoader(feed, decode=crc, decode_threads=threads) as loader:
        for step, (values, labels) in enumerate(loader):
            assert values.tolist() == crcs(world, feed.order.batch(0, step, 0))
            assert len(labels) == len(values)


def test_no_thread_is_started_before_it_is_needed(world: World) -> None:
    import threading

    before = threading.active_count()
    loader = TierLoader(world.direct(), decode=crc, decode_threads=2)
    assert threading.active_count() == before
    next(iter(loader))
    assert threading.active_count() > before
    loader.close()
    assert threading.active_count() == before


def test_an_error_in_decode_reaches_the_trainer(world: World) -> None:
    def broken(sample: tierfeed.Sample, label: int) -> None:
        raise RuntimeError("not an image")

    for threads in (0, 2):
        loader = TierLoader(world.direct(), decode=broken, decode_threads=threads)
        with loader, pytest.raises(RuntimeError, match="not an image"):
            next(iter(loader))


def test_own_collate_gets_what_decode_returned(world: World) -> None:
    loader = TierLoader(world.direct(), decode=crc, collate=passthrough)
    assert all(isinstance(entry, tuple) for entry in next(iter(loader)))


@pytest.mark.parametrize("stop", [1, 5, 13])
def test_a_resumed_loader_gives_exactly_the_rest(world: World, stop: int) -> None:
    loader = TierLoader(world.direct(), decode=crc)
    loader.set_epoch(2)
    whole = [values.tolist() for values, _ in loader]
    loader.set_epoch(2)
    for step, _ in enumerate(loader, 1):
        if step == stop:
            state = pickle.loads(pickle.dumps(loader.state_dict()))
            break
    assert (state["epoch"], state["step"]) == (2, stop)
    resumed = TierLoader(world.direct(), decode=crc)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    resumed.set_epoch(resumed.epoch)
    assert [values.tolist() for values, _ in resumed] == whole[stop:]
    resumed.set_epoch(2)
    assert [values.tolist() for values, _ in resumed] == whole


def test_the_state_counts_what_was_consumed_not_what_is_decoded_ahead(world: World) -> None:
    with TierLoader(world.direct(), decode=crc, decode_threads=2) as loader:
        batches = iter(loader)
        next(batches), next(batches)
        assert loader.state_dict()["step"] == 2


def test_a_state_of_another_dataset_or_order_is_refused(tmp_path) -> None:
    loader = TierLoader(make_world(tmp_path / "one").direct())
    state = loader.state_dict()
    with pytest.raises(tierfeed.Reconfigure, match="fingerprint"):
        TierLoader(make_world(tmp_path / "two").direct()).load_state_dict(state)
    with pytest.raises(tierfeed.Reconfigure, match="seed"):
        loader.load_state_dict({**state, "order": {**state["order"], "seed": 8}})


def test_a_new_epoch_starts_at_its_beginning(world: World) -> None:
    loader = TierLoader(world.direct())
    loader.load_state_dict({**loader.state_dict(), "epoch": 1, "step": 7})
    loader.set_epoch(2)
    assert len(list(loader)) == 13


def test_waits_are_counted(world: World) -> None:
    loader = TierLoader(world.direct())
    for _ in loader:
        pass
    stats = loader.stats()
    assert (stats["batches"], stats["samples"]) == (13, 50)
    assert stats["bytes"] == sum(path.stat().st_size for path in world.files)
    waits = stats["batch_wait_s"]
    assert 0 < waits["p50"] <= waits["p99"] <= waits["max"] <= stats["stall_s"]


def test_a_short_last_batch_is_left_out_on_request(world: World) -> None:
    with TierLoader(world.direct(), short_batch="drop") as loader:
        assert (len(loader), [len(labels) for _, labels in loader]) == (12, [4] * 12)
    with TierLoader(world.direct()) as loader:
        assert (len(loader), [len(labels) for _, labels in loader]) == (13, [4] * 12 + [2])


def test_threads_without_decode_are_refused(world: World) -> None:
    with pytest.raises(ValueError, match="nothing to decode"):
        TierLoader(world.direct(), decode_threads=2)


def test_a_loader_is_picklable(world: World) -> None:
    with TierLoader(world.direct(), decode=crc, decode_threads=1) as loader:
        next(iter(loader))
        copy = pickle.loads(pickle.dumps(loader))
        with copy:
            assert len(list(copy)) == 13


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_a_dataset_works_under_a_data_loader(world: World, workers: int, context: str) -> None:
    dataset = TierDataset(world.direct(), decode=crc)
    sampler = DistributedSampler(dataset, num_replicas=1, rank=0, shuffle=True, seed=7)
    loader = DataLoader(
        dataset,
        batch_size=4,
        sampler=sampler,
        num_workers=workers,
        multiprocessing_context=multiprocessing.get_context(context) if workers else None,
    )
    for epoch in (0, 2):
        sampler.set_epoch(epoch)
        given = [value for values, _ in loader for value in values.tolist()]
        assert given == crcs(world, list(sampler))


def test_workers_hand_over_undecoded_tensors(world: World) -> None:
    dataset = TierDataset(world.direct())
    sampler = TierDistributedSampler(dataset.feed)
    loader = DataLoader(
        dataset, batch_size=4, sampler=sampler, num_workers=1, collate_fn=passthrough
    )
    given = [bytes(tensor.numpy()) for batch in loader for tensor, _ in batch]
    assert given == [world.content(id) for id in sampler]


def test_a_batch_of_the_order_is_found_in_any_epoch(world: World) -> None:
    feed = world.direct()
    dataset = TierDataset(feed, decode=crc)
    for epoch, step in [(0, 0), (0, 1), (0, 12), (2, 5), (2, 3)]:
        ids = feed.order.batch(epoch, step, 0)
        assert dataset._search(ids) == step
        assert dataset._epoch == epoch


def test_a_foreign_sampler_gets_its_samples_too(world: World) -> None:
    dataset = TierDataset(world.direct(), decode=crc)
    assert [value for value, _ in dataset.__getitems__([7, 7, 3])] == crcs(world, [7, 7, 3])
    assert [dataset[id][0] for id in (9, 1, 30)] == crcs(world, [9, 1, 30])
    assert len(dataset) == 50


@pytest.mark.parametrize("sizes", [(1, 9000), (0, 0)])
def test_single_samples_of_a_batch_come_from_one_batch(tmp_path, sizes: tuple[int, int]) -> None:
    world = make_world(tmp_path, sizes=sizes)
    feed = world.direct()
    dataset = TierDataset(feed, decode=crc)
    ids = feed.order.batch(1, 4, 0)
    for position, id in enumerate(ids):
        assert dataset[id][0] == crcs(world, [id])[0]
        batch_is_open = dataset._open is not None
        assert batch_is_open == (position < 3)


def test_a_skipped_single_sample_is_an_error(tmp_path) -> None:
    world = make_world(tmp_path, on_error="skip")
    dataset = TierDataset(world.direct())
    world.files[3].unlink()
    with pytest.raises(tierfeed.SampleError, match="sample 3"):
        dataset[3]


def test_the_sampler_is_the_distributed_sampler(tmp_path) -> None:
    world = make_world(tmp_path, samples=23, ranks=2)
    for rank in range(2):
        ours = TierDistributedSampler(world.direct(rank))
        theirs = DistributedSampler(range(23), num_replicas=2, rank=rank, seed=7)
        assert len(ours) == len(theirs)
        for epoch in range(3):
            ours.set_epoch(epoch)
            theirs.set_epoch(epoch)
            assert list(ours) == list(theirs)


def test_a_job_goes_on_in_another_world_without_losing_a_sample(tmp_path) -> None:
    before = make_world(tmp_path / "before", samples=50, ranks=2, batch_size=4)
    read: list[int] = []
    for rank in range(2):
        loader = TierLoader(before.direct(rank))
        loader.set_epoch(1)
        batches = iter(loader)
        for step in range(3):
            next(batches)
            read.extend(loader.feed.order.batch(1, step, rank))
    state = loader.state_dict()
    assert state["position"] == (1, 24)
    start = "start: { epoch: 1, samples: 24 }"
    after = make_world(tmp_path / "after", samples=50, ranks=3, batch_size=5, order=start)
    for rank in range(3):
        feed = after.direct(rank)
        loader = TierLoader(feed)
        # The same files elsewhere: another dataset by its paths, the same by its samples.
        loader.load_state_dict({**state, "fingerprint": feed.fingerprint})
        loader.set_epoch(loader.epoch)
        assert (loader.epoch, len(loader)) == (1, 2)
        steps = len(list(loader))
        for step in range(steps):
            read.extend(feed.order.batch(1, step, rank))
        loader.set_epoch(2)
        assert len(list(loader)) == 4
        assert len(list(feed.epoch(0))) == 0
        assert [batch.epoch for batch in feed][::2] == [1, 2, 2]
    # 26 samples are left for three ranks: one is padding.
    assert len(read) == 51
    assert sorted(set(read)) == list(range(50))


def test_another_world_without_a_start_is_told_what_to_write(tmp_path) -> None:
    before = TierLoader(make_world(tmp_path / "before", ranks=2).direct())
    before.set_epoch(1)
    next(iter(before))
    after = TierLoader(make_world(tmp_path / "after", ranks=3).direct())
    state = {**before.state_dict(), "fingerprint": after.feed.fingerprint}
    with pytest.raises(tierfeed.Reconfigure, match="world 2; .*epoch: 1, samples: 8 }"):
        after.load_state_dict(state)


def test_the_sampler_knows_its_length(tmp_path) -> None:
    start = "start: { epoch: 1, samples: 7 }"
    sampler = TierDistributedSampler(make_world(tmp_path, samples=23, ranks=2, order=start).direct())
    for epoch, length in enumerate([0, 8, 12]):
        sampler.set_epoch(epoch)
        assert len(sampler) == len(list(sampler)) == length
