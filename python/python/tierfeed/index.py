"""The index of a dataset: where each sample lies, and its bytes as a training gets them.

It is for inspecting a dataset, for tests of a decoder, and for your own readers. A training does not
need it: its batches come from `tierfeed.connect()`.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tierfeed import _native, program
from tierfeed._native import Extent, Reconfigure
from tierfeed.arguments import INDEX_KEYS, plain

__all__ = ["Extent", "Index"]

_indexes: weakref.WeakSet[Index] = weakref.WeakSet()


class Index:
    """Where the samples of a dataset lie. Sample `i` is that of the same number in a job.

    May be forked; may be pickled if it is in a file, and is opened again where it is unpickled.
    Any number of threads may read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Opens the index at `path`, as `open` does."""
        self._path: str | None = os.path.abspath(path)
        self._native = _native.Index.open(self._path)
        _indexes.add(self)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Index:
        """Opens an index that `tierfeed index`, a job or `build` wrote.

        Raises `Reconfigure` if the file is no index, or is not complete.
        """
        return cls(path)

    @classmethod
    def build(
        cls,
        source: str | os.PathLike[str],
        *,
        format: str,
        path: str | os.PathLike[str] | None = None,
        **keys: Any,
    ) -> Index:
        """Lists `source` and finds its samples; the keys are those of `dataset` in a job file that
        say where it lies, which files are taken, and what a format needs, such as `record_bytes=3073`.

        With `path` the index is kept there, and still valid entries of an index there are used. Without,
        it ends with the object.

        The `tierfeed` program builds it, as that starts threads, which the client must not do here.

        Raises `Reconfigure` if a key is wrong, or if the source is not what its format says.
        """
        if unknown := sorted(keys.keys() - {*INDEX_KEYS}):
            known = ", ".join(INDEX_KEYS)
            raise TypeError(f"Index.build takes no {', '.join(unknown)}; it takes {known}")
        keys = plain({"format": format, **{name: it for name, it in keys.items() if it is not None}})
        if path is not None:
            program.write_index(os.path.abspath(path), source, keys)
            return cls(path)
        with tempfile.TemporaryDirectory(prefix="tierfeed-index-") as directory:
            temporary = os.path.join(directory, "index")
            program.write_index(temporary, source, keys)
            # Open now, so it stays readable when its name is removed.
            index = cls(temporary)
        index._path = None
        return index

    @property
    def path(self) -> Path | None:
        """The file of this index, or `None` if it was not kept."""
        return None if self._path is None else Path(self._path)

    @property
    def source(self) -> str:
        """What was indexed: an absolute path or a URL."""
        return self._native.source

    @property
    def format(self) -> str:
        """How samples lie in files, in words."""
        return self._native.format

    @property
    def fingerprint(self) -> str:
        """Identifies the dataset, 16 hexadecimal digits, as `Feed.fingerprint`."""
        return f"{self._native.fingerprint:016x}"

    @property
    def class_names(self) -> list[str]:
        """The classes in the order of their labels; empty if the format has none."""
        return self._native.class_names

    def size(self, sample: int) -> int:
        """The bytes of a sample, decoded."""
        return self._native.size(sample)

    def label(self, sample: int) -> int:
        """The class of a sample, or -1 where the dataset has none."""
        return self._native.label(sample)

    def extent(self, sample: int) -> Extent:
        """Where a sample lies."""
        return self._native.extent(sample)

    def read(self, sample: int) -> bytes:
        """The bytes of a sample, as a training gets them, with the same checks.

        Raises `SampleError` if it cannot be read, or is not what was indexed.
        """
        return self._native.read(sample)

    def __len__(self) -> int:
        return len(self._native)

    def __iter__(self) -> Iterator[bytes]:
        return map(self.read, range(len(self)))

    def __reduce__(self) -> tuple[object, ...]:
        if self._path is None:
            raise Reconfigure("this index is in no file to open it from; give build() a `path`")
        return _restore, (self._path, self.fingerprint)

    def __repr__(self) -> str:
        return f"<tierfeed.Index of {self.source}: {len(self)} samples, {self.format}>"


def _restore(path: str, fingerprint: str) -> Index:
    index = Index(path)
    if index.fingerprint != fingerprint:
        raise Reconfigure(f"{path} is not the index any more that was pickled; it was built again")
    return index


def _reopen() -> None:
    for index in list(_indexes):
        index._native = index._native.reopened()


os.register_at_fork(after_in_child=_reopen)
