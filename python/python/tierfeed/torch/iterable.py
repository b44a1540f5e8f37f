"""A loader as an `IterableDataset`, for code that wants a `DataLoader` around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset

if TYPE_CHECKING:
    from tierfeed.torch.loader import TierLoader


class TierIterableDataset(IterableDataset[Any]):
    """Yields the batches of a loader. Made by `TierLoader.as_dataset`.

    For `DataLoader(dataset, batch_size=None)`: its items are batches already. It has the state of the
    loader, as `torchdata.stateful_dataloader.StatefulDataLoader` expects it.
    """

    def __init__(self, loader: TierLoader) -> None:
        self.loader = loader

    def set_epoch(self, epoch: int) -> None:
        """As `TierLoader.set_epoch`."""
        self.loader.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)

    def state_dict(self) -> dict[str, Any]:
        """As `TierLoader.state_dict`."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As `TierLoader.load_state_dict`."""
        self.loader.load_state_dict(state)
