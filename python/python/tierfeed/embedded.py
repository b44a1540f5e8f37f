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
import select
import subprocess
import sys
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from tierfeed import arguments, environment, program
from tierfeed._native import Bug, Reconfigure, Retry

# How long the end of a loader waits for its agent, which writes the report then.
ENDS_WITHIN_S = 5.0

# Exit codes of the program.
_INPUT_IS_WRONG = 2

# Pauses before an agent that died is started again, one for each attempt.
STARTED_AGAIN_AFTER_S = (0.0, 2.0, 8.0)

# How long `tierfeed embed` may be silent: until it is ready, it says every few seconds that it works.
SILENT_MAX_S = 60.0

_agents: weakref.WeakSet[EmbeddedAgent] = weakref.WeakSet()
_numbers = itertools.count()

# The loaders that this process has made for each job: those of all ranks are numbered alike and meet.
_made: Counter[str] = Counter()

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
        self,
        job: str,
        dataset: Mapping[str, Any],
        process: subprocess.Popen[bytes],
        told: Mapping[str, str],
    ) -> None:
        self.arguments: str = dataset["arguments"]
        self.datasets: frozenset[str] = frozenset(dataset["further"])
        self._users: weakref.WeakSet[object] = weakref.WeakSet()
        self.socket = told["TIERFEED_SOCK"]
        self.job = told["TIERFEED_JOB"]
        self.index = told["TIERFEED_INDEX"]
        self.run_dir = Path(told["TIERFEED_RUN_DIR"])
        self._keys = job
        self._beside = _Beside(process)
        self._attempts = 0
        self._starting: threading.Thread | None = None
        self._finalizer = weakref.finalize(self, self._beside.end)
        # Those started later have a higher number.
        self.number = next(_numbers)
        _agents.add(self)
        _started[:] = [StartedAgent(self.run_dir, self.socket)]

    @property
    def _process(self) -> subprocess.Popen[bytes]:
        return self._beside.process

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

    def start_again(self) -> bool:
        """Starts a process that has died again, beside the training; whether it does so.

        That of the first rank of a node is the agent; the feeds of all ranks find it where it was.
        """
        if self.has_ended or self._process.poll() is None:
            return False
        if self._starting is not None and self._starting.is_alive():
            return True
        if self._attempts >= len(STARTED_AGAIN_AFTER_S):
            return False
        pause_s = STARTED_AGAIN_AFTER_S[self._attempts]
        self._attempts += 1
        again = (self._beside, self._keys, str(self.run_dir), pause_s)
        self._starting = threading.Thread(target=_start_again, args=again, daemon=True)
        self._starting.start()
        return True


class _Beside:
    """The process beside this one. It is replaced when it died, unless its end was asked for."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._lock = threading.Lock()
        self._is_over = threading.Event()

    def replace(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            if not self._is_over.is_set():
                self.process, process = process, self.process
        _end(process)

    def is_over_within(self, within_s: float) -> bool:
        return self._is_over.wait(within_s)

    def end(self) -> None:
        with self._lock:
            self._is_over.set()
        _end(self.process)


def _start_again(beside: _Beside, job: str, run_dir: str, pause_s: float) -> None:
    if beside.is_over_within(pause_s):
        return
    try:
        process, _ = _begin(job, "--again", run_dir)
    except Exception as error:
        why = f"tierfeed: the agent was not started again: {error}"
        warnings.warn(why, RuntimeWarning, stacklevel=1)
    else:
        beside.replace(process)


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
    _made[text] += 1
    process, told = _begin(text, "--loader", str(_made[text]))
    return EmbeddedAgent(text, dataset, process, told)


def _begin(job: str, *options: str) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    """A process that is ready, and the variables of its trainer."""
    brief = ["--brief"] if _is_interactive() else []
    process = program.start("embed", *options, *brief, env=environment.of_agent())
    try:
        return process, _hear(process, job)
    except BaseException:
        process.kill()
        _end(process)
        raise


def _hear(process: subprocess.Popen[bytes], job: str) -> dict[str, str]:
    """The variables of a trainer, once the agent is ready."""
    assert process.stdin is not None and process.stdout is not None, "it was started with pipes"
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()
    with process.stdout as stdout:
        line = _answer(stdout)
    if not line:
        if process.wait() == _INPUT_IS_WRONG:
            raise program.other_version("embed")
        raise Bug(f"`tierfeed embed` ended with {process.returncode}, and did not say why")
    answer = json.loads(line)
    if "variables" in answer:
        variables: dict[str, str] = answer["variables"]
        return variables
    error = answer["error"]
    message = re.sub(r"\barguments:\d+: ", "", error["message"])
    raise (Reconfigure if error["code"] == _INPUT_IS_WRONG else Retry)(message)


def _answer(stdout: IO[bytes]) -> bytes:
    """The first line that is more than a sign of life; nothing if there is none."""
    lines = b""
    while True:
        line, is_whole, rest = lines.partition(b"\n")
        if is_whole and json.loads(line) != {"working": {}}:
            return line
        if is_whole:
            lines = rest
            continue
        if not _poll(stdout, SILENT_MAX_S):
            raise Retry(f"`tierfeed embed` has said nothing for {SILENT_MAX_S:.0f} s: it hangs")
        if not (read := os.read(stdout.fileno(), 1 << 16)):
            return b""
        lines += read


def _poll(stdout: IO[bytes], within_s: float) -> bool:
    """Whether there is something to read, or the end."""
    poll = select.poll()
    poll.register(stdout, select.POLLIN)
    return bool(poll.poll(within_s * 1000))


def _end(process: subprocess.Popen[bytes]) -> None:
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
