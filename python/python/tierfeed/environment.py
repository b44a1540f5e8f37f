"""What the environment says about the job: the one place of the package that reads it."""

from __future__ import annotations

import os

from tierfeed._native import RANK_ARGUMENT, launch_variables


def socket() -> str | None:
    """The socket of this node's agent, set by `tierfeed run` and `tierfeed exec`."""
    return os.environ.get("TIERFEED_SOCK") or None


def job() -> str | None:
    """The job file, for a process that must do without an agent."""
    return os.environ.get("TIERFEED_JOB") or None


def index() -> str | None:
    """The dataset index, for a process that must do without an agent."""
    return os.environ.get("TIERFEED_INDEX") or None


def executable() -> str | None:
    """The `tierfeed` program that shall be used, set by `tierfeed run` and `tierfeed exec`."""
    return os.environ.get("TIERFEED_EXE") or None


def launched(rank: int | None = None) -> dict[str, str]:
    """What the launcher says of this process, or only the rank if the program gives it itself.

    Which variables those are, and what they mean together, is in one table for all of tierfeed
    (docs/launch.md).
    """
    if rank is not None:
        return {RANK_ARGUMENT: str(rank)}
    return {name: value for name in launch_variables() if (value := os.environ.get(name))}
