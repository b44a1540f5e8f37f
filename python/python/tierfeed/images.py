"""Decodes samples that are image files, with Pillow."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from typing import Any

__all__ = ["decoder"]


def decoder(
    transform: Callable[[Any], Any] | None = None, mode: str = "RGB"
) -> Callable[[Any, int], tuple[Any, int]]:
    """A `decode` for loaders that does what torchvision's `ImageFolder` does with a file.

    The image is opened in `mode`, and `transform` makes of it what training takes.
    """
    # Only those who decode images need Pillow.
    image_module = importlib.import_module("PIL.Image")

    def decode(sample: Any, label: int) -> tuple[Any, int]:
        image: Any = image_module.open(io.BytesIO(sample)).convert(mode)
        return image if transform is None else transform(image), label

    return decode
