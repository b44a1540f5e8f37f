"""Where a path of `tierfeed://` leads."""

from __future__ import annotations

from typing import NamedTuple

# The file systems that are read, and the scheme of the URL of a bucket.
SCHEMES = {
    **{name: name for name in ("s3", "s3a", "gs", "az", "abfs", "abfss", "http", "https")},
    "gcs": "gs",
}
LOCAL = ("file", "local")


class ObjectPlace(NamedTuple):
    """Where a path leads: to an object or a directory of a bucket."""

    bucket: str
    key: str
    head: str
    """What stands before the key in the path."""


def place_of(path: str, scheme_of_all: str | None) -> ObjectPlace | None:
    """Where a path leads; None for a local file. With `scheme_of_all` paths begin with a bucket."""
    scheme, separator, rest = path.partition("://")
    if separator:
        head = f"{scheme}://"
    elif scheme_of_all is not None:
        scheme, head, rest = scheme_of_all, "", path
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
    return ObjectPlace(f"{SCHEMES[scheme]}://{bucket}", key, f"{head}{bucket}/")
