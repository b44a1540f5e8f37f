"""Images and a training for `tierfeed-bench transforms`, `cached-form` and `balance`.

`transforms.py photos FOLDER COUNT`: JPEG images of 640 x 480 with as much detail as photographs have.
`transforms.py sorted FOLDER COUNT`: thirds in the order of names: many bytes that decode in no time
(PNG, not compressed), few bytes that take long (large and smooth JPEG images), and many bytes again.
`transforms.py train RESULT STEP_S PASSES`: takes all batches of its rank; for each it sleeps as a GPU
computes, and trains a small network with so many passes over it, on one core.
`transforms.py compute RESULT STEP_S PASSES BATCH STEPS`: such steps alone, over a batch that is there.
"""

import json
import shutil
import sys
import time
from pathlib import Path

import numpy

# Large images that differ; to make one takes longer than to decode it.
DISTINCT = 8


def photo(generator, width, height, cell, quality, path):
    from PIL import Image

    coarse = generator.integers(0, 256, (height // cell + 2, width // cell + 2, 3), numpy.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.BICUBIC)
    image.save(path, quality=quality)


def photos(folder, count):
    generator = numpy.random.default_rng(1)
    for number in range(count):
        photo(generator, 640, 480, 6, 85, folder / f"{number:05}.jpg")


def sorted_by_cost(folder, count):
    from PIL import Image

    generator = numpy.random.default_rng(1)
    for number in range(count):
        large = folder / f"{number:05}.jpg"
        if count // 3 <= number < count // 3 + DISTINCT:
            photo(generator, 3200, 2400, 256, 50, large)
        elif count // 3 <= number < 2 * count // 3:
            shutil.copy(folder / f"{number - DISTINCT:05}.jpg", large)
        else:
            noise = generator.integers(0, 256, (224, 224, 3), numpy.uint8)
            Image.fromarray(noise).save(folder / f"{number:05}.png", compress_level=0)


class Step:
    """A step of a training: a sleep, and passes of a small convolutional network with its optimiser."""

    def __init__(self, step_s, passes):
        self.step_s, self.passes = step_s, passes
        if passes:
            self.prepare()

    def prepare(self):
        import torch
        from torch import nn

        torch.set_num_threads(1)
        torch.manual_seed(1)
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 7, stride=4),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 10),
        )
        self.optimizer = torch.optim.SGD(self.layers.parameters(), lr=0.01)

    def take(self, images):
        if self.step_s:
            time.sleep(self.step_s)
        for _ in range(self.passes):
            self.train(images)

    def train(self, images):
        import torch

        images = torch.from_numpy(images)
        outputs = self.layers(images.float().div_(255))
        labels = torch.zeros(len(images), dtype=torch.int64)
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(outputs, labels).backward()
        self.optimizer.step()


def train(result, step_s, passes):
    from tierfeed.numpy import TierLoader

    step = Step(step_s, passes)
    waits, seconds = [], []
    with TierLoader() as loader:
        for _ in loader.epochs_left:
            begin = asked = time.perf_counter()
            waits.append([])
            for images, _ in loader:
                waits[-1].append(time.perf_counter() - asked)
                step.take(images)
                del images
                asked = time.perf_counter()
            seconds.append(time.perf_counter() - begin)
    Path(result).write_text(json.dumps({"seconds": seconds, "waits": waits}))


def compute(result, step_s, passes, size, steps):
    step = Step(step_s, passes)
    batch = numpy.zeros((size, 3, 224, 224), numpy.uint8)
    step.take(batch)
    begin = time.perf_counter()
    for _ in range(steps):
        step.take(batch)
    seconds = time.perf_counter() - begin
    Path(result).write_text(json.dumps({"seconds": [seconds], "waits": []}))


if sys.argv[1] in ("train", "compute"):
    result, step_s, passes = sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
    if sys.argv[1] == "train":
        train(result, step_s, passes)
    else:
        compute(result, step_s, passes, *map(int, sys.argv[5:7]))
else:
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True)
    makers = {"photos": photos, "sorted": sorted_by_cost}
    makers[sys.argv[1]](folder, int(sys.argv[3]))
