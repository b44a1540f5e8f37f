"""A dataset of records of one size, which starts an agent of its own where it is read."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

SEED = 7
SMALL = {"chunk": "1 MiB", "tiers": {"main-memory": {"size": "16 MiB"}}}


@dataclasses.dataclass(frozen=True)
class Records:
    """Rows of float32 in a file; sample `i` is row `i`."""

    path: Path
    rows: NDArray[numpy.float32]

    def keys(self, **others: Any) -> dict[str, Any]:
        """The arguments of a loader beside the source."""
        nbytes = self.rows[0].nbytes
        return {
            "format": "raw",
            "record_bytes": nbytes,
            "batch_size": 8,
            "seed": SEED,
            "epochs": 3,
            **SMALL,
            **others,
        }

    def as_validation(self) -> dict[str, Any]:
        """The argument by which a loader of another dataset declares this one beside it."""
        own = {"format": "raw", "record_bytes": self.rows[0].nbytes, "batch_size": 6}
        return {"datasets": {"validation": {"source": str(self.path), **own}}}

    def number(self, row: Any) -> int:
        """Which sample a row is."""
        return round(float(numpy.asarray(row).reshape(-1)[0]))


def write(root: Path, *, count: int = 50, width: int = 32) -> Records:
    """`count` rows, of which the first value is the number of the row."""
    rows = numpy.random.default_rng(0).random((count, width), dtype=numpy.float32)
    rows[:, 0] = numpy.arange(count)
    (root / "data").mkdir(parents=True)
    path = root / "data" / "records.bin"
    path.write_bytes(rows.tobytes())
    return Records(path.parent, rows)
