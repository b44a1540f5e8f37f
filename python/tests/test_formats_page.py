"""What `docs/formats.md` tells users to write does what it says."""

from __future__ import annotations

import io
import json
import os
import pathlib
import re
import zlib
from pathlib import Path
from typing import Any

import numpy
import pytest

import needs
import reading
import tierfeed
import tierfeed.formats
from test_formats_decoding import write_tar
from test_formats_streams import litdata_item, mds_sample, tfrecord, write_litdata, write_mds

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
SECTIONS = {text.split("\n", 1)[0]: text for text in PAGE.split("\n## ")[1:]}
WITH_CODE = [name for name, text in SECTIONS.items() if "```python" in text]
MODULES = {"io": io, "json": json, "numpy": numpy, "os": os, "pathlib": pathlib, "zlib": zlib}


def code(section: str) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", SECTIONS[section], re.DOTALL))


def run(section: str, **given: Any) -> dict[str, Any]:
    """What the code of a section defines."""
    found = {**MODULES, "tierfeed": tierfeed, **given}
    exec(compile(code(section), section, "exec"), found)
    return found


def test_every_format_has_code_and_a_test_of_it() -> None:
    tested = Path(__file__).read_text()
    assert WITH_CODE[0] == "What all formats share"
    assert set(SECTIONS) - set(WITH_CODE) == {"Splits"}
    for section in WITH_CODE[1:]:
        assert f'run("{section}"' in tested
    for name in ("image-folder", "files", "raw", "megatron", "npy", "npz", "tfrecord", "mds"):
        assert f"`{name}`" in PAGE
    for link in re.findall(r"\(#(.*?)\)", PAGE):
        assert link in {name.lower().replace(" ", "-") for name in SECTIONS}


def test_an_index_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train").mkdir()
    write_tar(tmp_path / "train" / "x.tar", ["a.jpg", "b.jpg"])
    monkeypatch.setitem(
        SECTIONS,
        "Looking at a dataset",
        SECTIONS["Looking at a dataset"].replace("/data/train", str(tmp_path / "train")),
    )
    found = run("Looking at a dataset")
    assert len(found["index"]) == 2
    assert (found["label"], found["place"].offset) == (-1, 0)
    assert found["sample"] == found["index"].read(0)
    assert len(tierfeed.Index.open("train.tfx")) == 2


def test_images(tmp_path: Path) -> None:
    image = needs.module("PIL.Image")
    pixels = numpy.random.default_rng(1).integers(0, 256, (5, 4, 3), "u1")
    (tmp_path / "class").mkdir()
    image.fromarray(pixels).save(tmp_path / "class" / "a.png")
    index = tierfeed.Index.build(tmp_path, format="image-folder")
    import PIL

    decode = run("image-folder and files", PIL=PIL)["decode"]
    assert numpy.array_equal(decode(index.read(0)), pixels)


def test_tokens(tmp_path: Path) -> None:
    tokens = numpy.arange(20, dtype="<u2")
    (tmp_path / "a.bin").write_bytes(tokens.tobytes())
    index = tierfeed.Index.build(tmp_path, format="raw", dtype="uint16", sequence_length=8)
    decode = run("raw and megatron")["decode"]
    assert [list(decode(it)) for it in index] == [list(range(8)), list(range(8, 16))]


def test_rows(tmp_path: Path) -> None:
    array = numpy.random.default_rng(1).random((4, 3, 32, 32), "<f4")
    numpy.save(tmp_path / "a.npy", array)
    decode = run("npy")["decode"]
    found = [decode(it) for it in tierfeed.Index.build(tmp_path, format="npy")]
    assert numpy.array_equal(found, array)


def test_archives(tmp_path: Path) -> None:
    numpy.savez_compressed(tmp_path / "a.npz", x=numpy.eye(3), y=numpy.arange(2))
    decode = run("npz")["decode"]
    found = [decode(it).tolist() for it in tierfeed.Index.build(tmp_path, format="npz")]
    assert found == [numpy.eye(3).tolist(), [0, 1]]


def test_examples(tmp_path: Path) -> None:
    tf = needs.module("tensorflow")
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[42]))
    example = tf.train.Example(features=tf.train.Features(feature={"label": feature}))
    (tmp_path / "a.tfrecord").write_bytes(tfrecord([example.SerializeToString()]))
    index = tierfeed.Index.build(tmp_path, format="tfrecord")
    assert run("tfrecord", tf=tf)["decode"](index.read(0)) == example


def test_shards(tmp_path: Path) -> None:
    import tarfile

    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for name, content in (("a/1.jpg", b"image"), ("a/1.cls", b"3")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    index = tierfeed.Index.build(tmp_path, format="webdataset")
    assert run("webdataset")["decode"](index.read(0)) == ("a/1", b"image", 3)


def test_rows_of_streaming(tmp_path: Path) -> None:
    streaming = needs.module("streaming")
    row = {"caption": "ü", "class": 3, "image": b"image"}
    write_mds(tmp_path / "mds", [[mds_sample(row)]])
    index = tierfeed.Index.build(tmp_path / "mds", format="mds")
    decode = run("mds", source=str(tmp_path / "mds"), streaming=streaming)["decode"]
    assert decode(index.read(0)) == row


def test_items(tmp_path: Path) -> None:
    config = {"item_loader": "PyTreeLoader", "data_format": ["bytes", "int"]}
    items = [litdata_item(b"image", 7), litdata_item(b"", 12)]
    write_litdata(tmp_path / "lit", [items], config, [None])
    decode = run("litdata")["decode"]
    found = [decode(it) for it in tierfeed.Index.build(tmp_path / "lit", format="litdata")]
    assert found == [[b"image", b"7"], [b"", b"12"]]


def test_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = needs.module("pyarrow")
    pq = needs.module("pyarrow.parquet")
    table = pa.table({"a": list(range(30)), "b": [str(it) for it in range(30)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    job = tmp_path / "job.yaml"
    job.write_text(
        "name: test\ndataset: { source: a.parquet, format: parquet }\n"
        "order: { shuffle: torch-distributed, seed: 1, epochs: 1 }\nbatch_size: 3\n"
    )
    tierfeed.Index.build(tmp_path / "a.parquet", format="parquet", path=tmp_path / "a.tfx")
    monkeypatch.setenv("TIERFEED_INDEX", str(tmp_path / "a.tfx"))
    decode = run("parquet")["decode"]
    with pytest.warns(RuntimeWarning, match="directly"):
        batch = tierfeed.connect(rank=0, job=str(job)).batch(0, 0)
    found = {sample.id: decode(sample) for sample in batch}
    assert found.keys() == {0, 1, 2}
    assert all(rows.equals(table.slice(10 * number, 10)) for number, rows in found.items())


def test_record_batches(tmp_path: Path) -> None:
    pyarrow = needs.module("pyarrow")
    needs.module("pyarrow.ipc")
    table = pyarrow.table({"a": list(range(30))})
    path = tmp_path / "a.arrow"
    with pyarrow.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=10)
    decode = run("arrow", path=path, pyarrow=pyarrow)["decode"]
    found = [decode(it) for it in tierfeed.Index.build(path, format="arrow")]
    assert pyarrow.Table.from_batches(found).equals(table)


def test_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h5py = needs.module("h5py")
    reading.find_hdf5_indexer(monkeypatch)
    values = numpy.arange(56, dtype="<i4").reshape(8, 7)
    options = {"chunks": (4, 7), "shuffle": True, "compression": "gzip"}
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=values, **options)
    decode = run("hdf5")["decode"]
    index = tierfeed.Index.build(tmp_path, format="hdf5", dataset="x")
    assert numpy.array_equal(numpy.concatenate([decode(it) for it in index]), values)


def test_environments(tmp_path: Path) -> None:
    lmdb = needs.module("lmdb")
    path = tmp_path / "data.mdb"
    options = {"subdir": False, "lock": False, "map_size": 1 << 20}
    with lmdb.open(str(path), **options) as environment, environment.begin(write=True) as writer:
        writer.put(b"key", b"value")
    decode = run("lmdb and ffcv", lmdb=lmdb, staged=str(tmp_path / "staged"))["decode"]
    index = tierfeed.Index.build(path, format="lmdb")
    with decode(index.read(0)) as environment, environment.begin() as reader:
        assert reader.get(b"key") == b"value"
