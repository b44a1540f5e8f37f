"""Trains a small network on labelled images through one loader, for `tierfeed-bench paper lobster-9`.

`accuracy.py images TO COUNT [TAR]` writes COUNT images to TO/train and a fifth of them to TO/test, by
class: those of TAR, whose members are CLASS/NAME.jpg below any folder, in equal parts, else generated
ones.
`accuracy.py train LOADER FOLDER BATCH EPOCHS SEED JOB` prints the loss of each step, and the share of
test images that are told right after each epoch. Both loaders read in the order of `DistributedSampler`.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import network

SIDE = 32
Batches = Iterable[tuple[Any, Any]]


def images_of(tar: str) -> Iterator[tuple[str, bytes]]:
    """The images of a tar with their classes: one of each class in turn."""
    with tarfile.open(tar) as archive:
        classes: dict[str, list[tarfile.TarInfo]] = {}
        for member in archive:
            if member.name.endswith(".jpg"):
                classes.setdefault(Path(member.name).parent.name, []).append(member)
        for turn in zip(*classes.values(), strict=False):
            for name, member in zip(classes, turn, strict=True):
                content = archive.extractfile(member)
                assert content is not None
                yield name, content.read()


def generated() -> Iterator[tuple[str, bytes]]:
    """A pattern for each class, moved and covered with noise."""
    import numpy
    from PIL import Image

    random = numpy.random.default_rng(1)
    patterns = random.normal(128, 60, (network.CLASSES, 4, 4, 3)).repeat(8, 1).repeat(8, 2)
    while True:
        for name, pattern in enumerate(patterns):
            moved = numpy.roll(pattern, random.integers(SIDE, size=2), (0, 1))
            levels = moved + random.normal(0, 60, moved.shape)
            encoded = io.BytesIO()
            image = Image.fromarray(levels.clip(0, 255).astype("uint8"))
            image.save(encoded, "jpeg", quality=90)
            yield f"class{name}", encoded.getvalue()


def write_images(to: str, count: int, tar: str | None) -> None:
    images = images_of(tar) if tar else generated()
    for part, of_part in (("train", count), ("test", count // 5)):
        for number, (name, encoded) in enumerate(islice(images, of_part)):
            path = Path(to, part, name, f"{number:05}.jpg")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded)


class Images:
    """A folder with a folder for each class, as `ImageFolder` of torchvision reads it."""

    def __init__(self, folder: str) -> None:
        classes = sorted(Path(folder).iterdir())
        self.paths = [
            (path, label) for label, each in enumerate(classes) for path in sorted(each.iterdir())
        ]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        from torchvision.io import ImageReadMode, decode_image, read_file

        path, label = self.paths[number]
        return decode_image(read_file(str(path)), mode=ImageReadMode.RGB), label


def data_loader(folder: str, batch: int, epochs: int, seed: int, _job: Any) -> Iterator[Batches]:
    from torch.utils.data import DataLoader, DistributedSampler

    images: Any = Images(folder)
    sampler: Any = DistributedSampler(images, num_replicas=1, rank=0, shuffle=True, seed=seed)
    loader = DataLoader(images, batch, sampler=sampler)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        yield loader


def tierfeed(folder: str, batch: int, epochs: int, seed: int, job: Any) -> Iterator[Batches]:
    import tierfeed.torch
    from tierfeed import transforms

    # Images have this size already: the step says that all rows have one.
    steps = transforms.compose(transforms.center_crop(SIDE))
    keys = {"format": "image-folder", "transform": steps, "seed": seed, "epochs": epochs}
    with tierfeed.torch.TierLoader(folder, batch_size=batch, **keys, **job) as loader:
        for _ in range(epochs):
            yield loader
        assert loader.feed.mode == "agent", loader.feed.mode


LOADERS = {"dataloader": data_loader, "tierfeed": tierfeed}


def told_right(model: Any, images: Images) -> float:
    import torch

    with torch.no_grad():
        rows = torch.stack([images[number][0] for number in range(len(images))])
        labels = torch.tensor([label for _, label in images.paths])
        told = model(network.levels(rows)).argmax(1)
        return float((told == labels).float().mean())


def train(loader: str, folder: str, batch: int, epochs: int, seed: int, job: Any) -> dict[str, Any]:
    learner = network.Learner(network.CLASSES, seed)
    test = Images(f"{folder}/test")
    losses, accuracies = [], []
    for batches in LOADERS[loader](f"{folder}/train", batch, epochs, seed, job):
        losses.append([learner.learn(images, labels) for images, labels in batches])
        accuracies.append(told_right(learner.model, test))
    return {"losses": losses, "accuracies": accuracies}


def main() -> None:
    command, *rest = sys.argv[1:]
    if command == "images":
        write_images(rest[0], int(rest[1]), rest[2] if len(rest) > 2 else None)
        print(json.dumps({}))
    else:
        loader, folder, *numbers, job = rest
        batch, epochs, seed = map(int, numbers)
        print(json.dumps(train(loader, folder, batch, epochs, seed, json.loads(job))))


if __name__ == "__main__":
    main()
