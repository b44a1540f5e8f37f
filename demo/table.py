"""The table at the end of the demo: both sides, row by row, with a ratio where one makes sense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from job_file import Job, mib

Row = tuple[str, str, str, str]


@dataclass(frozen=True)
class Side:
    """One training: what it measured itself, and where its samples came from."""

    wall_s: float
    stall_s: float
    samples: int
    dataset_bytes: int
    epoch_cold_read_bytes: list[int]
    hits: dict[str, int]

    @property
    def cold_read_bytes(self) -> int:
        return sum(self.epoch_cold_read_bytes)


def comparison(plain: Side, tiered: Side, job: Job) -> str:
    """The whole table as text."""
    rows: list[Row] = [
        ("", "DataLoader", "tierfeed", ""),
        measured("time", seconds, plain.wall_s, tiered.wall_s),
        measured("stall", seconds, plain.stall_s, tiered.stall_s),
        measured("cold bytes", mib, plain.cold_read_bytes, tiered.cold_read_bytes),
        ("  of the dataset, by epoch", by_epoch(plain), by_epoch(tiered), ""),
    ]
    for tier, size_bytes in job.tier_bytes.items():
        label = f"hits in {tier_name(tier)}, {mib(size_bytes)}"
        rows.append((label, "none", share(tiered.hits.get(tier, 0), tiered), ""))
    cold = tiered.samples - sum(tiered.hits.get(tier, 0) for tier in job.tier_bytes)
    rows.append(("read from the cold store", share(plain.samples, plain), share(cold, tiered), ""))
    return render(rows)


def tier_name(tier: str) -> str:
    """Never shows an emulated tier without saying so."""
    return f"{tier} (emulated)" if tier == "cxl-memory" else tier


def by_epoch(side: Side) -> str:
    return " ".join(f"{cold / side.dataset_bytes:.0%}" for cold in side.epoch_cold_read_bytes)


def share(count: int, side: Side) -> str:
    return f"{count} ({count / side.samples:.0%})"


def measured(name: str, show: Callable[[Any], str], plain: Any, tiered: Any) -> Row:
    note = f"{plain / tiered:.2f} x less" if tiered > 0 else ""
    return name, show(plain), show(tiered), note


def seconds(time_s: float) -> str:
    return f"{time_s:.2f} s"


def render(rows: list[Row]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = []
    for name, plain, tiered, note in rows:
        line = f"{name:<{widths[0]}}  {plain:>{widths[1]}}  {tiered:>{widths[2]}}  {note}"
        lines.append(line.rstrip())
    lines.insert(1, "-" * (sum(widths) + 6))
    return "\n".join(lines)
