"""Reads what the environment says about the job; no other module of the package reads it."""

from __future__ import annotations

import os

from tierfeed._native import RANK_ARGUMENT, launch_variables


def socket() -> str | None:
    """The socket of this node's agent, set by `tierfeed run` and `tierfeed exec`."""
    return os.environ.get("TIERFEED_SOCK") or None


def job() -> str | None:
    """The job file, for a process without an agent."""
    return os.environ.get("TIERFEED_JOB") or None


def index() -> str | None:
    """The dataset index, for a process without an agent."""
    return os.environ.get("TIERFEED_INDEX") or None


def executable() -> str | None:
    """The `tierfeed` program that shall be used, set by `tierfeed run` and `tierfeed exec`."""
    return os.environ.get("TIERFEED_EXE") or None


def run_dir() -> str | None:
    """The run directory of the job, set by `tierfeed run` and `tierfeed exec`."""
    return os.environ.get("TIERFEED_RUN_DIR") or None


def of_agent() -> dict[str, str]:
    """The environment of an agent that a training starts: it logs warnings, unless one asks for more."""
    return {"TIERFEED_LOG": "warn", **os.environ}


def launched(rank: int | None = None) -> dict[str, str]:
    """The variables of the launcher of this process, or only the rank if the program passes it itself.

    One table of all of tierfeed says which variables these are and what they mean (docs/launch.md).
    """
    if rank is not None:
        return {RANK_ARGUMENT: str(rank)}
    return {name: value for name in launch_variables() if (value := os.environ.get(name))}
