"""`tierfeed.formats`: decoding what is a part of a file."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

import needs
import tierfeed
from tierfeed import formats


def test_a_window_is_a_file_of_which_only_a_part_can_be_read() -> None:
    window = formats.Window(b"sample", offset=10, size=20)
    window.seek(12)
    assert (window.read(3), window.tell()) == (b"mpl", 15)
    assert window.seek(-4, io.SEEK_END) == 16
    for place in (9, 13, 16):
        window.seek(place)
        with pytest.raises(OSError, match="the sample has 10 to 16"):
            window.read(4)
    window.seek(20)
    assert window.read(1) == b""
    with pytest.raises(ValueError, match="byte -1"):
        window.seek(-1)


def write_tar(path: Path, names: list[str], format: int = tarfile.PAX_FORMAT) -> None:
    with tarfile.open(path, "w", format=format) as archive:
        for number, name in enumerate(names):
            info = tarfile.TarInfo(name)
            info.size = 300 * number
            archive.addfile(info, io.BytesIO(bytes([number]) * info.size))
        link = tarfile.TarInfo("a/1.link")
        link.type, link.linkname = tarfile.LNKTYPE, names[0]
        archive.addfile(link)


NAMES = ["a/1.JPG", "README", "a/1.seg.png", "a/.hidden", "__skip__/1.x", "b.d/2.cls"]
NAMES += ["n" * 150 + "/ü.jpg", "n" * 150 + "/ü.cls"]


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_are_those_of_webdataset(tmp_path: Path, format: int) -> None:
    wds = needs.module("webdataset")
    write_tar(tmp_path / "x.tar", NAMES, format)
    index = tierfeed.Index.build(tmp_path, format="webdataset")
    url = str(tmp_path / "x.tar")
    expected = list(wds.WebDataset(url, shardshuffle=False, empty_check=False))
    assert len(expected) == len(index) > 2
    for sample, theirs in zip(index, expected, strict=True):
        ours = {k: v if k == "__key__" else bytes(v) for k, v in formats.members(sample).items()}
        assert ours == {k: v for k, v in theirs.items() if k in ours}
        assert {it for it in theirs if not it.startswith("__")} <= set(ours)


def test_members_are_views_of_the_sample(tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", ["a.jpg", "a.cls"])
    sample = bytearray(tierfeed.Index.build(tmp_path, format="webdataset").read(0))
    found = formats.members(sample)
    assert found.keys() == {"__key__", "jpg", "cls"}
    sample[:] = b"\xff" * len(sample)
    assert bytes(found["cls"]) == b"\xff" * 300


def test_members_of_a_batch_lie_in_the_batch(tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", ["a.jpg", "a.cls", "b.jpg", "b.cls"])
    job = tmp_path / "job.yaml"
    job.write_text(
        "name: test\ndataset: { source: x.tar, format: webdataset, index: x.tfx }\n"
        "order: { shuffle: sequential, epochs: 1 }\nbatch_size: 2\n"
    )
    tierfeed.Index.build(tmp_path / "x.tar", format="webdataset", path=tmp_path / "x.tfx")
    with pytest.warns(RuntimeWarning, match="directly"):
        batch = tierfeed.connect(rank=0, job=str(job)).batch(0, 0)
    found = [formats.members(sample) for sample in batch]
    assert [it["__key__"] for it in found] == ["a", "b"]
    assert [bytes(it["cls"]) for it in found] == [b"\1" * 300, b"\3" * 900]


@pytest.mark.parametrize("unit", ["row-group", "column-chunk"])
@pytest.mark.parametrize("chosen", [None, ["b", "s.x"]])
def test_rows_are_those_of_pyarrow(tmp_path: Path, unit: str, chosen: list[str] | None) -> None:
    pa = needs.module("pyarrow")
    pq = needs.module("pyarrow.parquet")
    rows = range(100)
    table = pa.table(
        {
            "a": list(rows),
            "b": [f"row {it % 7}" for it in rows],
            "s": [{"x": it / 2, "y": [it] * (it % 3)} for it in rows],
        }
    )
    for name in ("0.parquet", "1.parquet"):
        pq.write_table(table, tmp_path / name, row_group_size=40)
    index = tierfeed.Index.build(tmp_path, format="parquet", unit=unit, columns=chosen)
    columns = chosen or ["a", "b", "s.x", "s.y.list.element"]
    in_group = len(columns) if unit == "column-chunk" else 1
    assert len(index) == 2 * 3 * in_group
    for number in range(len(index)):
        place = number // in_group % 3
        wanted = [columns[number % in_group]] if unit == "column-chunk" else columns
        found = formats.row_group(index.read(number), index, number)
        expected = pq.ParquetFile(tmp_path / "0.parquet").read_row_group(place, columns=wanted)
        assert found.equals(expected), number
