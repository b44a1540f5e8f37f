"""How a batch comes to training: here as it is. `torch/delivery.py` has the ways to a GPU."""

from __future__ import annotations

from typing import Any

from tierfeed._native import Batch


class Delivery:
    """Hands batches out as they are."""

    goes_ahead = False
    """Whether it is worth while to `send` a batch before training asks for it."""

    def asked(self) -> None:
        """Training asks for the next batch, or for the end of the pass, or begins another one."""

    def send(self, batch: Batch, value: Any) -> Any:
        """Starts what has to be done with the value of a batch."""
        return value

    def hand_out(self, sent: Any) -> Any:
        """What training gets, from what `send` returned."""
        return sent

    def close(self) -> None:
        """Waits for copies, and gives back what is held."""
