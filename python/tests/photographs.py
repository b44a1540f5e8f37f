"""Images for the tests of transforms: small, of different sizes, the same in every run."""

from __future__ import annotations

import io
from typing import Any

import numpy

import needs
from tierfeed import transforms

PILLOW = needs.module("PIL.Image")

Pixels = numpy.ndarray[Any, numpy.dtype[numpy.uint8]]


def pixels(number: int) -> Pixels:
    """Waves and noise: height, width, channels."""
    generator = numpy.random.default_rng(number)
    height, width = generator.integers(40, 90, 2)
    y, x = numpy.mgrid[:height, :width]
    waves = [127 + 80 * numpy.sin(x / (5 + c) + number) * numpy.cos(y / (9 + c)) for c in range(3)]
    noisy = numpy.stack(waves, -1) + generator.normal(0, 10, (height, width, 3))
    return numpy.clip(noisy, 0, 255).astype(numpy.uint8)


def encoded(number: int) -> bytes:
    """As PNG, which loses nothing; every fourth as JPEG."""
    file = io.BytesIO()
    kind = {"format": "JPEG", "quality": 90} if number % 4 == 3 else {"format": "PNG"}
    PILLOW.fromarray(pixels(number)).save(file, **kind)
    return file.getvalue()


def row(stored: bytes, transform: transforms.Transform, *, seed: int, epoch: int, sample: int) -> Pixels:
    """What Pillow makes of an image by the draw of the transform: height, width, channels."""
    image = PILLOW.open(io.BytesIO(stored)).convert("RGB")
    draw = transforms.replay(
        transform, seed=seed, epoch=epoch, sample=sample, height=image.height, width=image.width
    )
    for name, numbers in draw.operations:
        match name:
            case "crop":
                top, left, height, width = numbers
                image = image.crop((left, top, left + width, top + height))
            case "resize":
                image = image.resize(numbers[::-1], PILLOW.BILINEAR)
            case "flip_horizontal":
                image = image.transpose(PILLOW.FLIP_LEFT_RIGHT)
            case _:
                raise AssertionError(name)
    return numpy.asarray(image)
