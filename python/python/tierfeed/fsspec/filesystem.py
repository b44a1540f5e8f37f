"""The file system itself: what fsspec asks of one."""

from __future__ import annotations

import datetime
import errno
from collections.abc import Mapping, Sequence
from typing import Any, Never

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import stringify_path

from tierfeed._native import Reconfigure
from tierfeed.fsspec.file import TierFile
from tierfeed.fsspec.place import LOCAL, SCHEMES, ObjectPlace, place_of
from tierfeed.fsspec.ranges import RangeReader, Version, clamped
from tierfeed.objects import Changed, Found, Objects, Range

try:
    from fsspec.implementations.chained import ChainedFileSystem
except ImportError:
    # Earlier versions chain file systems of their own only.
    ChainedFileSystem = AbstractFileSystem

# Objects whose size and version are known.
OBJECTS_KNOWN_MAX = 100_000

# An object may be written anew between the look for its version and the read.
TRIES = 3

Wanted = tuple[str, int | None, int | None]
"""A path, and the range of it as a slice means it: negative numbers count from the end."""


class TierFileSystem(ChainedFileSystem):  # type: ignore[misc]
    """Reads `tierfeed://s3/bucket/key`, `tierfeed:///a/local/path`, and `tierfeed::s3://bucket/key`.

    Nothing of an object is kept; local files are what the kernel caches. Everything is read-only.
    `endpoint`, `region` and `anonymous` say how a bucket is reached; credentials come from the
    environment and from `~/.aws`, never from an argument.
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
        self.ranges = RangeReader(self._objects)
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
        """Ranges of any files, read at once, by one question for each bucket.

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
        return TierFile(self, path, Version(place.bucket, self._found(path, place)))

    def _refuse(self, path: Any, *_: Any, **__: Any) -> Never:
        message = f"tierfeed:// is read-only: write {path} by the file system that it lies in"
        raise OSError(errno.EROFS, message)

    mkdir = makedirs = rmdir = rm = rm_file = _rm = _refuse
    cp_file = copy = mv = pipe = pipe_file = put = put_file = touch = _refuse

    def _place(self, path: str) -> ObjectPlace | None:
        return place_of(path, self.target_protocol)

    def _found(self, path: str, place: ObjectPlace) -> Found:
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

    def _children(self, path: str, place: ObjectPlace) -> list[dict[str, Any]]:
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

    def _ranges(self, wanted: Sequence[Wanted], max_gap: int) -> list[bytes | Exception]:
        answers: dict[int, bytes | Exception] = {}
        of_objects = []
        for at, (path, start, end) in enumerate(wanted):
            try:
                if self._place(path) is None:
                    answers[at] = self._local.cat_file(path, start, end)
                else:
                    of_objects.append(at)
            except OSError as error:
                answers[at] = error
        for _ in range(TRIES):
            answers.update(self._contents({at: wanted[at] for at in of_objects}, max_gap))
            of_objects = [at for at in of_objects if isinstance(answers[at], Changed)]
            for at in of_objects:
                self.invalidate_cache(wanted[at][0])
        return [answers[at] for at in range(len(wanted))]

    def _contents(
        self, wanted: Mapping[int, Wanted], max_gap: int
    ) -> dict[int, bytes | Exception]:
        """Ranges of objects, in the versions that are known; `Changed` for one that is of another."""
        answers: dict[int, bytes | Exception] = {}
        ranges: dict[Version, dict[int, Range]] = {}
        for at, (path, start, end) in wanted.items():
            place = self._place(path)
            assert place is not None, "an object"
            try:
                found = self._found(path, place)
            except OSError as error:
                answers[at] = error
            else:
                version = Version(place.bucket, found)
                ranges.setdefault(version, {})[at] = clamped(start, end, found.size)
        return answers | self.ranges.contents(ranges, max_gap)


def _described(found: Found, place: ObjectPlace) -> dict[str, Any]:
    written = found.mtime_ns / 1e9
    return {
        "name": place.head + found.key,
        "size": found.size,
        "type": "file",
        "created": written,
        "mtime": written,
        "ETag": found.etag,
    }



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
