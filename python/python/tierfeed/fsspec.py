"""The file system `tierfeed://` of fsspec: ranges of objects, in memory that a node shares."""

from __future__ import annotations

import datetime
import errno
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Never

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import stringify_path

from tierfeed._native import Reconfigure
from tierfeed.blocks import BLOCK_BYTES, Blocks, version_of
from tierfeed.objects import ANSWER_BYTES_MAX, Changed, Found, Objects, Range

try:
    from fsspec.implementations.chained import ChainedFileSystem
except ImportError:
    # Earlier versions chain file systems of their own only.
    ChainedFileSystem = AbstractFileSystem

__all__ = ["TierFile", "TierFileSystem"]

# The file systems that are read, and the scheme of the URL of a bucket.
SCHEMES = {
    **{name: name for name in ("s3", "s3a", "gs", "az", "abfs", "abfss", "http", "https")},
    "gcs": "gs",
}
LOCAL = ("file", "local")

# A range of a request: a longer one is read by several requests at once.
PIECE_BLOCKS = 4
# Of one object in one question; with gaps they are at most `PIECE_BLOCKS` times as much.
BLOCKS_MAX = 64
# How far a file that is read from its start to its end is read ahead.
AHEAD_BLOCKS_MAX = 16

# Objects whose size and version are known.
OBJECTS_KNOWN_MAX = 100_000

# A block may be removed between the look for it and the read.
TRIES = 3


class Place(NamedTuple):
    """Where a path leads: to an object or a directory of a bucket."""

    bucket: str
    key: str
    head: str
    """What stands before the key in the path."""


class TierFileSystem(ChainedFileSystem):  # type: ignore[misc]
    """Reads `tierfeed://s3/bucket/key`, `tierfeed:///a/local/path`, and `tierfeed::s3://bucket/key`.

    Blocks of objects are kept in `cache_dir`, by default in memory (`/dev/shm`), for all processes of
    the user on this node, up to `cache_bytes` together. Local files are what the kernel caches.
    Everything is read-only. `endpoint`, `region` and `anonymous` say how a bucket is reached;
    credentials come from the environment and from `~/.aws`, never from an argument.
    """

    protocol = "tierfeed"
    root_marker = ""

    def __init__(
        self,
        fo: str | None = None,
        target_protocol: str | None = None,
        target_options: Mapping[str, Any] | None = None,
        endpoint: str | None = None,
        region: str | None = None,
        anonymous: bool = False,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_bytes: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if target_protocol is not None and target_protocol not in (*SCHEMES, *LOCAL):
            raise Reconfigure(
                f"tierfeed reads no {target_protocol}://; it reads {', '.join([*SCHEMES, *LOCAL])}"
            )
        self.target_protocol = target_protocol
        target = _reached(target_options or {})
        self._objects = Objects(
            endpoint=endpoint or target.get("endpoint"),
            region=region or target.get("region"),
            anonymous=anonymous or bool(target.get("anonymous")),
        )
        self._local = LocalFileSystem()
        self._cache = (cache_dir, cache_bytes)
        self._blocks: Blocks | None = None
        self._listed: dict[str, Found] = {}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(it) for it in path]
        text = stringify_path(path).removeprefix("tierfeed::").removeprefix("tierfeed://")
        return text.rstrip("/") or ("/" if text.startswith("/") else "")

    @property
    def fsid(self) -> str:
        """The name of this file system."""
        return "tierfeed"

    def info(self, path: Any, **_: Any) -> dict[str, Any]:
        """Name, size and type; of an object also the time of its last write and its ETag."""
        path = self._strip_protocol(path)
        place = self._place(path)
        if place is None:
            return dict(self._local.info(path))
        try:
            return _described(self._found(path, place), place)
        except FileNotFoundError:
            if place.key and not any(self._objects.children(place.bucket, place.key)):
                raise
            return {"name": path, "size": 0, "type": "directory"}

    def ls(self, path: Any, detail: bool = True, **_: Any) -> list[Any]:
        """What lies in a directory, or the file itself."""
        path = self._strip_protocol(path)
        place = self._place(path)
        found = list(self._local.ls(path, detail=True)) if place is None else self._children(path, place)
        return found if detail else [it["name"] for it in found]

    def created(self, path: Any) -> datetime.datetime:
        """When a file was made; of an object when it was written, as objects do not change."""
        return self._time(path, "created")

    def modified(self, path: Any) -> datetime.datetime:
        """When a file was written last."""
        return self._time(path, "mtime")

    def ukey(self, path: Any) -> str:
        """A name of the file as it is now: another one when it was written again."""
        self.invalidate_cache(path)
        return str(super().ukey(path))

    def invalidate_cache(self, path: Any = None) -> None:
        """Forgets the size and version of an object, or of all."""
        if path is None:
            self._listed.clear()
        else:
            self._listed.pop(self._strip_protocol(path), None)

    def cat_file(
        self, path: Any, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        """The bytes from `start` to `end`; negative ones count from the end of the file."""
        (content,) = self.cat_ranges([path], [start], [end], on_error="raise")
        assert isinstance(content, bytes)
        return content

    def cat_ranges(
        self,
        paths: list[Any],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[bytes | Exception]:
        """Ranges of any files. What is not in memory is read at once, by one question for each bucket.

        What lies between two ranges of an object is read too, if it has at most `max_gap` bytes.
        """
        if not isinstance(paths, list):
            raise TypeError("paths must be a list")
        starts = starts if isinstance(starts, list) else [starts] * len(paths)
        ends = ends if isinstance(ends, list) else [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError(f"{len(paths)} paths, {len(starts)} starts and {len(ends)} ends")
        wanted = list(zip(map(self._strip_protocol, paths), starts, ends, strict=True))
        answers = self._ranges(wanted, max_gap or 0)
        for answer in answers:
            if isinstance(answer, Exception) and on_error != "return":
                raise answer
        return answers

    def _open(self, path: Any, mode: str = "rb", **_: Any) -> Any:
        if mode != "rb":
            self._refuse(path)
        path = self._strip_protocol(path)
        place = self._place(path)
        if place is None:
            return self._local._open(path, mode=mode)
        return TierFile(self, path, self._found(path, place))

    def _refuse(self, path: Any, *_: Any, **__: Any) -> Never:
        message = f"tierfeed:// is read-only: write {path} by the file system that it lies in"
        raise OSError(errno.EROFS, message)

    mkdir = makedirs = rmdir = rm = rm_file = _rm = _refuse
    cp_file = copy = mv = pipe = pipe_file = put = put_file = touch = _refuse

    def blocks(self) -> Blocks:
        """The blocks of objects on this node."""
        if self._blocks is None:
            self._blocks = Blocks(*self._cache)
        return self._blocks

    def read_blocks(self, found: Found, place: Place, numbers: Iterable[int]) -> dict[int, bytes]:
        """Reads blocks of an object, in one question, and keeps them."""
        (content,) = self._fetch([(place, found, sorted(numbers), 0)])
        if isinstance(content, Changed):
            # Who opens it again gets the version that it has now.
            self.invalidate_cache(place.head + found.key)
        if isinstance(content, OSError):
            raise content
        return content

    def place_of(self, path: str) -> Place:
        """Where an object lies."""
        place = self._place(path)
        assert place is not None, "an object"
        return place

    def _place(self, path: str) -> Place | None:
        """Where a path leads; None for a local file."""
        scheme, separator, rest = path.partition("://")
        if separator:
            head = f"{scheme}://"
        elif self.target_protocol is not None:
            scheme, head, rest = self.target_protocol, "", path
        elif path.startswith("/") or not path:
            return None
        else:
            scheme, _, rest = path.partition("/")
            head = f"{scheme}/"
        if scheme in LOCAL:
            return None
        bucket, _, key = rest.partition("/")
        if scheme not in SCHEMES or not bucket:
            raise FileNotFoundError(
                f"tierfeed://{path}: write tierfeed:///an/absolute/path, or tierfeed://s3/bucket/key"
                f" with one of {', '.join(SCHEMES)}"
            )
        return Place(f"{SCHEMES[scheme]}://{bucket}", key, f"{head}{bucket}/")

    def _found(self, path: str, place: Place) -> Found:
        """Size and version of an object."""
        if (known := self._listed.get(path)) is not None:
            return known
        if not place.key:
            raise FileNotFoundError(f"{place.bucket} is a bucket")
        return self._note(path, self._objects.stat(place.bucket, place.key))

    def _note(self, path: str, found: Found) -> Found:
        if len(self._listed) >= OBJECTS_KNOWN_MAX:
            self._listed.clear()
        self._listed[path] = found
        return found

    def _children(self, path: str, place: Place) -> list[dict[str, Any]]:
        objects, directories = self._objects.children(place.bucket, place.key)
        # Some tools mark a directory by an object of its name.
        objects = [it for it in objects if it.key not in (place.key, f"{place.key}/")]
        if not objects and not directories and place.key:
            return [_described(self._found(path, place), place)]
        for it in objects:
            self._note(place.head + it.key, it)
        names = [place.head + it.rstrip("/") for it in directories]
        found = [{"name": it, "size": 0, "type": "directory"} for it in names]
        return found + [_described(it, place) for it in objects]

    def _time(self, path: Any, key: str) -> datetime.datetime:
        seconds = self.info(path).get(key)
        if seconds is None:
            raise FileNotFoundError(f"{path} is a directory of a bucket, which has no time")
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC)

    def _ranges(
        self, wanted: Sequence[tuple[str, int | None, int | None]], max_gap: int
    ) -> list[bytes | Exception]:
        answers: list[bytes | Exception | None] = [None] * len(wanted)
        objects: dict[str, list[tuple[int, Range]]] = {}
        for at, (path, start, end) in enumerate(wanted):
            try:
                place = self._place(path)
                if place is None:
                    answers[at] = self._local.cat_file(path, start, end)
                else:
                    size = self._found(path, place).size
                    objects.setdefault(path, []).append((at, _clamped(start, end, size)))
            except OSError as error:
                answers[at] = error
        for _ in range(TRIES):
            changed: dict[str, list[tuple[int, Range]]] = {}
            for path, parts in self._contents(objects, max_gap).items():
                for (at, range_), part in zip(objects[path], parts, strict=True):
                    answers[at] = part
                    if isinstance(part, Changed):
                        changed.setdefault(path, []).append((at, range_))
            objects = changed
            for path in changed:
                self.invalidate_cache(path)
            if not changed:
                break
        return [it for it in answers if it is not None]

    def _contents(
        self, objects: Mapping[str, Sequence[tuple[int, Range]]], max_gap: int
    ) -> dict[str, list[bytes | Exception]]:
        """The ranges of each object: what is not there is read in one question for each bucket."""
        missing = []
        for path, ranges in objects.items():
            found, place = self._found(path, self.place_of(path)), self.place_of(path)
            name, blocks = _version(found, place), self.blocks()
            needed = {number for _, it in ranges for number in _numbers(it)}
            absent = [number for number in sorted(needed) if not blocks.has(name, number)]
            missing.append((place, found, absent, max_gap))
        answers: dict[str, list[bytes | Exception]] = {}
        for (path, ranges), fresh in zip(objects.items(), self._fetch(missing), strict=True):
            if isinstance(fresh, OSError):
                answers[path] = [fresh for _ in ranges]
                continue
            found, place = self._found(path, self.place_of(path)), self.place_of(path)
            answers[path] = []
            for _, (start, end) in ranges:
                content = bytearray(end - start)
                try:
                    self.fill(found, place, start, memoryview(content), fresh, AHEAD_BLOCKS_MAX)
                    answers[path].append(bytes(content))
                except OSError as error:
                    answers[path].append(error)
        return answers

    def fill(
        self,
        found: Found,
        place: Place,
        start: int,
        target: memoryview,
        fresh: dict[int, bytes],
        ahead: int,
    ) -> None:
        """Fills `target` with the bytes of an object from `start`.

        A block that is neither in `fresh` nor in the cache is read, with those of the `ahead` blocks
        from there that are not in the cache either; `fresh` has them afterwards.
        """
        name, blocks = _version(found, place), self.blocks()
        last = (max(found.size, 1) - 1) // BLOCK_BYTES
        filled = 0
        while filled < len(target):
            number, offset = divmod(start + filled, BLOCK_BYTES)
            part = target[filled : filled + BLOCK_BYTES - offset]
            if number in fresh:
                part[:] = fresh[number][offset : offset + len(part)]
            elif not blocks.read_into(name, number, offset, part):
                until = min(number + ahead, last + 1)
                absent = [it for it in range(number + 1, until) if not blocks.has(name, it)]
                fresh.clear()
                fresh.update(self.read_blocks(found, place, [number, *absent]))
                continue
            filled += len(part)

    def _fetch(
        self, wanted: Sequence[tuple[Place, Found, Sequence[int], int]]
    ) -> list[dict[int, bytes] | OSError]:
        """Reads blocks of several objects, and keeps them.

        One question for each bucket, or several if that is more than fits into an answer.
        """
        answers: list[dict[int, bytes] | OSError] = [{} for _ in wanted]
        for bucket in {place.bucket for place, _, absent, _ in wanted if absent}:
            asked: list[tuple[int, list[Range]]] = []
            room = ANSWER_BYTES_MAX
            for at, (place, found, absent, gap) in enumerate(wanted):
                for first in range(0, len(absent) if place.bucket == bucket else 0, BLOCKS_MAX):
                    pieces = _pieces(absent[first : first + BLOCKS_MAX], gap, found.size)
                    nbytes = sum(end - start for start, end in pieces)
                    if asked and nbytes > room:
                        self._ask(bucket, wanted, asked, answers)
                        asked, room = [], ANSWER_BYTES_MAX
                    asked.append((at, pieces))
                    room -= nbytes
            self._ask(bucket, wanted, asked, answers)
        return answers

    def _ask(
        self,
        bucket: str,
        wanted: Sequence[tuple[Place, Found, Sequence[int], int]],
        asked: Sequence[tuple[int, list[Range]]],
        answers: list[dict[int, bytes] | OSError],
    ) -> None:
        """Reads the pieces of some of the wanted objects, and adds their blocks to the answers."""
        read = self._objects.read(bucket, [(wanted[at][1], pieces) for at, pieces in asked])
        for (at, pieces), parts in zip(asked, read, strict=True):
            answer = answers[at]
            if isinstance(parts, OSError) or isinstance(answer, OSError):
                answers[at] = parts if isinstance(parts, OSError) else answer
                continue
            place, found, _, _ = wanted[at]
            name = _version(found, place)
            for (start, _), part in zip(pieces, parts, strict=True):
                for offset in range(0, len(part), BLOCK_BYTES):
                    number = (start + offset) // BLOCK_BYTES
                    answer[number] = part[offset : offset + BLOCK_BYTES]
                    self.blocks().add(name, number, answer[number])


class _Raw(io.RawIOBase):
    """An object, read by blocks."""

    mode = "rb"

    def __init__(self, fs: TierFileSystem, path: str, found: Found) -> None:
        super().__init__()
        self.name = path
        self._fs = fs
        self._place = fs.place_of(path)
        self.found = found
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
        start = (0, self._at, self.found.size)[whence]
        if start + offset < 0:
            raise ValueError(f"byte {start + offset}; a file starts at 0")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        target = memoryview(buffer).cast("B")
        target = target[: max(0, self.found.size - self._at)]
        if target:
            is_sequential = self._at == self._expected
            self._ahead = min(2 * self._ahead, AHEAD_BLOCKS_MAX) if is_sequential else 1
            needed = len(_numbers((self._at, self._at + len(target))))
            ahead = max(self._ahead, min(needed, AHEAD_BLOCKS_MAX))
            self._fs.fill(self.found, self._place, self._at, target, self._fresh, ahead)
        self._at += len(target)
        self._expected = self._at
        return len(target)


class TierFile(io.BufferedReader):
    """An object that is open for reading, in the version that it had then."""

    def __init__(self, fs: TierFileSystem, path: str, found: Found) -> None:
        super().__init__(_Raw(fs, path, found), BLOCK_BYTES // 4)
        self.fs = fs
        self.path = path
        self.size = found.size

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (self.fs, self.path, self.tell())


def _reopened(fs: TierFileSystem, path: str, at: int) -> Any:
    file = fs.open(path, "rb")
    file.seek(at)
    return file


def _described(found: Found, place: Place) -> dict[str, Any]:
    written = found.mtime_ns / 1e9
    return {
        "name": place.head + found.key,
        "size": found.size,
        "type": "file",
        "created": written,
        "mtime": written,
        "ETag": found.etag,
    }


def _version(found: Found, place: Place) -> str:
    return version_of(place.bucket, *found, BLOCK_BYTES)


def _clamped(start: int | None, end: int | None, size: int) -> Range:
    """A range as a slice means it, within the file."""
    first, last, _ = slice(start, end).indices(size)
    return first, max(first, last)


def _numbers(range_: Range) -> range:
    """The blocks that a range touches."""
    start, end = range_
    return range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES) if end > start else start // BLOCK_BYTES)


def _pieces(numbers: Sequence[int], gap: int, size: int) -> list[Range]:
    """The ranges to request for some blocks: neighbours together, up to `PIECE_BLOCKS`."""
    pieces: list[list[int]] = []
    for number in numbers:
        last = pieces[-1] if pieces else None
        if (
            last is not None
            and (number - last[1]) * BLOCK_BYTES <= gap
            and number + 1 - last[0] <= PIECE_BLOCKS
        ):
            last[1] = number + 1
        else:
            pieces.append([number, number + 1])
    return [(first * BLOCK_BYTES, min(end * BLOCK_BYTES, size)) for first, end in pieces]


def _reached(options: Mapping[str, Any]) -> dict[str, Any]:
    """How a bucket is reached, by the options of the file system `s3`."""
    client = options.get("client_kwargs") or {}
    known = {"anon", "endpoint_url", "client_kwargs"}
    unknown = [*(options.keys() - known), *(client.keys() - {"endpoint_url", "region_name"})]
    if unknown:
        raise Reconfigure(
            f"tierfeed takes no {min(unknown)!r} for a bucket: credentials come from the environment,"
            " such as AWS_ACCESS_KEY_ID, or from ~/.aws"
        )
    return {
        "endpoint": options.get("endpoint_url") or client.get("endpoint_url"),
        "region": client.get("region_name"),
        "anonymous": options.get("anon"),
    }
