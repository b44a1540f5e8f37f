"""Decodes the images of a folder in the way of one library, as often as it is told.

Run by `tierfeed-bench decode`, one process for each side, which lives through all turns. It says
`ready`, or `absent: ` and a reason. Each line of standard input is a turn: its work, and how many
threads; each answer is a line of JSON: seconds, CPU seconds of this process, and images.

`decode.py loader NAME FOLDER IMAGES` takes the batches of whole epochs from a loader, at least so many
images after the first epoch, and says the same of them once.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SIZE = 224
BATCH = 32
Turn = Callable[[], int]


def of_each(paths: list[str], threads: int, work: Callable[[str], object]) -> Turn:
    """Work on one image after another, on threads of their own."""
    parts = [paths[part::threads] for part in range(threads)]

    def part(paths: list[str]) -> int:
        for path in paths:
            work(path)
        return len(paths)

    if threads == 1:
        return lambda: part(paths)
    pool = ThreadPoolExecutor(threads)
    return lambda: sum(pool.map(part, parts))


def torchvision(paths: list[str], work: str, threads: int) -> Turn:
    import torch
    from torchvision.io import decode_image, read_file
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    crop = v2.Compose([v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()])

    def decode(path: str) -> Any:
        return decode_image(read_file(path), mode="RGB")

    return of_each(paths, threads, decode if work == "decode" else lambda it: crop(decode(it)))


def pillow(paths: list[str], work: str, threads: int) -> Turn:
    import torch
    from PIL import Image
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    crop = v2.Compose([v2.RandomResizedCrop(SIZE), v2.RandomHorizontalFlip(), v2.PILToTensor()])

    def decode(path: str) -> Any:
        return Image.open(path).convert("RGB")

    return of_each(paths, threads, decode if work == "decode" else lambda it: crop(decode(it)))


def dali(paths: list[str], work: str, threads: int) -> Turn:
    from nvidia.dali import fn, pipeline_def

    # Without a batch that is computed after one turn for the next.
    at_once = {"exec_pipelined": False, "exec_async": False, "prefetch_queue_depth": 1}

    @pipeline_def(batch_size=BATCH, num_threads=threads, device_id=None, **at_once)
    def pipeline() -> Any:
        encoded, _ = fn.readers.file(files=paths, dont_use_mmap=True)
        if work == "decode":
            return fn.decoders.image(encoded, device="cpu")
        image = fn.decoders.image_random_crop(
            encoded, device="cpu", random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3]
        )
        image = fn.resize(image, resize_x=SIZE, resize_y=SIZE, antialias=True)
        return fn.flip(image, horizontal=fn.random.coin_flip())

    built = pipeline()
    built.build()

    def turn() -> int:
        for _ in range(len(paths) // BATCH):
            built.run()
        return len(paths) // BATCH * BATCH

    return turn


def spdl(paths: list[str], work: str, threads: int) -> Turn:
    import random

    import spdl.io

    def described() -> str:
        if work == "decode":
            return "format=pix_fmts=rgb24"
        side = (0.08 + 0.92 * random.random()) ** 0.5
        left, top = random.random(), random.random()
        flip = ",hflip" if random.random() < 0.5 else ""
        crop = f"crop=iw*{side:.4f}:ih*{side:.4f}:(iw-ow)*{left:.4f}:(ih-oh)*{top:.4f}"
        return f"{crop},scale={SIZE}:{SIZE}{flip},format=pix_fmts=rgb24"

    def decode(path: str) -> object:
        frames = spdl.io.decode_packets(spdl.io.demux_image(path), filter_desc=described())
        return spdl.io.to_numpy(spdl.io.convert_frames(frames))

    return of_each(paths, threads, decode)


class Photographs:
    """What a DataLoader reads; its workers import it."""

    def __init__(self, paths: list[str], work: str) -> None:
        self.paths, self.work = paths, work

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> Any:
        from torchvision.io import decode_image, read_file

        return self.crop(decode_image(read_file(self.paths[number]), mode="RGB"))

    def crop(self, image: Any) -> Any:
        from torchvision.transforms import v2

        if not hasattr(self, "steps"):
            resized = v2.RandomResizedCrop(SIZE, antialias=True)
            self.steps = v2.Compose([resized, v2.RandomHorizontalFlip()])
        return self.steps(image)


def data_loader(paths: list[str], work: str, threads: int) -> Turn | None:
    if work == "decode":
        return None
    from torch.utils.data import DataLoader

    photographs: Any = Photographs(paths, work)
    loader: Any = DataLoader(
        photographs, batch_size=BATCH, num_workers=threads, persistent_workers=True
    )
    return lambda: sum(len(batch) for batch in loader)


SIDES = {
    "torchvision": torchvision,
    "Pillow": pillow,
    "DALI": dali,
    "SPDL": spdl,
    "DataLoader": data_loader,
}


def cpu_seconds() -> float:
    """Of this process. Workers of a DataLoader live on, and are not in it."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def prepare(folder: Path, count: int) -> None:
    """Makes photographs: smooth, with some noise, of 500 by 375 pixels and about 100 KB."""
    import numpy
    from PIL import Image

    y, x = numpy.mgrid[0:375, 0:500]
    for number in range(count):
        random = numpy.random.default_rng(number)
        waves = [numpy.sin((x * random.normal() + y * random.normal()) / 40) for _ in range(3)]
        levels = 127 + 90 * numpy.stack(waves, -1) + random.normal(0, 14, (375, 500, 3))
        image = Image.fromarray(levels.clip(0, 255).astype("uint8"))
        image.save(folder / f"{number:05}.JPEG", quality=90)


LOADER_BATCH = 64
LOADER_THREADS = 2
# More images than either side has ahead when training begins.
LOADER_UNMEASURED = 2048


def tier_loader(folder: Path, epochs: int, cache: Any = None) -> Iterator[int]:
    """How many images each batch of the next epoch has, and -1 behind each epoch."""
    import tierfeed.torch
    from tierfeed import transforms

    crop = transforms.compose(
        transforms.random_resized_crop(SIZE),
        transforms.random_horizontal_flip(0.5),
        cache=cache,
    )
    with tierfeed.torch.TierLoader(
        str(folder),
        format="files",
        glob="**/*.JPEG",
        batch_size=LOADER_BATCH,
        seed=1,
        epochs=epochs,
        transform=crop,
        threads=LOADER_THREADS,
    ) as loader:
        for _ in loader.epochs_left:
            for images, _labels in loader:
                yield len(images)
            yield -1


def worker_loader(folder: Path, epochs: int) -> Iterator[int]:
    """The same, of a DataLoader with workers."""
    from torch.utils.data import DataLoader

    photographs: Any = Photographs(paths_in(folder), "crop")
    loader: Any = DataLoader(
        photographs,
        batch_size=LOADER_BATCH,
        shuffle=True,
        num_workers=LOADER_THREADS,
        persistent_workers=True,
    )
    for _ in range(epochs):
        for batch in loader:
            yield len(batch)
        yield -1


def stored_tier_loader(folder: Path, epochs: int) -> Iterator[int]:
    """A `TierLoader` that decodes every time."""
    return tier_loader(folder, epochs, "stored")


LOADERS = {
    "TierLoader": tier_loader,
    "TierLoader, images kept as stored": stored_tier_loader,
    "DataLoader": worker_loader,
}


def take(name: str, folder: Path, measured: int) -> None:
    """Takes all batches, and prints a turn."""
    photographs = len(paths_in(folder))
    unmeasured = -(-LOADER_UNMEASURED // photographs)
    epochs = unmeasured + -(-measured // photographs)
    loader = LOADERS[name]
    started, cpu, images, ended = 0.0, 0.0, 0, 0
    seconds, used = 0.0, 0.0
    for count in loader(folder, epochs):
        if count < 0:
            ended += 1
            if ended == unmeasured:
                started, cpu = time.perf_counter(), cpu_seconds()
        elif ended >= unmeasured:
            images += count
        seconds, used = time.perf_counter() - started, cpu_seconds() - cpu
    print(json.dumps({"seconds": seconds, "cpu_seconds": used, "images": images}), flush=True)


def paths_in(folder: Path) -> list[str]:
    return [str(path) for path in sorted(folder.rglob("*.JPEG"))]


def main() -> None:
    if sys.argv[1] == "loader":
        return take(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    side, folder = sys.argv[1], Path(sys.argv[2])
    if side == "prepare":
        return prepare(folder, int(sys.argv[3]))
    paths = paths_in(folder)
    turns: dict[tuple[str, int], Turn | None] = {}
    try:
        trial = SIDES[side](paths[:BATCH], "crop", 1)
        assert trial is not None and trial() == BATCH
    except Exception as error:
        print(f"absent: {error}".splitlines()[0], flush=True)
        return None
    print("ready", flush=True)
    for line in sys.stdin:
        work, threads = json.loads(line)
        if (work, threads) not in turns:
            turns[work, threads] = SIDES[side](paths, work, threads)
        turn = turns[work, threads]
        started, cpu = time.perf_counter(), cpu_seconds()
        images = turn() if turn is not None else 0
        seconds, used = time.perf_counter() - started, cpu_seconds() - cpu
        print(json.dumps({"seconds": seconds, "cpu_seconds": used, "images": images}), flush=True)
    return None


if __name__ == "__main__":
    main()
