"""Formats whose samples are files: image folders, lists of files, LMDB and FFCV."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import needs
import tierfeed
from reading import FIXTURES, check

ENDS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(random.Random(str(path.name)).randbytes(40 + len(path.name)))
    return path


def image_folder(root: Path) -> tuple[list[str], list[tuple[str, int]]]:
    """The loop that torchvision documents for `ImageFolder`: `find_classes` and `make_dataset`."""
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    samples = []
    for label, name in enumerate(classes):
        for directory, _, files in sorted(os.walk(root / name, followlinks=True)):
            for file in sorted(files):
                if file.lower().endswith(ENDS):
                    samples.append((os.path.join(directory, file), label))
    return classes, samples


NAMES = [
    "b/2.jpg",
    "b/10.JPG",
    "b/1.jpeg",
    "b-c/1.png",
    "b/deep/er/x.webp",
    "b/deep/a.tiff",
    "b/deep-er/a.bmp",
    "a/ä.ppm",
    "a/z.pgm",
    "a/\U0001f600.tif",
    "a/note.txt",
    "Z/1.jpg",
    ".hidden/1.jpg",
    "a/.1.jpg",
]


def test_an_image_folder_is_that_of_torchvision(tmp_path: Path) -> None:
    for name in NAMES:
        write(tmp_path / name)
    write(tmp_path / "beside.jpg")
    os.symlink(tmp_path / "b" / "deep", tmp_path / "a" / "linked")
    try:
        from torchvision.datasets import ImageFolder

        dataset = ImageFolder(str(tmp_path))
        classes, samples = dataset.classes, dataset.samples
    except ImportError:
        classes, samples = image_folder(tmp_path)
    labels = [label for _, label in samples]
    index = check(
        tmp_path, "image-folder", [Path(it).read_bytes() for it, _ in samples], labels=labels
    )
    assert index.class_names == classes
    assert [str(index.extent(it).path) for it in range(len(index))] == [it for it, _ in samples]


def test_files_of_a_pattern_come_in_the_order_of_their_paths(tmp_path: Path) -> None:
    paths = [write(tmp_path / name) for name in ("b/1.wav", "a.wav", "a/2.wav", "b/x.txt", "b/.h.wav")]
    found = [it for it in paths if it.suffix == ".wav"]
    # Directory by directory, files of a directory before those of the ones below it.
    order = sorted(found, key=lambda it: (it.relative_to(tmp_path).parts[:-1], it.name))
    index = check(tmp_path, "files", [it.read_bytes() for it in order], glob="**/*.wav")
    assert [index.extent(it).path for it in range(len(index))] == order


def test_files_of_a_manifest_come_in_its_order_as_often_as_it_says(tmp_path: Path) -> None:
    paths = [write(tmp_path / "data" / f"{it % 3}" / f"{it}.bin") for it in range(10)]
    order = random.Random(3).choices(paths, k=20)
    manifest = tmp_path / "train.txt"
    lines = [str(it.relative_to(tmp_path / "data")) for it in order]
    manifest.write_text("\n".join(lines) + "\n\n")
    check(tmp_path / "data", "files", [it.read_bytes() for it in order], manifest=manifest)
    manifest.write_text("0/0.bin\nnowhere.bin\n")
    with pytest.raises(tierfeed.Reconfigure, match="train.txt:2: `nowhere.bin`"):
        tierfeed.Index.build(tmp_path / "data", format="files", manifest=manifest)


def test_a_file_whose_name_is_no_text_is_read(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.bin"
    with open(path, "wb") as file:
        file.write(b"found")
    index = check(tmp_path, "files", [b"found"], glob="*.bin")
    assert os.fsencode(index.extent(0).path) == path


def test_an_lmdb_environment_is_one_sample_that_lmdb_opens(tmp_path: Path) -> None:
    lmdb = needs.module("lmdb")
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        path = str(tmp_path / "data" / name)
        with lmdb.open(path, map_size=1 << 20) as environment, environment.begin(write=True) as it:
            for number in range(50):
                it.put(b"%03d" % number, name.encode() * number)
    paths = [tmp_path / "data" / name / "data.mdb" for name in ("a", "b")]
    index = check(tmp_path / "data", "lmdb", [it.read_bytes() for it in paths])
    (tmp_path / "staged").write_bytes(index.read(1))
    options = {"subdir": False, "lock": False, "readonly": True}
    with lmdb.open(str(tmp_path / "staged"), **options) as environment, environment.begin() as it:
        assert it.stat()["entries"] == 50
        assert it.get(b"049") == b"b" * 49


def test_a_file_of_ffcv_is_one_sample(tmp_path: Path) -> None:
    whole = (FIXTURES / "ffcv" / "bytes.beton").read_bytes()
    (tmp_path / "train.beton").write_bytes(whole)
    check(tmp_path, "ffcv", [whole])
    (tmp_path / "train.beton").write_bytes(whole[:-1])
    with pytest.raises(tierfeed.Reconfigure, match="train.beton"):
        tierfeed.Index.build(tmp_path, format="ffcv")
