"""Trains on whole files through tierfeed or through DataLoader; steps take time, and no processor.

Run by `tierfeed-bench no-harm`, once for each turn. Both sides read the same files in the order of the
same sampler and hand over batches of tensors, whose first and last byte is looked at. The seconds of
each epoch, from before its first batch to the end of its last step, go to the result file as a list.

Arguments: `tierfeed` or `dataloader`, folder with the files, batch size, epochs, seconds of a step,
workers of DataLoader, result file.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


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


def as_list(batch):
    """The samples of a batch, without the copy that stacks them."""
    return batch


def dataloader(folder, batch_size, workers):
    """A loader whose workers stay from epoch to epoch, and its sampler."""
    files = Files(folder)
    sampler = DistributedSampler(files, num_replicas=1, rank=0, seed=42)
    loader = DataLoader(
        files,
        batch_size=batch_size,
        sampler=sampler,
        num_workers=workers,
        persistent_workers=True,
        collate_fn=as_list,
    )
    return loader, sampler


def tierfeed_loader():
    """The loader of the job that `tierfeed run` tells."""
    import tierfeed.torch

    loader = tierfeed.torch.TierLoader()
    return loader, loader


def look_at(batch):
    """Touches both ends of each sample; a batch of samples of one length may be one tensor."""
    tensors = batch[0] if isinstance(batch, tuple) else batch
    for sample in tensors:
        int(sample[0]), int(sample[-1])


def main():
    """Trains, and writes down how long each epoch took."""
    side, folder, batch_size, epochs, step, workers, result = sys.argv[1:]
    warnings.filterwarnings("ignore")
    if side == "tierfeed":
        loader, sampler = tierfeed_loader()
    else:
        loader, sampler = dataloader(folder, int(batch_size), int(workers))
    seconds = []
    for epoch in range(int(epochs)):
        sampler.set_epoch(epoch)
        start = time.monotonic()
        for batch in loader:
            look_at(batch)
            del batch
            time.sleep(float(step))
        seconds.append(time.monotonic() - start)
    Path(result).write_text(json.dumps(seconds))


if __name__ == "__main__":
    main()
