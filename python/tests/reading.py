"""Compares what tierfeed reads from a dataset with what it shall be, sample by sample."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import needs
import node
import tierfeed

FIXTURES = Path(__file__).parents[2] / "dataset" / "tests" / "fixtures"
HDF5_INDEXER = "tierfeed-hdf5-indexer"


def check(
    source: Path,
    format: str,
    expected: Iterable[bytes],
    *,
    labels: list[int] | None = None,
    **keys: Any,
) -> tierfeed.Index:
    """Each sample has its bytes, its size and its label, in this order, and there are no others."""
    expected = list(expected)
    assert expected, "nothing to compare"
    index = tierfeed.Index.build(source, format=format, **keys)
    assert len(index) == len(expected)
    for number, content in enumerate(expected):
        assert index.read(number) == content, f"sample {number} of {index!r}"
        assert index.size(number) == len(content)
        assert index.extent(number).len == len(content)
        assert decoded(index, number) == content, f"the place of sample {number} of {index!r}"
    assert [index.label(it) for it in range(len(index))] == (labels or [-1] * len(expected))
    return index


def decoded(index: tierfeed.Index, sample: int) -> bytes:
    """What stands at the place of a sample, read and inflated without tierfeed."""
    extent = index.extent(sample)
    with open(extent.path, "rb") as file:
        file.seek(extent.offset)
        found = file.read(extent.stored_len)
    return found if extent.encoding == "plain" else zlib.decompress(found, -zlib.MAX_WBITS)


def find_hdf5_indexer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the program for HDF5 into the PATH, or skips the test."""
    binary = node.binary()
    beside = Path(binary).with_name(HDF5_INDEXER) if binary else None
    if beside is not None and beside.exists():
        monkeypatch.setenv("PATH", str(beside.parent), prepend=os.pathsep)
    elif shutil.which(HDF5_INDEXER) is None:
        needs.skip("hdf5-indexer", f"no {HDF5_INDEXER} beside tierfeed or in the PATH")


def digests(expected: Iterable[list[Any]], samples: Iterable[bytes]) -> None:
    """The samples are those of `[length, XXH3-64, …]`, as the fixtures keep them."""
    xxhash = needs.module("xxhash")
    found = [[len(it), xxhash.xxh3_64_hexdigest(it)] for it in samples]
    assert found == [it[:2] for it in expected]
