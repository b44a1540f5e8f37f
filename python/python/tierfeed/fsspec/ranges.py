"""Reads ranges of objects, many at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tierfeed.objects import ANSWER_BYTES_MAX, Found, Objects, Range

# A longer range is read by several requests at once.
PIECE_BYTES = 4 << 20
# Ranges of one object in one question.
PIECES_MAX = 64


class Version(NamedTuple):
    """An object as it was when it was found: its bytes never change."""

    bucket: str
    found: Found


class Question(NamedTuple):
    """Ranges of an object that are asked for together."""

    version: Version
    ranges: Sequence[Range]

    @property
    def nbytes(self) -> int:
        """Of all ranges."""
        return sum(end - start for start, end in self.ranges)


class RangeReader:
    """Reads objects of all buckets that are reached in one way."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def contents(
        self, wanted: Mapping[Version, Mapping[int, Range]], max_gap: int
    ) -> dict[int, bytes | Exception]:
        """The bytes of each range, or why it has none, by the numbers that the ranges have.

        There is one question for each bucket, or several if that is more than fits into an answer.
        """
        runs = {version: _joined(ranges.values(), max_gap) for version, ranges in wanted.items()}
        read = self._read({version: _pieces(of) for version, of in runs.items()})
        return {
            at: _part(range_, runs[version], read[version])
            for version, ranges in wanted.items()
            for at, range_ in ranges.items()
        }

    def content(self, version: Version, range_: Range) -> bytes:
        """The bytes of one range."""
        content = self.contents({version: {0: range_}}, 0)[0]
        if isinstance(content, Exception):
            raise content
        return content

    def _read(self, wanted: Mapping[Version, list[Range]]) -> dict[Version, bytes | OSError]:
        """The bytes of all ranges of each object, one behind the other."""
        parts: dict[Version, list[bytes]] = {version: [] for version in wanted}
        failed: dict[Version, OSError] = {}
        for together in _together(wanted):
            bucket = together[0].version.bucket
            asked = [(it.version.found, it.ranges) for it in together]
            for question, answer in zip(together, self._objects.read(bucket, asked), strict=True):
                if isinstance(answer, OSError):
                    failed[question.version] = answer
                else:
                    parts[question.version] += answer
        return {version: failed.get(version) or b"".join(of) for version, of in parts.items()}


def clamped(start: int | None, end: int | None, size: int) -> Range:
    """A range as a slice means it, within the file."""
    first, last, _ = slice(start, end).indices(size)
    return first, max(first, last)


def _joined(ranges: Iterable[Range], gap: int) -> list[Range]:
    """The ranges in ascending order; those that overlap, or lie at most `gap` bytes apart, are one."""
    runs: list[Range] = []
    for start, end in sorted(it for it in ranges if it[0] < it[1]):
        if runs and start - runs[-1][1] <= gap:
            runs[-1] = (runs[-1][0], max(runs[-1][1], end))
        else:
            runs.append((start, end))
    return runs


def _pieces(runs: Iterable[Range]) -> list[Range]:
    return [
        (first, min(first + PIECE_BYTES, end))
        for start, end in runs
        for first in range(start, end, PIECE_BYTES)
    ]


def _part(range_: Range, runs: Sequence[Range], content: bytes | OSError) -> bytes | Exception:
    """The bytes of a range among those of all runs of its object."""
    start, end = range_
    if start == end or isinstance(content, OSError):
        return content if isinstance(content, OSError) else b""
    behind = 0
    for first, last in runs:
        if first <= start < last:
            offset = behind + start - first
            return content[offset : offset + end - start]
        behind += last - first
    raise AssertionError("each range lies in a run")


def _together(wanted: Mapping[Version, list[Range]]) -> Iterator[list[Question]]:
    """The questions of one bucket whose answers fit into one."""
    together: list[Question] = []
    for question in _questions(wanted):
        nbytes = question.nbytes + sum(it.nbytes for it in together)
        is_elsewhere = bool(together) and question.version.bucket != together[0].version.bucket
        if together and (is_elsewhere or nbytes > ANSWER_BYTES_MAX):
            yield together
            together = []
        together.append(question)
    if together:
        yield together


def _questions(wanted: Mapping[Version, list[Range]]) -> Iterator[Question]:
    """What is read of each object, those of a bucket one after the other."""
    for version in sorted(wanted, key=lambda it: it.bucket):
        ranges = wanted[version]
        for first in range(0, len(ranges), PIECES_MAX):
            yield Question(version, ranges[first : first + PIECES_MAX])
