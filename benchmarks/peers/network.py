"""A small convolutional network that trainings compute with.

One thread, like a model that has a processor of its own; loaders get the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CLASSES = 10
COLOURS = 3


def of_classes(classes: int) -> Any:
    """Three convolutions, for images of 224 pixels as well as of 32, and a linear layer."""
    from torch import nn

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


def levels(images: Any) -> Any:
    return images.float() / 255 - 0.5


class Learner:
    """A network that learns from images and labels, the same for the same seed."""

    def __init__(self, classes: int, seed: int) -> None:
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.model = of_classes(classes)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.loss_of = torch.nn.CrossEntropyLoss()

    def learn(self, images: Any, labels: Any) -> float:
        """Forward and backward; returns the loss before."""
        self.optimizer.zero_grad()
        loss = self.loss_of(self.model(levels(images)), labels)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


def step() -> Callable[[Any], None]:
    """A step of a training whose labels do not matter: the work is that of any labels.

    Colours may come first, as PyTorch has them, or last, as TensorFlow has them.
    """
    import torch

    learner = Learner(CLASSES, seed=1)

    def compute(batch: Any) -> None:
        images = torch.as_tensor(batch)
        if images.shape[-1] == COLOURS:
            # In the memory format of the others, or the work would not be the same.
            images = images.movedim(-1, 1).contiguous()
        learner.learn(images, torch.arange(len(images)) % CLASSES)

    return compute
