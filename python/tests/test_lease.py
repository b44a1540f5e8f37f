"""Batches that never go back, and processes that keep what a dead trainer had open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings

import pytest

import needs
import node
import tierfeed
from conftest import World, make_world
from node import Node
from tierfeed.referrers import UNSEEN, referrer_of

pytestmark = pytest.mark.node


def assert_whole(world: World, batches: list[tierfeed.Batch], epoch: int) -> None:
    assert [batch.samples for batch in batches] == world.torch_order(epoch, 0)
    for batch in batches:
        assert [bytes(it) for it in batch] == [world.content(id) for id in batch.samples]


def test_a_training_that_keeps_every_batch_gets_copies_and_a_warning_with_the_type(
    world: World, running: Node
) -> None:
    with tierfeed.connect() as feed:
        kept = []
        with pytest.warns(RuntimeWarning, match=r"kept by tierfeed\.Batch in list") as caught:
            for batch in feed.epoch(0):
                kept.append(batch)
        assert len(caught) == 1, "it is said once"
        assert_whole(world, kept, 0)
        agent = feed.agent()
        assert agent.leases < agent.batches_ahead, "one place stays in circulation"
        copies = feed.lease_copyouts
        assert copies == len(kept) - agent.leases
        node.wait_for(
            lambda: running.metric("tierfeed_lease_copyouts_total") == copies,
            "the agent to know of every copy",
        )
        assert {batch.origin for batch in kept} == {"agent"}, "nothing was read twice"
        assert feed.mode == "agent"


def test_a_training_that_lets_go_again_gets_no_more_copies(world: World, running: Node) -> None:
    with tierfeed.connect() as feed:
        with pytest.warns(RuntimeWarning, match="keeps"):
            kept = [batch for batch in feed.epoch(0)]
        copies = feed.lease_copyouts
        assert copies > 0
        kept.clear()
        del kept
        for batch in feed.epoch(1):
            assert batch.origin == "agent"
        assert feed.lease_copyouts == copies


def test_a_training_that_keeps_nothing_is_not_warned(world: World, running: Node) -> None:
    with tierfeed.connect() as feed, warnings.catch_warnings():
        warnings.simplefilter("error")
        for epoch in range(world.epochs):
            for batch in feed.epoch(epoch):
                assert batch.origin == "agent"
        assert feed.lease_copyouts == 0
    assert running.metric("tierfeed_lease_copyouts_total") == 0


def test_batches_of_more_samples_than_there_are_are_not_said_to_be_kept(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, batch_size=64, extra="prefetch: { batches: 2 }\n")
    with node.node(world) as running:
        running.adopt(monkeypatch)
        with tierfeed.connect() as feed, warnings.catch_warnings():
            warnings.simplefilter("error")
            for epoch in range(world.epochs):
                given = []
                for batch in feed.epoch(epoch):
                    given.append((batch.samples, batch.origin))
                assert given == [(ids, "agent") for ids in world.torch_order(epoch, 0)]
            assert feed.lease_copyouts == 0


def test_tensors_that_are_collected_are_named(world: World, running: Node) -> None:
    torch = needs.module("torch")
    from tierfeed.torch import TierLoader

    with TierLoader() as loader:
        kept = []
        with pytest.warns(RuntimeWarning, match=r"kept by torch\.Tensor in list"):
            for tensors, _ in loader:
                kept.append(tensors)
        given = [[bytes(it.numpy()) for it in tensors] for tensors in kept]
        assert given == [[world.content(id) for id in ids] for ids in world.torch_order(0, 0)]
        assert loader.feed.lease_copyouts > 0
        assert isinstance(kept[0][0], torch.Tensor)


def test_views_with_gaps_between_their_rows_are_named_and_end_no_training(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, sizes=(100, 100))
    with node.node(world) as running:
        running.adopt(monkeypatch)
        with tierfeed.connect() as feed:
            kept = []
            with pytest.warns(RuntimeWarning, match=r"kept by tierfeed\.View in list"):
                for batch in feed.epoch(0):
                    kept.append(batch.array())
            assert feed.lease_copyouts > 0
            assert [bytes(memoryview(view)) for view in kept] == [
                b"".join(world.content(id) for id in ids) for ids in world.torch_order(0, 0)
            ]


def test_an_object_that_cannot_be_looked_at_does_not_hide_what_keeps_a_batch(
    world: World, running: Node
) -> None:
    numpy = needs.module("numpy")

    class Hidden(numpy.ndarray):
        """Raises whatever is asked of it."""

        @property
        def __array_interface__(self) -> dict[str, object]:
            raise RuntimeError("look away")

    hidden = [numpy.zeros(1).view(Hidden)]
    kept_by = pytest.warns(RuntimeWarning, match=r"kept by tierfeed\.Batch in list")
    with tierfeed.connect() as feed, kept_by:
        assert_whole(world, list(feed.epoch(0)), 0)
    assert isinstance(hidden[0], Hidden)


def test_a_batch_moves_and_its_views_stay(world: World, running: Node) -> None:
    with tierfeed.connect() as feed:
        batch = next(feed.epoch(0))
        agent, view = feed.agent(), batch[0]
        before = batch.memory
        assert agent.oldest_lease == before
        assert batch.detach() is True
        assert batch.memory != before
        assert agent.leases == 1, "the view keeps the lease"
        assert bytes(view) == bytes(batch[0]) == world.content(batch.samples[0])
        assert batch.detach() is False
        del view
        assert agent.leases == 0
        assert agent.oldest_lease is None


def test_what_nobody_can_see_is_said_to_be_unseen() -> None:
    assert referrer_of(1, 1) == UNSEEN


ORPHANING = """
import os, signal, sys, time, tierfeed

feed = tierfeed.connect()
batches = feed.epoch(0)
held = [next(batches), next(batches)]
# A worker that was forked by somebody who closes nothing.
names = {int(name): f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")}
sockets = [fd for fd, path in names.items() if os.path.exists(path) and "socket:" in os.readlink(path)]
copies = [os.dup(fd) for fd in sockets]
if os.fork() == 0:
    signal.pause()
print(len(copies), flush=True)
signal.pause()
"""


def test_a_forked_worker_that_keeps_the_socket_keeps_no_batch_of_its_dead_trainer(
    world: World, running: Node
) -> None:
    line = node.command("exec", "--run-dir", running.root / "agent", "--", sys.executable, "-c")
    trainer = subprocess.Popen(
        [*line, ORPHANING], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert trainer.stdout is not None
        assert int(trainer.stdout.readline()) > 0, "the worker has a copy of the socket"
        trainer.kill()
        trainer.wait()
        os.killpg(trainer.pid, 0)  # The worker lives.
        with tierfeed.connect() as feed:
            batches = list(feed.batch(0, step) for step in range(2))
            assert {batch.origin for batch in batches} == {"agent"}, "nothing is taken any more"
    finally:
        os.killpg(trainer.pid, signal.SIGKILL)
