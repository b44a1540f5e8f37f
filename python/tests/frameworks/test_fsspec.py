"""The file system `tierfeed://`: buckets by an S3 server, local files, and who has asked for what."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import page
import pytest
import s3

import needs
import node
import tierfeed

fsspec = needs.module("fsspec")

from fsspec.tests import abstract  # noqa: E402

from tierfeed.fsspec import TierFileSystem  # noqa: E402
from tierfeed.fsspec.filesystem import ChainedFileSystem  # noqa: E402

MIB = 1 << 20
CONTENT = random.Random(1).randbytes(5 * MIB + 12345)
PACKAGE = str(Path(tierfeed.__file__).parents[1])

pytestmark = pytest.mark.node


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[s3.Bucket]:
    root = tmp_path / "bucket"
    (root / "dir" / "sub").mkdir(parents=True)
    (root / "dir" / "large").write_bytes(CONTENT)
    (root / "dir" / "small").write_bytes(b"0123456789")
    (root / "dir" / "sub" / "text").write_text("one\ntwo\n")
    with s3.serving(root) as served:
        yield served


@pytest.fixture
def fs(bucket: s3.Bucket) -> TierFileSystem:
    return connect(bucket)


def connect(bucket: s3.Bucket) -> TierFileSystem:
    fsspec.register_implementation("tierfeed", TierFileSystem, clobber=True)
    reached = {"endpoint": bucket.endpoint, "region": "x", "anonymous": True}
    return fsspec.filesystem("tierfeed", skip_instance_cache=True, **reached)


LARGE, SMALL = "tierfeed://s3/bucket/dir/large", "s3/bucket/dir/small"


def test_directories_and_objects_are_found(fs: TierFileSystem) -> None:
    assert fs.ls("tierfeed://s3/bucket/dir", detail=False) == [
        "s3/bucket/dir/sub",
        "s3/bucket/dir/large",
        "s3/bucket/dir/small",
    ]
    assert fs.info(LARGE)["size"] == len(CONTENT) and fs.isfile(SMALL) and fs.isdir("s3/bucket")
    assert fs.isdir("s3/bucket/dir/sub") and not fs.exists("s3/bucket/dir/none")
    assert fs.find("s3/bucket") == [f"s3/bucket/dir/{it}" for it in ("large", "small", "sub/text")]
    assert fs.glob("tierfeed://s3/bucket/dir/*/t*") == ["s3/bucket/dir/sub/text"]
    assert fs.modified(SMALL) == fs.created(SMALL) and fs.modified(SMALL).year == 2022
    with pytest.raises(FileNotFoundError, match="bucket/dir/none does not exist"):
        fs.cat_file("s3/bucket/dir/none")
    with pytest.raises(FileNotFoundError, match="tierfeed:///an/absolute/path"):
        fs.info("ftp/host/file")


def test_a_file_is_read_as_any_other(fs: TierFileSystem) -> None:
    with fs.open(LARGE) as file:
        assert file.size == len(CONTENT) and file.read(10) == CONTENT[:10]
        file.seek(-7, os.SEEK_END)
        assert file.read() == CONTENT[-7:] and file.read(1) == b""
        file.seek(MIB - 3)
        buffer = bytearray(2 * MIB)
        assert file.readinto(buffer) == 2 * MIB and buffer == CONTENT[MIB - 3 : 3 * MIB - 3]
        copy = pickle.loads(pickle.dumps(file))
        assert copy.read(5) == CONTENT[3 * MIB - 3 :][:5]
    with fs.open("s3/bucket/dir/sub/text", "r") as text:
        assert text.readlines() == ["one\n", "two\n"]
    with fsspec.open("tierfeed://s3/bucket/dir/small", **fs.storage_options) as file:
        assert file.read() == b"0123456789"
    assert fs.cat_file(SMALL, -3, None) == b"789" and fs.cat_file(SMALL, 2, -3) == b"23456"


def test_ranges_of_several_files_are_one_question_and_what_they_share_is_read_once(
    fs: TierFileSystem, bucket: s3.Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.find("s3/bucket")
    bucket.requests.clear()
    asked = []
    ask = fs._objects._ask
    monkeypatch.setattr(fs._objects, "_ask", lambda question: asked.append(question) or ask(question))
    paths = [LARGE, LARGE, SMALL, "s3/bucket/dir/none", LARGE]
    starts, ends = [10, 2 * MIB, 3, 0, 10], [20, 3 * MIB + 5, 6, 1, 30]
    found = fs.cat_ranges(paths, starts, ends)
    assert isinstance(found[3], FileNotFoundError)
    expected = [CONTENT[10:20], CONTENT[2 * MIB : 3 * MIB + 5], b"345", found[3], CONTENT[10:30]]
    assert found == expected
    assert [it["ask"] for it in asked] == ["stat", "read"], "one for the object that is not there"
    read = ["bytes=10-29", f"bytes={2 * MIB}-{3 * MIB + 4}", "bytes=3-5"]
    assert sorted(bucket.ranges()) == sorted(read)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(paths, starts, ends, on_error="raise")
    assert fs.cat_ranges([LARGE] * 2, [0, 4 * MIB], [5, 4 * MIB + 5], max_gap=4 * MIB)[1] == (
        CONTENT[4 * MIB : 4 * MIB + 5]
    )


def test_what_does_not_fit_into_an_answer_is_asked_for_in_several(
    fs: TierFileSystem, bucket: s3.Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tierfeed.fsspec.ranges.ANSWER_BYTES_MAX", 2 * MIB)
    monkeypatch.setattr("tierfeed.fsspec.ranges.PIECE_BYTES", MIB)
    monkeypatch.setattr("tierfeed.fsspec.ranges.PIECES_MAX", 2)
    read, questions = fs._objects.read, []
    monkeypatch.setattr(fs._objects, "read", lambda *it: questions.append(it) or read(*it))
    assert fs.cat_ranges([SMALL, LARGE], 0, None) == [b"0123456789", CONTENT]
    assert len(questions) == 4 and len(bucket.ranges()) == 7


def test_what_lies_in_a_small_gap_is_read_with_it(fs: TierFileSystem, bucket: s3.Bucket) -> None:
    given = ([LARGE, LARGE], [0, 2 * MIB], [5, 2 * MIB + 5])
    assert fs.cat_ranges(*given, max_gap=2 * MIB) == [CONTENT[:5], CONTENT[2 * MIB : 2 * MIB + 5]]
    assert bucket.ranges() == [f"bytes=0-{2 * MIB + 4}"]


def test_a_file_that_is_read_to_its_end_is_read_ahead(fs: TierFileSystem, bucket: s3.Bucket) -> None:
    with fs.open(LARGE) as file:
        while file.read(1000):
            pass
    ranges = bucket.ranges()
    assert len(ranges) < 8 and sum(_length(it) for it in ranges) == len(CONTENT), ranges


def _length(range_: str) -> int:
    first, last = map(int, range_.removeprefix("bytes=").split("-"))
    return last + 1 - first


def test_an_object_that_is_written_anew_is_read_anew(
    fs: TierFileSystem, bucket: s3.Bucket
) -> None:
    before = fs.ukey(SMALL)
    assert fs.cat_file(SMALL) == b"0123456789"
    (bucket.root / "dir" / "small").write_bytes(b"another one")
    assert fs.ukey(SMALL) != before
    assert fs.cat_file(SMALL) == b"another one"
    with fs.open(LARGE) as file:
        assert file.read(5) == CONTENT[:5]
        (bucket.root / "dir" / "large").write_bytes(CONTENT[::-1])
        with pytest.raises(OSError, match="was written or replaced while it was read"):
            file.read()
    assert fs.cat_file(LARGE, 0, 5) == CONTENT[::-1][:5], "asked anew, it is the new version"


@pytest.mark.parametrize("content", [b"0123456789 and more", b"0123"])
def test_ranges_of_an_object_that_was_written_anew_are_those_of_its_new_length(
    fs: TierFileSystem, bucket: s3.Bucket, content: bytes
) -> None:
    ranges = [(None, None), (2, None), (-3, None), (1, -1), (0, 100)]
    assert fs.info(SMALL)["size"] == 10
    (bucket.root / "dir" / "small").write_bytes(content)
    starts, ends = map(list, zip(*ranges, strict=True))
    expected = [content[start:end] for start, end in ranges]
    assert fs.cat_ranges([SMALL] * len(ranges), starts, ends) == expected


def test_an_object_that_is_gone_is_an_error_of_its_ranges_only(
    fs: TierFileSystem, bucket: s3.Bucket
) -> None:
    fs.find("s3/bucket")
    (bucket.root / "dir" / "small").unlink()
    gone, there = fs.cat_ranges([SMALL, LARGE], [0, 0], [5, 5], on_error="return")
    assert isinstance(gone, FileNotFoundError) and there == CONTENT[:5]


def test_threads_read_at_once_and_a_killed_reader_is_replaced(fs: TierFileSystem) -> None:
    with ThreadPoolExecutor(8) as threads:
        parts = list(threads.map(lambda at: fs.cat_file(LARGE, at, at + 9), range(0, 5 * MIB, MIB // 2)))
    assert parts == [CONTENT[at : at + 9] for at in range(0, 5 * MIB, MIB // 2)]
    for reader in fs._objects._idle:
        reader.kill()
        reader.wait()
    assert fs.cat_file(SMALL) == b"0123456789"


def test_a_forked_child_asks_by_itself(fs: TierFileSystem) -> None:
    assert fs.cat_file(SMALL) == b"0123456789"
    (reader,) = fs._objects._idle
    if (child := os.fork()) == 0:
        is_right = fs.cat_file(LARGE, 0, 5) == CONTENT[:5] and reader not in fs._objects._idle
        fs._objects.close()
        os._exit(0 if is_right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert fs.cat_file(LARGE, MIB, MIB + 5) == CONTENT[MIB : MIB + 5]
    assert fs._objects._idle == [reader]


@pytest.mark.parametrize("path", ["s3/bucket/dir/new", "{tmp_path}/new"])
def test_writes_are_refused(fs: TierFileSystem, tmp_path: Path, path: str) -> None:
    path = path.format(tmp_path=tmp_path)
    for write in (fs.mkdir, fs.makedirs, fs.rm, fs.touch, lambda it: fs.pipe(it, b"")):
        with pytest.raises(OSError, match="is read-only: write .*/new by the file system"):
            write(path)
    with pytest.raises(OSError, match="is read-only"):
        fs.open(path, "wb")
    assert not Path(path).exists()


def test_local_files_are_read_where_they_lie(fs: TierFileSystem, bucket: s3.Bucket) -> None:
    path = f"tierfeed://{bucket.root}/dir/large"
    assert fs.cat_file(path, 5, 9) == CONTENT[5:9] and fs.info(path)["size"] == len(CONTENT)
    assert fs.cat_ranges([path, LARGE], [1, 2], [4, 6]) == [CONTENT[1:4], CONTENT[2:6]]
    with fs.open(path) as file:
        assert file.read() == CONTENT
    with pytest.raises(FileNotFoundError):
        fs.open("/none")


def test_options_that_hold_credentials_are_refused() -> None:
    with pytest.raises(tierfeed.Reconfigure, match="takes no 'secret' for a bucket"):
        TierFileSystem(target_protocol="s3", target_options={"secret": "x"})
    with pytest.raises(tierfeed.Reconfigure, match="reads no ftp://"):
        TierFileSystem(target_protocol="ftp")


def test_it_is_chained_before_another_file_system(bucket: s3.Bucket) -> None:
    chained = TierFileSystem(
        fo="bucket/dir/small",
        target_protocol="s3",
        target_options={"anon": True, "endpoint_url": bucket.endpoint},
    )
    assert chained.ls("bucket/dir", detail=False)[0] == "bucket/dir/sub"
    assert chained.cat("bucket/dir/small") == b"0123456789"
    if ChainedFileSystem is fsspec.AbstractFileSystem:
        return  # This version has no URLs that chain file systems of others.
    with fsspec.open(f"tierfeed::file://{bucket.root}/dir/small") as file:
        assert file.read() == b"0123456789"
    needs.module("aiohttp")
    url = f"tierfeed::{bucket.endpoint}/bucket/dir/small"
    with fsspec.open(url) as file:
        assert isinstance(file.fs, TierFileSystem) and file.read() == b"0123456789"


class _OfScenarios(abstract.AbstractFixtures):
    """Makes what is read by writing the files below the bucket."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        (tmp_path / "root").mkdir()
        return tmp_path / "root"

    def _made(self, make: Any, local_fs: Any, root: Path, fs_path: str) -> str:
        made = make(local_fs, os.path.join, str(root))
        return str(made).replace(str(root), fs_path)

    def test_get_directory_recursive(
        self,
        fs: Any,
        fs_join: Any,
        fs_path: str,
        local_fs: Any,
        local_join: Any,
        local_target: Any,
        root: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        for name in ("mkdir", "touch"):
            write = getattr(local_fs, name)
            monkeypatch.setattr(fs, name, lambda it, write=write: write(it.replace(fs_path, str(root))))
        super().test_get_directory_recursive(fs, fs_join, fs_path, local_fs, local_join, local_target)

    @pytest.fixture
    def fs_bulk_operations_scenario_0(self, local_fs: Any, root: Path, fs_path: str) -> str:
        return self._made(self._bulk_operations_scenario_0, local_fs, root, fs_path)

    @pytest.fixture
    def fs_glob_edge_cases_files(self, local_fs: Any, root: Path, fs_path: str) -> str:
        return self._made(self._glob_edge_cases_files, local_fs, root, fs_path)

    @pytest.fixture
    def fs_dir_and_file_with_same_name_prefix(self, local_fs: Any, root: Path, fs_path: str) -> str:
        return self._made(self._dir_and_file_with_same_name_prefix, local_fs, root, fs_path)

    @pytest.fixture
    def fs_10_files_with_hashed_names(self, local_fs: Any, root: Path, fs_path: str) -> str:
        return self._made(self._10_files_with_hashed_names, local_fs, root, fs_path)


class TestGetFromBucket(_OfScenarios, abstract.AbstractGetTests):
    """The tests of fsspec itself: what `get` copies from where to where."""

    @pytest.fixture
    def fs(self, root: Path) -> Iterator[TierFileSystem]:
        with s3.serving(root) as bucket:
            yield connect(bucket)

    @pytest.fixture
    def fs_path(self) -> str:
        return "s3/bucket"

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class TestGetFromFiles(_OfScenarios, abstract.AbstractGetTests):
    """The same from local files."""

    @pytest.fixture
    def fs(self) -> TierFileSystem:
        return TierFileSystem()

    @pytest.fixture
    def fs_path(self, root: Path) -> str:
        return str(root)


def test_the_script_of_the_page_reads_parquet_files(bucket: s3.Bucket) -> None:
    pandas = needs.module("pandas")
    needs.module("pyarrow")
    (bucket.root / "tables").mkdir()
    for number in range(2):
        table = pandas.DataFrame({"label": [number] * 1000, "value": range(1000)})
        table.to_parquet(bucket.root / "tables" / f"{number}.parquet")
    script = page.script("fsspec", "s3/my-bucket", "s3/bucket")
    place = {**os.environ, "PYTHONPATH": PACKAGE, "AWS_ENDPOINT_URL": bucket.endpoint}
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "x"}
    # What the entry point of an installed wheel does.
    registered = "fsspec.register_implementation('tierfeed', TierFileSystem, clobber=True)"
    script = f"import fsspec\nfrom tierfeed.fsspec import TierFileSystem\n{registered}\n{script}"
    # Threads of pyarrow let go of a file of any Python file system after the read; an interpreter that
    # ends meanwhile aborts.
    script += "\nimport time\ntime.sleep(0.5)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**place, **keys},
        capture_output=True,
        text=True,
        timeout=node.TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"rows": 2000, "labels": [0, 1]}
