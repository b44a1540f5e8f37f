"""An S3 server over a directory, which counts what is asked of it."""

from __future__ import annotations

import dataclasses
import http.server
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from xml.sax.saxutils import escape

BUCKET = "bucket"


@dataclasses.dataclass
class Bucket:
    """The directory, and the requests so far: the method, the key, and the range if there was one."""

    root: Path
    endpoint: str
    requests: list[tuple[str, str, str | None]]

    def ranges(self) -> list[str]:
        """The ranges that were read since this was called last."""
        found = [range_ for _, _, range_ in self.requests if range_ is not None]
        self.requests.clear()
        return found


@contextmanager
def serving(root: Path) -> Iterator[Bucket]:
    """Serves the files below `root` as the objects of a bucket."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    bucket = Bucket(root, f"http://127.0.0.1:{server.server_port}", [])
    server.bucket = bucket  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield bucket
    finally:
        server.shutdown()
        server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body of an answer are written apart.
    disable_nagle_algorithm = True

    def do_HEAD(self) -> None:
        self._object(None)

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        if query.get("list-type") == "2":
            return self._answer(200, self._listing(query.get("prefix", ""), query.get("delimiter", "")))
        self._object(self.headers.get("Range"))

    @property
    def bucket(self) -> Bucket:
        return self.server.bucket  # type: ignore[attr-defined,no-any-return]

    def _object(self, range_: str | None) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        key = path.removeprefix(f"/{BUCKET}/")
        self.bucket.requests.append((self.command, key, range_))
        file = self.bucket.root / key
        if not file.is_file():
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        if self.headers.get("If-Match", _etag(file)) != _etag(file):
            return self._answer(412, b"")
        content = file.read_bytes()
        if range_ is None:
            return self._answer(200, content, file)
        first, last = map(int, range_.removeprefix("bytes=").split("-"))
        part = content[first : last + 1]
        self._answer(206, part, file, f"bytes {first}-{first + len(part) - 1}/{len(content)}")

    def _listing(self, prefix: str, delimiter: str) -> bytes:
        rows, directories = [], set()
        for file in sorted(self.bucket.root.rglob("*")):
            key = str(file.relative_to(self.bucket.root))
            if not file.is_file() or not key.startswith(prefix):
                continue
            below, separator, _ = key.removeprefix(prefix).partition("/")
            if delimiter and separator:
                directories.add(prefix + below + "/")
                continue
            rows.append(
                f"<Contents><Key>{escape(key)}</Key><Size>{file.stat().st_size}</Size>"
                f"<LastModified>2022-01-01T00:00:00.000Z</LastModified><ETag>{_etag(file)}</ETag>"
                "</Contents>"
            )
        for it in sorted(directories):
            rows.append(f"<CommonPrefixes><Prefix>{escape(it)}</Prefix></CommonPrefixes>")
        head = f"<Name>{BUCKET}</Name><IsTruncated>false</IsTruncated>"
        return f"<ListBucketResult>{head}{''.join(rows)}</ListBucketResult>".encode()

    def _answer(
        self, status: int, content: bytes, file: Path | None = None, content_range: str | None = None
    ) -> None:
        self.send_response(status)
        if file is not None:
            self.send_header("ETag", _etag(file))
            self.send_header("Last-Modified", formatdate(1_640_995_200, usegmt=True))
        self.send_header("Content-Length", str(len(content)))
        if content_range is not None:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass


def _etag(file: Path) -> str:
    found = file.stat()
    return f'"{found.st_mtime_ns}-{found.st_size}"'
