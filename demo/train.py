"""Trains a small convolutional network on photographs, fed by the loader that is asked for.

Run it alone for the plain ``DataLoader``, or below ``tierfeed run`` for tierfeed. Nothing else
differs between the two: same network, same seed, same order of samples, same decoding.

What it saw goes to ``--result`` as JSON: time, stall, losses, and a digest of the sample ids and
labels in the order of arrival.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import nn

from cold_store import ColdStore
from image_folder import list_samples


@dataclass
class Record:
    """What one training did: one entry an epoch in ``epoch_*``, one a step in ``losses``."""

    loader: str
    samples: int = 0
    wall_s: float = 0.0
    epoch_s: list[float] = field(default_factory=list)
    epoch_stall_s: list[float] = field(default_factory=list)
    cold_read_bytes: int | None = None
    losses: list[float] = field(default_factory=list)
    sample_digest: str = ""


def build_network(classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, kernel_size=3, stride=1, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 128, kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, classes),
    )


def train(loader, record: Record, *, classes: int, epochs: int, seed: int) -> None:
    """Trains for ``epochs`` and fills ``record``. Stall is the time spent waiting for a batch."""
    torch.manual_seed(seed)
    network = build_network(classes)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.02, momentum=0.9)
    digest = hashlib.sha256()
    began_s = time.perf_counter()
    for epoch in range(epochs):
        epoch_began_s = time.perf_counter()
        stall_s = 0.0
        asked_s = epoch_began_s
        for ids, pixels, labels in loader.epoch(epoch):
            stall_s += time.perf_counter() - asked_s
            loss = nn.functional.cross_entropy(network(pixels), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            record.losses.append(loss.item())
            record.samples += len(labels)
            digest.update(torch.stack((ids, labels)).numpy().astype("<i8").tobytes())
            asked_s = time.perf_counter()
        record.epoch_s.append(time.perf_counter() - epoch_began_s)
        record.epoch_stall_s.append(stall_s)
        print(
            f"demo: {record.loader}: epoch {epoch}: {record.epoch_s[-1]:.2f} s, "
            f"{stall_s:.2f} s of it stall, last loss {record.losses[-1]:.4f}",
            file=sys.stderr,
        )
    record.wall_s = time.perf_counter() - began_s
    record.cold_read_bytes = loader.cold_read_bytes
    record.sample_digest = digest.hexdigest()


def open_loader(options: argparse.Namespace):
    """The loader by name. Each is imported only when used, so that neither needs the other."""
    if options.loader == "tierfeed":
        from tiered_loader import TieredLoader

        return TieredLoader()
    from plain_loader import PlainLoader

    store = ColdStore(
        latency_s=options.cold_latency_ms / 1e3, bytes_per_s=options.cold_mb_per_s * 1e6
    )
    return PlainLoader(options.dataset, store, batch_size=options.batch_size, seed=options.seed)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network on photographs.")
    parser.add_argument("--loader", choices=("dataloader", "tierfeed"), required=True)
    parser.add_argument("--dataset", type=Path, required=True, help="an image folder")
    parser.add_argument("--result", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--cold-latency-ms", type=float, default=0.0)
    parser.add_argument("--cold-mb-per-s", type=float, default=1e6)
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    # One compute thread on both sides: the other core is the loader's, and sums keep their order.
    torch.set_num_threads(1)
    classes = 1 + max(sample.label for sample in list_samples(options.dataset))
    record = Record(loader=options.loader)
    train(open_loader(options), record, classes=classes, epochs=options.epochs, seed=options.seed)
    options.result.write_text(json.dumps(asdict(record), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
