"""What the environment says about the job: the one place of the package that reads it."""

from __future__ import annotations

import os

# Launchers name the rank differently; the first that is set counts. torchrun, Slurm, Open MPI, PMI.
RANK_VARIABLES = (
    "TIERFEED_RANK",
    "RANK",
    "SLURM_PROCID",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
)


def socket() -> str | None:
    """The socket of this node's agent, set by `tierfeed run` and `tierfeed exec`."""
    return os.environ.get("TIERFEED_SOCK") or None


def job() -> str | None:
    """The job file, for a process that must do without an agent."""
    return os.environ.get("TIERFEED_JOB") or None


def index() -> str | None:
    """The dataset index, for a process that must do without an agent."""
    return os.environ.get("TIERFEED_INDEX") or None


def executable() -> str:
    """The `tierfeed` program, which reads a bucket for a process that must do without an agent."""
    return os.environ.get("TIERFEED_EXE") or "tierfeed"


def rank() -> int:
    """The rank of this process, 0 unless a launcher says otherwise."""
    for name in RANK_VARIABLES:
        value = os.environ.get(name)
        if not value:
            continue
        if not value.isdecimal():
            raise ValueError(f"{name} is {value!r}; it must be a whole number from 0")
        return int(value)
    return 0
