"""A training on several nodes of this host, in lock-step, one of which may lose its agent on the way.

Each rank is a process on a node of its own, with the agent that it starts. Every rank compares the
samples of each batch with PyTorch's sampler, and their bytes with the files as they were made.

`job` of the settings has the keys of a job, and `nodes` with: `count`, `lost` (a node, or -1), `epoch`
(in the middle of which it is lost), `originals` (the files on another disk) and `run_dirs`.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import time
import zlib
from pathlib import Path
from typing import Any

import staged
from cpu_time import children_of, cpu_seconds


def train(settings: Any) -> dict[str, Any]:
    """As `loaders.train`. Times are those of the slowest rank, waits those of all ranks together."""
    # Before the ranks are forked, so that it is imported once.
    import torch.utils.data  # noqa: F401

    keys = dict(settings.job)
    nodes = keys.pop("nodes")
    paths = sorted(Path(nodes["originals"]).rglob("*.jpg"))
    checksums = [zlib.crc32(path.read_bytes()) for path in paths]
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(nodes["count"]), context.Queue()
    arguments = [
        (number, nodes, settings, keys, checksums, barrier, results)
        for number in range(nodes["count"])
    ]
    ranks = [context.Process(target=rank, args=each) for each in arguments]
    used = cpu_seconds()
    for process in ranks:
        process.start()
    found = [results.get() for _ in ranks]
    for process in ranks:
        process.join()
    failed = [said for said in found if isinstance(said, str)]
    if failed:
        raise SystemExit("\n".join(failed))
    epochs = range(settings.epochs)
    return {
        "seconds": [max(it["seconds"][epoch] for it in found) for epoch in epochs],
        "waits": [[wait for it in found for wait in it["waits"][epoch]] for epoch in epochs],
        "images": [sum(it["images"][epoch] for it in found) for epoch in epochs],
        # Of all epochs together: the ranks are processes of their own.
        "cpu_s": [(cpu_seconds() - used) / settings.epochs] * settings.epochs,
        "slow": [],
        "job_s": staged.seconds_since_start(),
        "first_batch_s": max(it["first_batch_s"] for it in found),
    }


def rank(
    number: int, nodes: Any, settings: Any, keys: Any, checksums: Any, barrier: Any, results: Any
) -> None:
    try:
        results.put(train_rank(number, nodes, settings, keys, checksums, barrier))
    except BaseException as error:
        barrier.abort()
        results.put(f"rank {number}: {error!r}")


def train_rank(
    number: int, nodes: Any, settings: Any, keys: Any, checksums: Any, barrier: Any
) -> dict[str, Any]:
    count = nodes["count"]
    world = {
        "RANK": number,
        "WORLD_SIZE": count,
        "LOCAL_RANK": 0,
        "LOCAL_WORLD_SIZE": 1,
        "NODE": number,
        "NODES": count,
    }
    os.environ |= {f"TIERFEED_{name}": str(value) for name, value in world.items()}
    os.environ["TIERFEED_RUN_DIR"] = str(Path(nodes["run_dirs"]).absolute())
    import tierfeed

    began = time.perf_counter()
    feed = tierfeed.connect(
        settings.data,
        format="files",
        glob="**/*.jpg",
        batch_size=settings.batch_size,
        seed=settings.seed,
        epochs=settings.epochs,
        **keys,
    )
    first, seconds, waits, images = 0.0, [], [], []
    for epoch in range(settings.epochs):
        expected = expected_order(len(checksums), count, number, settings.seed, epoch)
        taken: list[int] = []
        waits.append([])
        if number == 0:
            forget_cached(settings.data)
        barrier.wait()
        start = asked = time.perf_counter()
        steps = math.ceil(len(expected) / settings.batch_size)
        for step, batch in enumerate(feed.epoch(epoch)):
            waits[-1].append(time.perf_counter() - asked)
            first = first or time.perf_counter() - began
            for sample, content in zip(batch.samples, batch, strict=True):
                assert zlib.crc32(content) == checksums[sample], f"sample {sample} is damaged"
            taken += batch.samples
            del batch, content
            if number == nodes["lost"] and (epoch, step) == (nodes["epoch"], steps // 2):
                kill_agent()
            time.sleep(settings.step_s)
            # As the ranks of a training that reduces its gradients.
            barrier.wait()
            asked = time.perf_counter()
        seconds.append(time.perf_counter() - start)
        images.append(len(taken))
        assert taken == expected, f"epoch {epoch} has another order than PyTorch's sampler"
    is_lost = number == nodes["lost"] and nodes["epoch"] < settings.epochs
    mode = "direct" if is_lost else "agent"
    assert feed.mode == mode, f"the rank ended with mode {feed.mode}, not {mode}"
    feed.close()
    return {"seconds": seconds, "waits": waits, "images": images, "first_batch_s": first}


def expected_order(samples: int, count: int, number: int, seed: int, epoch: int) -> list[int]:
    from torch.utils.data import DistributedSampler

    sampler = DistributedSampler(range(samples), num_replicas=count, rank=number, seed=seed)
    sampler.set_epoch(epoch)
    return list(sampler)


def forget_cached(folder: str) -> None:
    """So that a rank that reads by itself reads from the disk in every epoch, as agents do."""
    for path in Path(folder).rglob("*.jpg"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def kill_agent() -> None:
    for child in children_of(os.getpid()):
        if b"\0embed\0" in Path(f"/proc/{child}/cmdline").read_bytes():
            os.kill(child, signal.SIGKILL)
            return
    raise AssertionError("this rank has no agent")
