"""Trains over a folder of photographs with one loader, as `tierfeed-bench loaders` and `paper` ask for.

`loaders.py versions` prints the version of each loader that is installed, and why others are not.
`loaders.py photographs FOLDER COUNT SIDE` writes photographs of about 100 KB.
`loaders.py slow-photographs DATA COUNT SIDE` adds some to DATA that take long to decode.
`loaders.py recordings FOLDER COUNT` writes recordings of speech.
`loaders.py convert LOADER DATA TO` writes the photographs of DATA in the loader's own format, and prints
how many seconds that took; nothing for a loader that reads files as they are.
`loaders.py train SETTINGS RESULT` reads a JSON file (see `Settings`) and writes another: seconds, waits,
images and CPU seconds of each epoch.

A training takes each batch, looks at both ends of each sample, and sleeps as long as a step takes on a
GPU, or computes with a small network (`network.py`). Loaders shuffle in their own way.
"""

from __future__ import annotations

import functools
import importlib.metadata
import itertools
import json
import operator
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import buckets
import dataset_formats
import network
import node_loss
import one_node
import slow_samples
import speech
import staged
from cpu_time import cpu_seconds

BATCHES_AHEAD = 4
"""Of a loader whose batches ahead are set: as many as two workers of `DataLoader` have in work."""
SIZE = 224
SHORTER_SIDE = 256
"""Of an image before its middle is cut out."""


@dataclass(frozen=True)
class Settings:
    """A training."""

    loader: str
    data: str
    """A folder of photographs, or what `convert` made of it."""
    batch_size: int
    epochs: int
    step_s: float = 0.0
    workers: int = 2
    """Processes of loaders that have some, threads of the others."""
    decode: bool = False
    """Decode and crop, or hand over the bytes of the files."""
    crop: str = "random"
    """`random` as in training, or `center`: the same in each epoch, as prepared once for all."""
    seed: int = 1
    rank: int = 0
    world: int = 1
    """Ranks, each of which reads its part of every epoch."""
    job: dict[str, Any] = field(default_factory=dict)
    """More keys for tierfeed. With `phases`, each of its `steps_s` holds for as many `steps`."""


Epochs = Iterator[Iterable[Any]]
"""For each epoch, the batches; each a sequence of samples."""


class Photographs:
    """What PyTorch's DataLoader and others read sample by sample."""

    def __init__(self, settings: Settings) -> None:
        self.paths = paths_in(settings.data)
        self.decode = settings.decode
        self.crop = settings.crop

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> Any:
        if not self.decode:
            return self.paths[number].read_bytes()
        return torchvision_crop(self.paths[number].read_bytes(), self.crop)


def paths_in(data: str) -> list[Any]:
    """Files, or objects that are read like files."""
    if buckets.is_bucket(data):
        return list(buckets.objects_in(data, ".jpg", buckets.StoredObject))
    return list(dataset_formats.photographs_in(data))


def torchvision_crop(encoded: bytes, crop: str = "random") -> Any:
    """Decodes, crops and flips as torchvision's recipe for ImageNet does; `center` for validation."""
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg

    torch.set_num_threads(1)
    buffer = torch.frombuffer(bytearray(encoded), dtype=torch.uint8)
    return torchvision_steps()[crop](decode_jpeg(buffer, mode=ImageReadMode.RGB))


@functools.cache
def torchvision_steps() -> dict[str, Any]:
    from torchvision.transforms import v2

    resized = v2.RandomResizedCrop(SIZE, antialias=True)
    return {
        "random": v2.Compose([resized, v2.RandomHorizontalFlip()]),
        "center": v2.Compose([v2.Resize(SHORTER_SIDE, antialias=True), v2.CenterCrop(SIZE)]),
    }


def collate(settings: Settings) -> Callable[[list[Any]], Any]:
    if settings.decode:
        import torch

        # Workers are forked later, so that this is imported once.
        torchvision_steps()
        return torch.stack
    return list


def torch_loader(settings: Settings, dataset: Any, **keys: Any) -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(
        dataset,
        settings.batch_size,
        num_workers=settings.workers,
        persistent_workers=settings.workers > 0,
        collate_fn=collate(settings),
        **keys,
    )


def data_loader(settings: Settings, **keys: Any) -> Epochs:
    from torch.utils.data import DistributedSampler

    samples = Photographs(settings)
    sampler: Any = DistributedSampler(samples, settings.world, settings.rank, seed=settings.seed)
    loader = torch_loader(settings, samples, sampler=sampler, **keys)
    for epoch in range(settings.epochs):
        sampler.set_epoch(epoch)
        yield loader


def unordered_data_loader(settings: Settings) -> Epochs:
    """Hands batches over as they become ready, not in the order of the sampler."""
    return data_loader(settings, in_order=False)


def copied_first(settings: Settings) -> Epochs:
    """Over a copy on a local disk."""
    return data_loader(staged.copied(settings))


def tf_data(settings: Settings) -> Epochs:
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(max(settings.workers, 1))
    paths = [str(path) for path in paths_in(settings.data)]

    def read(path: Any) -> Any:
        encoded = tf.io.read_file(path)
        if not settings.decode:
            return encoded
        if settings.crop == "center":
            return tensorflow_center(encoded)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(encoded),
            tf.zeros((1, 0, 4)),
            area_range=(0.08, 1.0),
            aspect_ratio_range=(3 / 4, 4 / 3),
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.concat([begin[:2], size[:2]], 0)
        image = tf.image.decode_and_crop_jpeg(
            encoded, window, channels=3, dct_method="INTEGER_ACCURATE"
        )
        image = tf.image.resize(image, (SIZE, SIZE), antialias=True)
        return tf.image.random_flip_left_right(tf.cast(image, tf.uint8))

    dataset = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths), settings.seed)
    dataset = dataset.map(read, tf.data.AUTOTUNE).batch(settings.batch_size)
    batches = dataset.prefetch(tf.data.AUTOTUNE).as_numpy_iterator
    for _ in range(settings.epochs):
        yield batches()


def tensorflow_center(encoded: Any) -> Any:
    import tensorflow as tf

    image = tf.image.decode_jpeg(encoded, channels=3, dct_method="INTEGER_ACCURATE")
    size = tf.shape(image)[:2]
    shorter = tf.reduce_min(size)
    image = tf.image.resize(image, size * SHORTER_SIDE // shorter, antialias=True)
    return tf.cast(tf.image.resize_with_crop_or_pad(image, SIZE, SIZE), tf.uint8)


def mosaicml_streaming(settings: Settings) -> Epochs:
    import streaming
    from torch.utils.data import DataLoader

    class Samples(streaming.StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, number: Any) -> Any:
            encoded = super().__getitem__(number)["image"]
            return torchvision_crop(encoded) if settings.decode else encoded

    streaming.base.util.clean_stale_shared_memory()
    keys = buckets.mosaic_keys(settings.data)
    dataset = Samples(**keys, shuffle=True, batch_size=settings.batch_size)
    loader = DataLoader(
        dataset,
        settings.batch_size,
        num_workers=settings.workers,
        persistent_workers=settings.workers > 0,
        collate_fn=collate(settings),
    )
    return itertools.repeat(loader, settings.epochs)


def lit_data(settings: Settings) -> Epochs:
    import litdata

    class Samples(litdata.StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, number: Any) -> Any:
            encoded = super().__getitem__(number)
            return torchvision_crop(encoded) if settings.decode else bytes(encoded)

    loader = litdata.StreamingDataLoader(
        Samples(**buckets.litdata_keys(settings.data), shuffle=True, seed=settings.seed),
        batch_size=settings.batch_size,
        num_workers=settings.workers,
        persistent_workers=settings.workers > 0,
        collate_fn=collate(settings),
    )
    return itertools.repeat(loader, settings.epochs)


def web_dataset(settings: Settings) -> Epochs:
    import webdataset

    shards = buckets.shards_in(settings.data)
    samples = webdataset.WebDataset(shards, shardshuffle=len(shards), seed=settings.seed)
    samples = samples.shuffle(500).to_tuple("jpg")
    take = torchvision_crop if settings.decode else bytes
    samples = samples.map(lambda sample: take(sample[0]))
    samples = samples.batched(settings.batch_size, collation_fn=collate(settings))
    loader = webdataset.WebLoader(
        samples,
        batch_size=None,
        num_workers=min(settings.workers, len(shards)),
        persistent_workers=settings.workers > 0,
    )
    return itertools.repeat(loader, settings.epochs)


def spdl(settings: Settings) -> Epochs:
    import random

    import spdl.io
    from spdl.pipeline import PipelineBuilder

    paths = paths_in(settings.data)
    chance = random.Random(settings.seed)

    def described() -> str:
        side = (0.08 + 0.92 * random.random()) ** 0.5
        left, top = random.random(), random.random()
        flip = ",hflip" if random.random() < 0.5 else ""
        crop = f"crop=iw*{side:.4f}:ih*{side:.4f}:(iw-ow)*{left:.4f}:(ih-oh)*{top:.4f}"
        return f"{crop},scale={SIZE}:{SIZE}{flip},format=pix_fmts=rgb24"

    def decoded(source: Any) -> Any:
        frames = spdl.io.decode_packets(spdl.io.demux_image(source), filter_desc=described())
        return spdl.io.to_numpy(spdl.io.convert_frames(frames))

    threads = max(settings.workers, 1)
    far = buckets.is_bucket(settings.data)

    def epoch() -> Iterator[Any]:
        order = chance.sample(paths, len(paths))
        builder = PipelineBuilder().add_source(order)
        # Files are decoded where they are read.
        if far or not settings.decode:
            readers = buckets.READERS if far else threads
            builder = builder.pipe(lambda it: it.read_bytes(), concurrency=readers)
        if settings.decode:
            builder = builder.pipe(lambda it: decoded(it if far else str(it)), concurrency=threads)
        builder = builder.aggregate(settings.batch_size).add_sink(4)
        pipeline = builder.build(num_threads=threads + buckets.READERS * far)
        with pipeline.auto_stop():
            yield from pipeline

    for _ in range(settings.epochs):
        yield epoch()


def dali(settings: Settings) -> Epochs:
    from nvidia.dali import fn, pipeline_def

    paths = [str(path) for path in paths_in(settings.data)]

    @pipeline_def(
        batch_size=settings.batch_size,
        num_threads=max(settings.workers, 1),
        device_id=None,
        prefetch_queue_depth=BATCHES_AHEAD,
    )
    def pipeline() -> Any:
        encoded, _ = fn.readers.file(
            files=paths,
            shuffle_after_epoch=True,
            seed=settings.seed,
            shard_id=settings.rank,
            num_shards=settings.world,
        )
        if not settings.decode:
            return encoded
        image = fn.decoders.image_random_crop(
            encoded, device="cpu", random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3]
        )
        image = fn.resize(image, resize_x=SIZE, resize_y=SIZE, antialias=True)
        return fn.flip(image, horizontal=fn.random.coin_flip())

    built = pipeline()
    built.build()

    def epoch() -> Iterator[Any]:
        left = -(-len(paths) // settings.world)
        while left > 0:
            (batch,) = built.run()
            yield [batch.at(at) for at in range(min(left, len(batch)))]
            left -= settings.batch_size

    for _ in range(settings.epochs):
        yield epoch()


def grain(settings: Settings) -> Epochs:
    import grain as library

    samples = library.MapDataset.source(Photographs(settings)).seed(settings.seed)
    stacked: dict[str, Any] = {} if settings.decode else {"batch_fn": list}
    readers = buckets.READERS if buckets.is_bucket(settings.data) else max(settings.workers, 1)
    for epoch in range(settings.epochs):
        shuffled = samples.shuffle(seed=settings.seed + epoch)
        batches = shuffled.to_iter_dataset(
            library.ReadOptions(num_threads=readers, prefetch_buffer_size=64)
        )
        yield batches.batch(settings.batch_size, drop_remainder=False, **stacked)


def tierfeed(settings: Settings) -> Epochs:
    import tierfeed.torch
    from tierfeed import transforms

    keys: dict[str, Any] = dict(settings.job)
    keys.pop("phases", None)
    if settings.decode:
        crops = {
            "random": [
                transforms.random_resized_crop(SIZE),
                transforms.random_horizontal_flip(0.5),
            ],
            "center": [transforms.resize(SHORTER_SIDE), transforms.center_crop(SIZE)],
        }
        keys["transform"] = transforms.compose(*crops[settings.crop], **keys.get("transform", {}))
        keys.setdefault("threads", max(settings.workers, 1))
    if buckets.is_bucket(settings.data):
        place = buckets.place_of(settings.data)
        keys |= {"source": place.url, "endpoint": place.endpoint}
        keys |= {"format": "files", "glob": "**/*.jpg"}
    keys.setdefault("source", settings.data)
    if keys["source"] == settings.data:
        keys |= {"format": "files", "glob": "**/*.jpg"}
    with tierfeed.torch.TierLoader(
        **keys, batch_size=settings.batch_size, seed=settings.seed, epochs=settings.epochs
    ) as loader:
        for _ in range(settings.epochs):
            # A generator would keep the samples of the last batch while the next one is staged.
            yield map(operator.itemgetter(0), loader)
        assert_from_agent(loader)


def tierfeed_torchvision(settings: Settings) -> Epochs:
    """Decodes in threads of the trainer, with the code that workers of `DataLoader` run."""
    import tierfeed.torch

    keys = {"decode_threads": max(settings.workers, 1)} | settings.job
    keys.pop("phases", None)
    with tierfeed.torch.TierLoader(
        settings.data,
        format="files",
        glob="**/*.jpg",
        batch_size=settings.batch_size,
        seed=settings.seed,
        epochs=settings.epochs,
        decode=lambda sample, _label: torchvision_crop(bytes(sample), settings.crop),
        collate=collate(settings),
        **keys,
    ) as loader:
        for _ in range(settings.epochs):
            yield loader
        assert_from_agent(loader)


def assert_from_agent(loader: Any) -> None:
    """A trainer reads on alone when its agent is gone; then it is not the agent that was measured."""
    assert loader.feed.mode == "agent", loader.feed.mode


LOADERS: dict[str, tuple[str, Callable[[Settings], Epochs]]] = {
    "dataloader": ("torch", data_loader),
    "tf.data": ("tensorflow-cpu", tf_data),
    "streaming": ("mosaicml-streaming", mosaicml_streaming),
    "litdata": ("litdata", lit_data),
    "webdataset": ("webdataset", web_dataset),
    "spdl": ("spdl", spdl),
    "dali": ("nvidia-dali-cuda120", dali),
    "grain": ("grain", grain),
    "tierfeed": ("tierfeed", tierfeed),
}
"""The loaders that are compared, each with its package."""

VARIANTS: dict[str, Callable[[Settings], Epochs]] = {
    "dataloader-unordered": unordered_data_loader,
    "copy-first": copied_first,
    "dataloader-center": lambda it: data_loader(replace(it, crop="center")),
    "tf.data-center": lambda it: tf_data(replace(it, crop="center")),
    "tierfeed-center": lambda it: tierfeed(replace(it, crop="center")),
    "dataloader-network": data_loader,
    "tf.data-network": tf_data,
    "tierfeed-network": tierfeed,
    "tierfeed-torchvision": tierfeed_torchvision,
    "tierfeed-run": staged.tierfeed_run,
    "dataloader-speech": speech.data_loader,
    "tierfeed-speech": speech.tierfeed,
    "one-node-dataloader": one_node.data_loader,
    "one-node-tierfeed": one_node.tierfeed,
}
"""The same loaders as single experiments set them up."""


def epochs_of(settings: Settings) -> Epochs:
    variant = VARIANTS.get(settings.loader)
    return (variant or LOADERS[settings.loader][1])(settings)


def look_at(batch: Any) -> int:
    """Looks at both ends of each sample; returns how many there are."""
    if not isinstance(batch, list) and getattr(batch, "ndim", 0) > 1:
        rows = batch.reshape(len(batch), -1)
        assert int(rows[:, 0].sum()) + int(rows[:, -1].sum()) >= 0
        return len(rows)
    count = 0
    for sample in batch:
        flat = sample.reshape(-1) if hasattr(sample, "reshape") else sample
        assert int(flat[0]) + int(flat[-1]) >= 0
        count += 1
    return count


def train(settings: Settings) -> dict[str, Any]:
    if settings.loader == "tierfeed-nodes":
        return node_loss.train(settings)
    seconds, waits, images, cpu, first = [], [], [], [], 0.0
    slow: list[list[bool]] = []
    marked = slow_samples.are_expected(settings.data)
    compute = step_of(settings)
    began = time.perf_counter()
    for batches in epochs_of(settings):
        start = asked = time.perf_counter()
        used = cpu_seconds()
        waits.append([])
        images.append(0)
        slow.append([])
        for batch in batches:
            waits[-1].append(time.perf_counter() - asked)
            first = first or time.perf_counter() - began
            images[-1] += look_at(batch)
            if marked:
                slow[-1].append(slow_samples.any_in(batch))
            compute(batch)
            del batch
            asked = time.perf_counter()
        seconds.append(time.perf_counter() - start)
        cpu.append(cpu_seconds() - used)
    return {
        "seconds": seconds,
        "waits": waits,
        "images": images,
        "cpu_s": cpu,
        "slow": slow,
        "job_s": staged.seconds_since_start(),
        "first_batch_s": first,
        "run_dir": run_dir(),
    }


def step_of(settings: Settings) -> Callable[[Any], None]:
    """What a training does with a batch."""
    if settings.loader.endswith("-network"):
        return network.step()
    if phases := settings.job.get("phases"):
        parts = [itertools.repeat(takes_s, phases["steps"]) for takes_s in phases["steps_s"]]
        steps = itertools.chain(*parts, itertools.repeat(phases["steps_s"][-1]))
        return lambda _batch: time.sleep(next(steps))
    if settings.step_s:
        return lambda _batch: time.sleep(settings.step_s)
    return lambda _batch: None


def run_dir() -> str | None:
    """Where tierfeed leaves its report, if it trained."""
    if "tierfeed" not in sys.modules:
        return None
    return str(sys.modules["tierfeed"].current().run_dir)


def versions() -> dict[str, str]:
    found = {}
    for name, (package, _) in LOADERS.items():
        try:
            found[name] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "this tree" if package == "tierfeed" else "absent"
    return found


def main() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    command, *rest = sys.argv[1:]
    if command == "versions":
        print(json.dumps(versions()))
    elif command == "photographs":
        dataset_formats.write_photographs(rest[0], int(rest[1]), int(rest[2]))
    elif command == "slow-photographs":
        slow_samples.write(rest[0], int(rest[1]), int(rest[2]))
    elif command == "recordings":
        speech.write(rest[0], int(rest[1]))
    elif command == "convert":
        began = time.perf_counter()
        dataset_formats.CONVERTERS[rest[0]](rest[1], rest[2])
        print(json.dumps({"seconds": time.perf_counter() - began}))
    else:
        settings = Settings(**json.loads(Path(rest[0]).read_text()))
        if settings.loader == "tierfeed-run":
            staged.become_tierfeed_run(settings)
        Path(rest[1]).write_text(json.dumps(train(settings)))


if __name__ == "__main__":
    main()
