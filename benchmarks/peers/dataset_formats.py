"""Photographs for `loaders.py`, and the formats that loaders bring with them."""

from __future__ import annotations

from pathlib import Path


def photographs_in(folder: str) -> list[Path]:
    return sorted(Path(folder).rglob("*.jpg"))


def to_mds(data: str, to: str) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=to, columns={"image": "bytes"}) as writer:
        for path in photographs_in(data):
            writer.write({"image": path.read_bytes()})


def to_litdata(data: str, to: str) -> None:
    import litdata

    litdata.optimize(
        fn=read_bytes,
        inputs=[str(path) for path in photographs_in(data)],
        output_dir=to,
        chunk_bytes="16MB",
        num_workers=1,
    )


def read_bytes(path: str) -> bytes:
    return Path(path).read_bytes()


def to_tar(data: str, to: str) -> None:
    import webdataset

    Path(to).mkdir(parents=True)
    with webdataset.ShardWriter(f"{to}/%04d.tar", maxsize=16 << 20, verbose=0) as writer:
        for path in photographs_in(data):
            writer.write({"__key__": path.stem, "jpg": path.read_bytes()})


CONVERTERS = {"streaming": to_mds, "litdata": to_litdata, "webdataset": to_tar}


def write_photographs(folder: str, count: int, side: int) -> None:
    """Smooth waves with some noise: `side` by three quarters of it, about 100 KB at 500."""
    import numpy
    from PIL import Image

    y, x = numpy.mgrid[0 : side * 3 // 4, 0:side]
    for number in range(count):
        random = numpy.random.default_rng(number)
        waves = [numpy.sin((x * random.normal() + y * random.normal()) / 40) for _ in range(3)]
        levels = 127 + 90 * numpy.stack(waves, -1) + random.normal(0, 14, (*x.shape, 3))
        path = Path(folder, f"class{number % 10}", f"{number:05}.jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(levels.clip(0, 255).astype("uint8")).save(path, quality=90)
