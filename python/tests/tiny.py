"""A dataset of small pictures and what trains on it, for the tests of trainers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

import tierfeed

if TYPE_CHECKING:
    from conftest import World

SIDE = 8

# Tests run beside others, and a small model gains nothing by threads.
torch.set_num_threads(1)


def decode(sample: tierfeed.Sample, label: int) -> dict[str, Any]:
    """A picture of three colours from the first bytes of a file."""
    pixels = torch.frombuffer(bytearray(sample)[: 3 * SIDE * SIDE], dtype=torch.uint8)
    return {"pixel_values": pixels.view(3, SIDE, SIDE) / 255, "labels": label, "number": sample.id}


class Classifier(torch.nn.Module):
    """Notes the numbers of the samples that it trains on."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(3 * SIDE * SIDE, 16), torch.nn.Dropout(0.2),
            torch.nn.ReLU(), torch.nn.Linear(16, 3),
        )  # fmt: skip
        self.seen: list[list[int]] = []

    def forward(
        self, pixel_values: torch.Tensor, labels: torch.Tensor, number: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        if self.training:
            self.seen.append(number.tolist())
        logits = self.layers(pixel_values)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def order(world: World, epochs: int) -> list[list[int]]:
    return [batch for epoch in range(epochs) for batch in world.torch_order(epoch, 0)]
