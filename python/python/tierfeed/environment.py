"""Reads what the environment says about the job; no other module of the package reads it."""

from __future__ import annotations

import json
import os

from tierfeed._native import RANK_ARGUMENT, Reconfigure, launch_variables


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
    return {"TIERFEED_LOG": "warn", **_ranks_of_tensorflow(), **os.environ}


def launched(rank: int | None = None) -> dict[str, str]:
    """The variables of the launcher of this process, or only the rank if the program passes it itself.

    One table of all of tierfeed says which variables these are and what they mean (docs/launch.md).
    """
    if rank is not None:
        return {RANK_ARGUMENT: str(rank)}
    found = {name: value for name in launch_variables() if (value := os.environ.get(name))}
    known = launch_variables()
    return found or {name: it for name, it in _ranks_of_tensorflow().items() if name in known}


def _ranks_of_tensorflow() -> dict[str, str]:
    """The variables of torchrun that say what `TF_CONFIG` says; none if a launcher has set variables.

    The chief comes first, then the workers; those with one host are the ranks of one node.
    """
    text = os.environ.get("TF_CONFIG")
    if not text or any(os.environ.get(name) for name in launch_variables()):
        return {}
    try:
        config = json.loads(text)
        cluster, task = config.get("cluster", {}), config.get("task", {})
        addresses = [*cluster.get("chief", []), *cluster.get("worker", [])]
        if not addresses:
            return {}
        kind, index = task["type"], int(task["index"])
        first = 0 if kind == "chief" else len(cluster.get("chief", []))
        if kind not in ("chief", "worker") or not 0 <= index < len(cluster.get(kind, [])):
            raise Reconfigure(
                f"TF_CONFIG makes this process {kind} {index}; only its chief and its workers are ranks"
                " of a training"
            )
        hosts = [address.rpartition(":")[0] for address in addresses]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Reconfigure(f"TF_CONFIG is not what TensorFlow expects ({error!r}): {text}") from error
    rank = first + index
    local = hosts.count(hosts[rank])
    if hosts != [host for host in dict.fromkeys(hosts) for _ in range(local)]:
        raise Reconfigure(
            f"TF_CONFIG lists {', '.join(addresses)}: name the workers of one host one after the other,"
            " as many for each host"
        )
    host, _, port = addresses[0].rpartition(":")
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(addresses)),
        "LOCAL_RANK": str(rank % local),
        "LOCAL_WORLD_SIZE": str(local),
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
    }
