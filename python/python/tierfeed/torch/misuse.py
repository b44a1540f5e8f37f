"""Errors for calls that fit another loader; they say what to do instead."""

from __future__ import annotations

import torch.distributed as dist

from tierfeed.feed import Feed
from tierfeed.identity import refuse

# Arguments of `torch.utils.data.DataLoader`, and what replaces them here.
ELSEWHERE = {
    "sampler": "the job file says the order: order.shuffle; for a sampler of your own use TierDataset",
    "batch_sampler": "the job file says the order: order.shuffle; for your own use TierDataset",
    "generator": "the job file says the seed: order.seed",
    "num_workers": "there are no worker processes; decode in parallel with decode_threads=",
    "collate_fn": "it is called collate=",
    "pin_memory_device": "pin_memory= pins for the current CUDA device, device= hands out on one",
    "prefetch_factor": "the agent stages ahead: prefetch.batches in the job file",
    "persistent_workers": "there are no worker processes",
    "worker_init_fn": "there are no worker processes",
    "multiprocessing_context": "there are no worker processes",
    "timeout": "an agent that is silent for 60 s is given up, and the batch is read directly",
    "rank": "pass tierfeed.connect(rank=...) as the feed",
    "transform": "a function is decode=, which gets each sample and its label; steps of"
    " tierfeed.transforms stand in the job file, or beside the path of the dataset",
}


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
