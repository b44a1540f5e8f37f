"""Images for the tests of transforms: small, of different sizes, the same in every run."""

from __future__ import annotations

import importlib
import io
import struct
import zlib
from typing import Any

import numpy

from tierfeed import transforms

Pixels = numpy.ndarray[Any, numpy.dtype[numpy.uint8]]


def pixels(number: int) -> Pixels:
    """Waves and noise: height, width, channels."""
    generator = numpy.random.default_rng(number)
    height, width = generator.integers(40, 90, 2)
    y, x = numpy.mgrid[:height, :width]
    waves = [127 + 80 * numpy.sin(x / (5 + c) + number) * numpy.cos(y / (9 + c)) for c in range(3)]
    noisy = numpy.stack(waves, -1) + generator.normal(0, 10, (height, width, 3))
    return numpy.clip(noisy, 0, 255).astype(numpy.uint8)


def png(number: int) -> bytes:
    """Without a package for images."""
    image = pixels(number)
    height, width, _ = image.shape
    return _png(height, width, b"".join(b"\0" + line.tobytes() for line in image))


def _png(height: int, width: int, lines: bytes) -> bytes:
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


def png_of(height: int, width: int) -> bytes:
    """A PNG whose header states this size. It holds at most 90 x 90 black pixels, so it is small."""
    lines = (b"\0" + bytes(3 * min(width, 90))) * min(height, 90)
    return _png(height, width, lines)


def black(height: int, width: int) -> bytes:
    """A PNG of black pixels: few bytes, and the filter that takes longest to undo."""
    return _png(height, width, (b"\4" + bytes(3 * width)) * height)


def encoded(number: int) -> bytes:
    """As PNG; every fourth as JPEG, which needs Pillow."""
    if number % 4 != 3:
        return png(number)
    file = io.BytesIO()
    _pillow().fromarray(pixels(number)).save(file, format="JPEG", quality=90)
    return file.getvalue()


def row(stored: bytes, transform: transforms.Transform, **drawn_by: int) -> Pixels:
    """What Pillow makes of an image by the draw of the transform: height, width, channels."""
    pillow = _pillow()
    image = pillow.open(io.BytesIO(stored)).convert("RGB")
    draw = transforms.replay(transform, height=image.height, width=image.width, **drawn_by)
    for name, numbers in draw.operations:
        match name:
            case "crop":
                top, left, height, width = numbers
                image = image.crop((left, top, left + width, top + height))
            case "resize":
                image = image.resize(numbers[::-1], pillow.BILINEAR)
            case "flip_horizontal":
                image = image.transpose(pillow.FLIP_LEFT_RIGHT)
            case _:
                raise AssertionError(name)
    return numpy.asarray(image)


def cut(number: int, transform: transforms.Transform, **drawn_by: int) -> Pixels:
    """What a crop and a flip make of an image: height, width, channels."""
    image = pixels(number)
    height, width, _ = image.shape
    draw = transforms.replay(transform, height=height, width=width, **drawn_by)
    assert draw.crop is not None
    top, left, height, width = draw.crop
    image = image[top : top + height, left : left + width]
    return image[:, ::-1] if draw.is_flipped else image


def _pillow() -> Any:
    return importlib.import_module("PIL.Image")
