"""An object that is open for reading."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from tierfeed.blocks import BLOCK_BYTES
from tierfeed.fsspec.ranges import AHEAD_BLOCKS_MAX, Version, blocks_of
from tierfeed.objects import Changed

if TYPE_CHECKING:
    from tierfeed.fsspec.filesystem import TierFileSystem


class TierFile(io.BufferedReader):
    """An object that is open for reading, in the version that it had then."""

    def __init__(self, fs: TierFileSystem, path: str, version: Version) -> None:
        super().__init__(_Raw(fs, path, version), BLOCK_BYTES // 4)
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
    """An object, read by blocks."""

    mode = "rb"

    def __init__(self, fs: TierFileSystem, path: str, version: Version) -> None:
        super().__init__()
        self.name = path
        self._fs = fs
        self._version = version
        self._at = 0
        # Blocks that were read last; the cache may have no room for them.
        self._fresh: dict[int, bytes] = {}
        self._ahead = 1
        self._expected = 0

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
        if target:
            is_sequential = self._at == self._expected
            self._ahead = min(2 * self._ahead, AHEAD_BLOCKS_MAX) if is_sequential else 1
            needed = len(blocks_of((self._at, self._at + len(target))))
            self._fill(target, max(self._ahead, min(needed, AHEAD_BLOCKS_MAX)))
        self._at += len(target)
        self._expected = self._at
        return len(target)

    def _fill(self, target: memoryview, ahead: int) -> None:
        try:
            self._fs.ranges.fill(self._version, self._at, target, self._fresh, ahead)
        except Changed:
            # Who opens it again gets the version that it has now.
            self._fs.invalidate_cache(self.name)
            raise
