"""Batches on their way to a GPU: what is held until its copy has ended, and what is registered.

There is no GPU here. The stand-in of `fake_cuda.py` copies as late as it may, and by address.
`frameworks/test_torch_gpu.py` has what a real one does.
"""

from __future__ import annotations

import gc
import pickle
import warnings
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import tierfeed
import tierfeed.feed as feed_module
from conftest import World
from fake_cuda import FakeCuda
from node import Node, node
from test_in_place import in_place_world
from tierfeed._native import AgentConnection
from tierfeed.torch import TierLoader, cuda, registration
from tierfeed.torch.delivery import mapped

pytestmark = [pytest.mark.node, pytest.mark.filterwarnings("ignore:tierfeed. reading:RuntimeWarning")]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    monkeypatch.setattr(cuda, "driver", lambda: fake)
    return fake


def expected(world: World) -> list[list[int]]:
    order = [batch for epoch in range(world.epochs) for batch in world.torch_order(epoch, 0)]
    return [[zlib.crc32(world.content(id)) for id in batch] for batch in order]


def passes(loader: TierLoader) -> Iterator[Any]:
    for _ in range(loader.feed.epochs):
        yield from loader


def crcs(batches: list[list[torch.Tensor]]) -> list[list[int]]:
    return [[zlib.crc32(tensor.numpy()) for tensor in batch] for batch in batches]


def test_batches_are_handed_out_on_the_device_and_held_until_they_are_there(
    world: World, running: Node, gpu: FakeCuda
) -> None:
    with TierLoader(device="cuda") as loader:
        given = [tensors for tensors, _ in passes(loader)]
        assert loader.feed.lease_copyouts == 0, "the loader does not hold more than a loop may"
    assert crcs(given) == expected(world)
    copies = gpu.streams[1]
    assert not copies.work and copies is not gpu.training
    assert gpu.copies == 3 * (50 + 13), "each sample and the labels of each batch, once"
    assert all(stream is gpu.training for _, stream in gpu.kept)
    assert len(gpu.training.waits_for) == 39, "training waits for the copies of each batch"
    assert set(gpu.own) and gpu.registered == {}


def test_the_next_batch_is_on_its_way_before_training_asks_for_it(
    world: World, running: Node, gpu: FakeCuda
) -> None:
    with TierLoader(device="cuda") as loader:
        is_ahead = []
        for step, _ in enumerate(loader, 1):
            assert loader.state_dict()["step"] == step, "the state counts what was handed out"
            is_ahead.append(gpu.copies > sum(len(batch) + 1 for batch in expected(world)[:step]))
        assert sum(is_ahead) > 6, "as far as the agent has staged it"


def test_a_training_that_copies_pinned_batches_itself_gets_the_right_bytes(
    world: World, running: Node, gpu: FakeCuda
) -> None:
    device = torch.device("cuda")
    with TierLoader(pin_memory=True) as loader:
        given = []
        for tensors, labels in passes(loader):
            given.append([gpu.copy(tensor, device) for tensor in tensors])
            assert labels.data_ptr() in gpu.own, "what is not staged is a pinned copy"
            del tensors
        assert loader.feed.lease_copyouts == 0
    assert crcs(given) == expected(world)


@pytest.mark.parametrize("keys", [{"device": "cuda"}, {"pin_memory": True}])
def test_a_batch_out_of_turn_is_delivered_as_those_in_turn(
    world: World, running: Node, gpu: FakeCuda, keys: dict[str, Any]
) -> None:
    device = torch.device("cuda")
    given = []
    with TierLoader(**keys) as loader:
        for step, (tensors, _) in enumerate(loader):
            given.append([gpu.copy(tensor, device) for tensor in tensors])
            if step == 5:
                other, _ = loader.batch(2, 3)
                given.append([gpu.copy(tensor, device) for tensor in other])
                del other
            del tensors
    for stream in reversed(gpu.streams):
        stream.run()
    order = expected(world)
    assert crcs(given) == [*order[:6], order[26 + 3], *order[6:13]]


def test_a_pass_that_is_left_early_holds_its_last_batch_until_its_copies_have_ended(
    world: World, running: Node, gpu: FakeCuda
) -> None:
    device = torch.device("cuda")
    loader = TierLoader(pin_memory=True)
    given: list[list[torch.Tensor]] = []
    for epoch in (0, 1):
        for tensors, _ in loader:
            given.append([gpu.copy(tensor, device) for tensor in tensors])
            del tensors
            break
        agent = loader.feed.agent()
        assert agent is not None and agent.leases == epoch + 1, "nothing was given back yet"
    del loader
    gc.collect()
    assert agent.leases == 0
    assert crcs(given) == [expected(world)[0], expected(world)[13]], "the copies were waited for"
    assert gpu.registered == {}


@pytest.mark.parametrize("keys", [{"device": "cuda"}, {"pin_memory": True}])
def test_the_arena_is_registered_in_ranges_and_all_of_it_comes_back(
    world: World, running: Node, gpu: FakeCuda, keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "RANGE_MAX", 1 << 14)
    loader = TierLoader(**keys)
    assert gpu.registered == {}, "not before there is a batch"
    given = [tensors for tensors, _ in loader]
    agent = loader.feed.agent()
    loader._delivery._registrations[0].wait()
    start, length = agent.arena
    assert sum(gpu.registered.values()) == length
    assert all((address - start) % (1 << 14) == 0 for address in gpu.registered)
    given = [tensors for tensors, _ in loader]
    loader.close()
    assert crcs(given) == expected(world)[13:26], "also of samples over the end of a range"
    assert gpu.registered == {}


def test_only_a_loader_for_a_gpu_asks_the_agent_to_leave_its_pages(
    world: World, running: Node, gpu: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    class Noted:
        @staticmethod
        def connect(*given: Any, pinned: bool, **keys: Any) -> Any:
            asked.append(pinned)
            return AgentConnection.connect(*given, pinned=pinned, **keys)

    monkeypatch.setattr(feed_module, "AgentConnection", Noted)
    for keys, expected in (({}, False), ({"device": "cuda"}, True), ({"pin_memory": True}, True)):
        with TierLoader(**keys) as loader:
            next(iter(loader))
            assert asked[-1] is expected, keys


def test_a_loader_that_is_dropped_reverts_its_registration(
    world: World, running: Node, gpu: FakeCuda
) -> None:
    loader = TierLoader(device="cuda")
    next(iter(loader))
    loader._delivery._registrations[0].wait()
    assert gpu.registered
    del loader
    gc.collect()
    assert gpu.registered == {}


def test_a_registration_that_fails_is_said_once_and_training_goes_on(
    world: World, running: Node, gpu: FakeCuda
) -> None:
    gpu.fails_with = "cudaHostRegister of 4096 bytes failed with 2"
    with TierLoader(device="cuda") as loader, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        given = [tensors for tensors, _ in passes(loader)]
    assert ["failed with 2" in str(it.message) for it in caught] == [True]
    assert crcs(given) == expected(world)


def test_decoded_batches_are_pinned_copies(world: World, running: Node, gpu: FakeCuda) -> None:
    def decode(sample: tierfeed.Sample, label: int) -> dict[str, int]:
        return {"crc": zlib.crc32(sample), "label": label}

    with TierLoader(decode=decode, decode_threads=2, device="cuda") as loader:
        given = [batch["crc"] for batch in passes(loader)]
    gpu.streams[1].run()
    assert [crcs.tolist() for crcs in given] == expected(world)


def test_an_agent_that_dies_takes_no_byte_with_it(world: World, running: Node, gpu: FakeCuda) -> None:
    with TierLoader(device="cuda") as loader:
        given = []
        with pytest.warns(RuntimeWarning, match="directly"):
            for step, (tensors, _) in enumerate(passes(loader)):
                given.append(tensors)
                if step == 5:
                    running.agent.kill()
                    running.agent.wait()
    gpu.streams[1].run()
    assert crcs(given) == expected(world)
    assert gpu.registered == {}


@pytest.mark.parametrize("keys", [{"device": "cuda"}, {"pin_memory": True}])
def test_samples_in_a_tier_are_copied_once_from_there(
    tmp_path: Path, gpu: FakeCuda, keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = in_place_world(tmp_path)
    with node(world) as started:
        started.adopt(monkeypatch)
        with TierLoader(**keys) as loader:
            given = [tensors for tensors, _ in passes(loader)]
            maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
        for stream in gpu.streams:
            stream.run()
    assert crcs(given) == expected(world)
    read_only = [it[0].split("-") for it in maps if it[1] == "r--s"]
    ranges = [(int(start, 16), int(end, 16)) for start, end in read_only]
    assert any(start <= it < end for it in gpu.pinned_from for start, end in ranges)


def test_tensors_are_found_where_collate_functions_put_them() -> None:
    class Pair(NamedTuple):
        left: torch.Tensor
        right: list[Any]

    one = torch.ones(1)
    groups = defaultdict(list, {"a": [one, "text"]})
    value = {"pair": Pair(one, [one, 3]), "groups": groups, "other": (one, None)}
    changed = mapped(value, lambda tensor: tensor + 1)
    assert changed["pair"].left == 2 and changed["pair"].right[0] == 2
    assert changed["groups"]["a"][0] == 2 and changed["groups"]["new"] == []
    assert changed["other"][0] == 2 and value["other"][0] == 1 and groups["a"][0] == 1


def test_a_copy_of_a_loader_registers_for_itself(world: World, running: Node, gpu: FakeCuda) -> None:
    delivery = pickle.loads(pickle.dumps(cuda.Target(cuda.Cuda(), torch.device("cuda"), True)))
    assert delivery.device == torch.device("cuda")
    with TierLoader(device="cuda") as loader:
        next(iter(loader))
        constructor, given = loader._delivery.__reduce__()
        assert constructor(*given)._registrations == []


def test_without_a_gpu_pinning_is_left_out_and_said_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "driver", lambda: None)
    feed = world.direct()
    with pytest.warns(RuntimeWarning, match="no CUDA device, so pin_memory does nothing") as caught:
        loader = TierLoader(feed, pin_memory=True)
        assert len(list(loader)) == 13
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(TierLoader(feed, device="cpu"))) == 13


@pytest.mark.parametrize(
    ("device", "message"),
    [("cuda", "finds no CUDA device: leave it out"), ("cuda:1", "'cuda:1'"), ("mps", "on cpu or cuda")],
)
def test_a_device_that_is_not_there_is_an_error(
    world: World, device: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "driver", lambda: None)
    with pytest.raises(tierfeed.Reconfigure, match=message):
        TierLoader(world.direct(), device=device)
