"""Reads the same warm files through tierfeed, DataLoader and a bare loop, in turn.

Run by `tierfeed-bench handoff` inside a run, so that tierfeed's agent is there; while another side is
measured it stands still with its batches staged. All sides read the same samples in the same order and
hand over batches; each sample's first and last byte is looked at. The first batches of a side are not
measured: workers start there, and tierfeed has them staged already.

The bare loop reads every batch to the same memory, which stays in the processor's cache; a second one
keeps as many batches as tierfeed stages, as a loader that reads ahead must.

With `kept` the files lie in tierfeed's main memory after an epoch that is not measured, and only the
bare loop reads beside it.

Arguments: `read` or `kept`, folder with the files, rounds, batch size, batches that are staged, result
file.
"""

import json
import os
import resource
import sys
import time
import warnings
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import tierfeed
import tierfeed.torch

STEP_S = 0.005


class Files(Dataset):
    """One tensor for each file, as a plain dataset would make it."""

    def __init__(self, folder):
        self.paths = sorted(Path(folder).iterdir())

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            data = bytearray(file.read())
        return torch.frombuffer(data, dtype=torch.uint8)


def dataloader(files, sampler, batch_size, workers):
    loader = DataLoader(files, batch_size=batch_size, sampler=sampler, num_workers=workers)
    for batch in loader:
        yield list(batch)


def readinto(files, sampler, batch_size, buffer):
    sizes = [path.stat().st_size for path in files.paths]
    largest = max(sizes)
    places = len(buffer) // largest
    order = list(sampler)
    for start in range(0, len(order), batch_size):
        views = []
        for at, index in enumerate(order[start : start + batch_size], start):
            place = at % places
            view = buffer[place * largest : place * largest + sizes[index]]
            with open(files.paths[index], "rb", buffering=0) as file:
                assert file.readinto(view) == len(view)
            views.append(view)
        yield views


def room_for(files, samples):
    """Memory for so many samples, every page of it there."""
    return memoryview(bytearray(b"\1") * (samples * max(it.stat().st_size for it in files.paths)))


def tiered(loader, epoch):
    loader.set_epoch(epoch)
    for tensors, _labels in loader:
        yield tensors


def kept(feed, epoch):
    for batch in feed.epoch(epoch):
        yield [memoryview(sample) for sample in batch]


def rate(batches, unmeasured):
    """Bytes per second after the first batches."""
    start, measured = time.perf_counter(), 0
    for number, batch in enumerate(batches):
        for sample in batch:
            int(sample[0]), int(sample[-1])
        if number < unmeasured:
            start = time.perf_counter()
        else:
            measured += sum(len(sample) for sample in batch)
        del batch
    return measured / (time.perf_counter() - start)


def cpu_seconds(agent):
    """CPU time of this process, of the workers that it has joined, and of the agent, its parent."""
    fields = Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own = sum(one.ru_utime + one.ru_stime for one in used)
    return own + ticks / os.sysconf("SC_CLK_TCK")


def compute(weights):
    """A training step: the caches are its own afterwards, and the next batch is staged meanwhile."""
    end = time.perf_counter() + STEP_S
    while time.perf_counter() < end:
        torch.mm(weights, weights)


def spin():
    """A step that leaves the caches as they are."""
    end = time.perf_counter() + STEP_S
    while time.perf_counter() < end:
        pass


def ready_waits(feed, epochs, step):
    """Nanoseconds from asking for a batch that is staged to the batch, a NumPy array, and tensors."""
    handed, arrays, tensors = [], [], []
    for epoch in epochs:
        batches = feed.epoch(epoch)
        next(batches)
        while True:
            step()
            start = time.perf_counter_ns()
            batch = next(batches, None)
            if batch is None:
                break
            handed.append(time.perf_counter_ns() - start)
            array = batch.array().numpy()
            arrays.append(time.perf_counter_ns() - start)
            samples = [torch.from_dlpack(sample) for sample in batch]
            tensors.append(time.perf_counter_ns() - start)
            assert array.shape[0] == len(samples)
            del batch, array, samples
    return {"batch": handed, "array": arrays, "tensors": tensors}


def ready(feed, first_epoch):
    """Waits with the caches as they were, and with those of a training step."""
    # One thread computes, as one launches kernels on a GPU; the agent has the other core.
    torch.set_num_threads(1)
    weights = torch.rand(384, 384)
    half = (first_epoch + feed.epochs) // 2
    return {
        "idle": ready_waits(feed, range(first_epoch, half), spin),
        "computing": ready_waits(feed, range(half, feed.epochs), lambda: compute(weights)),
    }


def measure(sides, sampler, epochs, unmeasured, epoch_bytes):
    """Bytes per second and CPU seconds per byte of each side in each epoch."""
    rates = {side: [] for side in sides}
    cpu = {side: [] for side in sides}
    agent = os.getppid()
    for epoch in epochs:
        sampler.set_epoch(epoch)
        for side, batches in sides.items():
            before = cpu_seconds(agent)
            rates[side].append(rate(batches(epoch), unmeasured))
            cpu[side].append((cpu_seconds(agent) - before) / epoch_bytes)
            print(f"epoch {epoch + 1}: {side}", file=sys.stderr)
    return {"bytes_per_s": rates, "cpu_s_per_byte": cpu}


def main(part, folder, rounds, batch_size, staged, result):
    warnings.filterwarnings("ignore", message=".*not writable.*")
    files = Files(folder)
    sampler = DistributedSampler(files, num_replicas=1, rank=0, seed=42)
    epoch_bytes = sum(path.stat().st_size for path in files.paths)
    bare = room_for(files, batch_size)
    loop = {"readinto loop": lambda _: readinto(files, sampler, batch_size, bare)}
    if part == "kept":
        feed = tierfeed.connect()
        rate(kept(feed, 0), staged)
        sides = {"tierfeed, kept": lambda epoch: kept(feed, epoch), **loop}
        figures = measure(sides, sampler, range(1, rounds + 1), staged, epoch_bytes)
    else:
        loader = tierfeed.torch.TierLoader()
        feed = loader.feed
        # One is in use and one given back, besides those that are staged.
        ahead = room_for(files, (staged + 2) * batch_size)
        sides = {
            "tierfeed": lambda epoch: tiered(loader, epoch),
            "DataLoader, 0 workers": lambda _: dataloader(files, sampler, batch_size, 0),
            "DataLoader, 2 workers": lambda _: dataloader(files, sampler, batch_size, 2),
            **loop,
            "readinto loop, ahead": lambda _: readinto(files, sampler, batch_size, ahead),
        }
        figures = measure(sides, sampler, range(rounds), staged, epoch_bytes)
        figures["ready_ns"] = ready(feed, rounds)
    Path(result).write_text(json.dumps({**figures, "mode": feed.mode}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]), sys.argv[6])
