"""Reads samples of one length in the way of one framework, or through tierfeed under that framework.

Run by `tierfeed-bench frameworks`, once for each turn of each side. Every side reads the samples of the
same folder, each epoch in another order, hands over batches as the framework's own arrays, and has both
ends of each sample looked at. It starts as a user starts it: a plain process, in which tierfeed starts
its own agent.

    frameworks.py prepare FOLDER            writes FOLDER/samples.tfrecord of FOLDER/data
    frameworks.py SIDE FOLDER BATCH_SIZE EPOCHS RESULT

RESULT gets the seconds and the CPU seconds of each epoch, those of workers and of the agent included.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy

from cpu_time import cpu_seconds

WORKERS = 2
SEED = 42


class Dataset:
    """The samples of a turn."""

    def __init__(self, folder: str, batch_size: str, epochs: str) -> None:
        self.folder = Path(folder) / "data"
        self.records = Path(folder) / "samples.tfrecord"
        self.paths = sorted(self.folder.iterdir())
        self.sample_bytes = self.paths[0].stat().st_size
        self.batch_size, self.epochs = int(batch_size), int(epochs)

    def job(self) -> dict[str, object]:
        """The arguments of a loader of tierfeed: everything fits into main memory."""
        room = len(self.paths) * self.sample_bytes * 5 // 4 + (256 << 20)
        return {
            "source": str(self.folder),
            "format": "raw",
            "record_bytes": self.sample_bytes,
            "batch_size": self.batch_size,
            "seed": SEED,
            "epochs": self.epochs,
            "chunk": "32 MiB",
            "tiers": {"main-memory": {"size": f"{room} B"}},
        }

    def order(self, epoch: int) -> list[int]:
        return numpy.random.default_rng(epoch).permutation(len(self.paths)).tolist()


# The frameworks' own ways.


def torch_dataloader(data: Dataset) -> Iterator[Iterable[object]]:
    import torch

    class Files(torch.utils.data.Dataset):  # type: ignore[type-arg, misc]
        def __len__(self) -> int:
            return len(data.paths)

        def __getitem__(self, number: int) -> object:
            return torch.frombuffer(
                bytearray(data.paths[number].read_bytes()), dtype=torch.uint8
            )

    loader = torch.utils.data.DataLoader(
        Files(), data.batch_size, shuffle=True, num_workers=WORKERS, persistent_workers=True
    )
    for _ in range(data.epochs):
        yield loader


def tf_files(data: Dataset) -> Iterator[Iterable[object]]:
    import tensorflow as tf

    def read(path: object) -> object:
        return tf.io.decode_raw(tf.io.read_file(path), tf.uint8)

    dataset = tf.data.Dataset.from_tensor_slices([str(path) for path in data.paths])
    dataset = dataset.shuffle(len(data.paths), SEED).map(read, tf.data.AUTOTUNE)
    dataset = dataset.batch(data.batch_size).prefetch(tf.data.AUTOTUNE)
    for _ in range(data.epochs):
        yield dataset


def tf_records(data: Dataset) -> Iterator[Iterable[object]]:
    import tensorflow as tf

    def decode(record: object) -> object:
        return tf.io.decode_raw(record, tf.uint8)

    dataset = tf.data.TFRecordDataset(str(data.records), buffer_size=8 << 20)
    dataset = dataset.shuffle(4 * data.batch_size, SEED).map(decode, tf.data.AUTOTUNE)
    dataset = dataset.batch(data.batch_size).prefetch(tf.data.AUTOTUNE)
    for _ in range(data.epochs):
        yield dataset


def grain_files(data: Dataset) -> Iterator[Iterable[object]]:
    import grain

    class Files:
        def __len__(self) -> int:
            return len(data.paths)

        def __getitem__(self, number: int) -> object:
            return numpy.fromfile(data.paths[number], numpy.uint8)

    samples = grain.MapDataset.source(Files()).seed(SEED).shuffle()
    batches = samples.batch(data.batch_size)
    for epoch in range(data.epochs):
        yield batches.slice(slice(None)).seed(epoch).to_iter_dataset(grain.ReadOptions())


def jax_grain(data: Dataset) -> Iterator[Iterable[object]]:
    import jax

    for batches in grain_files(data):
        yield map(jax.device_put, batches)


def keras_files(data: Dataset) -> Iterator[Iterable[object]]:
    import keras

    class Files(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return -(-len(data.paths) // data.batch_size)

        def __getitem__(self, number: int) -> object:
            chosen = order[number * data.batch_size :][: data.batch_size]
            return numpy.stack(
                [numpy.fromfile(data.paths[at], numpy.uint8) for at in chosen]
            )

    for epoch in range(data.epochs):
        order = data.order(epoch)
        yield keras_batches(Files(workers=WORKERS, max_queue_size=2 * WORKERS))


def keras_batches(dataset: object) -> Iterable[object]:
    """The batches of a `PyDataset`, as `fit` takes them."""
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    adapter = PyDatasetAdapter(dataset, shuffle=False)
    adapter.on_epoch_begin()
    yield from adapter.get_numpy_iterator()
    adapter.on_epoch_end()


def fsspec_blocks(data: Dataset) -> Iterator[Iterable[object]]:
    import fsspec

    cache = data.folder.parent / "blocks"
    system = fsspec.filesystem("blockcache", target_protocol="file", cache_storage=str(cache))
    return fsspec_samples(system, str(data.folder), data)


def fsspec_samples(system: object, folder: str, data: Dataset) -> Iterator[Iterable[object]]:
    """Batches of whole files, by their names."""

    def batches(order: list[int]) -> Iterator[object]:
        for start in range(0, len(order), data.batch_size):
            samples = []
            for number in order[start : start + data.batch_size]:
                with system.open(f"{folder}/{data.paths[number].name}", "rb") as file:  # type: ignore[attr-defined]
                    samples.append(numpy.frombuffer(file.read(), numpy.uint8))
            yield samples

    for epoch in range(data.epochs):
        yield batches(data.order(epoch))


# The same through tierfeed.


def torch_tierfeed(data: Dataset) -> Iterator[Iterable[object]]:
    import tierfeed.torch

    with tierfeed.torch.TierLoader(**data.job()) as loader:
        for _ in range(data.epochs):
            yield loader


def tf_tierfeed(data: Dataset) -> Iterator[Iterable[object]]:
    import tierfeed.tensorflow

    batches = iter(tierfeed.tensorflow.dataset(**data.job()))
    return by_epoch(batches, data)


def grain_tierfeed(data: Dataset) -> Iterator[Iterable[object]]:
    import tierfeed.grain

    return by_epoch(iter(tierfeed.grain.TierIterDataset(**data.job())), data)


def keras_tierfeed(data: Dataset) -> Iterator[Iterable[object]]:
    import tierfeed.keras

    dataset = tierfeed.keras.TierPyDataset(**data.job())
    for _ in range(data.epochs):
        yield keras_batches(dataset)
    dataset.close()


def fsspec_tierfeed(data: Dataset) -> Iterator[Iterable[object]]:
    from tierfeed.fsspec import TierFileSystem

    return fsspec_samples(TierFileSystem(), str(data.folder), data)


def by_epoch(batches: Iterator[object], data: Dataset) -> Iterator[Iterable[object]]:
    """The batches of all epochs, cut where an epoch ends."""
    for _ in range(data.epochs):
        yield itertools.islice(batches, -(-len(data.paths) // data.batch_size))


def jax_tierfeed(data: Dataset) -> Iterator[Iterable[object]]:
    import tierfeed.jax

    with tierfeed.jax.TierLoader(**data.job()) as loader:
        for _ in range(data.epochs):
            yield loader


SIDES: dict[str, Callable[[Dataset], Iterator[Iterable[object]]]] = {
    "torch: DataLoader, 2 workers": torch_dataloader,
    "torch: tierfeed": torch_tierfeed,
    "tensorflow: tierfeed": tf_tierfeed,
    "tensorflow: tf.data over files": tf_files,
    "tensorflow: tf.data over TFRecord": tf_records,
    "jax: tierfeed": jax_tierfeed,
    "jax: Grain over files": jax_grain,
    "grain: tierfeed": grain_tierfeed,
    "grain: MapDataset over files": grain_files,
    "keras: tierfeed": keras_tierfeed,
    "keras: PyDataset, 2 workers": keras_files,
    "fsspec: tierfeed": fsspec_tierfeed,
    "fsspec: blockcache": fsspec_blocks,
}


def samples_of(batch: object) -> Iterable[object]:
    """The samples of a batch of any framework, as arrays over its memory."""
    if isinstance(batch, (tuple, dict)):
        batch = next(iter(batch.values() if isinstance(batch, dict) else batch))
    if isinstance(batch, list):
        return batch
    try:
        return numpy.asarray(memoryview(batch))  # type: ignore[arg-type]
    except TypeError:  # PyTorch has no buffer protocol, and TensorFlow copies without it.
        return numpy.asarray(batch)


def prepare(folder: str) -> None:
    import tensorflow as tf

    with tf.io.TFRecordWriter(f"{folder}/samples.tfrecord") as writer:
        for path in sorted(Path(folder, "data").iterdir()):
            writer.write(path.read_bytes())


def measure(side: str, data: Dataset) -> dict[str, list[float]]:
    seconds, cpu, counts = [], [], []
    for batches in SIDES[side](data):
        began, cpu_before, samples = time.perf_counter(), cpu_seconds(), 0
        for batch in batches:
            for sample in samples_of(batch):
                assert int(sample[0]) + int(sample[-1]) >= 0  # type: ignore[index]
                samples += 1
            del batch, sample
        seconds.append(time.perf_counter() - began)
        cpu.append(cpu_seconds() - cpu_before)
        counts.append(samples)
    assert counts == [len(data.paths)] * data.epochs, counts
    return {"seconds": seconds, "cpu_seconds": cpu}


def main() -> None:
    warnings.filterwarnings("ignore", message=".*not writable.*")
    if sys.argv[1] == "prepare":
        return prepare(sys.argv[2])
    side, folder, batch_size, epochs, result = sys.argv[1:]
    Path(result).write_text(json.dumps(measure(side, Dataset(folder, batch_size, epochs))))


if __name__ == "__main__":
    main()
