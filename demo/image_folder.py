"""What both loaders agree on: which file is which sample, and how a file becomes a tensor."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

SIDE_PX = 64
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff", ".pgm")


@dataclass(frozen=True)
class Sample:
    """One file. Its place in the list of all samples is its id."""

    path: Path
    label: int
    size_bytes: int


def list_samples(root: Path) -> list[Sample]:
    """All samples below ``root``, in the order of torchvision's ``ImageFolder``.

    A class is a folder; its label is its place among the sorted folder names.
    """
    classes = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    samples = []
    for label, name in enumerate(classes):
        for path in sorted((root / name).rglob("*")):
            if path.suffix.lower() in SUFFIXES and path.is_file():
                samples.append(Sample(path, label, path.stat().st_size))
    if not samples:
        raise SystemExit(f"demo: no photographs below {root}: expected {root}/CLASS/NAME.jpg")
    return samples


def decode(encoded: bytes | memoryview) -> np.ndarray:
    """A photograph as float32, channels first, scaled to 64 x 64 pixels and to [-1, 1]."""
    with Image.open(io.BytesIO(encoded)) as image:
        # Lets libjpeg decode at a fraction of the size: the pixels are thrown away anyway.
        image.draft("RGB", (SIDE_PX, SIDE_PX))
        small = image.convert("RGB").resize((SIDE_PX, SIDE_PX), Image.BILINEAR)
    pixels = np.asarray(small, dtype=np.float32)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)) / 127.5 - 1.0
