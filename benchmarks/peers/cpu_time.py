"""The CPU time of a training, with its workers and its agent. Lies beside the scripts that import it."""

from __future__ import annotations

import os
import resource
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """CPU time of this process, of the children that it has joined, and of those that live."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own = sum(one.ru_utime + one.ru_stime for one in used)
    return own + sum(ticks_of_tree(child) for child in children_of(os.getpid())) / TICKS_PER_S


def children_of(pid: int) -> list[int]:
    try:
        return [
            int(child)
            for thread in Path(f"/proc/{pid}/task").iterdir()
            for child in (thread / "children").read_text().split()
        ]
    except OSError:
        return []


def ticks_of_tree(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15])) + sum(map(ticks_of_tree, children_of(pid)))
