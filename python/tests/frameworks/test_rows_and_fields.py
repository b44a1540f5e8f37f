"""One field of samples of several becomes the row that torchvision makes of it, in each framework."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy
import pytest

import containers
import needs
import photographs
from conftest import SEED
from tierfeed import transforms

pytestmark = [
    pytest.mark.node,
    # torchvision's decoders are deprecated for those of TorchCodec.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torchvision"),
]

# A crop and a flip: the rows are those of torchvision, bit for bit.
TRANSFORM = transforms.compose(transforms.random_crop(32), transforms.random_horizontal_flip(0.5))
PAGE = (Path(__file__).parents[3] / "docs/transforms.md").read_text()
LABELS = {"webdataset": "cls", "tfrecord": "image/class/label", "mds": "class"}


def keys(format: str) -> dict[str, Any]:
    room = {"chunk": "1 MiB", "tiers": {"main-memory": {"size": "64 MiB"}}}
    order = {"seed": SEED, "epochs": 2}
    return {"format": format, "batch_size": 4, "transform": TRANSFORM, **order, **room}


def by_torchvision(number: int, epoch: int) -> Any:
    torch = needs.module("torch")
    torchvision_io = needs.module("torchvision.io")
    functional = needs.module("torchvision.transforms.v2.functional")
    stored = torch.frombuffer(bytearray(photographs.encoded(number)), dtype=torch.uint8)
    image = torchvision_io.decode_image(stored, mode="RGB")
    height, width = image.shape[-2:]
    drawn_by = {"seed": SEED, "epoch": epoch, "sample": number, "height": height, "width": width}
    draw = transforms.replay(TRANSFORM, **drawn_by)
    image = functional.crop(image, *draw.crop)
    return functional.horizontal_flip(image) if draw.is_flipped else image


@pytest.mark.parametrize("format", LABELS)
def test_rows_are_those_of_torchvision_with_their_labels(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = needs.module("torch")
    needs.module("torchvision")
    from tierfeed.torch import TierLoader

    monkeypatch.chdir(tmp_path)
    source = containers.write(tmp_path / "data", format)
    with TierLoader(source, **keys(format)) as loader:
        for epoch in range(2):
            for step, (images, fields) in enumerate(loader):
                numbers = loader.feed.order.batch(epoch, step, 0)
                expected = torch.stack([by_torchvision(number, epoch) for number in numbers])
                assert torch.equal(images, expected), f"epoch {epoch}, step {step}"
                assert fields[LABELS[format]].tolist() == [number % 5 for number in numbers]


def test_the_script_of_the_page_makes_samples_of_the_rows_of_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrow = needs.module("pyarrow")
    parquet = needs.module("pyarrow.parquet")
    needs.module("torch")
    from tierfeed.torch import TierLoader

    monkeypatch.chdir(tmp_path)
    for folder in ("tables", "shards"):
        (tmp_path / folder).mkdir()
    images = [photographs.png(number) for number in range(9)]
    plain = arrow.table({"image": images[:5], "label": [0, 1, 2, 3, 4]})
    structs = [{"bytes": image, "path": None} for image in images[5:]]
    parquet.write_table(plain, "tables/0.parquet", row_group_size=2)
    parquet.write_table(arrow.table({"image": structs, "label": [5, 6, 7, 8]}), "tables/1.parquet")
    section = PAGE.split("## Rows of tables\n")[1].split("\n## ")[0]
    (script,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    script = script.replace('"/data/', f'"{tmp_path}/').replace("10_000", "4")
    exec(compile(script, "transforms.md", "exec"), {"__name__": "__main__"})
    with TierLoader("shards", **keys("webdataset")) as loader:
        read = {}
        for step, (rows, fields) in enumerate(loader):
            assert rows.shape[1:] == (3, 32, 32)
            numbers = loader.feed.order.batch(0, step, 0)
            read.update(zip(numbers, fields["cls"].tolist(), strict=True))
    assert read == {number: number for number in range(9)}


def test_jax_and_grain_and_keras_get_the_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jax = needs.module("jax")
    needs.module("grain")
    keras = needs.module("keras")
    from tierfeed.grain import TierIterDataset
    from tierfeed.jax import TierLoader
    from tierfeed.keras import TierPyDataset

    monkeypatch.chdir(tmp_path)
    source = containers.write(tmp_path / "data", "webdataset", photographs.png)
    with TierLoader(source, **keys("webdataset")) as loader:
        for step, (images, fields) in enumerate(loader):
            numbers = loader.feed.order.batch(0, step, 0)
            assert isinstance(images, jax.Array) and isinstance(fields["cls"], jax.Array)
            assert fields["cls"].tolist() == [number % 5 for number in numbers]
            assert fields["txt"] == [containers.caption(number) for number in numbers]
            expected = [{"points": containers.points(number)} for number in numbers]
            assert fields["json"] == expected
        data = TierIterDataset(loader.feed)
        images, fields = next(iter(data))
        assert images.shape == (4, 3, 32, 32) and fields["cls"].shape == (4,)

        def targets(images: Any, fields: dict[str, Any]) -> Any:
            return images.astype(numpy.float32), fields["cls"]

        epochs = TierPyDataset(loader.feed, transform=targets)
        model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(5)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss=loss)
        history = model.fit(epochs, epochs=1, shuffle=False, verbose=0)
        assert len(history.history["loss"]) == 1
