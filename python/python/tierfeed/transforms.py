"""The steps of a transform, and what they draw for a sample.

>>> transform = transforms.compose(
...     transforms.random_resized_crop(224),
...     transforms.random_horizontal_flip(0.5),
...     transforms.normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
... )
>>> loader = tierfeed.torch.TierLoader("/data/train", batch_size=256, transform=transform)

A step is a mapping with one key, as in a job file, and so is the whole (docs/transforms.md). The agent
does the work; nothing here decodes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from tierfeed._native import Pipeline

__all__ = [
    "Crop",
    "Draw",
    "Operation",
    "array",
    "center_crop",
    "compose",
    "decode",
    "dtype",
    "layout",
    "normalize",
    "random_crop",
    "random_horizontal_flip",
    "random_resized_crop",
    "replay",
    "resize",
    "tokens",
]

Step = dict[str, Any]
"""One step: its name, and what is said about it."""

Transform = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""What `compose` returned, or one step, or several."""

Size = int | tuple[int, int] | list[int]
"""One length, or height and width."""


class Operation(NamedTuple):
    """What a step does to one image: `pad`, `crop`, `resize` or `flip_horizontal`."""

    name: str
    numbers: tuple[int, ...]
    """Of a pad or a crop top, left, height and width; of a resize height and width."""


class Crop(NamedTuple):
    """A region of an image, in pixels."""

    top: int
    left: int
    height: int
    width: int


class Draw(NamedTuple):
    """What the steps of a transform do to one sample in one epoch."""

    operations: tuple[Operation, ...]

    @property
    def crop(self) -> Crop | None:
        """The region that is cut out first, as `torchvision.transforms.v2.functional.crop` takes it."""
        return next((Crop(*it.numbers) for it in self.operations if it.name == "crop"), None)

    @property
    def is_flipped(self) -> bool:
        """Whether the row is a mirror image."""
        return sum(it.name == "flip_horizontal" for it in self.operations) % 2 == 1


def decode(
    *,
    orientation: Literal["ignore", "apply"] = "ignore",
    dct: Literal["exact", "fast"] = "exact",
    scaled: bool = False,
    mode: Literal["rgb", "grey"] = "rgb",
) -> Step:
    """How images are decoded. Without this step, as it says by default: as torchvision does."""
    return {"decode": {"orientation": orientation, "dct": dct, "scaled": scaled, "mode": mode}}


def resize(size: Size) -> Step:
    """Resizes, bilinear with antialias: the shorter side to one length, or to height and width."""
    return {"resize": _size(size)}


def center_crop(size: Size) -> Step:
    """Cuts the middle out."""
    return {"center_crop": _size(size)}


def random_crop(size: Size) -> Step:
    """Cuts a region at a random place out. An image that is smaller cannot be transformed."""
    return {"random_crop": _size(size)}


def random_resized_crop(
    size: Size,
    *,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Step:
    """Cuts a region of random area and ratio out, and resizes it."""
    bounds = {"scale": list(scale), "ratio": list(ratio)}
    return {"random_resized_crop": {"size": _size(size), **bounds}}


def random_horizontal_flip(p: float = 0.5) -> Step:
    """Mirrors left and right, with this probability."""
    return {"random_horizontal_flip": p}


def normalize(mean: Sequence[float], std: Sequence[float]) -> Step:
    """For each channel `(level / 255 - mean) / std`, as float32."""
    return {"normalize": {"mean": list(mean), "std": list(std)}}


def dtype(name: str) -> Step:
    """The type of a row: of images uint8, float32 or bfloat16, without `normalize` as `level / 255`."""
    return {"dtype": name}


def layout(name: Literal["chw", "hwc"]) -> Step:
    """The order of channels, height and width."""
    return {"layout": name}


def array(shape: Sequence[int], dtype: str, *, key: str | None = None) -> Step:
    """The samples are arrays of NumPy; `key` is the name of the array in an npz."""
    named = {} if key is None else {"key": key}
    return {"array": {"shape": list(shape), "dtype": dtype, **named}}


def tokens(length: int, dtype: str) -> Step:
    """The samples are windows of tokens, stored in this type; `transforms.dtype` widens it."""
    return {"tokens": {"length": length, "dtype": dtype}}


def compose(
    *steps: Mapping[str, Any],
    cache: Literal["auto", "stored", "prepared"] | None = None,
    pixels_max: int | None = None,
    field: str | None = None,
) -> dict[str, Any]:
    """The mapping `transform` of a job, checked.

    `cache` says in which form tiers keep samples, and `pixels_max` which images are too large to be
    decoded (docs/transforms.md). `field` names what is transformed of samples of several fields, such as
    the member `jpg` of a WebDataset; without, it is their only image. Raises `ValueError` for steps that
    do not follow each other, or that yield rows of different sizes.
    """
    mapping: dict[str, Any] = {"steps": [dict(step) for step in steps]}
    if pixels_max is not None:
        mapping["limits"] = {"pixels": pixels_max}
    if field is not None:
        mapping["field"] = field
    Pipeline.parse(_json(mapping))
    return mapping if cache is None else {**mapping, "cache": cache}


def replay(
    transform: Transform, *, seed: int, epoch: int, sample: int, height: int, width: int
) -> Draw:
    """What a job with this `order.seed` does to a sample in an epoch, whose image has this size.

    It is the same on every rank, with every number of workers, and after a restart.
    """
    steps = {key: it for key, it in as_mapping(transform).items() if key != "cache"}
    pipeline = Pipeline.parse(_json(steps))
    operations = pipeline.operations(seed, epoch, sample, height, width)
    return Draw(tuple(Operation(name, tuple(numbers)) for name, numbers in operations))


def as_mapping(transform: Transform) -> Mapping[str, Any]:
    """The mapping `transform` of a job."""
    if isinstance(transform, Mapping):
        return transform if "steps" in transform else {"steps": [dict(transform)]}
    if isinstance(transform, Sequence) and all(isinstance(step, Mapping) for step in transform):
        return {"steps": [dict(step) for step in transform]}
    raise TypeError(
        f"transform is {transform!r}; the agent takes the steps of tierfeed.transforms. A function of"
        " Python is decode="
    )


def _size(size: Size) -> int | list[int]:
    return list(size) if isinstance(size, (tuple, list)) else size


def _json(mapping: Mapping[str, Any]) -> str:
    # NumPy's numbers are numbers too.
    return json.dumps(mapping, default=lambda value: value.item())
