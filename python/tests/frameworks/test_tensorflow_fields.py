"""`tierfeed.tensorflow.dataset` over samples of several fields: rows of one, tensors of the others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy
import pytest

import containers
import needs
import node
import photographs
import tierfeed
import tierfeed.numpy
from conftest import make_world
from tierfeed import transforms

tf = needs.module("tensorflow")

from tierfeed.tensorflow import dataset, source_of  # noqa: E402

pytestmark = pytest.mark.node

CROPPED = transforms.compose(transforms.random_crop(32), transforms.layout("hwc"))
PAIR = tf.TensorSpec([2], tf.float32)
WANTED: dict[str, dict[str, Any]] = {
    "webdataset": {"txt": tf.string, "cls": tf.int64},
    "tfrecord": {
        "image/points": PAIR,
        "image/class/text": tf.string,
        "image/class/label": tf.int32,
    },
    "mds": {"class": tf.int64, "caption": tf.string, "weight": tf.float64},
}


def assert_fields(format: str, fields: dict[str, Any], numbers: list[int]) -> None:
    """Tensors have the values of these samples, with the types that were asked for."""
    assert set(fields) == set(WANTED[format])
    for name, spec in WANTED[format].items():
        assert fields[name].dtype == getattr(spec, "dtype", spec)
        expected = [containers.expected_fields(format, number)[name] for number in numbers]
        strings = [it.encode() if isinstance(it, str) else it for it in expected]
        assert fields[name].numpy().tolist() == strings, name


@pytest.mark.parametrize("format", WANTED)
def test_tensors_of_fields_come_from_the_agent_and_without_it(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = containers.make_world(tmp_path, format, CROPPED, image=photographs.png)
    rows = tierfeed.numpy.TierLoader(world.direct())
    steps = rows.feed.steps_per_epoch
    with node.node(world) as started:
        started.adopt(monkeypatch)
        data = dataset(fields=WANTED[format])
        spec = data.element_spec[1]
        assert {name: it.dtype for name, it in spec.items()} == {
            name: getattr(it, "dtype", it) for name, it in WANTED[format].items()
        }
        taken = 0
        for number, (images, fields) in enumerate(data):
            epoch, step = divmod(number, steps)
            numbers = rows.feed.order.batch(epoch, step, 0)
            assert numpy.array_equal(images.numpy(), rows.batch(epoch, step)[0])
            assert_fields(format, fields, numbers)
            taken += 1
            if number == 4:
                started.agent.kill()
    figures = source_of(data).figures()
    assert taken == figures.batches == 2 * steps
    assert 0 < figures.read_directly < taken
    source_of(data).close()


def test_skipped_samples_lack_their_fields_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiled(number: int) -> bytes:
        return b"no image" if number == 9 else photographs.png(number)

    world = containers.make_world(tmp_path, "tfrecord", CROPPED, on_error="skip", image=spoiled)
    order = world.direct().order
    expected = [number for step in range(6) for number in order.batch(0, step, 0) if number != 9]

    def captions(data: Any) -> list[bytes]:
        return [text for _, fields in data for text in fields["image/class/text"].numpy()]

    wanted = {"image/class/text": tf.string}
    with node.node(world) as started:
        started.adopt(monkeypatch)
        found = captions(dataset(fields=wanted, epoch=0))
    assert found == [containers.caption(number).encode() for number in expected]
    assert captions(dataset(world.direct(), fields=wanted, epoch=0)) == found


def test_fields_that_samples_do_not_have_are_named(tmp_path: Path) -> None:
    feed = containers.make_world(tmp_path, "tfrecord", CROPPED, image=photographs.png).direct()

    def refused(fields: Any) -> str:
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            next(iter(dataset(feed, fields=fields)))
        return str(caught.value)

    missing = refused({"label": tf.int64})
    assert re.search(r"sample \d+, train-0000\d-of-00002 at byte \d+: it has no field `label`", missing)
    assert "it has image/class/label, image/class/text, image/encoded, image/points" in missing
    assert "field `image/class/text` is not integers" in refused({"image/class/text": tf.int64})
    assert "has 2 values, and `fields` says 1" in refused({"image/points": tf.float32})


def test_wrong_fields_say_what_would_be_right(tmp_path: Path) -> None:
    def feed(format: str) -> tierfeed.Feed:
        root = tmp_path / format
        return containers.make_world(root, format, CROPPED, image=photographs.png).direct()

    records = feed("tfrecord")
    with pytest.raises(ValueError, match=r"no labels in the index; name those that training needs"):
        dataset(records)
    with pytest.raises(ValueError, match=r"name one with its type"):
        dataset(records, fields={})
    with pytest.raises(ValueError, match=r"it may be tf.string, or a type of numbers"):
        dataset(records, fields={"image/class/label": tf.bool})
    with pytest.raises(ValueError, match=r"a sample has one string, or 1 number or more"):
        dataset(records, fields={"image/points": tf.TensorSpec([None], tf.float32)})
    shards = feed("webdataset")
    images, labels = next(iter(dataset(shards)))
    assert labels.numpy().tolist() == [it % 5 for it in shards.order.batch(0, 0, 0)]
    assert images.shape == (4, 32, 32, 3)
    plain = make_world(tmp_path / "plain").direct()
    with pytest.raises(ValueError, match=r"fields= is for samples of several fields"):
        dataset(plain, fields={"cls": tf.int64})
