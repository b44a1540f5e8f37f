"""Images and a training for `tierfeed-bench transforms`, `cached-form` and `balance`.

`transforms.py photos FOLDER COUNT`: JPEG images of 640 x 480 with as much detail as photographs have.
`transforms.py sorted FOLDER COUNT`: thirds in the order of names: many bytes that decode in no time
(PNG, not compressed), few bytes that take long (large and smooth JPEG images), and many bytes again.
`transforms.py train RESULT STEP_S`: takes all batches of its rank, and sleeps for each as a GPU does.
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


def train(result, step_s):
    from tierfeed.numpy import TierLoader

    waits, seconds = [], []
    with TierLoader() as loader:
        for _ in loader.epochs_left:
            begin = asked = time.perf_counter()
            waits.append([])
            for batch in loader:
                waits[-1].append(time.perf_counter() - asked)
                del batch
                if step_s:
                    time.sleep(step_s)
                asked = time.perf_counter()
            seconds.append(time.perf_counter() - begin)
    Path(result).write_text(json.dumps({"seconds": seconds, "waits": waits}))


if sys.argv[1] == "train":
    train(sys.argv[2], float(sys.argv[3]))
else:
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True)
    makers = {"photos": photos, "sorted": sorted_by_cost}
    makers[sys.argv[1]](folder, int(sys.argv[3]))
