"""The agent of a training that was started without `tierfeed run`: a process beside each rank.

Every rank starts `tierfeed embed` and keeps a pipe to it open. The process of the first rank of a
node holds the agent, those of the others find it; all last as long as the ranks do. The kernel closes
the pipe when the rank ends, also if it was killed, so nothing is left behind.
"""

from __future__ import annotations

import builtins
import itertools
import json
import os
import re
import subprocess
import sys
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tierfeed import arguments, environment, program
from tierfeed._native import Bug, Reconfigure, Retry

# How long the end of a loader waits for its agent, which writes the report then.
ENDS_WITHIN_S = 5.0

# Exit codes of the program.
_INPUT_IS_WRONG = 2

_agents: weakref.WeakSet[EmbeddedAgent] = weakref.WeakSet()
_numbers = itertools.count()

_started: list[StartedAgent] = []
"""The last one, also when it has ended."""


class StartedAgent(NamedTuple):
    """Where an agent that this process has started is, or was."""

    run_dir: Path
    socket: str


def last_started() -> StartedAgent | None:
    """The agent that this process started last."""
    return _started[-1] if _started else None


def running(dataset: str) -> EmbeddedAgent | None:
    """The agent that this process has started for a job with `dataset` beside its first one."""
    found = [it for it in _agents if dataset in it.datasets and not it.has_ended]
    return max(found, key=lambda it: it.number, default=None)


class EmbeddedAgent:
    """What a training has started beside itself. It ends with the last feed that uses it, or when this
    object is gone."""

    def __init__(
        self, dataset: Mapping[str, Any], process: subprocess.Popen[str], told: Mapping[str, str]
    ) -> None:
        self.arguments: str = dataset["arguments"]
        self.datasets: frozenset[str] = frozenset(dataset["further"])
        self._users: weakref.WeakSet[object] = weakref.WeakSet()
        self.socket = told["TIERFEED_SOCK"]
        self.job = told["TIERFEED_JOB"]
        self.index = told["TIERFEED_INDEX"]
        self.run_dir = Path(told["TIERFEED_RUN_DIR"])
        self._process = process
        self._finalizer = weakref.finalize(self, _end, process)
        # Those started later have a higher number.
        self.number = next(_numbers)
        _agents.add(self)
        _started[:] = [StartedAgent(self.run_dir, self.socket)]

    @property
    def has_ended(self) -> bool:
        """Whether it was ended from here."""
        return not self._finalizer.alive

    def use(self, user: object) -> None:
        """The agent lasts as long as `user`, at least."""
        self._users.add(user)

    def leave(self, user: object) -> None:
        """Ends the agent if nothing else in this process uses it."""
        self._users.discard(user)
        if not self._users:
            self.end()

    def end(self) -> None:
        """Ends the agent with the last rank of its node; waits for it for a while."""
        self._finalizer()

    def forget(self) -> None:
        """In a forked child: the agent belongs to the parent."""
        self._finalizer.detach()
        assert self._process.stdin is not None, "it was started with a pipe"
        self._process.stdin.close()


def start(source: str | os.PathLike[str], keys: Mapping[str, Any]) -> EmbeddedAgent:
    """Starts what a training over `source` needs, or finds what its other ranks have started.

    Raises `Reconfigure` if a key is wrong, with the message that a job file would get, and `Retry` if
    the agent could not be started.
    """
    if environment.socket() is not None or environment.job() is not None:
        raise Reconfigure(
            "this process was started by `tierfeed run` or `exec`, whose job file says what is read:"
            " leave the arguments out, or start the script by itself"
        )
    text = arguments.job_file(source, keys)
    job = json.loads(text.partition("\n")[2])
    dataset = {"arguments": text, "further": job.get("datasets", {})}
    if _is_interactive():
        # A cell that is run again: the earlier loader may live on in the history of the session.
        for earlier in [it for it in _agents if it.arguments == text]:
            earlier.end()
    process = _spawn()
    try:
        told = _hear(process, text)
    except BaseException:
        process.kill()
        _end(process)
        raise
    return EmbeddedAgent(dataset, process, told)


def _spawn() -> subprocess.Popen[str]:
    executable = program.executable()
    try:
        # In a session of its own: an interrupt from the terminal is for the training, whose end is also
        # that of the agent.
        return subprocess.Popen(
            [executable, "embed"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
            env=environment.of_agent(),
        )
    except OSError as error:
        raise program.not_started(executable, error) from error


def _hear(process: subprocess.Popen[str], job: str) -> dict[str, str]:
    """The variables of a trainer, once the agent is ready."""
    assert process.stdin is not None and process.stdout is not None, "it was started with pipes"
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
    line = process.stdout.readline()
    process.stdout.close()
    if not line:
        if process.wait() == _INPUT_IS_WRONG:
            raise program.other_version("embed")
        raise Bug(f"`tierfeed embed` ended with {process.returncode}, and did not say why")
    answer = json.loads(line)
    if "variables" in answer:
        variables: dict[str, str] = answer["variables"]
        return variables
    error = answer["error"]
    message = re.sub(r"^arguments:\d+: ", "", error["message"])
    raise (Reconfigure if error["code"] == _INPUT_IS_WRONG else Retry)(message)


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None, "it was started with a pipe"
    with suppress(BrokenPipeError):
        process.stdin.close()
    # If other ranks of the node still train, it ends with the last one.
    with suppress(subprocess.TimeoutExpired):
        process.wait(ENDS_WITHIN_S)


def _is_interactive() -> bool:
    return hasattr(sys, "ps1") or hasattr(builtins, "get_ipython")


def _forget_parents() -> None:
    for agent in list(_agents):
        agent.forget()
    _agents.clear()


os.register_at_fork(after_in_child=_forget_parents)
