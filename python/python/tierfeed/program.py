"""What the package leaves to the `tierfeed` program: reading job files, and listing datasets.

The native module links neither, so that a trainer loads little. The program answers one question and
ends; it starts threads, which the client must not do in the process of a trainer.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from tierfeed import environment
from tierfeed._native import Bug, Reconfigure, TurnedAway

# Exit codes of the program; 2 is that of an unknown command.
_TURNED_AWAY = 4
_INPUT_IS_WRONG = 5
_UNKNOWN_COMMAND = 2
# Launchers send them to every process of a job.
_OF_TRAINING = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# Wheels bring the program; a checkout has it in cargo's folders and in the PATH.
_OF_WHEEL = Path(__file__).with_name("_bin") / "tierfeed"


def main() -> NoReturn:
    """The command `tierfeed` of an environment into which the wheel was installed."""
    if not _OF_WHEEL.exists():
        sys.exit(
            "error: this installation of the Python package has no tierfeed program; install a wheel, "
            "or use the program that `make install` installs"
        )
    os.execv(_OF_WHEEL, ["tierfeed", *sys.argv[1:]])


def executable() -> str:
    """The program: that of TIERFEED_EXE, else that of this wheel, else the one in the PATH."""
    return environment.executable() or (str(_OF_WHEEL) if _OF_WHEEL.exists() else "tierfeed")


def start(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """The program, to talk to over pipes.

    It is in a session of its own: an interrupt from the terminal is for this process.
    """
    command, pipe = [executable(), *arguments], subprocess.PIPE
    with _starting(command[0]):
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True, env=env)


@contextmanager
def _starting(program: str) -> Iterator[None]:
    """What is started here never hears the signals of the training."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_TRAINING)
    try:
        yield
    except OSError as error:
        raise Reconfigure(
            f"cannot start {program}: {error.strerror}; set TIERFEED_EXE to the tierfeed executable, "
            "or put it into the PATH"
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def briefing(job: str, index: str | None, launched: Mapping[str, str]) -> str:
    """What a trainer needs of a job to read without an agent, as JSON.

    `launched` are the variables of its launcher, which give its rank.
    Raises `Reconfigure` if job or index are wrong, `TurnedAway` if the process is none of the ranks.
    """
    return _answer(
        "briefing",
        {
            "job": _bytes(job),
            "index": None if index is None else _bytes(index),
            "launched": dict(launched),
        },
    )


def write_index(path: str, source: str | os.PathLike[str], keys: Mapping[str, object]) -> None:
    """Lists a dataset and writes its index to `path`; still valid entries of a file there are used.

    Raises `Reconfigure` if a key is wrong, or if the source is not what its format says. What its user
    would want to know of the dataset is a warning.
    """
    document = {"source": _bytes(source), "output": _bytes(path), "keys": dict(keys)}
    for warning in _answer("index", document).splitlines():
        warnings.warn(warning, stacklevel=3)


def how_to_start() -> str:
    """How to start this very process with an agent, or with what it needs to read without one."""
    command = shlex.join(["python", *sys.argv]) if sys.argv[0] else "python train.py"
    return (
        "this process was started without tierfeed. Name the dataset, so that it starts an agent:\n"
        '    TierLoader("/data/train", batch_size=256)\n'
        "or start it with an agent:\n"
        f"    tierfeed run job.yaml -- {command}\n"
        "or beside an agent that runs on this node already:\n"
        f"    tierfeed exec -- {command}\n"
        "or without one, to read the dataset directly, at the speed of the cold store:\n"
        "    tierfeed index job.yaml\n"
        f"    TIERFEED_JOB=job.yaml TIERFEED_INDEX=dataset.tfx {command}"
    )


def other_version(command: str) -> Reconfigure:
    """The error for a program that lacks a command."""
    return Reconfigure(
        f"{executable()} does not know `{command}`; it must be a tierfeed of the same version as this "
        "package"
    )


def _bytes(path: str | os.PathLike[str]) -> list[int]:
    """The bytes of a path, which need not be valid text."""
    return list(os.fsencode(path))


def _answer(question: str, document: object) -> str:
    program = executable()
    with _starting(program):
        done = subprocess.run(
            [program, "client", question],
            input=json.dumps(document),
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
        )
    if done.returncode == 0:
        return done.stdout
    message = f"\n{done.stderr}".rpartition("\nerror: ")[2].strip()
    if done.returncode == _TURNED_AWAY:
        raise TurnedAway(message)
    if done.returncode == _INPUT_IS_WRONG:
        raise Reconfigure(message)
    if done.returncode == _UNKNOWN_COMMAND:
        raise other_version("client")
    raise Bug(f"`{program} client {question}` ended with {done.returncode}: {done.stderr.strip()}")
