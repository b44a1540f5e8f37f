"""Objects of a bucket for loaders that read samples one by one, as `loaders.py` asks for.

A bucket is `http://HOST:PORT/BUCKET/PREFIX`. `buckets.py times PLACE THREADS` reads all objects below
it, each by a GET of its own over connections that stay open, or all files below a folder. It prints how
long that took and how many bytes came.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as xml
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

READERS = 16
"""Requests in flight of loaders that read on threads: Grain's own number."""

KEY = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1"}
"""Clients sign their requests; the server looks at no signature."""


@dataclass(frozen=True)
class Place:
    """A prefix in a bucket."""

    host: str
    bucket: str
    prefix: str

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}"

    @property
    def url(self) -> str:
        return self.url_of(self.prefix)

    def url_of(self, key: str) -> str:
        return f"s3://{self.bucket}/{key}"


@dataclass(frozen=True)
class Object:
    """Reads like a path, by a plain GET."""

    place: Place
    key: str

    def __str__(self) -> str:
        return self.place.url_of(self.key)

    def read_bytes(self) -> bytes:
        return get(self.place.host, f"/{self.place.bucket}/{quote(self.key)}")


class StoredObject(Object):
    """Reads like a path, through obstore."""

    def read_bytes(self) -> bytes:
        import obstore

        return bytes(obstore.get(store_of(self.place), self.key).bytes())


def is_bucket(data: str) -> bool:
    return data.startswith("http://")


def place_of(data: str) -> Place:
    """Puts endpoint and key into the environment, too, where clients look for them."""
    parts = urlsplit(data)
    os.environ |= {**KEY, "AWS_ENDPOINT_URL": f"http://{parts.netloc}"}
    _, bucket, prefix = parts.path.split("/", 2)
    return Place(parts.netloc, bucket, prefix)


def objects_in(data: str, suffix: str = "", kind: type[Object] = Object) -> list[Object]:
    """The objects below a prefix, in the order of their keys."""
    place = place_of(data)
    return [kind(place, key) for key in keys_in(place) if key.endswith(suffix)]


def mosaic_keys(data: str) -> dict[str, Any]:
    """Where MosaicML Streaming finds its shards, and where it keeps them."""
    if not is_bucket(data):
        return {"local": data}
    place = place_of(data)
    os.environ["S3_ENDPOINT_URL"] = place.endpoint
    return {"remote": place.url, "local": kept()}


def litdata_keys(data: str) -> dict[str, Any]:
    if not is_bucket(data):
        return {"input_dir": data}
    from litdata.streaming import downloader

    # The server here has no TLS, and litData has no argument that says so.
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
    place = place_of(data)
    secrets = {name.lower(): value for name, value in KEY.items() if "KEY" in name}
    options = {"endpoint_url": place.endpoint, "region_name": KEY["AWS_REGION"], **secrets}
    return {"input_dir": place.url, "cache_dir": kept(), "storage_options": options}


def shards_in(data: str) -> list[str]:
    """Tars as WebDataset opens them, of a bucket by HTTP."""
    if not is_bucket(data):
        return sorted(str(shard) for shard in Path(data).glob("*.tar"))
    place = place_of(data)
    return [f"{place.endpoint}/{place.bucket}/{key}" for key in keys_in(place)]


def kept() -> str:
    """A new folder for what a loader keeps, in that of the experiment, which is removed."""
    return tempfile.mkdtemp(dir=Path.cwd())


def keys_in(place: Place) -> list[str]:
    query = f"/{place.bucket}?list-type=2&prefix={quote(place.prefix)}/"
    keys: list[str] = []
    more = ""
    while True:
        page = xml.fromstring(get(place.host, query + more))
        name = page.tag.removesuffix("ListBucketResult")
        keys += [found.text or "" for found in page.iter(f"{name}Key")]
        token = page.findtext(f"{name}NextContinuationToken")
        if not token:
            return keys
        more = f"&continuation-token={quote(token, safe='')}"


def get(host: str, path: str) -> bytes:
    connection = connection_to(host)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != http.client.OK:
        raise OSError(f"{path}: {answer.status} {answer.reason}")
    return body


own = threading.local()
"""What belongs to a thread of a process: a fork takes no connection of its parent."""


def connection_to(host: str) -> http.client.HTTPConnection:
    if getattr(own, "pid", None) != os.getpid() or own.host != host:
        own.pid, own.host, own.connection = os.getpid(), host, http.client.HTTPConnection(host)
    return own.connection


def store_of(place: Place) -> Any:
    if getattr(own, "store_pid", None) != os.getpid():
        from obstore.store import S3Store

        own.store_pid = os.getpid()
        own.store = S3Store(
            place.bucket,
            endpoint=place.endpoint,
            region=KEY["AWS_REGION"],
            skip_signature=True,
            client_options={"allow_http": True},
        )
    return own.store


def samples_in(data: str) -> list[Any]:
    """What `read_bytes` reads: objects of a bucket by plain GETs, or files."""
    if is_bucket(data):
        return list(objects_in(data))
    return sorted(path for path in Path(data).rglob("*") if path.is_file())


def times(data: str, threads: int) -> dict[str, float]:
    objects = samples_in(data)
    with ThreadPoolExecutor(threads) as pool:
        if is_bucket(data):
            # Threads connect before the clock runs.
            list(pool.map(lambda it: it.read_bytes(), objects[:threads]))
        began = time.perf_counter()
        read = sum(pool.map(lambda it: len(it.read_bytes()), objects))
        took = time.perf_counter() - began
    return {"objects": len(objects), "bytes": read, "seconds": took}


def main() -> None:
    command, data, threads = sys.argv[1:]
    assert command == "times", command
    print(json.dumps(times(data, int(threads))))


if __name__ == "__main__":
    main()
