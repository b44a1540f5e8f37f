"""Datasets whose samples have several fields, written without the packages of their formats.

Sample `number` is the image of `photographs.encoded`, the class `number % 5`, a caption, and two points.
"""

from __future__ import annotations

import io
import json
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import node
import photographs
from conftest import SEED, World
from test_formats_streams import offset_table, tfrecord

SAMPLES = 23


def caption(number: int) -> str:
    return f"photograph {number}, ü"


def points(number: int) -> list[float]:
    return [number / 2, number + 0.25]


def webdataset(folder: Path, image: Callable[[int], bytes], samples: int) -> None:
    """Two shards with members `jpg`, `cls`, `txt` and `json`; `image` gives the bytes of `jpg`."""
    for shard in range(2):
        members = {}
        for number in range(shard * samples // 2, (shard + 1) * samples // 2):
            members[f"{number:05}.jpg"] = image(number)
            members[f"{number:05}.cls"] = str(number % 5).encode()
            members[f"{number:05}.txt"] = caption(number).encode()
            members[f"{number:05}.json"] = json.dumps({"points": points(number)}).encode()
        tar(folder / f"{shard}.tar", members)


def tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def tfrecords(folder: Path, image: Callable[[int], bytes], samples: int) -> None:
    """Two files with features as those of ImageNet, and a list of floats."""
    for shard in range(2):
        of = range(shard * samples // 2, (shard + 1) * samples // 2)
        records = [example(number, image(number)) for number in of]
        (folder / f"train-{shard:05}-of-00002").write_bytes(tfrecord(records))


def example(number: int, image: bytes) -> bytes:
    """A `tf.train.Example`."""
    floats = struct.pack("<2f", *points(number))
    features = {
        "image/encoded": _part(1, _part(1, image)),
        "image/class/label": _part(3, _part(1, _varint(number % 5))),
        "image/class/text": _part(1, _part(1, caption(number).encode())),
        "image/points": _part(2, _part(1, floats)),
    }
    entries = (_part(1, name.encode()) + _part(2, it) for name, it in features.items())
    return _part(1, b"".join(_part(1, entry) for entry in entries))


def _varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low]) if not rest else bytes([low | 128]) + _varint(rest)


def _part(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def mds(folder: Path, image: Callable[[int], bytes], samples: int) -> None:
    """Two shards with columns of which some have a size of their own."""
    columns = {
        "column_names": ["caption", "class", "image", "points", "weight"],
        "column_encodings": ["str", "int", "jpeg", "json", "float32"],
        "column_sizes": [None, 8, None, None, 4],
    }
    shards = []
    for shard in range(2):
        rows = []
        for number in range(shard * samples // 2, (shard + 1) * samples // 2):
            parts = [caption(number).encode(), image(number), json.dumps(points(number)).encode()]
            sizes = struct.pack("<3I", *map(len, parts))
            numbers = struct.pack("<q", number % 5), struct.pack("<f", number / 4)
            rows.append(sizes + parts[0] + numbers[0] + parts[1] + parts[2] + numbers[1])
        content = offset_table(rows, json.dumps({"format": "mds", **columns}).encode())
        name = f"shard.{shard:05}.mds"
        (folder / name).write_bytes(content)
        raw = {"basename": name, "bytes": len(content), "hashes": {}}
        described = {"format": "mds", "version": 2, "samples": len(rows), "raw_data": raw}
        described |= {"compression": None, "hashes": [], "size_limit": 1 << 26, "zip_data": None}
        shards.append(described | columns)
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))


def litdata(folder: Path, image: Callable[[int], bytes], samples: int) -> None:
    """Two chunks of dictionaries."""
    leaf: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
    names = ["image", "class", "caption", "weight"]
    root = {"type": "builtins.dict", "context": json.dumps(names), "children_spec": [leaf] * 4}
    config = {
        "item_loader": "PyTreeLoader",
        "data_format": ["jpeg", "int", "str", "float"],
        "data_spec": json.dumps([1, root]),
    }
    chunks = []
    for chunk in range(2):
        items = []
        for number in range(chunk * samples // 2, (chunk + 1) * samples // 2):
            numbers = struct.pack("<q", number % 5), struct.pack("<d", number / 4)
            leaves = [image(number), numbers[0], caption(number).encode(), numbers[1]]
            items.append(struct.pack("<4I", *map(len, leaves)) + b"".join(leaves))
        content = offset_table(items)
        name = f"chunk-0-{chunk}.bin"
        (folder / name).write_bytes(content)
        size = {"chunk_bytes": len(content), "chunk_size": len(items)}
        chunks.append({"filename": name, "dim": None, **size})
    (folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))


WRITERS = {"webdataset": webdataset, "tfrecord": tfrecords, "mds": mds, "litdata": litdata}


def expected_fields(format: str, number: int) -> dict[str, Any]:
    """What a trainer gets of a sample beside its row."""
    if format == "webdataset":
        fields = {"cls": number % 5, "txt": caption(number)}
        return {**fields, "json": {"points": points(number)}}
    if format in ("mds", "litdata"):
        fields = {"caption": caption(number), "class": number % 5, "weight": number / 4}
        return {**fields, "points": points(number)} if format == "mds" else fields
    return {
        "image/class/label": number % 5,
        "image/class/text": caption(number).encode(),
        "image/points": points(number),
    }


def write(
    folder: Path,
    format: str,
    image: Callable[[int], bytes] = photographs.encoded,
    samples: int = SAMPLES,
) -> Path:
    """A dataset of this format."""
    folder.mkdir(parents=True, exist_ok=True)
    WRITERS[format](folder, image, samples)
    return folder


def make_world(
    root: Path,
    format: str,
    transform: dict[str, Any],
    *,
    epochs: int = 2,
    on_error: str = "fail",
    image: Callable[[int], bytes] = photographs.encoded,
) -> World:
    """A job over a dataset of this format."""
    data = write(root / "data", format, image)
    job = root / "job.yaml"
    job.write_text(
        f"""\
name: test
dataset: {{ source: "file://{data}", format: {format} }}
order: {{ shuffle: torch-distributed, seed: {SEED}, epochs: {epochs} }}
batch_size: 4
on_error: {on_error}
chunk: 1 MiB
tiers:
  main-memory: {{ size: 16 MiB }}
transform: {json.dumps(transform)}
"""
    )
    index = root / "dataset.tfx"
    node.run_command("index", data, "--format", format, "--output", index)
    return World(job, index, [], epochs, 4, 1)
