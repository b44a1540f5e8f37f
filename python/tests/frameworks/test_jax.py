"""Arrays of JAX: which memory, which devices, which processes; on two devices that the CPU plays."""

from __future__ import annotations

import gc
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import page
import pytest
import records

import needs
import node
import tierfeed
from conftest import World, make_world

# Read when JAX looks for its devices, which is after the tests were collected.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
jax = needs.module("jax")

from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

from tierfeed.jax import TierLoader  # noqa: E402

PACKAGE = str(Path(tierfeed.__file__).parents[1])

pytestmark = pytest.mark.node


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> records.Records:
    monkeypatch.chdir(tmp_path)
    return records.write(tmp_path)


def over_all_devices() -> NamedSharding:
    return NamedSharding(Mesh(numpy.array(jax.devices()), ("data",)), PartitionSpec("data"))


@pytest.mark.filterwarnings("ignore:.*should give back")
def test_an_array_lies_over_the_staged_bytes_and_keeps_them(dataset: records.Records) -> None:
    with TierLoader(dataset.path, record="float32", **dataset.keys()) as loader:
        feed = loader.feed
        array, labels = next(batches := iter(loader))
        assert isinstance(array, jax.Array) and isinstance(labels, jax.Array)
        before = numpy.array(array)
        assert numpy.array_equal(before, dataset.rows[feed.order.batch(0, 0, 0)])
        agent = feed.agent()
        assert agent is not None and agent.leases == 1, "the array is not a copy"
        for _ in batches:
            pass
        assert numpy.array_equal(array, before), "no later batch was written to its memory"
        assert agent.leases >= 1
        following = array + 1
        del array
        gc.collect()
        following.block_until_ready()
        assert agent.leases == 0, "what was computed of it does not keep it"


def test_a_batch_out_of_turn_is_on_the_devices_as_the_others(dataset: records.Records) -> None:
    given = {"sharding": over_all_devices(), "record": [("first", "f4"), ("rest", "f4", (31,))]}
    with TierLoader(dataset.path, **given, **dataset.keys()) as loader:
        batch, labels = loader.batch(1, 3)
        assert batch["rest"].sharding.is_equivalent_to(given["sharding"], 2)
        assert labels.sharding == given["sharding"]
        assert batch["first"].tolist() == loader.feed.order.batch(1, 3, 0)


@pytest.mark.filterwarnings("ignore:.*should give back")
def test_a_validation_of_the_job_is_arrays_too_read_once_for_each_epoch(
    dataset: records.Records, tmp_path: Path
) -> None:
    other = records.write(tmp_path / "validation", count=20)
    keys = dataset.keys(**other.as_validation())
    with TierLoader(dataset.path, record="float32", **keys) as loader:
        validation = TierLoader(dataset="validation", record="float32", sharding=over_all_devices())
        for _ in range(2):
            for _ in loader:
                pass
            batches = [array for array, _ in validation]
            assert [len(it) for it in batches] == [6, 6, 6, 2]
            assert all(isinstance(it, jax.Array) and len(it.devices()) == 2 for it in batches)
            assert numpy.array_equal(numpy.concatenate(batches), other.rows)
        validation.close()


@pytest.mark.filterwarnings("ignore:.*should give back")
def test_a_sharded_array_has_half_of_the_rows_on_each_device(dataset: records.Records) -> None:
    sharding = over_all_devices()
    given = {"sharding": sharding, "record": "float32", "short_batch": "drop"}
    with TierLoader(dataset.path, **given, **dataset.keys()) as loader:
        order = loader.feed.order
        assert len(loader) == 6
        for epoch in loader.epochs_left[:2]:
            batches = iter(loader)
            for step in range(6):
                array, labels = next(batches)
                assert array.sharding == labels.sharding == sharding
                rows = dataset.rows[order.batch(epoch, step, 0)]
                halves = [numpy.asarray(it.data) for it in array.addressable_shards]
                assert [len(half) for half in halves] == [4, 4]
                assert numpy.array_equal(numpy.concatenate(halves), rows)
                first, second = (it.data.unsafe_buffer_pointer() for it in array.addressable_shards)
                assert second - first == rows.nbytes // 2, "neither half was copied"
            assert next(batches, None) is None, "the batch of two samples is left out"


def test_a_record_with_fields_is_a_dictionary_of_arrays(tmp_path: Path) -> None:
    world = make_world(tmp_path, sizes=(65, 65))
    parts = numpy.dtype([("label", "u1"), ("image", "u1", (4, 4, 4))])
    feed = world.direct()
    batch, _ = next(iter(TierLoader(feed, record=parts)))
    contents = [world.content(id) for id in feed.order.batch(0, 0, 0)]
    assert batch["label"].tolist() == [it[0] for it in contents]
    assert numpy.asarray(batch["image"]).tobytes() == b"".join(it[1:] for it in contents)


def test_decoded_samples_become_arrays_of_their_structure(world: World) -> None:
    def decode(sample: tierfeed.Sample, label: int) -> tuple[dict[str, Any], int]:
        return {"length": sample.nbytes}, label

    feed = world.direct()
    inputs, labels = next(iter(TierLoader(feed, decode=decode, decode_threads=1)))
    ids = feed.order.batch(0, 0, 0)
    assert isinstance(inputs["length"], jax.Array) and labels.shape == (len(ids),)
    assert inputs["length"].tolist() == [len(world.content(id)) for id in ids]


def test_a_loader_goes_on_from_a_state_in_json(dataset: records.Records) -> None:
    keys = dataset.keys()
    with TierLoader(dataset.path, record="float32", **keys) as loader:
        batches = iter(loader)
        next(batches), next(batches)
        state = json.loads(json.dumps(loader.state_dict()))
        rest = [dataset.number(row) for array, _ in batches for row in array]
    with TierLoader(dataset.path, record="float32", **keys) as resumed:
        resumed.load_state_dict(state)
        assert [dataset.number(row) for array, _ in resumed for row in array] == rest


TWO_PROCESSES = """
import sys, jax, json, numpy
rank, port, keys, source = int(sys.argv[1]), *sys.argv[2:5]
jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tierfeed.jax import TierLoader
sharding = NamedSharding(Mesh(numpy.array(jax.devices()), ("data",)), PartitionSpec("data"))
loader = TierLoader(source, sharding=sharding, record="float32", **json.loads(keys))
array, _ = next(iter(loader))
shards = [numpy.asarray(it.data)[:, 0].astype(int).tolist() for it in array.addressable_shards]
print(json.dumps([list(array.shape), shards, loader.feed.order.batch(0, 0, rank)]))
loader.close()
"""


def two_processes(dataset: records.Records) -> list[subprocess.Popen[str]]:
    """Two ranks of one job on this node."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    started = []
    for rank in range(2):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        given = [str(rank), port, json.dumps(dataset.keys()), str(dataset.path)]
        line = [sys.executable, "-c", TWO_PROCESSES, *given]
        started.append(
            subprocess.Popen(
                line,
                env={**os.environ, **place, **meeting, "XLA_FLAGS": "", "PYTHONPATH": PACKAGE},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return started


def test_two_processes_make_one_array(dataset: records.Records) -> None:
    for rank, process in enumerate(two_processes(dataset)):
        said, error = process.communicate(timeout=node.TIMEOUT_S)
        assert process.returncode == 0, error
        shape, shards, ids = json.loads(said)
        assert shape == [16, 32], "two batches of eight"
        assert shards == [ids], f"rank {rank} has put its own batch there"


def test_a_rank_that_jax_numbers_otherwise_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = TierLoader(world.direct(), decode=lambda sample, label: label)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(tierfeed.IdentityError, match="process 0 of 2, the launcher.* rank 0 of 1"):
        next(iter(loader))


def test_the_script_of_the_page_trains_and_goes_on(dataset: records.Records) -> None:
    page.write_cifar(Path("cifar10"))
    said = page.run("jax", "/data/cifar10", "cifar10")
    assert said.startswith("epoch 0: loss ") and "epoch 1: loss " in said
    assert page.run("jax", "/data/cifar10", "cifar10") == "", "all epochs were trained"
