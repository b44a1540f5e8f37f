"""Images that the agent decodes come to each framework as one tensor of the right type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from records import SEED

import needs
import node
import photographs
import tierfeed
from conftest import make_world
from tierfeed import transforms

pytestmark = pytest.mark.node

SAMPLES, BATCH = 22, 4
ROOMY = {"chunk": "1 MiB", "tiers": {"main-memory": {"size": "64 MiB"}}}
SIZE = (32, 32)
STEPS = [transforms.random_crop(SIZE), transforms.random_horizontal_flip(0.5)]
HWC = [*STEPS, transforms.layout("hwc")]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    for number in range(SAMPLES):
        path = tmp_path / "images" / f"class{number % 2}" / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(photographs.png(number))
    yield str(tmp_path / "images")


def keys(*steps: Any, **others: Any) -> dict[str, Any]:
    transform = list(steps) or HWC
    return {"batch_size": BATCH, "seed": SEED, "epochs": 2, "transform": transform, **ROOMY, **others}


def expected(feed: tierfeed.Feed, epoch: int, step: int) -> tuple[Any, list[int]]:
    """The rows of a batch as `hwc`, and their labels."""
    ids = feed.order.batch(epoch, step, 0)
    # The samples of the second class come after those of the first.
    half = SAMPLES // 2
    labels = [int(sample >= half) for sample in ids]
    numbers = [2 * (sample % half) + label for sample, label in zip(ids, labels, strict=True)]
    rows = [
        photographs.cut(number, STEPS, seed=SEED, epoch=epoch, sample=sample)
        for number, sample in zip(numbers, ids, strict=True)
    ]
    return numpy.stack(rows), labels


def assert_epochs(feed: tierfeed.Feed, batches: Any, *, epochs: int = 2) -> None:
    """All batches of so many epochs, as arrays `hwc` of whole levels with their labels."""
    places = [(epoch, step) for epoch in range(epochs) for step in range(6)]
    count = 0
    for (epoch, step), (array, labels) in zip(places, batches, strict=True):
        rows, of = expected(feed, epoch, step)
        assert numpy.array_equal(numpy.asarray(array), rows), f"epoch {epoch}, step {step}"
        assert numpy.asarray(labels).tolist() == of
        count += 1
    assert count == len(places)


def test_numpy_reads_rows_in_the_staging_memory(source: str) -> None:
    from tierfeed.numpy import TierLoader

    with TierLoader(source, **keys()) as loader:
        feed = loader.feed
        assert_epochs(feed, (batch for _ in range(2) for batch in loader))
        batch = feed.batch(0, 0)
        assert batch.origin == "agent"
        array, _ = loader.batch(0, 1)
        agent = feed.agent()
        assert agent is not None
        start, length = agent.arena
        assert start <= array.ctypes.data < start + length and array.ctypes.data % 64 == 0
        assert array.shape == (BATCH, *SIZE, 3) and array.flags.c_contiguous


def test_torch_gets_bfloat16_in_the_staging_memory(source: str) -> None:
    torch = needs.module("torch")
    from tierfeed.torch import TierLoader

    steps = [*STEPS, transforms.dtype("bfloat16")]
    with TierLoader(source, **keys(*steps)) as loader:
        tensors = ((tensor, labels) for _ in range(2) for tensor, labels in loader)
        for step, (tensor, labels) in zip(range(6), tensors, strict=False):
            rows, of = expected(loader.feed, 0, step)
            assert tensor.dtype == torch.bfloat16 and labels.tolist() == of
            levels = torch.from_numpy(rows).permute(0, 3, 1, 2).float() / 255
            assert torch.equal(tensor, levels.to(torch.bfloat16))
            agent = loader.feed.agent()
            assert agent is not None
            start, length = agent.arena
            assert start <= tensor.data_ptr() < start + length


def test_jax_gets_arrays_of_its_own(source: str) -> None:
    jax = needs.module("jax")
    from tierfeed.jax import TierLoader

    with TierLoader(source, **keys(*HWC, transforms.dtype("bfloat16"))) as loader:
        for step, (array, labels) in zip(range(6), loader, strict=True):
            rows, of = expected(loader.feed, 0, step)
            assert isinstance(array, jax.Array) and array.dtype == jax.numpy.bfloat16
            levels = (rows.astype(numpy.float32) / 255).astype(jax.numpy.bfloat16)
            assert numpy.array_equal(numpy.asarray(array), levels) and labels.tolist() == of


def test_tensorflow_knows_shape_and_type_before_the_first_batch(source: str) -> None:
    tf = needs.module("tensorflow")
    from tierfeed.tensorflow import dataset

    data = dataset(source, **keys(*HWC, transforms.dtype("float32"), drop_last=True))
    images, labels = data.element_spec
    assert images.dtype == tf.float32 and images.shape[1:] == (*SIZE, 3)
    assert labels.dtype == tf.int64
    feed = data.tierfeed.feed
    scaled = (
        (numpy.rint(array.numpy() * 255).astype(numpy.uint8), labels.numpy()) for array, labels in data
    )
    assert_epochs(feed, scaled)
    with pytest.raises(ValueError, match="samples= in a job with a transform"):
        dataset(feed, samples="strings")
    data.tierfeed.close()


def test_tensorflow_goes_on_with_the_same_rows_when_its_agent_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs.module("tensorflow")
    from tierfeed.tensorflow import dataset

    # Rows of 210 bytes: with gaps between them in staging, and copied together for TensorFlow.
    steps = [transforms.random_crop((10, 7)), transforms.random_horizontal_flip(0.5)]
    transform = json.dumps({"steps": [*steps, transforms.layout("hwc")]})
    world = make_world(
        tmp_path, samples=SAMPLES, contents=photographs.png, extra=f"transform: {transform}\n"
    )
    number_of = [int(path.stem) for path in world.files]
    read: list[Any] = []
    with node.node(world) as running:
        running.adopt(monkeypatch)
        data = dataset()
        order = data.tierfeed.feed.order
        for number, (images, _) in enumerate(data):
            read.append(images.numpy())
            if number == 4:
                running.agent.kill()
    figures = data.tierfeed.figures()
    assert 0 < figures.read_directly < len(read) == 18 and not figures.is_connected
    data.tierfeed.close()
    for number, rows in enumerate(read):
        epoch, step = divmod(number, 6)
        for sample, row in zip(order.batch(epoch, step, 0), rows, strict=True):
            cut = photographs.cut(number_of[sample], steps, seed=SEED, epoch=epoch, sample=sample)
            assert numpy.array_equal(row, cut), f"sample {sample} of epoch {epoch}"


def test_keras_trains_on_rows(source: str) -> None:
    keras = needs.module("keras")
    from tierfeed.keras import TierPyDataset

    steps = [*STEPS, transforms.layout("hwc"), transforms.dtype("float32")]
    data = TierPyDataset(source, **keys(*steps))
    array, _ = data[0]
    assert numpy.array_equal(numpy.rint(array * 255), expected(data.loader.feed, 0, 0)[0])
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss=loss)
    history = model.fit(data, epochs=2, shuffle=False, verbose=0)
    assert len(history.history["loss"]) == 2
    data.close()


def test_grain_iterates_over_rows(source: str) -> None:
    needs.module("grain")
    from tierfeed.grain import TierIterDataset

    data = TierIterDataset(source, **keys())
    assert_epochs(data._loader.feed, iter(data))
    data.close()
