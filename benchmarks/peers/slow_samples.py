"""Photographs that take far longer to decode than others, and how to see them in a batch.

They are bright, so that a batch says whether it holds one: no loader tells which files a batch is of.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

FOLDER = "slow"
"""Below the other photographs."""

LEVELS = (225, 256)
BRIGHT = 200
"""Above the mean of any crop of another photograph."""

TILE = 400


def write(data: str, count: int, side: int) -> None:
    """Progressive images of `side` by three quarters of it, which no decoder decodes in part."""
    import numpy
    from PIL import Image

    folder = Path(data, FOLDER)
    folder.mkdir()
    times = side // TILE
    for number in range(count):
        random = numpy.random.default_rng(number)
        tile = random.integers(*LEVELS, (TILE * 3 // 4, TILE, 3), dtype="uint8")
        image = Image.fromarray(numpy.tile(tile, (times, times, 1)))
        image.save(folder / f"{number:05}.jpg", quality=90, progressive=True)


def are_expected(data: str) -> bool:
    return Path(data, FOLDER).is_dir()


def any_in(batch: Any) -> bool:
    """Of decoded images; looks at one value of a thousand."""
    some = batch.reshape(len(batch), -1)[:, ::997]
    return bool((some.sum(1) > BRIGHT * some.shape[1]).any())
