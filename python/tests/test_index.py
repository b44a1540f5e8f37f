"""`tierfeed.Index`: what it says of a dataset, and what it refuses."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tierfeed
from conftest import World


@pytest.fixture
def index(world: World) -> tierfeed.Index:
    return tierfeed.Index.open(world.index)


def test_an_index_has_the_samples_of_its_job(world: World, index: tierfeed.Index) -> None:
    assert len(index) == len(world.files)
    assert list(index) == [path.read_bytes() for path in world.files]
    assert [index.size(it) for it in range(50)] == [path.stat().st_size for path in world.files]
    assert index.class_names == ["class0", "class1", "class2"]
    assert [index.label(it) for it in range(50)] == [int(it.parent.name[-1]) for it in world.files]
    assert index.fingerprint == world.direct().fingerprint
    assert (index.format, index.source) == ("image-folder", str(world.files[0].parents[1]))


def test_classes_are_named_as_the_file_system_names_them(tmp_path) -> None:
    data = tmp_path / "data"
    names = [os.fsdecode(name) for name in (b"\xc3\xa9", b"\xfe", b"\xff")]
    for name in names:
        (data / name).mkdir(parents=True)
        (data / name / "a.jpg").write_bytes(b"j")
    index = tierfeed.Index.build(data, format="image-folder", path=tmp_path / "a.tfx")
    assert index.class_names == names


def test_an_extent_says_where_a_sample_lies(world: World, index: tierfeed.Index) -> None:
    extent = index.extent(7)
    size = world.files[7].stat().st_size
    assert extent.path == world.files[7]
    assert (extent.offset, extent.stored_len, extent.len, extent.encoding) == (0, size, size, "plain")
    assert repr(extent).startswith(f"Extent({world.files[7]}, offset=0")


@pytest.mark.parametrize("method", ["read", "size", "label", "extent"])
@pytest.mark.parametrize("sample", [50, -1, 1 << 40])
def test_a_sample_that_is_not_there_is_an_index_error(index, method: str, sample: int) -> None:
    with pytest.raises(IndexError, match=f"sample {sample}; the dataset has 50"):
        getattr(index, method)(sample)


def test_an_index_that_is_built_is_the_one_of_the_command(world: World) -> None:
    kept = world.job.with_name("mine.tfx")
    index = tierfeed.Index.build(world.files[0].parents[1], format="image-folder", path=kept)
    assert index.fingerprint == tierfeed.Index.open(kept).fingerprint
    assert kept.read_bytes() == world.index.read_bytes()
    assert index.path == kept


def test_an_index_that_is_not_kept_leaves_nothing_behind(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    index = tierfeed.Index.build(world.files[0].parents[1], format="image-folder")
    assert list(temporary.iterdir()) == []
    assert (index.path, index.read(3)) == (None, world.content(3))
    with pytest.raises(tierfeed.Reconfigure, match="`path`"):
        pickle.dumps(index)


def test_relative_paths_start_where_the_process_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.job.parent)
    tierfeed.Index.build("data", format="image-folder", path="here.tfx")
    assert len(tierfeed.Index.open("here.tfx")) == 50


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"format": "zip"}, "format is `zip`; expected one of image-folder"),
        ({"format": "files"}, "glob"),
        ({"format": "files", "glob": "*", "manifest": "m"}, "manifest stands beside"),
        ({"format": "npy", "members": ["x"]}, "members .*npz"),
        ({"format": "raw", "record_bytes": "many"}, "record_bytes is `many`"),
        ({"format": "raw", "dtype": "uint16", "sequence_length": 0}, "between 1 and"),
        ({"format": "image-folder", "region": "eu"}, "region .*s3://"),
        ({"format": "mds"}, "no index.json"),
    ],
)
def test_a_wrong_key_is_named(world: World, keys: dict[str, object], said: str) -> None:
    with pytest.raises(tierfeed.Reconfigure, match=said):
        tierfeed.Index.build(world.files[0].parents[1], **keys)


def test_a_message_says_nothing_twice(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"no array")
    with pytest.raises(tierfeed.Reconfigure) as raised:
        tierfeed.Index.build(tmp_path, format="npy")
    said = str(raised.value)
    assert said.startswith(f"{tmp_path}/a.npy: ")
    assert said.count("a.npy") == said.count(said.split(": ", 1)[1]) == 1


def test_a_key_that_does_not_exist_is_a_type_error(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="colour"):
        tierfeed.Index.build(tmp_path, format="files", colour="red")


def test_what_is_no_index_is_refused(world: World, tmp_path: Path) -> None:
    with pytest.raises(tierfeed.Reconfigure, match="nothing.tfx"):
        tierfeed.Index.open(tmp_path / "nothing.tfx")
    with pytest.raises(tierfeed.Reconfigure, match="not a tierfeed index"):
        tierfeed.Index.open(world.job)
    content = bytearray(world.index.read_bytes())
    content[-1] ^= 1
    damaged = tmp_path / "damaged.tfx"
    damaged.write_bytes(content)
    with pytest.raises(tierfeed.Reconfigure, match="damaged"):
        tierfeed.Index.open(damaged)


@pytest.mark.parametrize("change", ["truncated", "grown", "vanished"])
def test_a_file_that_is_not_what_was_indexed_is_never_read(world: World, index, change: str) -> None:
    path = world.files[5]
    if change == "vanished":
        path.unlink()
    else:
        content = path.read_bytes()
        path.write_bytes(content[:-1] if change == "truncated" else content + b"x")
    with pytest.raises(tierfeed.SampleError, match=path.name) as raised:
        index.read(5)
    assert raised.value.sample == 5
    assert raised.value.object.endswith(path.name)
    reasons = {"truncated": "truncated", "grown": "changed", "vanished": "vanished"}
    assert raised.value.reason == reasons[change]


def test_an_index_pickles_by_its_path(world: World, index: tierfeed.Index) -> None:
    pickled = pickle.dumps(index)
    assert len(pickled) < 500
    copy = pickle.loads(pickled)
    assert (copy.fingerprint, copy.read(9)) == (index.fingerprint, world.content(9))


def test_an_index_that_was_built_again_is_not_the_one_that_was_pickled(world: World, index) -> None:
    pickled = pickle.dumps(index)
    world.files[0].write_bytes(b"another")
    tierfeed.Index.build(world.files[0].parents[1], format="image-folder", path=world.index)
    with pytest.raises(tierfeed.Reconfigure, match="built again"):
        pickle.loads(pickled)
    # The one that is open is still what it was.
    assert index.read(1) == world.content(1)


def test_a_forked_child_reads_while_the_parent_reads(world: World, index: tierfeed.Index) -> None:
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            index.read(0)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        pid = os.fork()
        if pid == 0:
            is_right = all(index.read(it) == world.content(it) for it in range(50))
            os._exit(0 if is_right else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        stop.set()
        reader.join()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_reads_an_index(world: World, index: tierfeed.Index, workers: int) -> None:
    from torch.utils.data import DataLoader, Dataset

    class Reading(Dataset):
        def __len__(self) -> int:
            return len(index)

        def __getitem__(self, sample: int) -> bytes:
            return index.read(sample)

    loader = DataLoader(Reading(), batch_size=None, num_workers=workers)
    assert list(loader) == [world.content(it) for it in range(50)]


def test_building_and_reading_start_no_thread(world: World) -> None:
    code = (
        "import os, tierfeed\n"
        f"index = tierfeed.Index.build({str(world.files[0].parents[1])!r}, format='image-folder')\n"
        "print(sum(map(len, index)), len(os.listdir('/proc/self/task')))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert printed.stdout == f"{sum(it.stat().st_size for it in world.files)} 1\n"
