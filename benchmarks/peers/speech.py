"""Recordings of speech, which a training turns into spectrograms.

tierfeed has no transform for sound: its loader calls the same function as a `DataLoader`, on threads of
the trainer.
"""

from __future__ import annotations

import itertools
import wave
from pathlib import Path
from typing import Any

RATE = 16_000
HEADER = 44
"""Bytes of a WAV file before its samples."""

SECONDS = (1.5, 6.5)


def write(folder: str, count: int) -> None:
    """Recordings of one to seven seconds: noise under a slow envelope, as 16-bit samples."""
    import numpy

    Path(folder).mkdir(parents=True)
    for number in range(count):
        random = numpy.random.default_rng(number)
        length = int(RATE * random.uniform(*SECONDS))
        envelope = 3000 * (1.1 + numpy.sin(numpy.arange(length) / 4000))
        samples = (random.normal(0, 1, length) * envelope).clip(-32768, 32767).astype("<i2")
        with wave.open(f"{folder}/{number:05}.wav", "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes(samples.tobytes())


def spectrogram(encoded: Any) -> Any:
    """Logarithms of magnitudes, 25 ms wide and 10 ms apart."""
    import numpy
    import torch

    torch.set_num_threads(1)
    samples = numpy.frombuffer(encoded, "<i2", offset=HEADER).astype("float32")
    window = torch.hann_window(400)
    bins = torch.stft(torch.from_numpy(samples), 400, 160, window=window, return_complex=True)
    return bins.abs().log1p()


class Recordings:
    """What a `DataLoader` reads sample by sample."""

    def __init__(self, data: str) -> None:
        self.paths = sorted(Path(data).rglob("*.wav"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> Any:
        return spectrogram(self.paths[number].read_bytes())


def data_loader(settings: Any) -> Any:
    from torch.utils.data import DataLoader

    loader = DataLoader(
        Recordings(settings.data),
        settings.batch_size,
        shuffle=True,
        num_workers=settings.workers,
        persistent_workers=settings.workers > 0,
        collate_fn=list,
    )
    return itertools.repeat(loader, settings.epochs)


def tierfeed(settings: Any) -> Any:
    from tierfeed.torch import TierLoader

    keys = dict(settings.job)
    keys.pop("phases", None)
    with TierLoader(
        settings.data,
        format="files",
        glob="**/*.wav",
        batch_size=settings.batch_size,
        seed=settings.seed,
        epochs=settings.epochs,
        decode=lambda sample, _label: spectrogram(sample),
        decode_threads=keys.pop("decode_threads"),
        collate=list,
        **keys,
    ) as loader:
        for _ in range(settings.epochs):
            yield loader
        assert loader.feed.mode == "agent", loader.feed.mode
