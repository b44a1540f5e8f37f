"""Errors for calls that fit another loader; they say what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import get_worker_info

from tierfeed._native import Reconfigure
from tierfeed.feed import Feed
from tierfeed.identity import refuse

_OWN_SAMPLER = (
    "the order is that of the job: shuffle= beside the path of the dataset, or order.shuffle in the job"
    " file; a sampler of your own goes to a DataLoader over a TierDataset"
)

_NO_WORKERS = "there are no worker processes; decode in parallel with decode_threads="

# Arguments of `torch.utils.data.DataLoader`, and what replaces them here.
ELSEWHERE = {
    "sampler": _OWN_SAMPLER,
    "batch_sampler": _OWN_SAMPLER,
    "generator": "the order is drawn from seed=, in a job file order.seed; a decode(sample, label, rng)"
    " gets a generator of NumPy for each sample",
    "num_workers": _NO_WORKERS,
    "collate_fn": "it is called collate=",
    "pin_memory_device": "pin_memory= pins for the current CUDA device, device= hands out on one",
    "prefetch_factor": 'the agent stages ahead: prefetch={"batches": 4}, in a job file prefetch.batches',
    "persistent_workers": f"{_NO_WORKERS}; as a key of the shuffle torch-random it is"
    ' order={"persistent_workers": ...}',
    "worker_init_fn": _NO_WORKERS,
    "multiprocessing_context": _NO_WORKERS,
    "drop_last": 'short_batch="drop" leaves out a short last batch, as drop_last of a DataLoader does;'
    ' that of a DistributedSampler is order={"drop_last": ...}',
    "timeout": "an agent that is silent for 60 s is given up, and the batch is read directly",
    "rank": "pass tierfeed.connect(rank=...) as the feed",
    "transform": "a function is decode=, which gets each sample and its label; steps of"
    " tierfeed.transforms stand in the job file, or beside the path of the dataset",
}


# Keys of a job that mean something else as arguments of a `DataLoader`.
_AMBIGUOUS = ("drop_last", "persistent_workers")


def refuse_ambiguous(keys: Mapping[str, Any]) -> None:
    """Refuses keys that a user of `DataLoader` means otherwise."""
    wrong = [name for name in _AMBIGUOUS if name in keys]
    if isinstance(keys.get("generator"), torch.Generator):
        wrong.append("generator")
    if wrong:
        raise TypeError("; ".join(f"TierLoader takes no {name}=: {ELSEWHERE[name]}" for name in wrong))


def refuse_worker() -> None:
    """Refuses a process that a `DataLoader` started."""
    if get_worker_info() is not None:  # type: ignore[no-untyped-call]
        raise Reconfigure(
            "the agent reads the batches of a TierLoader ahead, and each worker would read all of"
            " them: use num_workers=0; decode_threads= of TierLoader decodes in parallel"
        )


def checked_feed(feed: object, of: str) -> Feed:
    """The feed itself; raises a `TypeError` that names what to pass if it is none."""
    if isinstance(feed, Feed):
        return feed
    raise TypeError(
        f"the feed of {of} is {feed!r}; pass what tierfeed.connect() returned, or nothing:"
        " the job file names the dataset (dataset.source)"
    )


def check_ranks(feed: Feed) -> None:
    """Refuses a rank that started its agent by itself, and that PyTorch numbers otherwise.

    Processes that a script starts itself have no launcher: each would be the only rank of a job of its
    own, and all would read the same samples.
    """
    if not feed.is_embedded or not dist.is_available() or not dist.is_initialized():
        return
    rank, world = dist.get_rank(), dist.get_world_size()
    if (rank, world) != (feed.rank, feed.world):
        refuse(
            f"torch.distributed says rank {rank} of {world}, the launcher of this process rank"
            f" {feed.rank} of {feed.world}: start the ranks by torchrun, or set RANK, WORLD_SIZE,"
            " LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT before the loader is made"
        )
