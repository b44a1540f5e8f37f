"""A small convolutional network that trainings compute with, instead of a sleep.

One thread, like a model that has a processor of its own; loaders get the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CLASSES = 10


def of_classes(classes: int, seed: int) -> Any:
    """Three convolutions, for images of 224 pixels as well as of 32, and a linear layer."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, stride=4, padding=3),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, classes),
    )


def learner(classes: int = CLASSES, seed: int = 1) -> Callable[[Any, Any], float]:
    """Returns what learns from images and labels, forward and backward, and returns the loss before."""
    import torch
    from torch import nn

    network = of_classes(classes, seed)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()

    def learn(images: Any, labels: Any) -> float:
        optimizer.zero_grad()
        loss = loss_of(network(images.float() / 255 - 0.5), labels)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return learn


def step() -> Callable[[Any], None]:
    """A step of a training whose labels do not matter: the work is that of any labels."""
    import torch

    learn = learner()

    def compute(images: Any) -> None:
        learn(images, torch.arange(len(images)) % CLASSES)

    return compute
