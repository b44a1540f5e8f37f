"""Blocks of objects in memory that all processes of a user on a node share.

Each block is a file in a directory, by default in memory, named by the version of its object. A block is
complete when it has its name, and never changes. Those that were not used for longest are
removed when all together have more bytes than they may. A process that is killed leaves blocks like any
other, or an incomplete file, which is removed a minute later.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tierfeed import environment
from tierfeed._native import Reconfigure

BLOCK_BYTES = 1 << 20

# Unless the user says how much: no more than this, and than half of what is free.
LIMIT_BYTES = 4 << 30

# A process looks whether all have too much after it added this share of the limit.
_LOOK_AFTER = 1 / 16

# An incomplete file that is older was left by a process that is gone.
_INCOMPLETE_S = 60.0

# How many names a process tries that others have taken.
_NAMES_TRIED = 3

# The files of blocks: a user may name a directory that holds other files too.
_OWN_NAME = re.compile(r"[0-9a-f]{32}-[0-9]+(\.[0-9a-f]{16}\.part)?")


class Blocks:
    """The blocks of a directory. Any number of processes may use it at once."""

    def __init__(self, directory: str | os.PathLike[str] | None, limit: int | None) -> None:
        self._place = _usual_directory() if directory is None else Path(directory).resolve()
        self._directory = _open_own(self._place)
        free = os.fstatvfs(self._directory)
        self._limit = min(LIMIT_BYTES, free.f_bavail * free.f_frsize // 2) if limit is None else limit
        self._added = 0

    def __del__(self) -> None:
        if (directory := self.__dict__.get("_directory")) is not None:
            os.close(directory)

    def read_into(self, version: str, number: int, start: int, target: memoryview) -> bool:
        """Fills `target` from byte `start` of a block. False if the block is not there."""
        try:
            block = self._open(_name(version, number), os.O_RDONLY)
            try:
                is_whole = os.preadv(block, [target], start) == len(target)
                # Its time of change is that of its last use.
                os.utime(block)
            finally:
                os.close(block)
        except OSError:
            # Whatever is wrong with a cache, the object is still there.
            return False
        return is_whole

    def has(self, version: str, number: int) -> bool:
        """Whether a block is there."""
        try:
            os.stat(_name(version, number), dir_fd=self._directory, follow_symlinks=False)
        except OSError:
            return False
        return True

    def add(self, version: str, number: int, content: bytes) -> None:
        """Keeps a block, if there is room."""
        name = _name(version, number)
        # A name of its own: other threads and containers may add the same block now.
        incomplete = f"{name}.{secrets.token_hex(8)}.part"
        try:
            block = self._open(incomplete, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with open(block, "wb") as file:
                file.write(content)
            os.rename(incomplete, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except OSError:
            # No room, or another process removed it: a cache may forget.
            with suppress(OSError):
                os.unlink(incomplete, dir_fd=self._directory)
            self._make_again()
        self._added += len(content)
        if self._added >= self._limit * _LOOK_AFTER:
            self._added = 0
            with suppress(OSError):
                self._make_room()

    def _open(self, name: str, flags: int) -> int:
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(name, flags, mode=0o600, dir_fd=self._directory)

    def _make_again(self) -> None:
        """A user may have removed the directory to get the memory back."""
        with suppress(OSError, Reconfigure):
            if os.fstat(self._directory).st_nlink == 0:
                again = _open_own(self._place)
                os.dup2(again, self._directory, inheritable=False)
                os.close(again)

    def _make_room(self) -> None:
        kept = []
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if not _OWN_NAME.fullmatch(entry.name):
                    continue
                with suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    kept.append((found.st_mtime, found.st_size, entry.name))
        over = sum(size for _, size, _ in kept) - int(self._limit * (1 - _LOOK_AFTER))
        now = time.time()
        for used, size, name in sorted(kept):
            is_left = name.endswith(".part") and now - used > _INCOMPLETE_S
            if over <= 0 and not is_left:
                continue
            with suppress(OSError):
                os.unlink(name, dir_fd=self._directory)
            over -= size


def _name(version: str, number: int) -> str:
    return f"{version}-{number}"


def _open_own(path: Path) -> int:
    """A descriptor of a directory that nobody else may write to; it is made if it is not there.

    Everything in it is reached by the descriptor, so that nobody can put another directory in its place.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    try:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise Reconfigure(
            f"{path} cannot hold a cache ({error.strerror}): name another directory by cache_dir"
        ) from error
    found = os.fstat(directory)
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
        os.close(directory)
        raise Reconfigure(
            f"others may write to {path}, so it holds no cache: name another directory by cache_dir,"
            " or remove it"
        )
    return directory


def version_of(*parts: object) -> str:
    """A name for a version of an object, which another version does not have."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _usual_directory() -> Path:
    """A directory in memory that this user's processes find again, and no other user can take."""
    if (own := environment.runtime_directory()) is not None and _is_private(own):
        return own / "tierfeed-blocks"
    shared = Path("/dev/shm")
    where = shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    note = environment.state_directory() / f"blocks-{os.uname().nodename}"
    for _ in range(_NAMES_TRIED):
        if (name := _remembered(note)) is None:
            break
        path = where / name
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        if _is_private(path):
            return path
        # Another user saw the name, and took it.
        with suppress(OSError):
            note.unlink()
    path = Path(tempfile.mkdtemp(prefix="tierfeed-blocks-", dir=where))
    # No other process would find it.
    atexit.register(_remove, path, os.getpid())
    return path


def _remembered(note: Path) -> str | None:
    """The name that the first process of this user has written down; None if none can be."""
    name = f"tierfeed-blocks-{os.getuid()}-{secrets.token_hex(8)}"
    # A name appears with its content: another process may read it at once.
    written = note.with_name(f"{note.name}.{name}.part")
    with suppress(OSError):
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        written.write_text(name)
        with suppress(FileExistsError):
            os.link(written, note)
        written.unlink()
    try:
        kept = note.read_text()
    except OSError:
        return None
    return kept if re.fullmatch(r"tierfeed-blocks-[0-9]+-[0-9a-f]{16}", kept) else None


def _remove(path: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)


def _is_private(path: Path) -> bool:
    """Whether it is a directory of this user that nobody else may write to, and no link to one."""
    try:
        found = path.lstat()
    except OSError:
        return False
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return is_own and not stat.S_IMODE(found.st_mode) & 0o022
