"""Samples of several fields of which the agent transforms one: the rows, and the fields beside them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import containers
import node
import photographs
import tierfeed
import tierfeed.numpy
import tierfeed.torch
from conftest import SEED, World
from tierfeed import transforms
from tierfeed.fields import columns_of

pytestmark = pytest.mark.node

FORMATS = list(containers.WRITERS)
CROPPED = transforms.compose(
    transforms.random_resized_crop(32),
    transforms.random_horizontal_flip(0.5),
    transforms.layout("hwc"),
)
ROOMY = {"chunk": "1 MiB", "tiers": {"main-memory": {"size": "64 MiB"}}}


def assert_rows(array: Any, epoch: int, numbers: list[int], transform: Any = CROPPED) -> None:
    """Rows are what Pillow makes of the draws; a resize may round otherwise."""
    assert len(array) == len(numbers)
    for row, number in zip(array, numbers, strict=True):
        stored = photographs.encoded(number)
        should = photographs.row(stored, transform, seed=SEED, epoch=epoch, sample=number)
        difference = numpy.abs(row.astype(int) - should)
        assert difference.max() <= 1, f"sample {number} of epoch {epoch}: {difference.max()}"


def assert_fields(format: str, fields: dict[str, Any], numbers: list[int]) -> None:
    """Fields of a batch are those of its samples: numbers as arrays, the rest as lists."""
    expected = [containers.expected_fields(format, number) for number in numbers]
    assert list(fields) and set(fields) == set(expected[0])
    for name, column in fields.items():
        values = [of[name] for of in expected]
        is_array = isinstance(values[0], (int, float, list))
        assert is_array == (not isinstance(column, list)), name
        assert (column.tolist() if is_array else column) == values, name


@pytest.mark.parametrize("format", FORMATS)
def test_a_loader_gets_rows_and_the_other_fields_of_the_agent(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = containers.write(tmp_path / "data", format)
    keys = {"format": format, "batch_size": 4, "seed": SEED, "epochs": 2, **ROOMY}
    with tierfeed.numpy.TierLoader(source, transform=CROPPED, **keys) as loader:
        feed = loader.feed
        for epoch in range(2):
            for step, (array, fields) in enumerate(loader):
                numbers = feed.order.batch(epoch, step, 0)
                assert_rows(array, epoch, numbers)
                assert_fields(format, fields, numbers)
        batch = feed.batch(0, 0)
        assert batch.origin == "agent"
        array, _ = loader.batch(0, 1)
        agent = feed.agent()
        assert agent is not None
        start, length = agent.arena
        assert start <= array.ctypes.data < start + length


@pytest.mark.parametrize("format", FORMATS)
def test_torch_gets_tensors_of_the_fields_that_are_numbers(format: str, tmp_path: Path) -> None:
    world = containers.make_world(tmp_path, format, CROPPED)
    feed = world.direct()
    loader = tierfeed.torch.TierLoader(feed)
    for step, (images, fields) in enumerate(loader):
        numbers = feed.order.batch(0, step, 0)
        assert_rows(images.numpy(), 0, numbers)
        assert_fields(format, fields, numbers)
    names = {"webdataset": "cls", "tfrecord": "image/class/label"}
    label = fields[names.get(format, "class")]
    assert isinstance(label, torch.Tensor) and label.dtype == torch.int64


@pytest.mark.parametrize("format", FORMATS)
def test_a_training_whose_agent_is_killed_gets_the_same_rows_and_fields(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = containers.make_world(tmp_path, format, CROPPED, epochs=3)
    with node.node(world) as running:
        running.adopt(monkeypatch)
        loader = tierfeed.numpy.TierLoader()
        origins, read = set(), 0
        for epoch in range(3):
            for step, (array, fields) in enumerate(loader):
                numbers = loader.feed.order.batch(epoch, step, 0)
                assert_rows(array, epoch, numbers)
                assert_fields(format, fields, numbers)
                origins.add(loader.feed.mode)
                read += 1
                if read == 5:
                    running.agent.kill()
        loader.close()
    assert origins == {"agent", "direct"} and read == 18


@pytest.mark.parametrize("format", FORMATS)
def test_tierfeed_run_trains_on_one_field_and_keeps_the_stored_form(
    format: str, tmp_path: Path
) -> None:
    world = containers.make_world(tmp_path, format, CROPPED)
    (log,) = node.run(world, "feed")
    assert len(log.batches) == 12 and all(row["origin"] == "agent" for row in log.batches)
    transform = node.report(tmp_path / "run")["transform"]
    assert (transform["cached"], transform["failed"]) == ("stored", 0)
    assert "other fields" in transform["cached_because"]


def spoiled(number: int) -> bytes:
    return b"no image" if number == 9 else photographs.encoded(number)


@pytest.mark.parametrize("format", FORMATS)
def test_a_corrupt_image_among_the_fields_is_left_out_with_skip(format: str, tmp_path: Path) -> None:
    world = containers.make_world(tmp_path, format, CROPPED, on_error="skip", image=spoiled)
    (log,) = node.run(world, "feed")
    found = [sample for row in log.batches for sample in row["samples"]]
    assert 9 not in found and len(found) == 2 * (containers.SAMPLES - 1)
    assert node.report(tmp_path / "run")["transform"]["failed"] == 2
    loader = tierfeed.numpy.TierLoader(world.direct())
    feed = loader.feed
    steps = (step for step in range(6) if 9 in feed.order.batch(0, step, 0))
    step = next(steps)
    array, fields = loader.batch(0, step)
    left = [number for number in feed.order.batch(0, step, 0) if number != 9]
    assert_rows(array, 0, left)
    assert_fields(format, fields, left)


@pytest.mark.parametrize("format", FORMATS)
def test_a_corrupt_image_among_the_fields_ends_training_with_fail(
    format: str, tmp_path: Path
) -> None:
    world = containers.make_world(tmp_path, format, CROPPED, image=spoiled)
    assert "sample 9" in run_in_vain(world)


def test_a_field_is_named_where_several_are_images(tmp_path: Path) -> None:
    """Also one whose name is of two parts, as those of masks."""
    picture = photographs.png(3)

    def world(folder: str, **given: Any) -> World:
        root = tmp_path / folder
        made = containers.make_world(root, "webdataset", {**CROPPED, **given})
        names = {"00000.jpg": photographs.png(1), "00000.seg.png": picture, "00000.png": b"none"}
        containers.tar(root / "data" / "0.tar", names)
        (root / "data" / "1.tar").unlink()
        node.run_command("index", root / "data", "--format", "webdataset", "--output", made.index)
        return made

    batch = world("named", field="seg.png").direct().batch(0, 0)
    should = photographs.row(picture, CROPPED, seed=SEED, epoch=0, sample=0)
    row = batch.array().numpy().reshape(32, 32, 3)
    assert numpy.abs(row.astype(int) - should).max() <= 1
    for folder, given, message in [
        ("unnamed", {}, "2 of its fields are images; name one of jpg, seg.png, png as"),
        ("missing", {"field": "jpeg"}, "no field `jpeg` .*; it has jpg, seg.png, png"),
    ]:
        with pytest.raises(tierfeed.SampleError, match=message):
            world(folder, **given).direct().batch(0, 0)


def test_a_field_of_samples_without_fields_is_refused(tmp_path: Path) -> None:
    world = containers.make_world(tmp_path, "webdataset", {**CROPPED, "field": "jpg"})
    text = world.job.read_text()
    for old, new, message in [
        ("webdataset }", "image-folder }", "transform.field is for samples of several fields"),
        ('"field"', '"cache": "prepared", "field"', "transform.cache is `prepared`, but samples of"),
        ("webdataset }", "parquet }", "one of `format: parquet` is a row group, many rows"),
    ]:
        world.job.write_text(text.replace(old, new))
        assert message in run_in_vain(world)


def test_what_the_index_says_of_fields_is_checked_before_training(tmp_path: Path) -> None:
    fields = "image ({}), class (int), caption (str), weight (float64)"
    for encoding, named, message in [
        ("jpeg", "jpg", f"no field `jpg` (transform.field); they have {fields.format('jpeg')}"),
        ("pil", "image", "field `image` is of `pil`, pixels and no image file, which transform cannot"),
        ("pil", None, "field `image` is of `pil`, pixels and no image file, which transform cannot"),
        ("tensor", None, "0 of the fields of a sample are images; name one of them as transform.field"),
    ]:
        given = {} if named is None else {"field": named}
        root = tmp_path / f"{encoding}-{named}"
        world = containers.make_world(root, "litdata", {**CROPPED, **given})
        index = root / "data" / "index.json"
        index.write_text(index.read_text().replace('"jpeg"', f'"{encoding}"'))
        said = run_in_vain(world)
        assert message in said and f"{root}/data" in said, said


def run_in_vain(world: World) -> str:
    run_dir = world.job.with_name("run")
    line = node.command("run", world.job, "--run-dir", run_dir, "--", *node.trainer(world, "feed"))
    done = subprocess.run(line, capture_output=True, text=True, timeout=node.TIMEOUT_S)
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize("value", [b"9223372036854775808", b"-9223372036854775809"])
def test_a_number_that_no_tensor_takes_names_its_sample_and_field(value: bytes) -> None:
    class Stored:
        id = 7
        stored = b""

    class Members:
        def fields(self, stored: bytes) -> list[tuple[str, str, bytes]]:
            return [("cls", "member", value)]

    named = f"field cls of sample 7 is {value.decode()}, .*int64"
    with pytest.raises(tierfeed.Reconfigure, match=named):
        columns_of(Members(), [Stored()])  # type: ignore[arg-type,list-item]
