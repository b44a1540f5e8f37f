"""Decoded, cropped and resized images against torchvision and Pillow, pixel by pixel.

Photographs come from `TIERFEED_PHOTOGRAPHS`, else from a sample beside the checkout, if there is one;
`TIERFEED_PHOTOGRAPHS_MAX` of them are compared (12).
"""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest

import needs
import node

torch = needs.module("torch")
torchvision = needs.module("torchvision")
PIL_Image = needs.module("PIL.Image")
PIL_ImageFile = needs.module("PIL.ImageFile")
v2 = needs.module("torchvision.transforms.v2")
functional = needs.module("torchvision.transforms.v2.functional")
torchvision_io = needs.module("torchvision.io")

ROOT = Path(__file__).parents[3]
FIXTURES = ROOT / "platform/images/tests/fixtures"
SAMPLE = ROOT.parent / "shared/data/imagenet-sample"
# torchvision's decoders are deprecated for those of TorchCodec.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torchvision")

SEED = 11
CROP: dict[str, Any] = {"steps": [{"random_resized_crop": 224}, {"random_horizontal_flip": 0.5}]}
MIDDLE: dict[str, Any] = {"steps": [{"resize": 256}, {"center_crop": 224}]}


@dataclass
class Sample:
    """What tierfeed made of an image."""

    path: Path
    row: bytes
    whole: bytes
    operations: list[list[Any]]
    error: str | None


def applied(pipeline: dict[str, Any], paths: list[Path]) -> list[Sample]:
    program = Path(node.binary() or "").parent / "examples/rows"
    if not program.exists():
        needs.skip("tierfeed", "the example `rows` is not built: TIERFEED_PROFILE=dev make build")
    names = "".join(f"{path}\n" for path in paths).encode()
    line = [str(program), json.dumps(pipeline), str(SEED)]
    ran = subprocess.run(line, input=names, capture_output=True, check=True)
    stream = io.BytesIO(ran.stdout)
    samples = []
    for path in paths:
        head = json.loads(stream.readline())
        row, whole = stream.read(head["row"]), stream.read(head["whole"])
        said = head["said"]
        samples.append(Sample(path, row, whole, said.get("operations", []), said.get("error")))
    return samples


def picture(width: int, height: int) -> Any:
    """A picture with edges and noise."""
    random = numpy.random.default_rng(width * 7919 + height)
    y, x = numpy.mgrid[0:height, 0:width]
    waves = [numpy.sin(x / 3.1 + y / 7), numpy.cos(x * y / 90), (x * 5 + y * 3) % 256 / 128 - 1]
    levels = numpy.stack([127 + 120 * wave for wave in waves], -1)
    levels += random.normal(0, 12, levels.shape)
    return PIL_Image.fromarray(levels.clip(0, 255).astype("uint8"))


@pytest.fixture(scope="module")
def awkward(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """JPEG images of odd sizes and of every kind."""
    folder = tmp_path_factory.mktemp("awkward")
    # Pillow's buffer would be too small for noise in progressive images.
    PIL_ImageFile.MAXBLOCK = 1 << 22
    sizes = [
        (1, 1),
        (1, 300),
        (300, 1),
        (2, 2),
        (7, 5),
        (17, 33),
        (225, 223),
        (640, 481),
        (100, 1200),
    ]
    for width, height in sizes:
        image = picture(width, height)
        for subsampling in range(3):
            name = folder / f"{width}x{height}-{subsampling}.jpeg"
            progressive = (width + subsampling) % 2 == 0
            image.save(name, quality=85, subsampling=subsampling, progressive=progressive)
        image.convert("L").save(folder / f"{width}x{height}-grey.jpeg")
        image.convert("CMYK").save(folder / f"{width}x{height}-cmyk.jpeg")
    return sorted([*folder.iterdir(), *FIXTURES.glob("*.jpeg")])


@pytest.fixture(scope="module")
def photographs() -> list[Path]:
    """Photographs of the folder that was named, evenly chosen."""
    found = sorted(Path(os.environ.get("TIERFEED_PHOTOGRAPHS", SAMPLE)).rglob("*.JPEG"))
    count = int(os.environ.get("TIERFEED_PHOTOGRAPHS_MAX", "12"))
    return found[:: max(1, len(found) // count)][:count]


def decoded(path: Path, mode: str = "RGB", orientation: bool = False) -> Any:
    stored = torchvision_io.read_file(str(path))
    return torchvision_io.decode_image(stored, mode=mode, apply_exif_orientation=orientation)


def whole(sample: Sample, shape: tuple[int, ...]) -> Any:
    """The decoded image as channels, rows, columns."""
    channels, height, width = shape
    pixels = numpy.frombuffer(sample.whole, numpy.uint8).reshape(height, width, channels)
    return torch.from_numpy(pixels.transpose(2, 0, 1).copy())


def row_of(sample: Sample, size: int = 224) -> Any:
    assert sample.error is None, f"{sample.path}: {sample.error}"
    return torch.from_numpy(numpy.frombuffer(sample.row, numpy.uint8).reshape(3, size, size).copy())


def by_torchvision(image: Any, operations: list[list[Any]]) -> Any:
    for name, *numbers in operations:
        match name:
            case "crop":
                image = functional.crop(image, *numbers)
            case "resize":
                image = functional.resize(image, numbers, antialias=True)
            case "flip":
                image = functional.horizontal_flip(image)
            case _:
                raise AssertionError(name)
    return image


def differences(samples: list[Sample], expected: Callable[[Sample], Any]) -> tuple[int, float]:
    """The largest difference of a level, and the mean one."""
    largest, total, count = 0, 0, 0
    for sample in samples:
        made = row_of(sample).int()
        difference = (made - expected(sample).int()).abs()
        if int(difference.max()) > 1:
            print(sample.path, int(difference.max()), sample.operations)
        largest = max(largest, int(difference.max()))
        total += int(difference.sum())
        count += difference.numel()
    return largest, total / count


def test_decoded_images_are_those_of_torchvision(
    awkward: list[Path], photographs: list[Path]
) -> None:
    paths = awkward + photographs
    for sample in applied(CROP, paths):
        expected = decoded(sample.path)
        assert torch.equal(whole(sample, tuple(expected.shape)), expected), sample.path
    print(f"0 pixels differ in {len(paths)} images, {len(photographs)} of them photographs")


def test_grey_images_are_those_of_torchvision(awkward: list[Path]) -> None:
    pipeline = {"steps": [{"decode": {"mode": "grey"}}, *CROP["steps"]]}
    for sample in applied(pipeline, awkward):
        expected = decoded(sample.path, mode="GRAY")
        assert torch.equal(whole(sample, tuple(expected.shape)), expected), sample.path


def test_crops_and_resizes_are_those_of_torchvision(
    awkward: list[Path], photographs: list[Path]
) -> None:
    paths = awkward + photographs
    random = differences(
        applied(CROP, paths), lambda it: by_torchvision(decoded(it.path), it.operations)
    )
    middle = v2.Compose([v2.Resize(256, antialias=True), v2.CenterCrop(224)])
    regular = [path for path in paths if min(PIL_Image.open(path).size) > 30]
    fixed = differences(applied(MIDDLE, regular), lambda it: middle(decoded(it.path)))
    print(f"differences from torchvision (largest, mean): crops {random}, resizes {fixed}")
    assert max(random[0], fixed[0]) <= 1


def test_crops_are_within_two_levels_of_pillow(
    photographs: list[Path], awkward: list[Path]
) -> None:
    """Pillow rounds its weights to more bits than PyTorch does."""

    def by_pillow(sample: Sample) -> Any:
        image = PIL_Image.open(sample.path).convert("RGB")
        return functional.pil_to_tensor(by_torchvision(image, sample.operations))

    paths = photographs or [path for path in awkward if "225x223" in path.name]
    largest, mean = differences(applied(CROP, paths), by_pillow)
    print(f"differences from Pillow: largest {largest}, mean {mean:.4f}")
    assert largest <= 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_normalised_images_are_those_of_torchvision_bit_for_bit(
    dtype: str, awkward: list[Path]
) -> None:
    paths = awkward[::5]
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    steps = [
        *CROP["steps"],
        {"normalize": {"mean": list(mean), "std": list(std)}},
        {"dtype": dtype},
    ]
    scale = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)])
    for exact, sample in zip(applied(CROP, paths), applied({"steps": steps}, paths), strict=True):
        expected = scale(row_of(exact)).to(getattr(torch, dtype))
        made = torch.frombuffer(bytearray(sample.row), dtype=expected.dtype)
        assert torch.equal(made.reshape(expected.shape), expected), sample.path


@pytest.mark.parametrize("apply", [False, True])
def test_images_are_turned_as_torchvision_turns_them(tmp_path: Path, apply: bool) -> None:
    image = picture(60, 41)
    paths = []
    for orientation in range(1, 9):
        exif = PIL_Image.Exif()
        exif[0x0112] = orientation
        for suffix in ("jpeg", "png"):
            paths.append(tmp_path / f"{orientation}.{suffix}")
            image.save(paths[-1], exif=exif.tobytes())
    decode = {"orientation": "apply" if apply else "ignore"}
    samples = applied({"steps": [{"decode": decode}, *CROP["steps"]]}, paths)

    def expected(sample: Sample) -> Any:
        return decoded(sample.path, orientation=apply)

    for sample in samples:
        assert torch.equal(whole(sample, tuple(expected(sample).shape)), expected(sample))
    largest, _ = differences(samples, lambda it: by_torchvision(expected(it), it.operations))
    assert largest <= 1


def test_png_and_webp_are_those_of_pillow(tmp_path: Path) -> None:
    image = picture(123, 77)
    for mode in ("RGB", "L", "1", "P", "LA", "RGBA"):
        image.convert(mode).save(tmp_path / f"{mode}.png")
    image.convert("RGBA").save(tmp_path / "lossless-alpha.webp", lossless=True)
    image.save(tmp_path / "lossless.webp", lossless=True)
    for sample in applied(CROP, sorted(tmp_path.iterdir())):
        expected = functional.pil_to_tensor(PIL_Image.open(sample.path).convert("RGB"))
        assert torch.equal(whole(sample, tuple(expected.shape)), expected), sample.path


def test_lossy_webp_is_close_to_that_of_libwebp(tmp_path: Path) -> None:
    largest, total, count = 0, 0, 0
    for width, height in [(123, 77), (64, 64), (301, 200)]:
        path = tmp_path / f"{width}x{height}.webp"
        picture(width, height).save(path, quality=80)
        [sample] = applied(CROP, [path])
        expected = functional.pil_to_tensor(PIL_Image.open(path).convert("RGB"))
        difference = (whole(sample, tuple(expected.shape)).int() - expected.int()).abs()
        largest, total = max(largest, int(difference.max())), total + int(difference.sum())
        count += difference.numel()
    print(f"lossy WebP against libwebp: largest difference {largest}, mean {total / count:.5f}")
    assert largest <= 1


def test_what_torchvision_refuses_is_refused(tmp_path: Path) -> None:
    stored = io.BytesIO()
    picture(200, 150).save(stored, "jpeg")
    jpeg = stored.getvalue()
    broken = {
        "empty": b"",
        "half": jpeg[: len(jpeg) // 2],
        "without-its-end": jpeg[:-2],
        "header": jpeg[:300],
        "no-image": b"GIF is not read",
        "no-tables": jpeg[:2] + jpeg[jpeg.index(b"\xff\xda") :],
    }
    for name, content in broken.items():
        (tmp_path / name).write_bytes(content)
    for sample in applied(CROP, sorted(tmp_path.iterdir())):
        assert sample.error, sample.path
        with pytest.raises(RuntimeError):
            decoded(sample.path)


def test_damaged_data_is_decoded_as_torchvision_decodes_it(tmp_path: Path) -> None:
    stored = io.BytesIO()
    picture(200, 150).save(stored, "jpeg")
    jpeg = stored.getvalue()
    start = jpeg.index(b"\xff\xda") + 20
    random = numpy.random.default_rng(5)
    for number in range(20):
        damaged = bytearray(jpeg)
        damaged[int(random.integers(start, len(jpeg) - 2))] ^= 1 << int(random.integers(0, 7))
        (tmp_path / f"{number:02}").write_bytes(damaged)
    compared = 0
    for sample in applied(CROP, sorted(tmp_path.iterdir())):
        try:
            expected = decoded(sample.path)
        except RuntimeError:
            continue
        assert torch.equal(whole(sample, tuple(expected.shape)), expected), sample.path
        compared += 1
    assert compared > 10


def save_variant(path: Path, number: int, into: Path) -> None:
    """Saves an image in another way, by its number: encoded otherwise, or damaged."""
    image = PIL_Image.open(path).convert("RGB")
    ways: list[dict[str, Any]] = [
        {"quality": 60, "subsampling": 0},
        {"quality": 95, "subsampling": 1},
        {"quality": 30, "subsampling": 2},
        {"quality": 85, "optimize": True},
        {"quality": 80, "restart_marker_blocks": 7},
        {"quality": 90, "restart_marker_rows": 1, "optimize": True},
        {"quality": 75, "progressive": True},
        {"quality": 100, "subsampling": 2, "optimize": True},
    ]
    PIL_ImageFile.MAXBLOCK = 1 << 24
    random = numpy.random.default_rng(number)
    target = into / f"{number:04}.jpeg"
    match number % (len(ways) + 4):
        case way if way < len(ways):
            image.save(target, "jpeg", **ways[way])
            return
        case way if way == len(ways):
            image.convert("L").save(target, "jpeg", quality=90)
            return
        case way:
            content = bytearray(path.read_bytes())
            if way == len(ways) + 1:
                image.save(target, "jpeg", quality=85, restart_marker_blocks=20)
                content = bytearray(target.read_bytes())
    start = content.rindex(b"\xff\xda") + 20
    if way == len(ways) + 2:
        # With the marker at the end, without which an image is refused.
        del content[int(random.integers(start, len(content))) :]
        content += b"\xff\xd9" if number % 8 < 6 else b""
    else:
        for _ in range(int(random.integers(1, 5))):
            content[int(random.integers(start, len(content) - 2))] ^= 1 << int(random.integers(8))
    target.write_bytes(content)


def test_photographs_that_are_encoded_otherwise_or_damaged_are_those_of_torchvision(
    photographs: list[Path], awkward: list[Path], tmp_path: Path
) -> None:
    images = photographs or [path for path in awkward if "640x481" in path.name] * 4
    for number, path in enumerate(images):
        save_variant(path, number, tmp_path)
    refused, unread = 0, 0
    for sample in applied(CROP, sorted(tmp_path.iterdir())):
        try:
            expected = decoded(sample.path)
        except RuntimeError as error:
            # What stands behind the last row that is needed is not read, but for the end of the image.
            if sample.error is None and "Unsupported marker" in str(error):
                unread += 1
                continue
            assert sample.error and not sample.whole, f"{sample.path}: torchvision says {error}"
            refused += 1
            continue
        assert sample.error is None, f"{sample.path}: {sample.error}"
        assert torch.equal(whole(sample, tuple(expected.shape)), expected), sample.path
        row = by_torchvision(expected, sample.operations)
        assert int((row_of(sample).int() - row.int()).abs().max()) <= 1, sample.path
    assert unread <= len(images) / 100
    print(
        f"0 pixels differ in {len(images)} variants, {refused} of them refused by both, {unread} by"
        " torchvision alone"
    )
