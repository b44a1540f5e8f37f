"""Decodes samples that are a part of a file, for libraries that want the whole file.

No function here copies the sample. `docs/formats.md` shows how other formats are decoded.
"""

from __future__ import annotations

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
    """The rows of Parquet sample `number` of `index`, with `columns` or those that the index selects.

    Needs pyarrow. Reads the footer of each file once, from the file.
    """
    from pyarrow import parquet

    extent = index.extent(number)
    metadata = _footer(extent.path, index.fingerprint)
    place, of_file = index._native.place_in_file(number)
    # Each row group is a sample, or each of its selected columns.
    group, chunk = divmod(place, of_file // metadata.num_row_groups)
    if columns is None:
        columns = index._native.selected_columns
        if of_file > metadata.num_row_groups or index.format.startswith("parquet, column chunks"):
            paths = columns or _paths(metadata)
            columns = [paths[chunk]]
    if metadata.row_group(group).num_rows == 0:
        return _no_rows(metadata, columns)
    window = Window(sample, extent.offset)
    file = parquet.ParquetFile(window, metadata=metadata)
    return file.read_row_group(group, columns=columns and list(columns), use_threads=False)


@functools.lru_cache(_FOOTERS_MAX)
def _footer(path: Path, fingerprint: str) -> Any:
    """The metadata of a file."""
    from pyarrow import parquet

    return parquet.read_metadata(path)


def _paths(metadata: Any) -> list[str]:
    """The columns of a file, by their paths."""
    return [metadata.schema.column(number).path for number in range(metadata.num_columns)]


def _no_rows(metadata: Any, columns: Sequence[str] | None) -> pyarrow.Table:
    """A table without rows: the pages of an empty row group, if there are any, cannot be read."""
    from pyarrow import parquet

    empty = io.BytesIO()
    parquet.write_table(metadata.schema.to_arrow_schema().empty_table(), empty)
    return parquet.ParquetFile(empty).read(columns=columns and list(columns), use_threads=False)
