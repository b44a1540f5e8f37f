"""An object that is open for reading."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from tierfeed.fsspec.ranges import Version
from tierfeed.objects import Changed

if TYPE_CHECKING:
    from tierfeed.fsspec.filesystem import TierFileSystem

# What a file reads at least, and how far one that is read from its start to its end is read ahead.
READ_BYTES_MIN = 256 << 10
AHEAD_BYTES_MAX = 16 << 20


class TierFile(io.BufferedReader):
    """An object that is open for reading, in the version that it had then."""

    def __init__(self, fs: TierFileSystem, path: str, version: Version) -> None:
        super().__init__(_Raw(fs, path, version), READ_BYTES_MIN)
        self.fs = fs
        self.path = path
        self.size = version.found.size

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (self.fs, self.path, self.tell())


def _reopened(fs: TierFileSystem, path: str, at: int) -> Any:
    file = fs.open(path, "rb")
    file.seek(at)
    return file


class _Raw(io.RawIOBase):
    """An object, of which it holds what it read last."""

    mode = "rb"

    def __init__(self, fs: TierFileSystem, path: str, version: Version) -> None:
        super().__init__()
        self.name = path
        self._fs = fs
        self._version = version
        self._at = 0
        self._held = b""
        self._held_from = 0
        self._ahead = READ_BYTES_MIN

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = (0, self._at, self._version.found.size)[whence]
        if start + offset < 0:
            raise ValueError(f"byte {start + offset}; a file starts at 0")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        target = memoryview(buffer).cast("B")
        target = target[: max(0, self._version.found.size - self._at)]
        if not target:
            return 0
        if not self._held_from <= self._at < self._held_from + len(self._held):
            self._read(len(target))
        offset = self._at - self._held_from
        part = self._held[offset : offset + len(target)]
        target[: len(part)] = part
        self._at += len(part)
        return len(part)

    def _read(self, nbytes: int) -> None:
        is_sequential = self._at == self._held_from + len(self._held)
        self._ahead = min(2 * self._ahead, AHEAD_BYTES_MAX) if is_sequential else READ_BYTES_MIN
        end = min(self._at + max(nbytes, self._ahead), self._version.found.size)
        try:
            self._held = self._fs.ranges.content(self._version, (self._at, end))
        except Changed:
            # Who opens it again gets the version that it has now.
            self._fs.invalidate_cache(self.name)
            raise
        self._held_from = self._at
