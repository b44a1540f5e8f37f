"""A feed without an agent: the same batches, read by the process itself."""

from __future__ import annotations

import mmap
import os
import pickle
import subprocess
import sys

import pytest
import torch

import tierfeed
from conftest import World, make_world


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_order_is_that_of_the_distributed_sampler(tmp_path, ranks: int) -> None:
    world = make_world(tmp_path, samples=23, ranks=ranks)
    for rank in range(ranks):
        feed = world.direct(rank)
        for epoch in range(world.epochs):
            given = [batch.samples for batch in feed.epoch(epoch)]
            assert given == world.torch_order(epoch, rank)


def test_iterating_a_feed_runs_over_all_epochs(world: World) -> None:
    places = [(batch.epoch, batch.step) for batch in world.direct()]
    assert places == [(epoch, step) for epoch in range(3) for step in range(13)]


def test_an_epoch_may_start_in_the_middle(world: World) -> None:
    feed = world.direct()
    steps = [batch.step for batch in feed.epoch(2, start_step=11)]
    assert steps == [11, 12]
    assert list(feed.epoch(2, start_step=13)) == []


def test_what_lies_outside_the_job_is_refused(world: World) -> None:
    feed = world.direct()
    for epoch, step in [(-1, 0), (0, 14), (0, -1)]:
        with pytest.raises(IndexError):
            feed.epoch(epoch, step)
    with pytest.raises(IndexError, match="an epoch has 13 steps for 1 ranks"):
        feed.batch(0, 13)
    with pytest.raises(IndexError, match="the dataset has 50"):
        feed.read([50])


def test_direct_batches_say_so(world: World) -> None:
    feed = world.direct()
    assert feed.mode == "direct"
    assert feed.batch(0, 0).origin == "direct"


def mapped_files() -> str:
    """What this process has mapped, as the kernel lists it."""
    with open("/proc/self/maps") as maps:
        return maps.read()


def test_a_trainer_that_reads_alone_has_no_page_of_its_index_mapped(world: World) -> None:
    with open(world.index, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        assert str(world.index) in mapped_files()
    feed = world.direct()
    batch = feed.batch(0, 0)
    assert str(world.index) not in mapped_files()
    index = tierfeed.Index.open(world.index)
    assert bytes(index.read(batch.samples[0])) == bytes(batch[0])
    assert str(world.index) not in mapped_files()


def test_any_samples_can_be_read(world: World) -> None:
    batch = world.direct().read([5, 3, 5])
    assert [bytes(sample) for sample in batch] == [world.content(id) for id in (5, 3, 5)]


def test_no_agent_and_nothing_else_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(tierfeed.Gone, match="tierfeed run job.yaml --"):
        tierfeed.connect()
    monkeypatch.setenv("TIERFEED_SOCK", "/nonexistent/agent.sock")
    with pytest.raises(tierfeed.Gone, match="/nonexistent/agent.sock"):
        tierfeed.connect()


def test_a_socket_without_an_agent_falls_back_to_the_job(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERFEED_SOCK", "/nonexistent/agent.sock")
    monkeypatch.setenv("TIERFEED_JOB", str(world.job))
    monkeypatch.setenv("TIERFEED_INDEX", str(world.index))
    with pytest.warns(RuntimeWarning, match="directly"):
        feed = tierfeed.connect()
    assert feed.mode == "direct"
    assert [batch.samples for batch in feed.epoch(0)] == world.torch_order(0, 0)


@pytest.mark.parametrize("variable", ["TIERFEED_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"])
def test_the_rank_comes_from_the_launcher(
    tmp_path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    world = make_world(tmp_path, ranks=2, samples=8)
    monkeypatch.setenv(variable, "1")
    monkeypatch.setenv("TIERFEED_JOB", str(world.job))
    monkeypatch.setenv("TIERFEED_INDEX", str(world.index))
    with pytest.warns(RuntimeWarning):
        assert tierfeed.connect().rank == 1


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"RANK": "first"}, ["RANK is 'first'"]),
        ({"TIERFEED_RANK": "1"}, ["TIERFEED_RANK=1 of the environment", "ranks 0 to 0"]),
        ({"RANK": "0", "WORLD_SIZE": "2"}, ["WORLD_SIZE=2 of torchrun", "ranks_per_node: 1"]),
    ],
)
def test_what_is_no_rank_of_the_job_is_refused_without_an_agent_too(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
    variables: dict[str, str],
    said: list[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(tierfeed.IdentityError) as refused:
        tierfeed.connect(job=str(world.job), index=str(world.index))
    assert refused.value.code == 2
    assert capsys.readouterr().err == f"tierfeed: error: {refused.value}\n"
    for part in said:
        assert part in str(refused.value)


def test_a_rank_outside_the_world_is_refused(world: World) -> None:
    with pytest.raises(tierfeed.Reconfigure, match="rank=1 of the arguments"):
        tierfeed.connect(rank=1, job=str(world.job), index=str(world.index))


def test_a_wrong_job_file_is_a_clear_error(tmp_path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("name: x\nbatch_size: 0\n")
    with pytest.raises(tierfeed.Reconfigure, match="job.yaml"):
        tierfeed.connect(job=str(job))


def test_a_job_without_an_index_is_a_clear_error(world: World) -> None:
    with pytest.warns(RuntimeWarning), pytest.raises(tierfeed.Reconfigure, match="tierfeed index"):
        tierfeed.connect(job=str(world.job))


def test_an_index_of_another_dataset_is_a_clear_error(world: World, tmp_path) -> None:
    other = make_world(tmp_path / "other")
    with pytest.warns(RuntimeWarning), pytest.raises(tierfeed.Reconfigure, match="other"):
        tierfeed.connect(job=str(world.job), index=str(other.index))


def test_the_index_may_be_named_by_the_job(world: World) -> None:
    named = f"format: image-folder\n  index: {world.index}\n"
    world.job.write_text(world.job.read_text().replace("format: image-folder\n", named))
    with pytest.warns(RuntimeWarning):
        feed = tierfeed.connect(job=str(world.job))
    assert feed.batch(0, 0).samples == world.torch_order(0, 0)[0]


def test_a_vanished_sample_stops_with_its_name(world: World) -> None:
    feed = world.direct()
    lost = feed.order.batch(0, 2, 0)[1]
    world.files[lost].unlink()
    batches = feed.epoch(0)
    next(batches), next(batches)
    with pytest.raises(tierfeed.SampleError, match=world.files[lost].name) as raised:
        next(batches)
    assert raised.value.sample == lost
    assert raised.value.reason == "vanished"
    assert raised.value.object.endswith(world.files[lost].name)
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (copy.sample, copy.reason) == (lost, "vanished")


@pytest.mark.parametrize("reason", ["truncated", "changed"])
def test_a_file_that_is_not_what_was_indexed_is_never_read(world: World, reason: str) -> None:
    feed = world.direct()
    lost = feed.order.batch(0, 0, 0)[3]
    path = world.files[lost]
    if reason == "truncated":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(tierfeed.SampleError) as raised:
        feed.batch(0, 0)
    assert raised.value.reason in (reason, "changed")


def test_a_skipped_sample_is_missing_and_counted(tmp_path) -> None:
    world = make_world(tmp_path, on_error="skip")
    feed = world.direct()
    ids = feed.order.batch(0, 0, 0)
    world.files[ids[1]].unlink()
    batch = next(feed.epoch(0))
    assert batch.samples == [ids[0], ids[2], ids[3]]
    assert batch.skipped == [ids[1]]
    assert feed.faults == 1
    assert [bytes(sample) for sample in batch] == [world.content(id) for id in batch.samples]


def test_a_published_order_is_followed(tmp_path) -> None:
    world = make_world(tmp_path, samples=10, shuffle="published")
    feed = world.direct()
    with pytest.raises(tierfeed.Reconfigure, match="not published"):
        next(feed.epoch(0))
    feed.publish(0, torch.arange(9, -1, -1))
    assert [batch.samples for batch in feed.epoch(0)] == [[9, 8, 7, 6], [5, 4, 3, 2], [1, 0]]


@pytest.mark.parametrize(
    ("samples", "message"),
    [([], "from 1 to 10"), ([1] * 11, "from 1 to 10"), ([99] * 10, "sample 99")],
)
def test_a_published_order_that_cannot_be_is_refused(tmp_path, samples, message: str) -> None:
    feed = make_world(tmp_path, samples=10, shuffle="published").direct()
    with pytest.raises(tierfeed.Reconfigure, match=message):
        feed.publish(0, samples)


def test_a_computed_order_takes_no_other(world: World) -> None:
    with pytest.raises(tierfeed.Reconfigure, match="torch-distributed"):
        world.direct().publish(0, range(50))


def test_a_feed_pickles_to_what_connects_again(world: World) -> None:
    feed = world.direct()
    with pytest.warns(RuntimeWarning):
        copy = pickle.loads(pickle.dumps(feed))
    assert copy.batch(1, 3).samples == feed.batch(1, 3).samples


def test_a_forked_child_reads_for_itself(world: World) -> None:
    feed = world.direct()
    batches = feed.epoch(0)
    held = next(batches)
    pid = os.fork()
    if pid == 0:
        try:
            mine = [batch.samples for batch in batches]
            is_right = mine == world.torch_order(0, 0)[1:]
            is_readable = bytes(held[0]) == world.content(held.samples[0])
            os._exit(0 if is_right and is_readable else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert bytes(held[0]) == world.content(held.samples[0])


def test_the_fingerprint_tells_datasets_apart(tmp_path) -> None:
    one = make_world(tmp_path / "one").direct()
    other = make_world(tmp_path / "other").direct()
    assert one.fingerprint != other.fingerprint
    assert len(one.fingerprint) == 16


def test_importing_tierfeed_imports_no_framework() -> None:
    code = "import sys, tierfeed; print(sorted({'torch', 'numpy', 'jax'} & sys.modules.keys()))"
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert printed.stdout == "[]\n"


def test_the_client_starts_no_thread(world: World) -> None:
    code = (
        "import os, tierfeed, warnings; warnings.simplefilter('ignore')\n"
        f"feed = tierfeed.connect(job={str(world.job)!r}, index={str(world.index)!r})\n"
        "print(sum(len(b) for b in feed.epoch(0)), len(os.listdir('/proc/self/task')))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert printed.stdout == "50 1\n"


def test_ctrl_c_ends_a_slow_read(tmp_path) -> None:
    import signal
    import threading

    world = make_world(tmp_path)
    text = world.job.read_text()
    slow = "format: image-folder\n  emulate: { latency: 30 s, bandwidth: 1 GB/s }\n"
    world.job.write_text(text.replace("format: image-folder\n", slow))
    feed = world.direct()
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        feed.batch(0, 0)
