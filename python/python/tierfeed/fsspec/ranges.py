"""Reads ranges of objects by whole blocks, which it keeps for all processes of the node."""

from __future__ import annotations

import functools
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tierfeed.blocks import BLOCK_BYTES, Blocks, version_of
from tierfeed.objects import ANSWER_BYTES_MAX, Found, Objects, Range

# A range of a request: a longer one is read by several requests at once.
PIECE_BLOCKS = 4
# Of one object in one question; with gaps they are at most `PIECE_BLOCKS` times as much.
BLOCKS_MAX = 64
# How far a file that is read from its start to its end is read ahead.
AHEAD_BLOCKS_MAX = 16

# What only this process has, and those that it forks.
_PROCESS = secrets.token_hex(16)


class Version(NamedTuple):
    """An object as it was when it was found: its bytes never change."""

    bucket: str
    found: Found


class Piece(NamedTuple):
    """Ranges of an object that are asked for together."""

    version: Version
    ranges: list[Range]

    @property
    def nbytes(self) -> int:
        """Of all ranges."""
        return sum(end - start for start, end in self.ranges)


class RangeReader:
    """Reads objects of all buckets that are reached in one way."""

    def __init__(
        self, objects: Objects, cache_dir: str | os.PathLike[str] | None, cache_bytes: int | None
    ) -> None:
        self._objects = objects
        self._cache = (cache_dir, cache_bytes)

    def name(self, version: Version) -> str:
        """The name of the blocks of a version of an object, which no other process knows if the store
        says nothing by which versions differ."""
        known = "" if version.found.etag else _PROCESS
        return version_of(self._objects.reach, version.bucket, *version.found, BLOCK_BYTES, known)

    @functools.cached_property
    def blocks(self) -> Blocks:
        """The blocks of objects on this node."""
        return Blocks(*self._cache)

    def contents(
        self, wanted: Mapping[Version, Mapping[int, Range]], max_gap: int
    ) -> dict[int, bytes | Exception]:
        """The bytes of each range, or why it has none, by the numbers that the ranges have.

        What is not in memory is read at once, by one question for each bucket.
        """
        absent = {version: self._absent(version, ranges.values()) for version, ranges in wanted.items()}
        fresh = self._fetch(absent, max_gap)
        return {
            at: self._content(version, range_, fresh[version])
            for version, ranges in wanted.items()
            for at, range_ in ranges.items()
        }

    def fill(
        self, version: Version, start: int, target: memoryview, fresh: dict[int, bytes], ahead: int
    ) -> None:
        """Fills `target` with the bytes of an object from `start`.

        A block that is neither in `fresh` nor in the cache is read, with those of the `ahead` blocks
        from there that are not in the cache either; `fresh` has them afterwards.
        """
        name, last = self.name(version), (max(version.found.size, 1) - 1) // BLOCK_BYTES
        filled = 0
        while filled < len(target):
            number, offset = divmod(start + filled, BLOCK_BYTES)
            part = target[filled : filled + BLOCK_BYTES - offset]
            if number in fresh:
                part[:] = fresh[number][offset : offset + len(part)]
            elif not self.blocks.read_into(name, number, offset, part):
                until = min(number + ahead, last + 1)
                absent = [it for it in range(number + 1, until) if not self.blocks.has(name, it)]
                fresh.clear()
                fresh.update(self._read(version, [number, *absent]))
                continue
            filled += len(part)

    def _absent(self, version: Version, ranges: Iterable[Range]) -> list[int]:
        """The blocks of some ranges that are not in memory."""
        name, needed = self.name(version), {number for range_ in ranges for number in blocks_of(range_)}
        return [number for number in sorted(needed) if not self.blocks.has(name, number)]

    def _content(
        self, version: Version, range_: Range, fresh: dict[int, bytes] | OSError
    ) -> bytes | Exception:
        if isinstance(fresh, OSError):
            return fresh
        start, end = range_
        content = bytearray(end - start)
        try:
            self.fill(version, start, memoryview(content), fresh, AHEAD_BLOCKS_MAX)
        except OSError as error:
            return error
        return bytes(content)

    def _read(self, version: Version, numbers: Sequence[int]) -> dict[int, bytes]:
        """Reads blocks of one object, and keeps them."""
        blocks = self._fetch({version: numbers}, gap=0)[version]
        if isinstance(blocks, OSError):
            raise blocks
        return blocks

    def _fetch(
        self, wanted: Mapping[Version, Sequence[int]], gap: int
    ) -> dict[Version, dict[int, bytes] | OSError]:
        """Reads blocks of several objects, and keeps them."""
        answers: dict[Version, dict[int, bytes] | OSError] = {version: {} for version in wanted}
        for question in _questions(wanted, gap):
            bucket = question[0].version.bucket
            read = self._objects.read(bucket, [(it.version.found, it.ranges) for it in question])
            for piece, parts in zip(question, read, strict=True):
                answer = answers[piece.version]
                if isinstance(parts, OSError):
                    answers[piece.version] = parts
                elif not isinstance(answer, OSError):
                    answer.update(self._kept(piece, parts))
        return answers

    def _kept(self, piece: Piece, parts: Sequence[bytes]) -> dict[int, bytes]:
        """The blocks that were read, which are now in the cache, too."""
        name, blocks = self.name(piece.version), {}
        for (start, _), part in zip(piece.ranges, parts, strict=True):
            for offset in range(0, len(part), BLOCK_BYTES):
                number = (start + offset) // BLOCK_BYTES
                blocks[number] = part[offset : offset + BLOCK_BYTES]
                self.blocks.add(name, number, blocks[number])
        return blocks


def blocks_of(range_: Range) -> range:
    """The numbers of the blocks that a range touches."""
    start, end = range_
    return range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES) if end > start else start // BLOCK_BYTES)


def clamped(start: int | None, end: int | None, size: int) -> Range:
    """A range as a slice means it, within the file."""
    first, last, _ = slice(start, end).indices(size)
    return first, max(first, last)


def _questions(wanted: Mapping[Version, Sequence[int]], gap: int) -> Iterator[list[Piece]]:
    """One question for each bucket, or several if that is more than fits into an answer."""
    question: list[Piece] = []
    for piece in _pieces(wanted, gap):
        nbytes = piece.nbytes + sum(it.nbytes for it in question)
        is_elsewhere = bool(question) and piece.version.bucket != question[0].version.bucket
        if question and (is_elsewhere or nbytes > ANSWER_BYTES_MAX):
            yield question
            question = []
        question.append(piece)
    if question:
        yield question


def _pieces(wanted: Mapping[Version, Sequence[int]], gap: int) -> Iterator[Piece]:
    """What is read of each object, those of a bucket one after the other."""
    for version in sorted(wanted, key=lambda it: it.bucket):
        for first in range(0, len(wanted[version]), BLOCKS_MAX):
            numbers = wanted[version][first : first + BLOCKS_MAX]
            yield Piece(version, _joined(numbers, gap, version.found.size))


def _joined(numbers: Sequence[int], gap: int, size: int) -> list[Range]:
    """The ranges to request for some blocks: neighbours together, up to `PIECE_BLOCKS`."""
    runs: list[list[int]] = []
    for number in numbers:
        last = runs[-1] if runs else None
        if (
            last is not None
            and (number - last[1]) * BLOCK_BYTES <= gap
            and number + 1 - last[0] <= PIECE_BLOCKS
        ):
            last[1] = number + 1
        else:
            runs.append([number, number + 1])
    return [(first * BLOCK_BYTES, min(end * BLOCK_BYTES, size)) for first, end in runs]
