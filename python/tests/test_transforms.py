"""Samples that are transformed: the steps, what they draw, and rows with and without an agent."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import select
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import node
import photographs
import tierfeed
import tierfeed.numpy
import tierfeed.torch
from conftest import SEED, World, make_world
from tierfeed import arguments, transforms

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
SMALL = {"chunk": "1 MiB", "tiers": {"main-memory": {"size": "16 MiB"}}}
CROPPED = transforms.compose(
    transforms.random_resized_crop(32), transforms.random_horizontal_flip(0.5)
)
NORMALIZED = transforms.compose(
    transforms.random_resized_crop((30, 21)),
    transforms.random_horizontal_flip(),
    transforms.normalize(MEAN, STD),
    transforms.layout("hwc"),
)

NO_IMAGE = "this is no JPEG, PNG or WebP image, but zeros, such as a download that was broken off leaves"


def photographed(root: Any, transform: dict[str, Any], **given: Any) -> World:
    extra = f"transform: {json.dumps(transform)}\n"
    return make_world(root, samples=23, contents=photographs.encoded, extra=extra, **given)


def expected(world: World, transform: Any, epoch: int, sample: int) -> photographs.Pixels:
    return photographs.row(world.content(sample), transform, seed=SEED, epoch=epoch, sample=sample)


def assert_rows(world: World, transform: Any, batch: tierfeed.Batch, rows: Any) -> None:
    """Rows of uint8, `hwc`, are what Pillow makes of the draws; a resize may round otherwise."""
    for sample, found in zip(batch.samples, rows, strict=True):
        should = expected(world, transform, batch.epoch, sample)
        difference = numpy.abs(found.astype(int) - should)
        assert difference.max() <= 1, f"sample {sample}: {difference.max()}"


def test_a_draw_is_that_of_the_documentation() -> None:
    """Values of the draws that docs/transforms.md describes."""
    for seed, epoch, sample, size, crop, is_flipped in [
        (0, 0, 0, (500, 375), (177, 32, 260, 323), False),
        (42, 3, 1_234_567, (500, 375), (9, 23, 291, 264), False),
        (7, 89, 1_281_166, (400, 400), (114, 79, 240, 272), True),
    ]:
        draw = transforms.replay(
            [transforms.random_resized_crop(224), transforms.random_horizontal_flip(0.5)],
            seed=seed, epoch=epoch, sample=sample, height=size[0], width=size[1],
        )  # fmt: skip
        assert (draw.crop, draw.is_flipped) == (crop, is_flipped)
        assert ("resize", (224, 224)) in draw.operations


@pytest.mark.node
def test_the_first_script_of_the_page_trains_on_a_folder(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, samples=5, contents=photographs.png)
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "transforms.md").read_text()
    script = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    assert '"/data/train"' in script
    found: dict[str, Any] = {}
    exec(script.replace("/data/train", str(world.job.with_name("data"))), found)
    images, labels = found["images"], found["labels"]
    assert (images.shape, images.dtype) == ((5, 3, 224, 224), torch.float32)
    assert labels.shape == (5,)
    found["loader"].close()


def page() -> dict[str, Any]:
    """What the code of docs/transforms.md under "What is random" defines, and asserts."""
    text = (Path(__file__).parents[2] / "docs" / "transforms.md").read_text()
    (section,) = (it for it in text.split("\n## ") if it.startswith("What is random"))
    found: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(compile(code, "transforms.md", "exec"), found)
    return found


def test_draws_are_those_of_the_program_in_the_documentation() -> None:
    documented = page()
    steps = [transforms.random_resized_crop(224), transforms.random_horizontal_flip(0.3)]
    generator = random.Random(1)
    for _ in range(500):
        seed, sample = generator.getrandbits(64), generator.getrandbits(generator.choice([8, 32, 64]))
        epoch = generator.getrandbits(32)
        height, width = generator.randint(1, 900), generator.randint(1, 900)
        given = {"seed": seed, "epoch": epoch, "sample": sample, "height": height, "width": width}
        draw = transforms.replay(steps, **given)
        crop = documented["random_resized_crop"](step=0, **given)
        assert draw.crop == crop, given
        assert draw.is_flipped == documented["is_mirrored"](seed, epoch, sample, 1, 0.3), given
        if min(height, width) >= 20:
            draw = transforms.replay(transforms.random_crop((20, 10)), **given)
            assert draw.crop == documented["random_crop"](step=0, size=(20, 10), **given)


def test_steps_that_yield_no_rows_are_refused_where_they_are_put_together() -> None:
    with pytest.raises(ValueError, match="the size of a row would depend on the image"):
        transforms.compose(transforms.resize(256))
    with pytest.raises(ValueError, match=r"steps\[1\].normalize.mean is .* expected 3 numbers"):
        transforms.compose(transforms.center_crop(8), transforms.normalize([0.5], [0.5]))
    with pytest.raises(ValueError, match="unknown field `resze`"):
        transforms.compose({"resze": 8})
    with pytest.raises(ValueError, match="dtype.*float128"):
        transforms.compose(transforms.center_crop(8), transforms.dtype("float128"))
    with pytest.raises(ValueError, match="both must be 1 or more"):
        transforms.replay(CROPPED, seed=0, epoch=0, sample=0, height=0, width=5)


def test_the_arguments_of_a_loader_become_the_mapping_of_a_job() -> None:
    step = transforms.center_crop(numpy.int64(8))  # type: ignore[arg-type]
    for given in [step, [step], (step,), {"steps": [step]}]:
        text = arguments.job_file("data", {"transform": given, "threads": 3})
        assert '"center_crop": 8' in text and '"threads": 3' in text
    with pytest.raises(TypeError, match="A function of Python is decode="):
        arguments.job_file("data", {"transform": lambda sample: sample})


def test_a_feed_without_an_agent_hands_out_the_rows_of_the_draws(tmp_path) -> None:
    world = photographed(tmp_path, CROPPED)
    feed = world.direct()
    assert feed.transform is not None
    assert (feed.transform.shape, feed.transform.dtype) == ((3, 32, 32), "uint8")
    for batch in feed.epoch(1):
        rows = batch.array().numpy().reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        assert_rows(world, CROPPED, batch, rows)
        assert batch.labels == [int(world.files[it].parent.name[-1]) for it in batch.samples]


def test_numpy_gets_rows_over_the_bytes_of_the_batch(tmp_path) -> None:
    world = photographed(tmp_path, NORMALIZED)
    feed = world.direct()
    loader = tierfeed.numpy.TierLoader(feed)
    batch = feed.batch(0, 0)
    array, labels = loader.batch(0, 0)
    assert (array.shape, array.dtype) == ((4, 30, 21, 3), numpy.float32)
    levels = numpy.rint((array * STD + MEAN) * 255)
    assert_rows(world, NORMALIZED, batch, levels)
    assert labels.tolist() == batch.labels
    # 7560 bytes a row, at multiples of 64: not contiguous, and not copied.
    assert array.strides[0] == 7616
    whole = tierfeed.numpy.Rows(tierfeed.numpy.row_dtype(feed.transform))
    assert numpy.shares_memory(whole(batch)[0], batch.array().numpy())


def test_torch_gets_one_tensor_over_the_bytes_of_the_batch(tmp_path) -> None:
    transform = transforms.compose(
        transforms.random_resized_crop((30, 21)), transforms.dtype("bfloat16")
    )
    world = photographed(tmp_path, transform)
    loader = tierfeed.torch.TierLoader(world.direct())
    for tensor, labels in loader:
        count = len(labels)
        assert (tensor.shape, tensor.dtype) == ((count, 3, 30, 21), torch.bfloat16)
        assert labels.dtype == torch.int64
    batch = loader.feed.batch(0, 0)
    tensor, _ = tierfeed.torch.tensors.RowTensors(loader.feed.transform).batch(batch)
    assert tensor.data_ptr() == batch.array().address
    levels = (tensor.float() * 255).round().permute(0, 2, 3, 1).numpy()
    # bfloat16 has eight bits.
    should = expected(world, transform, 0, batch.samples[0])
    assert numpy.abs(levels[0] - should).max() <= 2


def test_numpy_says_what_bfloat16_needs(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = photographed(
        tmp_path, transforms.compose(transforms.center_crop(8), transforms.dtype("bfloat16"))
    )
    feed = world.direct()
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(tierfeed.Reconfigure, match="with the package ml_dtypes only"):
        tierfeed.numpy.TierLoader(feed)


def test_torch_says_which_type_it_lacks(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = photographed(tmp_path, transforms.compose(transforms.center_crop(8))).direct()
    monkeypatch.delattr(torch, "uint8")
    with pytest.raises(tierfeed.Reconfigure, match="uint8, which PyTorch .* does not have"):
        tierfeed.torch.TierLoader(feed)


def test_a_data_loader_over_samples_gets_rows(tmp_path) -> None:
    world = photographed(tmp_path, CROPPED)
    dataset = tierfeed.torch.TierDataset(world.direct())
    tensor, label = dataset[5]
    assert (tensor.shape, tensor.dtype) == ((3, 32, 32), torch.uint8)
    assert label == int(world.files[5].parent.name[-1])


@pytest.mark.parametrize("loader", [tierfeed.torch.TierLoader, tierfeed.numpy.TierLoader])
def test_decode_and_a_transform_exclude_each_other(tmp_path, loader: Any) -> None:
    feed = photographed(tmp_path, CROPPED).direct()
    for given in [{"decode": lambda sample, label: label}]:
        with pytest.raises(ValueError, match="decode= in a job with a transform"):
            loader(feed, **given)
    with pytest.raises(ValueError, match="decode= in a job with a transform"):
        # Before anything is started.
        loader("nowhere", transform=CROPPED, decode=lambda sample, label: label)
    with pytest.raises(ValueError, match=r"(collate|record)= in a job with a transform"):
        name = "record" if loader is tierfeed.numpy.TierLoader else "collate"
        loader(feed, **{name: "uint8"})


def test_a_sample_that_is_no_image_is_named(tmp_path) -> None:
    world = photographed(tmp_path, CROPPED)
    spoil(world, 9)
    with pytest.raises(tierfeed.SampleError, match="cannot transform sample 9, .*00.*jpg") as raised:
        world.direct().read([8, 9])
    assert (raised.value.sample, raised.value.reason) == (9, "untransformable")


def test_a_sample_that_is_no_image_is_left_out_with_skip(tmp_path) -> None:
    world = photographed(tmp_path, CROPPED, on_error="skip")
    spoil(world, 9)
    feed = world.direct()
    with pytest.warns(RuntimeWarning, match="left out"):
        batch = feed.read([8, 9, 10])
    assert (batch.samples, batch.skipped) == ([8, 10], [9])
    assert [(it.sample, it.reason) for it in feed.skipped] == [(9, NO_IMAGE)]
    rows, labels = tierfeed.torch.tensors.RowTensors(feed.transform).batch(batch)
    assert (rows.shape, labels.tolist()) == ((2, 3, 32, 32), batch.labels)
    assert_rows(world, CROPPED, batch, rows.permute(0, 2, 3, 1).numpy())


def test_a_feed_in_another_process_makes_the_same_rows(tmp_path) -> None:
    world = photographed(tmp_path, CROPPED)
    feed = world.direct()
    with pytest.warns(RuntimeWarning, match="directly"):
        copy = pickle.loads(pickle.dumps(feed))
        assert bytes(copy.batch(0, 1).array()) == bytes(feed.batch(0, 1).array())


def spoil(world: World, sample: int) -> None:
    """Replaces an image by as many other bytes, with the time that the index has."""
    path, before = world.files[sample], world.files[sample].stat()
    path.write_bytes(b"\x00" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def rows_of(feed: tierfeed.Feed) -> Iterator[tuple[tuple[int, int], list[int], bytes]]:
    """Each batch of the job: its place, its samples, the bytes of its rows."""
    for epoch in range(feed.epochs):
        for batch in feed.epoch(epoch):
            yield batch.place, batch.samples, bytes(batch.array())
            batch.release()


@pytest.mark.node
def test_an_agent_makes_the_rows_of_the_draws(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = photographed(tmp_path, NORMALIZED)
    with node.node(world) as running:
        running.adopt(monkeypatch)
        feed = tierfeed.connect()
        loader = tierfeed.numpy.TierLoader(feed)
        for epoch in range(world.epochs):
            for step, (array, labels) in enumerate(loader):
                ids = feed.order.batch(epoch, step, 0)
                levels = numpy.rint((array * STD + MEAN) * 255)
                for sample, found in zip(ids, levels, strict=True):
                    should = expected(world, NORMALIZED, epoch, sample)
                    assert numpy.abs(found - should).max() <= 1, f"sample {sample}"
                assert labels.tolist() == [int(world.files[it].parent.name[-1]) for it in ids]
        assert feed.mode == "agent" and loader.stats()["batches"] == 18


@pytest.mark.node
@pytest.mark.parametrize("taken", [0, 3, 11])
def test_a_killed_agent_changes_no_row(
    tmp_path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    world = photographed(tmp_path, CROPPED)
    undisturbed = list(rows_of(world.direct()))
    with node.node(world) as running:
        running.adopt(monkeypatch)
        feed = tierfeed.connect()
        rows = rows_of(feed)
        read = [next(rows) for _ in range(taken)]
        running.agent.send_signal(signal.SIGKILL)
        running.agent.wait()
        with pytest.warns(RuntimeWarning, match="reading the rest of the epoch directly"):
            read += rows
        assert feed.mode == "direct"
    assert read == undisturbed


@pytest.mark.node
def test_a_run_from_the_command_line_hands_out_rows(tmp_path) -> None:
    world = photographed(tmp_path, CROPPED)
    (log,) = node.run(world, "feed")
    direct = world.direct()
    for found in log.batches:
        batch = direct.batch(found["epoch"], found["step"])
        assert (found["samples"], found["labels"]) == (batch.samples, batch.labels)
        assert found["crcs"] == [zlib.crc32(sample) for sample in batch]
        assert found["origin"] == "agent"
    assert len(log.batches) == 18


@pytest.mark.node
@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_an_agent_treats_a_broken_image_as_on_error_says(
    tmp_path, monkeypatch: pytest.MonkeyPatch, on_error: str
) -> None:
    world = photographed(tmp_path, CROPPED, on_error=on_error)
    spoil(world, 9)
    workers_before = set(own_workers())
    with node.node(world) as running:
        running.adopt(monkeypatch)
        loader = tierfeed.torch.TierLoader(tierfeed.connect())
        if on_error == "fail":
            message = f"cannot transform sample 9, .*jpg: {NO_IMAGE}"
            with pytest.raises(tierfeed.SampleError, match=message) as raised:
                list(loader)
            assert (raised.value.sample, raised.value.reason) == (9, "untransformable")
            # The agent has said why: this process had no worker of its own try it.
            assert set(own_workers()) <= workers_before
            return
        with pytest.warns(RuntimeWarning, match="sample 9, .*jpg, is left out"):
            counts = [(len(tensor), len(labels)) for tensor, labels in loader]
        assert sorted(counts) == [(3, 3), (3, 3), *[(4, 4)] * 4]
        left_out = [(it.sample, it.reason) for it in loader.skipped]
        assert left_out == [(9, NO_IMAGE)]
        assert world.files[9].match(loader.skipped[0].object)


def test_a_job_file_with_a_wrong_step_is_refused_with_its_line(tmp_path) -> None:
    world = photographed(tmp_path, CROPPED)
    text = world.job.read_text()
    line = text[: text.index("transform:")].count("\n") + 1
    world.job.write_text(text.replace('"random_horizontal_flip": 0.5', '"random_horizontal_flip": 5'))
    done = subprocess.run(
        node.command("plan", world.job), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    said = f"{line}: transform.steps[1].random_horizontal_flip is `5`; it must be between 0 and 1"
    assert said in done.stderr


@pytest.mark.node
@pytest.mark.parametrize("cache", ["stored", "prepared", "auto"])
@pytest.mark.parametrize(
    "steps",
    [
        [transforms.resize((40, 30)), transforms.random_horizontal_flip(), transforms.layout("hwc")],
        [transforms.resize(40), transforms.center_crop(32), transforms.normalize(MEAN, STD)],
    ],
)
def test_rows_are_the_same_in_whichever_form_tiers_keep_samples(
    tmp_path, monkeypatch: pytest.MonkeyPatch, cache: Any, steps: list[Any]
) -> None:
    world = photographed(tmp_path, transforms.compose(*steps, cache=cache))
    undisturbed = list(rows_of(world.direct()))
    with node.node(world) as running:
        running.adopt(monkeypatch)
        feed = tierfeed.connect()
        assert list(rows_of(feed)) == undisturbed
        assert feed.mode == "agent"
        hits = running.metric("tierfeed_promotions_total") + running.metric("tierfeed_hits_total")
        assert hits > 0, "something was kept"


@pytest.mark.node
def test_arrays_come_as_arrays(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data"
    data.mkdir()
    generator = numpy.random.default_rng(3)
    arrays = generator.normal(size=(12, 2, 5, 3)).astype(numpy.float32)
    for number, array in enumerate(arrays):
        numpy.savez_compressed(data / f"{number:02}.npz", x=array)
    given = {"batch_size": 4, "shuffle": False, "epochs": 2, **SMALL}
    whole = transforms.array((2, 5, 3), "float32", key="x")
    member = transforms.array((2, 5, 3), "float32")
    for keys in [
        {"format": "files", "glob": "*.npz", "transform": whole},
        {"format": "npz", "transform": member},
    ]:
        with tierfeed.numpy.TierLoader(data, **given, **keys) as loader:
            found = [numpy.array(rows) for rows, _ in loader]
            assert loader.feed.mode == "agent"
        assert numpy.array_equal(numpy.concatenate(found), arrays)


@pytest.mark.node
def test_tokens_are_widened_for_an_embedding(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tokens = numpy.random.default_rng(4).integers(0, 65536, 10 * 33, numpy.uint16)
    tokens.tofile("train.bin")
    with tierfeed.torch.TierLoader(
        tmp_path / "train.bin",
        format="raw", dtype="uint16", sequence_length=33, batch_size=5, shuffle=False, epochs=1,
        transform=[transforms.tokens(33, "uint16"), transforms.dtype("int64")], **SMALL,
    ) as loader:  # fmt: skip
        batches = [rows.clone() for rows, _ in loader]
    assert batches[0].dtype == torch.int64
    assert numpy.array_equal(torch.cat(batches).numpy(), tokens.reshape(10, 33))


@pytest.mark.node
def test_a_loader_that_goes_on_where_another_one_stopped_gets_the_same_rows(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = photographed(tmp_path, CROPPED, ranks=2)
    with node.node(world) as running:
        running.adopt(monkeypatch)
        monkeypatch.setenv("TIERFEED_RANK", "1")
        loader = tierfeed.numpy.TierLoader()
        whole = [rows.copy() for epoch in range(3) for rows, _ in loader]
        loader.set_epoch(1)
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        loader.close()
        second = tierfeed.numpy.TierLoader()
        second.load_state_dict(state)
        rest = [rows.copy() for rows, _ in second] + [rows.copy() for rows, _ in second]
    assert numpy.array_equal(numpy.concatenate(rest), numpy.concatenate(whole[4:]))


def test_an_interrupt_ends_a_read_whose_worker_stands_still(tmp_path) -> None:
    """With signals that come all the time, and though the worker could take half a minute more."""
    world = photographed(tmp_path, CROPPED)
    feed = world.direct()
    should = [bytes(it) for it in feed.batch(0, 0)]
    [worker] = own_workers()
    os.kill(worker, signal.SIGSTOP)
    ticks = 0

    def tick(*_: Any) -> None:
        nonlocal ticks
        ticks += 1
        if ticks == 20:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        with pytest.raises(KeyboardInterrupt):
            feed.batch(0, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ticks < 500, "ten seconds, of a worker's thirty"
    wait_for_end_of(worker)
    assert own_workers() == [], "the worker that stood still is gone"
    assert [bytes(it) for it in feed.batch(0, 0)] == should


def own_workers() -> list[int]:
    """The transform workers of what this process has started to read."""
    started = children_of(os.getpid())
    readers = [it for it in started if command_of(it).split(b"\0")[1:2] == [b"read"]]
    return [worker for reader in readers for worker in workers_of(reader)]


def workers_of(process: int) -> list[int]:
    """The transform workers that a process has started, or a process that it has started."""
    started = children_of(process)
    workers = [it for it in started if command_of(it).startswith(b"tierfeed-transform-worker")]
    return workers + [worker for it in started for worker in workers_of(it)]


def command_of(process: int) -> bytes:
    """Empty if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def children_of(process: int) -> list[int]:
    """None if it has ended."""
    try:
        children = Path(f"/proc/{process}/task").glob("*/children")
        return [int(it) for task in children for it in task.read_text().split()]
    except OSError:
        return []


def wait_for_end_of(process: int) -> None:
    """The kernel ends it with its starter, and may take a moment."""
    with suppress(ProcessLookupError):
        ended = os.pidfd_open(process)
        assert select.select([ended], [], [], 10.0)[0], "it still runs"
        os.close(ended)
