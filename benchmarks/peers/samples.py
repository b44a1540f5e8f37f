"""Reads small samples of one dataset through tierfeed and by a plain loop, in turn.

Run by `tierfeed-bench handoff --samples`: first `make`, which writes the dataset, then `read` inside a
run, so that tierfeed's agent is there. Both sides read all samples in a random order and hand over
batches. The plain loop of records and rows is `numpy.memmap` with an array of random indices; that of
files opens and reads each; that of WebDataset reads each member from its shard, which stays open.

Arguments: `make`, format, folder, bytes of a sample, samples; or `read`, format, folder, bytes of a
sample, batch size, rounds, result file.
"""

import io
import json
import os
import sys
import tarfile
import time
from pathlib import Path

import numpy

SHARD_SAMPLES = 1024


def make(form, folder, size, count):
    noise = numpy.random.default_rng(1)
    folder.mkdir(parents=True)
    if form == "raw":
        with open(folder / "records.bin", "wb") as file:
            for _ in range(count):
                file.write(noise.bytes(size))
    elif form == "npy":
        rows = numpy.frombuffer(noise.bytes(size * count), numpy.uint8).reshape(count, size)
        numpy.save(folder / "rows.npy", rows)
    elif form == "image-folder":
        (folder / "class").mkdir()
        for number in range(count):
            (folder / "class" / f"{number:07}.jpg").write_bytes(noise.bytes(size))
    else:
        for first in range(0, count, SHARD_SAMPLES):
            with tarfile.open(folder / f"{first:07}.tar", "w") as shard:
                for number in range(first, min(first + SHARD_SAMPLES, count)):
                    member = tarfile.TarInfo(f"{number:07}.bin")
                    member.size = size
                    shard.addfile(member, io.BytesIO(noise.bytes(size)))


def places(shard):
    """The open file of a shard, and where each of its samples lies."""
    descriptor = os.open(shard, os.O_RDONLY)
    with tarfile.open(shard) as members:
        return [(descriptor, it.offset_data) for it in members]


def plain(form, folder, size):
    """The number of samples, and a function that reads those with the numbers in an array."""
    if form in ("raw", "npy"):
        if form == "npy":
            rows = numpy.load(folder / "rows.npy", mmap_mode="r")
        else:
            rows = numpy.memmap(folder / "records.bin", numpy.uint8, "r").reshape(-1, size)
        return len(rows), lambda numbers: rows[numbers]
    if form == "image-folder":
        paths = sorted(folder.glob("class/*"))

        def read(numbers):
            samples = []
            for number in numbers.tolist():
                with open(paths[number], "rb", buffering=0) as file:
                    samples.append(file.read())
            return samples

        return len(paths), read
    at = [place for shard in sorted(folder.iterdir()) for place in places(shard)]
    return len(at), lambda numbers: [os.pread(at[it][0], size, at[it][1]) for it in numbers.tolist()]


def rate_of_plain(read, count, batch_size):
    order = numpy.random.default_rng(3).permutation(count)
    begun = time.perf_counter()
    for start in range(0, count, batch_size):
        read(order[start : start + batch_size])
    return count / (time.perf_counter() - begun)


def rate_of_tierfeed(feed, epoch):
    begun, count = time.perf_counter(), 0
    for batch in feed.epoch(epoch):
        count += len(batch)
    return count / (time.perf_counter() - begun)


def read(form, folder, size, batch_size, rounds, result):
    import tierfeed

    count, of_plain = plain(form, folder, size)
    # All of it is in the page cache, on both sides, from the first epoch on.
    rate_of_plain(of_plain, count, batch_size)
    feed = tierfeed.connect()
    rates = {"first": rate_of_tierfeed(feed, 0), "warm": [], "plain": []}
    for epoch in range(1, rounds + 1):
        rates["plain"].append(rate_of_plain(of_plain, count, batch_size))
        rates["warm"].append(rate_of_tierfeed(feed, epoch))
    rates["mode"] = feed.mode
    Path(result).write_text(json.dumps(rates))


if __name__ == "__main__":
    task, form, folder, *rest = sys.argv[1:]
    if task == "make":
        make(form, Path(folder), *map(int, rest))
    else:
        read(form, Path(folder), *map(int, rest[:-1]), rest[-1])
