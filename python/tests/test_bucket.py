"""A dataset behind a URL: who reads it when there is no agent, and what becomes of that process."""

from __future__ import annotations

import dataclasses
import http.server
import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import tierfeed
from node import binary, run_command

RECORD = 1000
RECORDS = 50


class Server(http.server.ThreadingHTTPServer):
    """An S3 server with objects of one size: `data/00` and so on."""

    daemon_threads = True

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = content
        self.etag = '"one"'
        self.is_silent = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    """Lists them, and reads ranges."""

    server: Server
    protocol_version = "HTTP/1.1"

    def object(self) -> bytes:
        number = int(self.path.rpartition("/")[2])
        return self.server.content[number * RECORD : (number + 1) * RECORD]

    def listing(self) -> bytes:
        rows = "".join(
            f"<Contents><Key>data/{number:02}</Key><LastModified>2022-01-01T00:00:00.000Z"
            f"</LastModified><ETag>{self.server.etag}</ETag><Size>{RECORD}</Size></Contents>"
            for number in range(RECORDS)
        )
        head = "<Name>bucket</Name><IsTruncated>false</IsTruncated>"
        return f"<ListBucketResult>{head}{rows}</ListBucketResult>".encode()

    def do_HEAD(self) -> None:
        self._answer(200, self.object())

    def do_GET(self) -> None:
        if "list-type=2" in self.path:
            return self._answer(200, self.listing())
        if self.server.is_silent.is_set():
            threading.Event().wait(60)
        if self.headers.get("If-Match", self.server.etag) != self.server.etag:
            return self._answer(412, b"")
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        content = self.object()[int(first) : int(last) + 1]
        self._answer(206, content, f"bytes {first}-{last}/{RECORD}")

    def _answer(self, status: int, content: bytes, content_range: str | None = None) -> None:
        self.send_response(status)
        self.send_header("ETag", self.server.etag)
        self.send_header("Last-Modified", "Sat, 01 Jan 2022 00:00:00 GMT")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(content)))
        if content_range is not None:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass


@dataclasses.dataclass
class Bucket:
    """A job on records that a server has."""

    server: Server
    job: Path
    index: Path

    def direct(self) -> tierfeed.Feed:
        with pytest.warns(RuntimeWarning, match="directly"):
            return tierfeed.connect(rank=0, job=str(self.job), index=str(self.index))

    def content(self, sample: int) -> bytes:
        return self.server.content[sample * RECORD : (sample + 1) * RECORD]

    def assert_right(self, batches: Iterator[tierfeed.Batch]) -> int:
        samples = 0
        for batch in batches:
            assert [bytes(it) for it in batch] == [self.content(id) for id in batch.samples]
            samples += len(batch)
        return samples


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    server = Server(random.Random(1).randbytes(RECORD * RECORDS))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url, endpoint = "s3://bucket/data", f"http://127.0.0.1:{server.server_port}"
    job, index = tmp_path / "job.yaml", tmp_path / "records.tfx"
    job.write_text(
        f"""\
name: bucket
dataset:
  source: {url}
  endpoint: {endpoint}
  anonymous: true
  format: files
  glob: "*"
order: {{ shuffle: torch-distributed, seed: 7, epochs: 2 }}
batch_size: 8
chunk: 1 MiB
tiers:
  main-memory: {{ size: 16 MiB }}
"""
    )
    place = (url, "--endpoint", endpoint, "--anonymous")
    run_command("index", *place, "--format", "files", "--glob", "*", "--output", index)
    monkeypatch.setenv("TIERFEED_EXE", str(binary()))
    yield Bucket(server, job, index)
    server.shutdown()


def readers() -> list[int]:
    """The children of this process that read for it."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(")")[2].split()[1]
            line = stat.with_name("cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parent) == os.getpid() and line[1:2] == [b"read"]:
            found.append(int(stat.parent.name))
    return found


def test_a_bucket_is_read_by_one_child_that_goes_with_its_feed(bucket: Bucket) -> None:
    feed = bucket.direct()
    assert readers() == []
    assert bucket.assert_right(feed.epoch(0)) == RECORDS
    (reader,) = readers()
    assert bucket.assert_right(feed.epoch(1)) == RECORDS
    assert readers() == [reader]
    feed.close()
    assert readers() == []


def test_a_reader_that_is_killed_costs_no_sample(bucket: Bucket) -> None:
    feed = bucket.direct()
    batches = feed.epoch(0)
    first = next(batches)
    (reader,) = readers()
    os.kill(reader, signal.SIGKILL)
    assert bucket.assert_right(batches) + len(first) == RECORDS
    assert readers() != [reader]


def test_a_forked_child_starts_its_own_reader_and_leaves_the_other(bucket: Bucket) -> None:
    feed = bucket.direct()
    batches = feed.epoch(0)
    next(batches)
    before = readers()
    pid = os.fork()
    if pid == 0:
        try:
            is_right = bucket.assert_right(feed.epoch(1)) == RECORDS
            os._exit(0 if is_right and len(readers()) == 1 else 1)
        finally:
            os._exit(2)
    bucket.assert_right(batches)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert readers() == before
    bucket.assert_right(feed.epoch(1))


def test_an_object_that_changed_is_never_read(bucket: Bucket) -> None:
    feed = bucket.direct()
    bucket.server.etag = '"two"'
    with pytest.raises(tierfeed.SampleError, match="changed") as raised:
        feed.batch(0, 0)
    assert raised.value.reason == "changed"


def test_ctrl_c_ends_a_wait_for_the_bucket(bucket: Bucket) -> None:
    feed = bucket.direct()
    bucket.assert_right(feed.epoch(0))
    bucket.server.is_silent.set()
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        feed.batch(1, 0)
    bucket.server.is_silent.clear()
    assert bucket.assert_right(feed.epoch(1)) == RECORDS


def test_without_the_program_the_remedy_is_named(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERFEED_EXE", "/no/such/tierfeed")
    with pytest.raises(tierfeed.Reconfigure, match="/no/such/tierfeed.*TIERFEED_EXE"):
        bucket.direct()
