"""The client with a real agent: the path that training takes."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pytest
import torch

import node
import tierfeed
from conftest import World, make_world
from node import Node
from tierfeed import embedded
from tierfeed.torch import TierLoader

pytestmark = pytest.mark.node

# Samples that were not asked for yet lie in the dataset alone.
STAGED_ONLY = "prefetch: { look_ahead: off }\n"


def mapping_of(place: int) -> str:
    """What is mapped at `place`, as the kernel calls it."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            start, end = line.split(maxsplit=1)[0].split("-")
            if int(start, 16) <= place < int(end, 16):
                return line.split(maxsplit=5)[5].strip()
    return ""


@pytest.mark.parametrize("mode", ["feed", "loader", "decoder", "dataset"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_feeds_every_batch_in_order_with_its_bytes(tmp_path, mode: str, ranks: int) -> None:
    world = make_world(tmp_path, ranks=ranks)
    for rank, log in enumerate(node.run(world, mode)):
        log.assert_complete(world, rank)
        assert log.end["mode"] == "agent"
        assert {row.get("origin", "agent") for row in log.batches} == {"agent"}
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    per_epoch = -(-len(world.files) // ranks) * ranks
    assert report["samples"] == per_epoch * world.epochs
    assert report["faults"] == []


@pytest.mark.parametrize("assignment", ["shared", "proportional", "lobster"])
def test_every_rule_for_threads_feeds_every_batch(tmp_path, assignment: str) -> None:
    rule = f"prefetch: {{ assignment: {assignment} }}\n"
    world = make_world(tmp_path, ranks=2, epochs=4, extra=rule)
    for rank, log in enumerate(node.run(world, "feed", pace_s=0.002)):
        log.assert_complete(world, rank)
        assert {row.get("origin", "agent") for row in log.batches} == {"agent"}
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["self_read_batches"] == 0
    assert ("threads" in report) == (assignment == "lobster")
    if assignment == "lobster":
        # All may read: nothing is transformed.
        assert len(report["threads"]["loading_by_rank"]) == 2
        assert report["threads"]["loading"] > 0
        assert report["threads"]["transforming"] == 0


def test_a_tensor_is_the_staging_memory_itself(world: World, running: Node) -> None:
    with tierfeed.connect() as feed:
        assert feed.mode == "agent"
        batch = next(feed.epoch(0))
        assert batch.origin == "agent"
        for sample in batch:
            tensor = torch.from_dlpack(sample)
            assert tensor.data_ptr() % 64 == 0
            assert "memfd:" in mapping_of(tensor.data_ptr())
            assert bytes(tensor.numpy()) == world.content(sample.id)


def test_a_lease_goes_back_exactly_when_the_last_view_dies(running: Node) -> None:
    with tierfeed.connect() as feed:
        agent = feed.agent()
        assert agent.leases == 0
        batch = feed.batch(0, 0)
        assert agent.leases == 1
        tensor = torch.from_dlpack(batch[0])
        array = batch[1].numpy()
        batch.release()
        assert agent.leases == 1
        del tensor
        assert agent.leases == 1
        del array
        assert agent.leases == 0


class Watched(tierfeed.Batches):
    """Notes which batches did not come ready out of the ring."""

    def __init__(self, feed: tierfeed.Feed) -> None:
        super().__init__(feed, (0, 0), feed.epochs)
        self.not_ready: list[tuple[int, int]] = []

    def wait_or_read(self, place: tuple[int, int]) -> tuple[object, ...]:
        self.not_ready.append(place)
        return super().wait_or_read(place)


def test_batches_that_are_ready_come_in_order_with_their_bytes(world: World, running: Node) -> None:
    with tierfeed.connect() as feed:
        batches = Watched(feed)
        for number, batch in enumerate(batches):
            assert batch.place == divmod(number, feed.steps_per_epoch)
            assert [bytes(sample) for sample in batch] == [
                world.content(id) for id in batch.samples
            ]
        assert number + 1 == feed.steps_per_epoch * world.epochs
        assert len(batches.not_ready) < number, "some were there when they were wanted"


def test_a_batch_outlives_its_connection(world: World, running: Node) -> None:
    feed = tierfeed.connect()
    batch = feed.batch(0, 0)
    feed.close()
    other = tierfeed.connect()
    list(other.epoch(1))
    for sample in batch:
        assert bytes(sample) == world.content(sample.id)


def test_a_trainer_that_keeps_every_batch_is_not_stopped(world: World, running: Node) -> None:
    with tierfeed.connect() as feed:
        kept = list(feed.epoch(0))
        assert [batch.samples for batch in kept] == world.torch_order(0, 0)
        assert {batch.origin for batch in kept} == {"agent"}
        assert feed.lease_copyouts > 0, "copies of what it keeps too much of"
        for batch in kept:
            assert [bytes(it) for it in batch] == [world.content(id) for id in batch.samples]


def test_a_loader_resumes_at_the_agent(world: World, running: Node) -> None:
    with TierLoader() as loader:
        loader.set_epoch(1)
        batches = iter(loader)
        next(batches), next(batches)
        state = loader.state_dict()
    with TierLoader() as loader:
        loader.load_state_dict(state)
        given = [[bytes(it.numpy()) for it in tensors] for tensors, _ in loader]
        assert given == [[world.content(id) for id in ids] for ids in world.torch_order(1, 0)[2:]]
        assert loader.feed.mode == "agent"


def test_a_feed_pickles_to_its_socket(running: Node) -> None:
    with tierfeed.connect() as feed, pickle.loads(pickle.dumps(feed)) as copy:
        assert copy.mode == "agent"
        assert copy.fingerprint == feed.fingerprint


def test_a_forked_child_leaves_the_leases_of_its_parent_alone(world: World, running: Node) -> None:
    with tierfeed.connect() as feed:
        batches = feed.epoch(0)
        batch = next(batches)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                is_readable = bytes(batch[0]) == world.content(batch.samples[0])
                del batch
                mine = feed.batch(2, 0).samples == world.torch_order(2, 0)[0]
                code = 0 if is_readable and mine else 1
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert feed.agent().leases == 1
        rest = [batch.samples, *(it.samples for it in batches)]
        assert rest == world.torch_order(0, 0)
        assert feed.mode == "agent"


def test_a_trainer_with_an_agent_has_no_page_of_its_index_mapped(
    world: World, running: Node
) -> None:
    with tierfeed.connect() as feed:
        batch = feed.read([3])
        assert (feed.mode, batch.origin) == ("agent", "direct")
        with open("/proc/self/maps") as maps:
            assert "dataset.index" not in maps.read()


def test_what_a_forked_child_sees_changes_when_its_parent_reads_on_and_a_copy_does_not(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Samples of one length, so that every batch that is staged in the same place covers all of it.
    world = make_world(tmp_path, sizes=(4096, 4096))
    with node.node(world) as started:
        started.adopt(monkeypatch)
        with tierfeed.connect() as feed:
            batches = feed.epoch(0)
            batch = next(batches)
            was = world.content(batch.samples[0])
            parent, child = socket.socketpair()
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    parent.close()
                    seen = memoryview(batch[0])
                    copy = batch[0].numpy().copy()
                    child.send(b"copied")
                    child.recv(6)
                    code = 0 if bytes(copy) == was != bytes(seen) else 1
                finally:
                    os._exit(code)
            child.close()
            assert parent.recv(6) == b"copied"
            del batch
            assert [it.samples for it in batches] == world.torch_order(0, 0)[1:]
            parent.close()
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_vanished_sample_stops_with_its_name(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(tmp_path, extra=STAGED_ONLY)
    lost = world.torch_order(0, 0)[9][1]
    with node.node(world) as started:
        started.adopt(monkeypatch)
        world.files[lost].unlink()
        with tierfeed.connect() as feed:
            batches = feed.epoch(0)
            for _ in range(9):
                next(batches)
            with pytest.raises(tierfeed.SampleError, match=world.files[lost].name) as raised:
                next(batches)
            assert (raised.value.sample, raised.value.reason) == (lost, "vanished")


def test_a_skipped_sample_is_missing_and_counted(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(tmp_path, on_error="skip", extra=STAGED_ONLY)
    ids = world.torch_order(0, 0)[9]
    with node.node(world) as started:
        started.adopt(monkeypatch)
        world.files[ids[2]].write_bytes(b"")
        with tierfeed.connect() as feed:
            batch = feed.batch(0, 9)
            assert batch.origin == "agent"
            assert batch.samples == [ids[0], ids[1], ids[3]]
            assert batch.skipped == [ids[2]]
            assert feed.faults == 1


def test_more_bad_samples_than_the_job_allows_are_an_error_with_their_number(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, on_error="{ skip: 4 % }", extra=STAGED_ONLY)
    lost = [id for step in (9, 10) for id in world.torch_order(0, 0)[step]][:5]
    with node.node(world) as started:
        started.adopt(monkeypatch)
        for id in lost:
            world.files[id].unlink()
        with TierLoader() as loader, pytest.raises(tierfeed.SampleError) as raised:
            for _ in loader:
                pass
    assert "3 samples of this rank's epoch cannot be used" in str(raised.value)
    assert "leaves out 2 at most" in str(raised.value) and "is gone" in str(raised.value)


def test_an_agent_that_waits_for_its_store_is_not_given_up(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, on_error="skip", extra=STAGED_ONLY)
    data, away = tmp_path / "data", tmp_path / "away"
    with node.node(world) as started:
        started.adopt(monkeypatch)
        with tierfeed.connect() as feed:
            feed._patience = types.SimpleNamespace(limit_s=lambda **_: 0.1, after=lambda **_: "ask")
            data.rename(away)
            threading.Timer(1.0, away.rename, (data,)).start()
            batch = feed.batch(0, 9)
            assert (batch.origin, batch.samples) == ("agent", world.torch_order(0, 0)[9])
            assert (feed.faults, feed.mode) == (0, "agent")


def test_a_published_order_is_followed(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(tmp_path, samples=10, shuffle="published")
    with node.node(world) as started:
        started.adopt(monkeypatch)
        with tierfeed.connect() as feed:
            feed.publish(0, range(9, -1, -1))
            batches = list(feed.epoch(0))
            assert [batch.samples for batch in batches] == [[9, 8, 7, 6], [5, 4, 3, 2], [1, 0]]
            assert batches[0].origin == "agent"


def test_a_rank_of_another_node_is_refused(running: Node) -> None:
    for name in ("TIERFEED_JOB", "TIERFEED_INDEX"):
        os.environ.pop(name, None)
    with pytest.raises(tierfeed.IdentityError, match="rank=5 of the arguments"):
        tierfeed.connect(rank=5)


def test_memory_is_lent_in_chunks(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(tmp_path, extra="  cxl-memory: { numa_nodes: [0], size: 8 MiB }\n")
    with node.node(world) as started:
        started.adopt(monkeypatch)
        with tierfeed.memory.allocate((1 << 20) + 1) as memory:
            assert memory.nbytes == 2 << 20
            first, second = memory.chunks
            assert len(first) == len(second) == 1 << 20
            first[0] = 7
            arrays = memory.numpy()
            assert arrays[0][0] == 7 and arrays[0].flags.writeable
            assert "memfd:" in mapping_of(arrays[0].__array_interface__["data"][0])
        assert arrays[0][0] == 7
        with pytest.raises(ValueError, match="closed"):
            memory.numpy()
        with pytest.raises(tierfeed.Retry):
            tierfeed.memory.allocate(1 << 40)
        with pytest.raises(TypeError, match="borrow"):
            pickle.dumps(memory)


def test_memory_without_an_agent_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_started", [])
    with pytest.raises(tierfeed.Gone, match="TIERFEED_SOCK"):
        tierfeed.memory.allocate(1)
    with pytest.raises(ValueError, match="at least 1"):
        tierfeed.memory.allocate(0)


def interrupt_when_it_waits(thread: int) -> None:
    """Sends SIGINT once the thread has slept at ten looks, one after the other."""
    slept = 0
    while slept < 10:
        state = Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()[0]
        slept = slept + 1 if state == "S" else 0
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_ends_a_wait_for_a_batch(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(tmp_path)
    slow = "format: image-folder\n  emulate: { latency: 20 s, bandwidth: 1 GB/s }\n"
    world.job.write_text(world.job.read_text().replace("format: image-folder\n", slow))
    with node.node(world) as started:
        started.adopt(monkeypatch)
        with tierfeed.connect() as feed:
            batches = feed.epoch(0)
            watcher = threading.Thread(
                target=interrupt_when_it_waits, args=(threading.get_native_id(),)
            )
            with pytest.raises(KeyboardInterrupt):
                watcher.start()
                next(batches)
            watcher.join()


def test_the_client_starts_no_thread(running: Node) -> None:
    code = (
        "import os, tierfeed\n"
        "feed = tierfeed.connect()\n"
        "print(sum(len(b) for b in feed.epoch(0)), len(os.listdir('/proc/self/task')))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert printed.stdout == "50 1\n"


def test_an_announced_order_is_staged_by_the_agent(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.utils.data import DataLoader

    from tierfeed.torch import TierDataset, announce

    world = make_world(tmp_path, samples=50, shuffle="published")
    with node.node(world) as started:
        started.adopt(monkeypatch)
        with tierfeed.connect() as feed:
            dataset = TierDataset(feed, decode=lambda sample, _: bytes(sample))
            loader = DataLoader(dataset, batch_size=4, shuffle=True, collate_fn=list)
            taken = []
            take = feed.batch

            def noted(epoch: int, step: int) -> tierfeed.Batch:
                batch = take(epoch, step)
                taken.append((epoch, step, batch.origin))
                return batch

            monkeypatch.setattr(feed, "batch", noted)
            for epoch in range(2):
                ids = announce(loader, epoch=epoch)
                given = [sample for batch in loader for sample in batch]
                assert given == [world.content(id) for id in ids]
            steps = [(epoch, step, "agent") for epoch in range(2) for step in range(13)]
            assert taken == steps


def test_every_kind_of_order_reaches_trainer_and_client_alike(tmp_path) -> None:
    orders = {
        "torch-random": "generator: loader",
        "tf-shuffle": "buffer: 7, global_seed: 3",
        "tf-index": "second_seed: 4",
        "mosaic": "shard_samples: 6, algorithm: py1s, canonical_nodes: 2",
        "grain": "start: { epoch: 1, samples: 8 }",
        "block": "shard_samples: 5, window: 12",
    }
    for shuffle, keys in orders.items():
        world = make_world(tmp_path / shuffle, samples=30, shuffle=shuffle, order=keys, epochs=2)
        (log,) = node.run(world, "feed")
        alone = world.direct()
        expected = [(batch.epoch, batch.step, batch.samples) for batch in alone]
        got = [(row["epoch"], row["step"], row["samples"]) for row in log.batches]
        assert got == expected, shuffle
        assert all(row["origin"] == "agent" for row in log.batches), shuffle
