"""Writes the job file of the demo: tiers as shares of the dataset.

The CXL tier is emulated with the latency and bandwidth that the template names, so that the demo is the
same on every machine, and everything that shows it has to say so.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from pathlib import Path

from image_folder import Sample

MIB = 1 << 20
# What main memory keeps beside the batches that it stages.
MAIN_SHARE = 0.15
CXL_SHARE = 0.25
SCRATCH_SHARE = 0.10
STAGED_BATCHES = 6
# Batches differ in size; this much more than the average leaves room for the largest.
BATCH_MARGIN = 1.3
TEMPLATE = Path(__file__).with_name("job.yaml.in")


@dataclass(frozen=True)
class Training:
    """What both sides share."""

    dataset: Path
    epochs: int
    batch_size: int
    seed: int
    cold_latency_ms: float
    cold_mb_per_s: float


@dataclass(frozen=True)
class Job:
    """A job file and what the reader of its results has to know."""

    path: Path
    dataset_bytes: int
    tier_bytes: dict[str, int]


def write_job(path: Path, training: Training, samples: list[Sample], *, scratch_path: Path) -> Job:
    dataset_bytes = sum(sample.size_bytes for sample in samples)
    chunk_bytes = chunk_for(max(sample.size_bytes for sample in samples))
    staging = staging_bytes(samples, training.batch_size, chunk_bytes)
    tier_bytes = {
        "main-memory": staging + whole_chunks(MAIN_SHARE * dataset_bytes, chunk_bytes),
        "cxl-memory": whole_chunks(CXL_SHARE * dataset_bytes, chunk_bytes),
        "scratch": whole_chunks(SCRATCH_SHARE * dataset_bytes, chunk_bytes),
    }
    text = string.Template(TEMPLATE.read_text()).substitute(
        dataset_size=mib(dataset_bytes),
        source=f"file://{training.dataset.resolve()}",
        cold_latency=f"{training.cold_latency_ms:g} ms",
        cold_bandwidth=f"{training.cold_mb_per_s:g} MB/s",
        seed=training.seed,
        epochs=training.epochs,
        batch_size=training.batch_size,
        staged_batches=STAGED_BATCHES,
        chunk=mib(chunk_bytes),
        main_memory=mib(tier_bytes["main-memory"]),
        cxl_memory=mib(tier_bytes["cxl-memory"]),
        scratch_path=scratch_path,
        scratch=mib(tier_bytes["scratch"]),
    )
    path.write_text(text)
    return Job(path, dataset_bytes, tier_bytes)


def chunk_for(largest_sample_bytes: int) -> int:
    """The smallest power of two of MiB that holds the largest sample."""
    chunk_bytes = MIB
    while chunk_bytes < largest_sample_bytes:
        chunk_bytes *= 2
    return chunk_bytes


def staging_bytes(samples: list[Sample], batch_size: int, chunk_bytes: int) -> int:
    """Room for a few batches that may be larger than the average one."""
    average_bytes = batch_size * sum(sample.size_bytes for sample in samples) / len(samples)
    return whole_chunks(STAGED_BATCHES * BATCH_MARGIN * average_bytes, chunk_bytes)


def whole_chunks(size_bytes: float, chunk_bytes: int) -> int:
    return max(1, round(size_bytes / chunk_bytes)) * chunk_bytes


def mib(size_bytes: int) -> str:
    """A size as job files write it."""
    return f"{size_bytes / MIB:g} MiB" if size_bytes % MIB == 0 else f"{size_bytes / MIB:.1f} MiB"
