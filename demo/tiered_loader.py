"""The side that the demo is about: batches that tierfeed staged before they were asked for."""

from __future__ import annotations

from collections.abc import Iterator

import torch

import tierfeed
from image_folder import decode
from tierfeed.torch import TierLoader

DECODE_THREADS = 2

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def decode_sample(sample: tierfeed.Sample, label: int) -> tuple[int, torch.Tensor, int]:
    return sample.id, torch.from_numpy(decode(memoryview(sample))), label


class TieredLoader:
    """Batches of ``(ids, pixels, labels)`` in the order of the job file.

    Finds the agent by itself, in the environment that ``tierfeed run`` gives its command.
    """

    def __init__(self) -> None:
        self._loader = TierLoader(decode=decode_sample, decode_threads=DECODE_THREADS)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        self._loader.set_epoch(epoch)
        return iter(self._loader)

    @property
    def cold_read_bytes(self) -> None:
        """Unknown here: the agent reads, and reports it in ``report.json``."""
        return None
