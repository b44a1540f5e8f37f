"""Runs the same training twice, fed by the plain ``DataLoader`` and by tierfeed, and compares.

The comparison is worth its table only if both sides did the same work, so it checks first that the
samples came in the same order on both sides and that the losses agree.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from image_folder import list_samples
from job_file import Job, Training, mib, write_job
from table import Side, comparison, tier_name

DEMO = Path(__file__).parent
COLD_LATENCY_MS = 5.0
COLD_MB_PER_S = 20.0
# Both sides do the same sums on the same bytes with one thread; what is left is float noise.
LOSS_TOLERANCE = 1e-4
# A trainer whose agent comes late or goes early reads a few batches itself.
ALONE_SHARE_MAX = 0.05
# Half of the dataset fits into the tiers, and only the first epoch has to read it all.
COLD_SHARE_MAX = 0.9


def main() -> int:
    options = parse_options()
    work = options.work.resolve()
    training = Training(
        dataset=options.dataset.resolve(),
        epochs=options.epochs,
        batch_size=16,
        seed=42,
        cold_latency_ms=COLD_LATENCY_MS,
        cold_mb_per_s=COLD_MB_PER_S,
    )
    samples = list_samples(training.dataset)
    with tempfile.TemporaryDirectory(prefix="tierfeed-demo-", dir=ram_disk()) as scratch:
        job = write_job(work / "job.yaml", training, samples, scratch_path=Path(scratch))
        introduce(training, job, samples=len(samples))
        plain = run_plain(training, work)
        tiered, report_path = run_tiered(training, job, work)
    report = json.loads(report_path.read_text())
    check_same_work(plain, tiered)
    check_fed_by_agent(tiered, report)
    sides = plain_side(plain, training, job), tiered_side(tiered, report, job)
    print()
    print(comparison(*sides, job))
    print(f"report: {report_path}")
    check_gain(*sides)
    check_tiers(sides[1], job)
    return 0


def introduce(training: Training, job: Job, *, samples: int) -> None:
    tiers = ", ".join(
        f"{tier_name(tier)} {mib(size)} = {size / job.dataset_bytes:.0%}"
        for tier, size in job.tier_bytes.items()
    )
    print(
        f"demo: {samples} photographs, {mib(job.dataset_bytes)}, in {training.dataset}\n"
        f"demo: {training.epochs} epochs, batches of {training.batch_size}, "
        f"seed {training.seed}, one compute thread\n"
        f"demo: both sides read from the same emulated cold store: {training.cold_latency_ms:g} ms "
        f"a request, one link of {training.cold_mb_per_s:g} MB/s, no page cache in front of it\n"
        f"demo: tiers, as shares of the dataset: {tiers}",
        flush=True,
    )


def run_plain(training: Training, work: Path) -> dict:
    print("demo: training with the plain DataLoader, 2 workers", flush=True)
    result = work / "dataloader.json"
    run(trainer("dataloader", training, result))
    return json.loads(result.read_text())


def run_tiered(training: Training, job: Job, work: Path) -> tuple[dict, Path]:
    print("demo: training with tierfeed, 2 decode threads", flush=True)
    result = work / "tierfeed.json"
    tierfeed = os.environ.get("TIERFEED_BIN", "tierfeed")
    run_dir = work / "run"
    report = run_dir / "report.json"
    report.unlink(missing_ok=True)
    command = [tierfeed, "run", f"--run-dir={run_dir}", str(job.path)]
    run([*command, "--", *trainer("tierfeed", training, result)])
    return json.loads(result.read_text()), report


def trainer(loader: str, training: Training, result: Path) -> list[str]:
    result.unlink(missing_ok=True)
    return [
        sys.executable,
        str(DEMO / "train.py"),
        f"--loader={loader}",
        f"--dataset={training.dataset}",
        f"--result={result}",
        f"--epochs={training.epochs}",
        f"--batch-size={training.batch_size}",
        f"--seed={training.seed}",
        f"--cold-latency-ms={training.cold_latency_ms}",
        f"--cold-mb-per-s={training.cold_mb_per_s}",
    ]


def run(command: list[str]) -> None:
    status = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    if status != 0:
        raise SystemExit(f"demo: this ended with exit code {status}: {' '.join(command)}")


def check_same_work(plain: dict, tiered: dict) -> None:
    if plain["sample_digest"] != tiered["sample_digest"]:
        raise SystemExit(
            "demo: the two sides trained on different samples or in another order: digests "
            f"{plain['sample_digest'][:16]} and {tiered['sample_digest'][:16]}"
        )
    apart = max(abs(a - b) for a, b in zip(plain["losses"], tiered["losses"], strict=True))
    if not apart <= LOSS_TOLERANCE:
        raise SystemExit(
            f"demo: the losses differ by up to {apart:.3g}, more than {LOSS_TOLERANCE:g}: "
            "some sample had other bytes"
        )
    print(
        f"demo: same samples and labels in the same order on both sides (sha256 "
        f"{plain['sample_digest'][:16]}), losses of {len(plain['losses'])} steps at most "
        f"{apart:.1g} apart"
    )


def check_tiers(tiered: Side, job: Job) -> None:
    """A tier that gave nothing shows nothing."""
    for tier in job.tier_bytes:
        if tiered.hits.get(tier, 0) == 0:
            raise SystemExit(f"demo: no sample came from {tier_name(tier)}")


def check_fed_by_agent(tiered: dict, report: dict) -> None:
    """A trainer whose agent is gone goes on without it; such a run would show the wrong loader."""
    alone = tiered["samples"] - report["samples"]
    if report["samples"] == 0:
        raise SystemExit("demo: the trainer read everything itself: see the log for the reason")
    if alone > ALONE_SHARE_MAX * tiered["samples"]:
        raise SystemExit(
            f"demo: the trainer read {alone} of {tiered['samples']} samples itself, "
            f"more than {ALONE_SHARE_MAX:.0%}: see the log for the reason"
        )
    if alone > 0:
        print(f"demo: the trainer read {alone} samples itself, counted as cold below")


def check_gain(plain: Side, tiered: Side) -> None:
    """The demo fails if tierfeed reads nearly as much from the cold store, or takes longer."""
    cold, cold_plain = sum(tiered.epoch_cold_read_bytes), sum(plain.epoch_cold_read_bytes)
    if cold > COLD_SHARE_MAX * cold_plain:
        raise SystemExit(
            f"demo: tierfeed read {mib(cold)} from the cold store, more than {COLD_SHARE_MAX:.0%} "
            f"of the {mib(cold_plain)} of the plain loader"
        )
    if tiered.wall_s >= plain.wall_s:
        raise SystemExit(
            f"demo: tierfeed took {tiered.wall_s:.1f} s, the plain loader {plain.wall_s:.1f} s"
        )


def plain_side(record: dict, training: Training, job: Job) -> Side:
    """The plain loader keeps nothing, so every epoch reads the whole dataset."""
    assert record["cold_read_bytes"] == training.epochs * job.dataset_bytes
    return Side(
        wall_s=record["wall_s"],
        stall_s=sum(record["epoch_stall_s"]),
        samples=record["samples"],
        dataset_bytes=job.dataset_bytes,
        epoch_cold_read_bytes=[job.dataset_bytes] * training.epochs,
        hits={},
    )


def tiered_side(record: dict, report: dict, job: Job) -> Side:
    """Cold bytes are what the agent read, and what it did not hand over: the trainer read that."""
    epoch_cold_read_bytes = [
        epoch["cold_read_bytes"] + job.dataset_bytes - epoch["demand_bytes"]
        for epoch in report["epochs"]
    ]
    return Side(
        wall_s=record["wall_s"],
        stall_s=sum(record["epoch_stall_s"]),
        samples=record["samples"],
        dataset_bytes=job.dataset_bytes,
        epoch_cold_read_bytes=epoch_cold_read_bytes,
        hits=report["tier_hits"],
    )


def ram_disk() -> str:
    """A folder on tmpfs for the scratch tier."""
    folder = "/dev/shm"
    if not os.access(folder, os.W_OK):
        raise SystemExit(f"demo: {folder} is not writable; the scratch tier needs a RAM disk there")
    return folder


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare the plain DataLoader with tierfeed.")
    parser.add_argument("--dataset", type=Path, required=True, help="an image folder")
    parser.add_argument("--work", type=Path, required=True, help="folder for job file and results")
    parser.add_argument("--epochs", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
