"""`tierfeed.tensorflow.dataset`: tensors over the staged bytes, in the job's order, also after
faults: killed agents, dropped iterators, restored checkpoints."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import gc
import json
import os
import re
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import page
import pytest

import needs
import node
import tierfeed
from conftest import SEED, World, bare, make_world
from node import wait_for

tf = needs.module("tensorflow")

from tierfeed.tensorflow import Report, Rows, dataset, source_of  # noqa: E402

pytestmark = pytest.mark.node

# Read once: tests clear the environment of such names.
VERSIONS = os.environ.get("TIERFEED_FRAMEWORKS")
BATCHES = int(os.environ.get("TIERFEED_LEASED_BATCHES", "10000"))
LENGTH = 4096
STAGED_ONLY = "prefetch: { look_ahead: off }\n"
SMALL = {"chunk": "1 MiB", "tiers": {"main-memory": {"size": "16 MiB"}}, "prefetch": {"batches": 8}}


@pytest.fixture(scope="module")
def even(tmp_path_factory: pytest.TempPathFactory) -> World:
    """50 samples of one length, in batches of 5."""
    return make_world(tmp_path_factory.mktemp("even"), sizes=(LENGTH, LENGTH), batch_size=5)


@pytest.fixture(scope="module")
def feed(even: World) -> Iterator[tierfeed.Feed]:
    """A feed over it, with an agent that it has started."""
    with pytest.MonkeyPatch.context() as patch:
        bare(patch)
        patch.chdir(even.job.parent)
        keys = {"batch_size": even.batch_size, "seed": SEED, "epochs": even.epochs, **SMALL}
        with tierfeed.connect(even.job.with_name("data"), **keys) as connected:
            yield connected


def order_of(world: World) -> list[list[int]]:
    """The batches of all epochs."""
    order = world.direct().order
    steps = range(order.steps_per_epoch)
    return [order.batch(epoch, step, 0) for epoch in range(world.epochs) for step in steps]


def contents(world: World, batches: list[list[int]]) -> list[list[int]]:
    """The checksums of all samples, which are short to print."""
    return [[zlib.crc32(world.content(sample)) for sample in batch] for batch in batches]


def sums(samples: Any) -> list[int]:
    """The checksums of a batch, in any form."""
    if isinstance(samples, Rows):
        samples = samples.strings()
    return [zlib.crc32(it) for it in samples.numpy()]


def address(tensor: Any) -> int:
    """Where the bytes of a tensor lie."""
    capsule = tf.experimental.dlpack.to_dlpack(tensor)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # A DLManagedTensor begins with the address of its bytes.
    header = ctypes.cast(pointer(capsule, b"dltensor"), ctypes.POINTER(ctypes.c_uint64))
    return int(header[0])


def held(data: Any) -> int:
    gc.collect()
    return len(source_of(data).figures().held)


def test_the_tensor_of_a_batch_is_the_memory_that_the_agent_staged(feed: tierfeed.Feed) -> None:
    data = dataset(feed)
    element = next(iter(data))
    staged = {(epoch, step): at for epoch, step, at, _ in source_of(data).figures().held}
    assert address(element[0]) == staged[0, 0]
    assert address(tf.reshape(element[0], [-1])) == staged[0, 0]
    source_of(data).close()


def test_all_batches_of_all_epochs_come_in_the_order_of_the_job(
    even: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = {"batch_size": even.batch_size, "seed": SEED, "epochs": even.epochs, **SMALL}
    data = dataset(even.job.with_name("data"), **keys)
    assert data.element_spec[0] == tf.TensorSpec([5, LENGTH], tf.uint8)
    assert data.element_spec[1] == tf.TensorSpec([5], tf.int64)
    assert int(data.cardinality()) == 30
    read = [(sums(samples), labels.numpy().tolist()) for samples, labels in data]
    expected = order_of(even)
    assert [samples for samples, _ in read] == contents(even, expected)
    classes = [[int(even.files[it].parent.name[5:]) for it in batch] for batch in expected]
    assert [labels for _, labels in read] == classes
    figures = source_of(data).figures()
    assert (figures.batches, figures.samples, figures.read_directly) == (30, 150, 0)
    assert tierfeed.current().report().figures["steps"] == 30
    source_of(data).close()


def test_the_report_has_the_wait_for_a_batch_that_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Samples of 1,000 bytes are staged apart from each other, so an array of them is a copy.
    world = make_world(tmp_path, sizes=(1000, 1000), batch_size=5)
    monkeypatch.chdir(tmp_path)
    files = world.job.with_name("data")
    prefetch = {"batches": 2, "look_ahead": "off"}
    data = dataset(files, batch_size=5, seed=SEED, epochs=1, **SMALL | {"prefetch": prefetch})
    batches = iter(data)
    next(batches)
    files.rename(files.with_name("aside"))
    away = threading.Timer(1.5, lambda: files.with_name("aside").rename(files))
    away.start()
    assert len(list(batches)) == 9
    away.join()
    assert tierfeed.current().report().figures["stall_s"] > 1
    source_of(data).close()


def test_samples_of_different_lengths_are_rows_strings_or_ragged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uneven = make_world(tmp_path)
    expected = contents(uneven, order_of(uneven)[:13])
    lengths = [[len(uneven.content(it)) for it in batch] for batch in order_of(uneven)[:13]]
    with node.node(uneven) as started:
        started.adopt(monkeypatch)
        check_rows(tierfeed.connect(), expected, lengths)


def check_rows(feed: tierfeed.Feed, expected: list[list[int]], lengths: list[list[int]]) -> None:
    rows = dataset(feed, epoch=0)
    assert isinstance(rows.element_spec[0], Rows)
    assert rows.element_spec[0].data == tf.TensorSpec([None], tf.uint8)
    read = [(sums(it), it.ragged()) for it, _ in rows]
    assert [samples for samples, _ in read] == expected
    assert [[zlib.crc32(row.numpy()) for row in ragged] for _, ragged in read] == expected
    strings = dataset(feed, epoch=0, samples="strings")
    assert [sums(samples) for samples, _ in strings] == expected
    decoded = dataset(
        feed,
        epoch=0,
        decode=lambda sample, label: {"length": tf.strings.length(sample), "label": label + 1},
    )
    assert decoded.element_spec["length"] == tf.TensorSpec([None], tf.int32)
    assert [it["length"].numpy().tolist() for it in decoded] == lengths
    with pytest.raises(tierfeed.Reconfigure, match="different lengths"):
        dataset(feed, samples="array")


def test_samples_have_the_type_and_shape_that_is_asked_for(even: World, feed: tierfeed.Feed) -> None:
    spec = tf.TensorSpec([32, 32], tf.float32)
    data = dataset(feed, epoch=range(1, 2), start_step=3, sample_spec=spec)
    assert data.element_spec[0] == tf.TensorSpec([5, 32, 32], tf.float32)
    first = next(iter(data))[0]
    assert address(first) in {at for _, _, at, _ in source_of(data).figures().held}
    assert [zlib.crc32(it.numpy()) for it in first] == contents(even, order_of(even))[13]
    with pytest.raises(tierfeed.Reconfigure, match="of 8192 bytes; a sample of this dataset has 4096"):
        dataset(feed, sample_spec=tf.TensorSpec([32, 64], tf.float32))
    source_of(data).close()


def test_no_lease_is_left_by_parallel_maps_early_ends_and_dropped_iterators(
    even: World, feed: tierfeed.Feed
) -> None:
    data = dataset(feed)
    derived = data.map(lambda samples, labels: (samples[:, 0], labels), num_parallel_calls=4).prefetch(4)
    expected = [[even.content(it)[0] for it in batch] for batch in order_of(even)]
    assert [first.numpy().tolist() for first, _ in derived] == expected
    for _ in data:
        break
    assert len(list(data.take(2))) == 2
    iterator = iter(data.prefetch(2))
    next(iterator)
    del iterator, _
    wait_for(lambda: held(data) == 0, "all leases to go back")
    source_of(data).close()


def test_what_is_kept_beyond_staging_is_a_copy_and_stays(even: World, feed: tierfeed.Feed) -> None:
    data = dataset(feed)
    kept = list(data)
    figures = source_of(data).figures()
    assert figures.copied > 0 and len(figures.held) <= 8
    assert [sums(samples) for samples, _ in kept] == contents(even, order_of(even))
    source_of(data).close()


def test_many_batches_leave_no_lease(
    even: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = {"batch_size": 5, "seed": SEED, "epochs": BATCHES // 10, **SMALL}
    data = dataset(even.job.with_name("data"), **keys)
    pipeline = data.map(lambda samples, _: samples[:, 0], num_parallel_calls=4).prefetch(4)

    @tf.function
    def read() -> Any:
        total = tf.constant(0, tf.int64)
        for first in pipeline:
            total += tf.reduce_sum(tf.cast(first, tf.int64))
        return total

    assert int(read()) == BATCHES // 10 * sum(even.content(it)[0] for it in range(50))
    wait_for(lambda: held(data) == 0, "all leases to go back")
    assert source_of(data).figures().batches == BATCHES
    source_of(data).close()


def test_an_iterator_goes_on_from_its_checkpoint(
    even: World, feed: tierfeed.Feed, tmp_path: Path
) -> None:
    data = dataset(feed)
    iterator = iter(data)
    for _ in range(13):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "saved"))
    assert sum(it.stat().st_size for it in tmp_path.glob("saved*")) < 16 << 10
    again = iter(data)
    tf.train.Checkpoint(iterator=again).read(path)
    expected = contents(even, order_of(even))
    assert [sums(samples) for samples, _ in again] == expected[13:]
    source_of(data).close()


def test_the_dataset_goes_on_when_its_agent_is_killed(
    even: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node.node(even) as started:
        started.adopt(monkeypatch)
        data = dataset()
        read = []
        for number, (samples, _) in enumerate(data):
            read.append(sums(samples))
            if number == 7:
                started.agent.kill()
    assert read == contents(even, order_of(even))
    figures = source_of(data).figures()
    assert 0 < figures.read_directly < 30 and not figures.is_connected
    source_of(data).close()


def test_a_validation_set_of_the_job_has_a_dataset_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    validation = make_world(tmp_path / "other", samples=9, sizes=(LENGTH, LENGTH))
    source = validation.job.with_name("data")
    entry = f"validation: {{ source: {source}, format: image-folder, batch_size: 2 }}"
    world = make_world(tmp_path / "train", sizes=(64, 64))
    training = contents(world, order_of(world))
    world.job.write_text(f"{world.job.read_text()}datasets:\n  {entry}\n")
    checked = contents(validation, [[0, 1], [2, 3], [4, 5], [6, 7], [8]])
    with node.node(world) as started:
        started.adopt(monkeypatch)
        train, check = tierfeed.connect(), tierfeed.connect(dataset="validation")
        for epoch in range(world.epochs):
            data = dataset(train, epoch=epoch)
            steps = range(epoch * 13, epoch * 13 + 13)
            assert [sums(samples) for samples, _ in data] == [training[it] for it in steps]
            data = dataset(check, epoch=epoch)
            assert data.element_spec[0] == tf.TensorSpec([None, LENGTH], tf.uint8)
            assert [sums(samples) for samples, _ in data] == checked
            assert source_of(data).figures().read_directly == 0
        with pytest.raises(tierfeed.Reconfigure, match='has no dataset "test"'):
            dataset(dataset="test")
        with pytest.raises(TypeError, match="a feed is of one dataset"):
            dataset(train, dataset="validation")


def test_samples_in_memory_of_a_tier_are_gathered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cxl = "  cxl-memory: { numa_nodes: [0], size: 8 MiB, direct: always }\n"
    world = make_world(tmp_path, extra=cxl)
    text = world.job.read_text()
    world.job.write_text(text.replace("main-memory: { size: 16 MiB }", "main-memory: { size: 1 MiB }"))
    expected = contents(world, order_of(world))
    with node.node(world) as started:
        started.adopt(monkeypatch)
        data = dataset()
        assert [sums(samples) for samples, _ in data] == expected
        assert tierfeed.current().report().figures["direct_samples"] > 0
        source_of(data).close()


def test_an_unreadable_sample_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, batch_size=1, epochs=1, extra=STAGED_ONLY)
    lost = world.files[order_of(world)[49][0]]
    direct = world.direct()

    def read_until_it_fails(data: Any) -> None:
        read = 0
        with pytest.raises(tf.errors.NotFoundError, match=f"cannot read sample .*{lost.name}"):
            for _ in data:
                read += 1
        assert read == 49
        source_of(data).close()

    with node.node(world) as started:
        started.adopt(monkeypatch)
        lost.unlink()
        read_until_it_fails(dataset())
    read_until_it_fails(dataset(direct))


def test_unreadable_samples_are_left_out_if_the_job_skips_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = (LENGTH, LENGTH)
    world = make_world(tmp_path, epochs=1, on_error="{ skip: 20 % }", sizes=sizes, extra=STAGED_ONLY)
    batches = order_of(world)
    lost, direct = [batches[10][1], *batches[11]], world.direct()
    left = [[it for it in batch if it not in lost] for batch in batches]
    # In the place of a batch of which nothing is left comes the one before it.
    left[11] = left[10]
    expected = contents(world, left)

    def read(data: Any) -> None:
        assert data.element_spec[0] == tf.TensorSpec([None, LENGTH], tf.uint8)
        assert [sums(samples) for samples, _ in data] == expected
        assert source_of(data).figures().skipped == 5
        source_of(data).close()

    with node.node(world) as started:
        started.adopt(monkeypatch)
        for sample in lost:
            world.files[sample].unlink()
        read(dataset())
    read(dataset(direct))


def test_a_checkpoint_of_another_order_is_refused(tmp_path: Path) -> None:
    order = "shard_samples: 10"
    world = make_world(tmp_path, shuffle="mosaic", order=order, sizes=(LENGTH, LENGTH))
    saved: Any = None
    for shard in (10, 10, 20):
        text = world.job.read_text()
        world.job.write_text(re.sub("shard_samples: [0-9]+", f"shard_samples: {shard}", text))
        data = dataset(world.direct())
        batches = iter(data)
        checkpoint = tf.train.Checkpoint(batches=batches)
        if saved is None:
            first = [sums(next(batches)[0]) for _ in range(3)]
            saved = checkpoint.save(str(tmp_path / "checkpoint"))
            fourth = sums(next(batches)[0])
        elif shard == 10:
            checkpoint.restore(saved)
            assert sums(next(batches)[0]) == fourth and fourth not in first
        else:
            checkpoint.restore(saved)
            with pytest.raises(tf.errors.FailedPreconditionError, match="saved in another order"):
                next(batches)
        source_of(data).close()


def test_an_epoch_that_is_read_without_the_agent_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    world = make_world(tmp_path, sizes=(LENGTH, LENGTH), batch_size=5)
    with node.node(world) as started:
        started.adopt(monkeypatch)
        data = dataset()
        for number, _ in enumerate(data):
            if number == 12:
                started.agent.kill()
                started.agent.wait()
        source_of(data).close()
    said = [line for line in capfd.readouterr().err.splitlines() if "reading directly" in line]
    assert len(said) == 2, "one for each epoch"
    assert "10 of 10 batches of epoch 2 (100%) were read from the cold store" in said[1]


def test_batches_of_empty_samples_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = make_world(tmp_path, epochs=1, sizes=(0, 0))
    direct, expected = empty.direct(), [[0] * len(batch) for batch in order_of(empty)]
    with node.node(empty) as started:
        started.adopt(monkeypatch)
        for feed in [tierfeed.connect(), direct]:
            data = dataset(feed)
            lengths = [samples.lengths.numpy().tolist() for samples, _ in data]
            assert lengths == expected
            figures = source_of(data).figures()
            assert (figures.batches, figures.samples, figures.held) == (13, 50, [])
            source_of(data).close()


def test_wrong_arguments_say_what_would_be_right(feed: tierfeed.Feed) -> None:
    with pytest.raises(TypeError, match=r"dataset takes no batchsize=: did you mean batch_size=\?"):
        dataset("/data", batchsize=3)
    with pytest.raises(TypeError, match="dataset takes no seed=: the job file says it: order.seed"):
        dataset(seed=3)
    data = dataset(feed)
    with pytest.raises(IndexError, match="the job has 3"):
        dataset(feed, epoch=3)
    with pytest.raises(IndexError, match="step 11; epoch 1 has 10"):
        dataset(feed, epoch=1, start_step=11)
    with pytest.raises(ValueError, match='"array", "rows" or "strings"'):
        dataset(feed, samples="tensor")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_parallel_calls is -1; it must be 1 or more"):
        dataset(feed, num_parallel_calls=tf.data.AUTOTUNE)
    with pytest.raises(TypeError, match="was not made by"):
        source_of(data.take(1))
    source_of(data).close()
    with pytest.raises(tf.errors.CancelledError, match="closed"):
        next(iter(data))


def sockets() -> int:
    """The sockets that this process has open."""
    gc.collect()
    links = []
    for it in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(os.readlink(it))
    return sum(link.startswith("socket:") for link in links)


def test_a_closed_dataset_leaves_the_agent_and_never_reads_another_one(feed: tierfeed.Feed) -> None:
    before = sockets()
    data = dataset(feed, epoch=0)
    iterator = iter(data)
    next(iterator)
    assert sockets() > before
    source_of(data).close()
    with pytest.raises(tf.errors.CancelledError, match="closed"):
        collections.deque(iterator, maxlen=0)
    wait_for(lambda: sockets() == before, "the connection to end, though the iterator is there")
    other = dataset(feed, epoch=1)
    with pytest.raises(tf.errors.CancelledError, match="closed"):
        next(iter(data))
    assert source_of(other).figures().batches == 0
    source_of(other).close()


def test_keras_trains_on_it_and_reports_each_epoch(
    even: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = {"batch_size": 5, "seed": SEED, "epochs": 3, **SMALL}
    data = dataset(even.job.with_name("data"), **keys)
    source = source_of(data)
    model = tf.keras.Sequential([tf.keras.Input([LENGTH]), tf.keras.layers.Dense(3)])
    model.compile(loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    scaled = data.map(lambda samples, labels: (tf.cast(samples, tf.float32) / 255, labels))
    history = model.fit(
        scaled, epochs=3, steps_per_epoch=source.steps_per_epoch, callbacks=[Report(source)], verbose=0
    )
    printed = capsys.readouterr().out
    lines = re.findall(r"epoch (\d): (\d+) batches taken, stall [\d.]+%, cold [\d.]+%\n", printed)
    assert [epoch for epoch, _ in lines] == ["0", "1", "2"]
    # The pipeline is ahead of the training.
    assert int(lines[0][1]) >= 10 and sum(int(batches) for _, batches in lines) == 30
    assert "30 batches, 614400 bytes" in printed
    assert all(0 <= share <= 1 for share in history.history["stall"])
    # Read once, in the first epoch or before it.
    assert history.history["cold"][1:] == [0, 0]
    source.close()


def test_the_script_of_the_page_learns_and_does_not_repeat_what_it_has_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page.write_cifar(tmp_path / "cifar10")
    first = page.run("tensorflow", "/data/cifar10", "cifar10")
    losses = re.findall(r"epoch (\d): loss ([\d.]+)\n", first)
    assert [epoch for epoch, _ in losses] == ["0", "1"]
    assert float(losses[1][1]) < float(losses[0][1]) < 2.4
    assert page.run("tensorflow", "/data/cifar10", "cifar10") == ""


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for it in sockets:
            it.bind(("127.0.0.1", 0))
        return [it.getsockname()[1] for it in sockets]


# Two processes that import the newest version take 20 s.
if VERSIONS != "newest":

    def test_each_worker_of_a_strategy_trains_on_samples_of_its_own(
        even: World, tmp_path: Path
    ) -> None:
        keys = {"batch_size": 5, "seed": SEED, "epochs": 1, **SMALL}
        workers = [f"127.0.0.1:{port}" for port in free_ports(2)]
        script = Path(__file__).with_name("distributed_trainer.py")
        started = []
        for index in range(2):
            config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
            line = [sys.executable, script, even.job.with_name("data"), json.dumps(keys)]
            package = str(Path(tierfeed.__file__).parents[1])
            settings = {**os.environ, "TF_CONFIG": json.dumps(config), "PYTHONPATH": package}
            started.append(
                subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=settings)
            )
        told = [json.loads(it.communicate(timeout=120)[0].splitlines()[0]) for it in started]
        assert [(it["rank"], it["world"]) for it in told] == [(0, 2), (1, 2)]
        trained = [sample for it in told for batch in it["read"] for sample in batch]
        assert sorted(trained) == sorted(zlib.crc32(even.content(it)) for it in range(50))
