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
    # Only those who decode images need Pillow, and they learn at once that it is missing.
    importlib.import_module("PIL.Image")
    return _Decoder(transform, mode)


class _Decoder:
    """Goes to worker processes that are not forked."""

    def __init__(self, transform: Callable[[Any], Any] | None, mode: str) -> None:
        self._transform = transform
        self._mode = mode

    def __call__(self, sample: Any, label: int) -> tuple[Any, int]:
        opened: Any = importlib.import_module("PIL.Image").open(io.BytesIO(sample))
        image = opened.convert(self._mode)
        return image if self._transform is None else self._transform(image), label
