"""A validation beside a training, each with a transform of its own or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest

import containers
import node
import photographs
import tierfeed
import tierfeed.numpy
from conftest import SEED, World, make_world
from tierfeed import transforms

pytestmark = pytest.mark.node

SAMPLES, VALIDATION, BATCH = 22, 9, 4
CROPPED = transforms.compose(
    transforms.random_resized_crop(32),
    transforms.random_horizontal_flip(0.5),
    transforms.layout("hwc"),
)
CENTRED = transforms.compose(
    transforms.resize(40), transforms.center_crop((24, 28)), transforms.layout("hwc")
)
ROOMY = {"chunk": "1 MiB", "tiers": {"main-memory": {"size": "64 MiB"}}}


def validation(root: Path) -> Path:
    """Photographs with numbers from 100 on, in two classes one after the other."""
    for number in range(VALIDATION):
        path = root / "val" / f"kind{number // 5}" / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(photographs.encoded(100 + number))
    return root / "val"


def assert_pass(
    loader: Any, epoch: int, number_of: Any, label_of: Any, transform: dict[str, Any]
) -> None:
    """Every row of a pass is what Pillow makes of the draws, and has its label."""
    order, seen = loader.feed.order, 0
    for step, (array, labels) in enumerate(loader):
        ids = order.batch(epoch, step, 0)
        assert labels.tolist() == [label_of(sample) for sample in ids]
        for row, sample in zip(array, ids, strict=True):
            stored = photographs.encoded(number_of(sample))
            should = photographs.row(stored, transform, seed=SEED, epoch=epoch, sample=sample)
            assert row.shape == should.shape
            assert numpy.abs(row.astype(int) - should).max() <= 1, (epoch, sample)
            seen += 1
    assert seen == order.samples


def assert_training(loader: Any, epoch: int, numbers: list[int]) -> None:
    assert_pass(loader, epoch, lambda it: numbers[it], lambda it: numbers[it] % 3, CROPPED)


def assert_validation(loader: Any, epoch: int) -> None:
    assert_pass(loader, epoch, lambda it: 100 + it, lambda it: it // 5, CENTRED)


def world_of(root: Path, **given: Any) -> World:
    further = {
        "validation": {
            "source": f"file://{validation(root)}",
            "format": "image-folder",
            "batch_size": 3,
            **given,
        }
    }
    extra = f"transform: {json.dumps(CROPPED)}\ndatasets: {json.dumps(further)}\n"
    return make_world(root, samples=SAMPLES, contents=photographs.encoded, epochs=2, extra=extra)


def numbers_of(world: World) -> list[int]:
    return [int(path.stem) for path in world.files]


def test_training_gets_random_crops_and_validation_its_own_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path, transform=CENTRED)
    numbers = numbers_of(world)
    with node.node(world) as running:
        running.adopt(monkeypatch)
        with tierfeed.numpy.TierLoader() as training:
            of_validation = tierfeed.numpy.TierLoader(dataset="validation")
            for epoch in range(2):
                assert_training(training, epoch, numbers)
                of_validation.set_epoch(epoch)
                assert_validation(of_validation, epoch)
            assert training.feed.mode == of_validation.feed.mode == "agent"
            assert of_validation.feed.batch(0, 0).origin == "agent"
            of_validation.close()


def test_without_an_agent_each_dataset_has_its_steps(tmp_path: Path) -> None:
    world = world_of(tmp_path, transform=CENTRED)
    index = world.index.with_name("dataset-validation.index")
    node.run_command("index", tmp_path / "val", "--format", "image-folder", "--output", index)
    assert_training(tierfeed.numpy.TierLoader(world.direct()), 0, numbers_of(world))
    job = {"job": str(world.job), "index": str(world.index)}
    with pytest.warns(RuntimeWarning, match="directly"):
        feed = tierfeed.connect(rank=0, dataset="validation", **job)
    assert_validation(tierfeed.numpy.TierLoader(feed), 0)


def test_a_dataset_without_a_transform_hands_out_stored_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path)
    with node.node(world) as running:
        running.adopt(monkeypatch)
        with tierfeed.numpy.TierLoader() as training:
            assert_training(training, 0, numbers_of(world))
            feed = tierfeed.connect(dataset="validation")
            assert feed.transform is None
            for batch in feed.epoch(0):
                assert batch.origin == "agent"
                stored = [photographs.encoded(100 + sample) for sample in batch.samples]
                assert [bytes(sample) for sample in batch] == stored
            feed.close()


def test_tierfeed_run_reads_both_and_reports_the_stored_form(tmp_path: Path) -> None:
    world = world_of(tmp_path, transform=CENTRED)
    (log,) = node.run(world, "feed")
    assert len(log.batches) == 12 and all(row["origin"] == "agent" for row in log.batches)
    transform = node.report(tmp_path / "run")["transform"]
    assert transform["cached"] == "stored" and "datasets" in transform["cached_because"]


def test_the_arguments_of_a_loader_say_both_transforms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = containers.write(tmp_path / "data", "webdataset")
    further = {
        "validation": {
            "source": str(validation(tmp_path)),
            "format": "image-folder",
            "transform": [transforms.center_crop(16), transforms.layout("hwc")],
        }
    }
    keys = {"format": "webdataset", "batch_size": BATCH, "seed": SEED, "epochs": 1, **ROOMY}
    with tierfeed.numpy.TierLoader(source, transform=CROPPED, datasets=further, **keys) as training:
        for step, (array, fields) in enumerate(training):
            assert array.shape[1:] == (32, 32, 3)
            classes = [number % 5 for number in training.feed.order.batch(0, step, 0)]
            assert fields["cls"].tolist() == classes
        of_validation = tierfeed.numpy.TierLoader(dataset="validation")
        shapes = {array.shape[1:] for array, _ in of_validation}
        assert shapes == {(16, 16, 3)}
        of_validation.close()
