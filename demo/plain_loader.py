"""The other side of the comparison: PyTorch's own ``DataLoader``, as most trainings use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from cold_store import ColdStore
from image_folder import decode, list_samples

WORKERS = 2

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class PhotographDataset(Dataset):
    """Sample ids to ``(id, pixels, label)``, read from the cold store every time."""

    def __init__(self, root: Path, store: ColdStore) -> None:
        self._samples = list_samples(root)
        self._store = store

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, sample_id: int) -> tuple[int, torch.Tensor, int]:
        sample = self._samples[sample_id]
        pixels = torch.from_numpy(decode(self._store.read(sample.path)))
        return sample_id, pixels, sample.label


class PlainLoader:
    """Batches of ``(ids, pixels, labels)`` in the order of ``DistributedSampler``."""

    def __init__(self, root: Path, store: ColdStore, *, batch_size: int, seed: int) -> None:
        dataset = PhotographDataset(root, store)
        self._store = store
        self._sampler = DistributedSampler(dataset, num_replicas=1, rank=0, shuffle=True, seed=seed)
        self._loader = DataLoader(
            dataset,
            batch_size=batch_size,
            sampler=self._sampler,
            num_workers=WORKERS,
            persistent_workers=True,
        )

    def epoch(self, epoch: int) -> Iterator[Batch]:
        self._sampler.set_epoch(epoch)
        return iter(self._loader)

    @property
    def cold_read_bytes(self) -> int:
        return self._store.read_bytes
