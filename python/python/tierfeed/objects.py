"""Lists buckets and reads ranges of their objects, by processes of the `tierfeed` program.

The program has the network client and its threads; this process has neither. One process answers one
question at a time; threads that ask at once get a process each, at most `READERS_MAX`. `buckets.rs` of
`tensorflow-ops` is the same for TensorFlow.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, NamedTuple

from tierfeed import program

READERS_MAX = 4

# Less than the program takes for one answer.
ANSWER_BYTES_MAX = 256 << 20

# Exit codes of the program.
_INPUT_IS_WRONG = 2

Range = tuple[int, int]
"""First byte, and the one behind the last."""

_clients: weakref.WeakSet[Objects] = weakref.WeakSet()


class Found(NamedTuple):
    """An object as it was listed. Ranges are read of this version only."""

    key: str
    size: int
    mtime_ns: int
    etag: str | None


class _Ended(OSError):
    """The process that was asked is gone."""


class Changed(OSError):
    """An object is of another version than was listed."""


class Objects:
    """The objects of all buckets that are reached in one way."""

    def __init__(self, *, endpoint: str | None, region: str | None, anonymous: bool) -> None:
        given = {"--endpoint": endpoint, "--region": region}
        self._options = [it for name, value in given.items() if value for it in (name, value)]
        self._options += ["--anonymous"] if anonymous else []
        self._forget()
        _clients.add(self)

    def stat(self, bucket: str, key: str) -> Found:
        """What an object is. Raises `FileNotFoundError` if there is none."""
        header, _ = self._ask({"ask": "stat", "bucket": bucket, "key": key})
        return Found(**header["found"]["objects"][0])

    def children(self, bucket: str, key: str) -> tuple[list[Found], list[str]]:
        """The objects of a directory, and the keys of the directories in it."""
        header, _ = self._ask({"ask": "list", "bucket": bucket, "key": key})
        found = header["found"]
        return [Found(**it) for it in found["objects"]], found["directories"]

    def read(
        self, bucket: str, wanted: Sequence[tuple[Found, Sequence[Range]]]
    ) -> list[list[bytes] | OSError]:
        """Ranges of several objects, in one question; an error for an object that cannot be read."""
        objects = [{**found._asdict(), "ranges": ranges} for found, ranges in wanted]
        header, content = self._ask({"ask": "read", "bucket": bucket, "objects": objects})
        answers: list[list[bytes] | OSError] = []
        start = 0
        for outcome, (_, ranges) in zip(header["read"], wanted, strict=True):
            if "failed" in outcome:
                answers.append(_error(outcome["failed"]))
                continue
            parts = []
            for first, end in ranges:
                parts.append(content[start : start + end - first])
                start += end - first
            answers.append(parts)
        return answers

    def close(self) -> None:
        """Ends the processes. Another question starts one again."""
        for reader in self._idle:
            _end(reader)
        self._idle.clear()

    def _ask(self, question: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        with self._turn:
            try:
                return self._ask_one(question)
            except _Ended:
                # Something killed the process; another one is started once.
                return self._ask_one(question)

    def _ask_one(self, question: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        reader = self._idle_one() or program.start("objects", *self._options)
        try:
            header, content = _answer(reader, question)
        except BaseException:
            # What it would still answer is not what is asked next.
            reader.kill()
            _end(reader)
            raise
        self._idle.append(reader)
        if "failed" in header:
            raise _error(header["failed"])
        return header, content

    def _idle_one(self) -> subprocess.Popen[bytes] | None:
        while True:
            try:
                reader = self._idle.pop()
            except IndexError:
                # None, or another thread took the last one.
                return None
            if reader.poll() is None:
                return reader
            _end(reader)

    def _forget(self) -> None:
        self._idle: list[subprocess.Popen[bytes]] = []
        self._turn = threading.BoundedSemaphore(READERS_MAX)

    def forget_parent(self) -> None:
        """In a forked child: the processes answer the parent."""
        for reader in self._idle:
            for pipe in (reader.stdin, reader.stdout):
                assert pipe is not None
                with suppress(OSError):
                    pipe.close()
        self._forget()

    def __del__(self) -> None:
        self.close()


def _answer(
    reader: subprocess.Popen[bytes], question: Mapping[str, Any]
) -> tuple[dict[str, Any], bytes]:
    assert reader.stdin is not None and reader.stdout is not None, "it was started with pipes"
    with suppress(BrokenPipeError):
        reader.stdin.write(json.dumps(question).encode() + b"\n")
        reader.stdin.flush()
    line = reader.stdout.readline()
    if not line:
        if reader.wait() == _INPUT_IS_WRONG:
            raise program.other_version("objects")
        raise _Ended(f"`tierfeed objects` ended with {reader.returncode}")
    header: dict[str, Any] = json.loads(line)
    follows = sum(outcome.get("bytes", 0) for outcome in header.get("read", []))
    return header, _exactly(reader.stdout, follows)


def _exactly(pipe: IO[bytes], count: int) -> bytes:
    content = pipe.read(count)
    if len(content) != count:
        raise _Ended(f"`tierfeed objects` ended after {len(content)} of {count} B")
    return content


def _end(reader: subprocess.Popen[bytes]) -> None:
    for pipe in (reader.stdin, reader.stdout):
        assert pipe is not None, "it was started with pipes"
        with suppress(OSError):
            pipe.close()
    reader.wait()


def _error(refusal: Mapping[str, str]) -> OSError:
    message = refusal["message"]
    match refusal["kind"]:
        case "not-found":
            return FileNotFoundError(message)
        case "denied":
            return PermissionError(message)
        case "changed":
            return Changed(message)
        case _:
            return OSError(message)


def _forget_parents() -> None:
    for client in list(_clients):
        client.forget_parent()


os.register_at_fork(after_in_child=_forget_parents)
