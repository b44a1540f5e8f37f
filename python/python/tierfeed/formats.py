"""Decodes samples that are a part of a file, for libraries that want the whole file.

No function here copies the sample. `docs/formats.md` shows how other formats are decoded.
"""

from __future__ import annotations

import bisect
import functools
import io
import re
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tierfeed._native import View
from tierfeed.index import Index

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Window", "members", "row_group"]

Bytes = View | bytes | bytearray | memoryview

# How `webdataset/tariterators.py` splits a name, and which names it ignores.
_NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)\Z")
_META = re.compile(r"__[^/]*__(\Z|/)")

# Cached footers: some hundred KB each for a file with thousands of columns and row groups.
_FOOTERS_MAX = 256


class Window(io.RawIOBase):
    """A file of `size` bytes of which only `content`, which starts at `offset`, can be read."""

    def __init__(self, content: Bytes, offset: int = 0, size: int | None = None) -> None:
        super().__init__()
        self._content = memoryview(content).cast("B")
        self._offset = offset
        self._size = offset + len(self._content) if size is None else size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = (0, self._at, self._size)[whence]
        if start + offset < 0:
            raise ValueError(f"byte {start + offset}; a file starts at 0")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        wanted = min(len(buffer), max(self._size - self._at, 0))
        start = self._at - self._offset
        if wanted and not 0 <= start <= start + wanted <= len(self._content):
            end = self._offset + len(self._content)
            raise OSError(
                f"bytes {self._at} to {self._at + wanted} were asked for, and the sample has"
                f" {self._offset} to {end}"
            )
        buffer[:wanted] = self._content[start : start + wanted]
        self._at += wanted
        return wanted


def members(sample: Bytes) -> dict[str, Any]:
    """The members of a WebDataset sample, as `webdataset` names them, and its `__key__`.

    Each is a view of the sample: copy what must outlive it.
    """
    content = memoryview(sample).cast("B")
    found: dict[str, Any] = {}
    with tarfile.open(fileobj=Window(content), mode="r:") as archive:
        for member in archive:
            name = _NAME.match(member.name)
            if name is None or not member.isreg() or _META.match(member.name):
                continue
            found["__key__"] = name[1]
            start = member.offset_data
            found[name[2].lower()] = content[start : start + member.size]
    return found


def row_group(
    sample: Bytes, index: Index, number: int, columns: Sequence[str] | None = None
) -> pyarrow.Table:
    """The rows of Parquet sample `number` of `index`, with all columns that lie in it, or `columns`.

    Needs pyarrow. Reads the footer of each file once, from the file.
    """
    from pyarrow import parquet

    extent = index.extent(number)
    metadata, starts = _footer(extent.path, index.fingerprint)
    group = bisect.bisect_right(starts, extent.offset) - 1
    if columns is None:
        columns = [
            path
            for path, start, end in _chunks(metadata.row_group(group))
            if extent.offset <= start and end <= extent.offset + extent.len
        ]
    window = Window(sample, extent.offset)
    file = parquet.ParquetFile(window, metadata=metadata)
    return file.read_row_group(group, columns=list(columns), use_threads=False)


@functools.lru_cache(_FOOTERS_MAX)
def _footer(path: Path, fingerprint: str) -> tuple[Any, list[int]]:
    """The metadata of a file, and where each of its row groups starts."""
    from pyarrow import parquet

    metadata = parquet.read_metadata(path)
    groups = (metadata.row_group(group) for group in range(metadata.num_row_groups))
    return metadata, [min(start for _, start, _ in _chunks(group)) for group in groups]


def _chunks(group: Any) -> list[tuple[str, int, int]]:
    """Path, start and end of each column chunk."""
    found = []
    for column in (group.column(number) for number in range(group.num_columns)):
        start = column.data_page_offset
        if column.dictionary_page_offset is not None:
            start = min(start, column.dictionary_page_offset)
        found.append((column.path_in_schema, start, start + column.total_compressed_size))
    return found
