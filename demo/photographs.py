"""Makes an image folder of photograph-like JPEG files of many sizes.

The demo runs on these where no real photographs are at hand.
What matters to a loader is kept true to life: the spread of file sizes (about 20 KB to 400 KB),
a real JPEG stream in every file, and one folder per class.
Every class has a palette and a shape of its own, so that a network can learn something.

The same seed writes the same pixels. A folder that is already complete is left alone.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

CLASSES = 50
SIDE_PX = (280, 1200)
JPEG_QUALITY = (74, 96)


def write_image_folder(target: Path, *, images: int, seed: int) -> None:
    """Writes ``images`` files below ``target``, dealt evenly to the classes."""
    stamp = f"images={images} seed={seed} classes={CLASSES}\n"
    # Beside the folder and written last: the folder holds photographs only, and a run that was
    # stopped half way leaves no stamp.
    marker = target.with_name(target.name + ".stamp")
    if marker.is_file() and marker.read_text() == stamp:
        return
    marker.unlink(missing_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    for index in range(images):
        label = index % CLASSES
        folder = target / f"class-{label:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng([seed, index])
        (folder / f"photo-{index:05d}.jpg").write_bytes(encode(paint(rng, label), rng))
    marker.write_text(stamp)


def paint(rng: np.random.Generator, label: int) -> Image.Image:
    """One picture: a gradient as background, texture over it, the class's shapes on top."""
    width, height = (int(side) for side in rng.integers(*SIDE_PX, size=2))
    palette = np.random.default_rng(label).integers(30, 226, size=(4, 3))
    picture = gradient(width, height, palette[0], palette[1]) + texture(rng, width, height)
    image = Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8), mode="RGB")
    draw_shapes(rng, image, label, palette[2:])
    return image


def gradient(width: int, height: int, top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    weight = np.linspace(0.0, 1.0, height, dtype=np.float32)[:, None, None]
    rows = (1.0 - weight) * top.astype(np.float32) + weight * bottom.astype(np.float32)
    return np.broadcast_to(rows, (height, width, 3))


def texture(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    """Noise in octaves, as foliage, cloth and film grain have it."""
    total = np.zeros((height, width, 1), dtype=np.float32)
    roughness = rng.uniform(0.45, 0.75)
    amplitude = 60.0
    for cells in (4, 12, 36, 108, 324):
        coarse = rng.normal(size=(cells, cells)).astype(np.float32)
        smooth = Image.fromarray(coarse, mode="F").resize((width, height), Image.BICUBIC)
        total += amplitude * np.asarray(smooth)[:, :, None]
        amplitude *= roughness
    return total


def draw_shapes(
    rng: np.random.Generator, image: Image.Image, label: int, colours: np.ndarray
) -> None:
    pen = ImageDraw.Draw(image)
    for _ in range(int(rng.integers(2, 7))):
        centre_x = int(rng.integers(0, image.width))
        centre_y = int(rng.integers(0, image.height))
        radius = int(rng.integers(20, max(21, min(image.size) // 4)))
        colour = tuple(int(part) for part in colours[int(rng.integers(len(colours)))])
        box = (centre_x - radius, centre_y - radius, centre_x + radius, centre_y + radius)
        if label % 3 == 0:
            pen.ellipse(box, fill=colour)
        elif label % 3 == 1:
            pen.rectangle(box, fill=colour)
        else:
            pen.regular_polygon((centre_x, centre_y, radius), 3 + label % 4, fill=colour)


def encode(image: Image.Image, rng: np.random.Generator) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format="JPEG", quality=int(rng.integers(*JPEG_QUALITY)))
    return stream.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(description="Write an image folder of made photographs.")
    parser.add_argument("target", type=Path)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--seed", type=int, default=42)
    options = parser.parse_args()
    if options.images < CLASSES:
        parser.error(f"--images is {options.images}; at least {CLASSES} are needed, one a class")
    write_image_folder(options.target, images=options.images, seed=options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
