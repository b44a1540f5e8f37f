"""Blocks of objects in memory that all processes of a user on a node share.

Each block is a file in a directory, by default of `/dev/shm`, named by the version of its object. A
block is complete when it has its name, and never changes. Those that were not used for longest are
removed when all together have more bytes than they may. A process that is killed leaves blocks like any
other, or an incomplete file, which is removed a minute later.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tierfeed._native import Reconfigure

BLOCK_BYTES = 1 << 20

# Unless the user says how much: no more than this, and than half of what is free.
LIMIT_BYTES = 4 << 30

# A process looks whether all have too much after it added this share of the limit.
_LOOK_AFTER = 1 / 16

# An incomplete file that is older was left by a process that is gone.
_INCOMPLETE_S = 60.0


# The files of blocks: a user may name a directory that holds other files too.
_OWN_NAME = re.compile(r"[0-9a-f]{32}-[0-9]+(\.[0-9a-f]{16}\.part)?")


class Blocks:
    """The blocks of a directory. Any number of processes may use it at once."""

    def __init__(self, directory: str | os.PathLike[str] | None, limit: int | None) -> None:
        self._directory = Path(directory) if directory is not None else _usual_directory()
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self._directory.stat()
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
            raise Reconfigure(
                f"others may write to {self._directory}, so it holds no cache: name another directory by"
                " cache_dir, or remove it"
            )
        free = os.statvfs(self._directory)
        self._limit = min(LIMIT_BYTES, free.f_bavail * free.f_frsize // 2) if limit is None else limit
        self._added = 0

    def read_into(self, version: str, number: int, start: int, target: memoryview) -> bool:
        """Fills `target` from byte `start` of a block. False if the block is not there."""
        try:
            block = os.open(self._path(version, number), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            is_whole = os.preadv(block, [target], start) == len(target)
            # Its time of change is that of its last use.
            os.utime(block)
        finally:
            os.close(block)
        return is_whole

    def has(self, version: str, number: int) -> bool:
        """Whether a block is there."""
        return self._path(version, number).exists()

    def add(self, version: str, number: int, content: bytes) -> None:
        """Keeps a block, if there is room."""
        path = self._path(version, number)
        # A name of its own: other threads and containers may add the same block now.
        incomplete = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
        try:
            incomplete.write_bytes(content)
            incomplete.rename(path)
        except OSError:
            # No room, or another process removed it: a cache may forget.
            with suppress(OSError):
                incomplete.unlink()
        self._added += len(content)
        if self._added >= self._limit * _LOOK_AFTER:
            self._added = 0
            with suppress(OSError):
                self._make_room()

    def _make_room(self) -> None:
        kept = []
        # A user may have removed it to get the memory back.
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for entry in os.scandir(self._directory):
            if not _OWN_NAME.fullmatch(entry.name):
                continue
            with suppress(OSError):
                found = entry.stat()
                kept.append((found.st_mtime, found.st_size, entry.path))
        over = sum(size for _, size, _ in kept) - int(self._limit * (1 - _LOOK_AFTER))
        now = time.time()
        for used, size, path in sorted(kept):
            is_left = path.endswith(".part") and now - used > _INCOMPLETE_S
            if over <= 0 and not is_left:
                continue
            with suppress(OSError):
                os.unlink(path)
            over -= size

    def _path(self, version: str, number: int) -> Path:
        return self._directory / f"{version}-{number}"


def version_of(*parts: object) -> str:
    """A name for a version of an object, which another version does not have."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _usual_directory() -> Path:
    shared = Path("/dev/shm")
    where = shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    return where / f"tierfeed-blocks-{os.getuid()}"
