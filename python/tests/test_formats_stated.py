"""What files say of themselves: compared with the job and with one another, never passed over."""

from __future__ import annotations

import io
import json
import re
import struct
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needs
import reading
import tierfeed
from test_formats_streams import tfrecord
from tierfeed import formats, transforms

ROWS = np.arange(24).reshape(4, 6)


def build(source: Path, format: str, **keys: Any) -> tierfeed.Index:
    return tierfeed.Index.build(source, format=format, **keys)


def feed(root: Path, keys: dict[str, Any], step: Any) -> tierfeed.Feed:
    """A feed of `root / "data"` without an agent, whose samples become rows by `step`."""
    build(root / "data", **keys, path=root / "dataset.tfx")
    dataset = {"source": str(root / "data"), **keys}
    job = {"name": "stated", "dataset": dataset, "batch_size": 4, "transform": {"steps": [step]}}
    job["order"] = {"shuffle": "sequential"}
    (root / "job.yaml").write_text(json.dumps(job))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return tierfeed.connect(rank=0, job=str(root / "job.yaml"), index=str(root / "dataset.tfx"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("array", "shape", "dtype", "said"),
    [
        (ROWS.astype(">f4"), [6], "float32", "`>f4`, of the other byte order"),
        (ROWS.astype("<i4"), [6], "float32", "`<i4`, and transform.steps.0..array.dtype is `float32`"),
        (ROWS.astype("<f8"), [12], "float32", "`<f8`"),
        (ROWS.astype("<f4").reshape(4, 2, 3), [3, 2], "float32", "shape .2, 3., and .* is .3, 2."),
        (ROWS.astype("<f2"), [6], "bfloat16", "`<f2`"),
        (ROWS.astype("u1"), [6], "bool", "`.u1`"),
        (np.zeros(4, [("x", "<f4"), ("y", "<f4")]), [2], "float32", "'x', '<f4'"),
    ],
)
def test_rows_of_npy_are_no_elements_of_another_type_or_shape(
    tmp_path: Path, data: Path, array: np.ndarray, shape: list[int], dtype: str, said: str
) -> None:
    np.save(data / "a.npy", array)
    with pytest.raises(tierfeed.Reconfigure, match=f"a.npy.*{said}"):
        feed(tmp_path, {"format": "npy"}, transforms.array(shape, dtype))


def test_rows_of_npy_are_the_elements_that_the_file_states(tmp_path: Path, data: Path) -> None:
    np.save(data / "a.npy", ROWS.astype("<f4").reshape(4, 3, 2))
    loaded = feed(tmp_path, {"format": "npy"}, transforms.array([3, 2], "float32"))
    rows = loaded.batch(0, 0).array().numpy().reshape(4, -1)[:, :24].copy().view("<f4")
    assert rows.tolist() == ROWS.tolist()


def test_rows_of_hdf5_are_no_elements_of_another_type_or_behind_a_filter(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    h5py = needs.module("h5py")
    reading.find_hdf5_indexer(monkeypatch)
    keys = {"format": "hdf5", "dataset": "/x"}
    for dtype, said in [(">f4", "`>f4`, of the other"), ("<i4", "`<i4`"), ("<f8", "`<f8`")]:
        with h5py.File(data / "a.h5", "w") as file:
            file.create_dataset("x", data=ROWS.astype(dtype))
        with pytest.raises(tierfeed.Reconfigure, match=said):
            feed(tmp_path, keys, transforms.array([6], "float32"))
    with h5py.File(data / "a.h5", "w") as file:
        file.create_dataset("x", data=ROWS.astype("<f4"), chunks=(1, 6), shuffle=True)
    with pytest.raises(tierfeed.Reconfigure, match="stored by Shuffle, which"):
        feed(tmp_path, keys, transforms.array([6], "float32"))


def write_megatron(path: Path, tokens: np.ndarray, code: int) -> None:
    tokens.tofile(path.with_suffix(".bin"))
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, 1, 2)
    tables = [np.array([len(tokens)], "<i4"), np.array([0], "<i8"), np.array([0, 1], "<i8")]
    path.with_suffix(".idx").write_bytes(head + b"".join(table.tobytes() for table in tables))


def test_tokens_of_megatron_are_of_the_type_that_the_idx_states(tmp_path: Path, data: Path) -> None:
    write_megatron(data / "a", np.arange(100, 104, dtype="<i4"), 4)
    with pytest.raises(tierfeed.Reconfigure, match="a.bin.*`<i4`.*tokens.dtype is `uint16`"):
        feed(tmp_path, {"format": "megatron"}, transforms.tokens(8, "uint16"))
    loaded = feed(tmp_path, {"format": "megatron"}, transforms.tokens(4, "int32"))
    assert bytes(loaded.batch(0, 0)[0]) == np.arange(100, 104, dtype="<i4").tobytes()


def test_a_job_does_not_call_its_tokens_by_two_types(tmp_path: Path, data: Path) -> None:
    (data / "a.bin").write_bytes(bytes(64))
    keys = {"format": "raw", "dtype": "uint16", "sequence_length": 8}
    with pytest.raises(tierfeed.Reconfigure, match="the `dtype` of the dataset is `uint16`"):
        feed(tmp_path, keys, transforms.tokens(4, "uint32"))


def of_npy(array: np.ndarray) -> Callable[[Path], None]:
    return lambda path: np.save(path.with_suffix(".npy"), array)


def of_parquet(**columns: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        needs.module("pyarrow.parquet").write_table(
            needs.module("pyarrow").table(columns), path.with_suffix(".parquet")
        )

    return write


def of_arrow(**columns: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        table = needs.module("pyarrow").table(columns)
        with needs.module("pyarrow.ipc").new_stream(path.with_suffix(".arrow"), table.schema) as out:
            out.write_table(table)

    return write


FLOATS = ROWS.astype("<f4")


@pytest.mark.parametrize(
    ("format", "first", "second", "said"),
    [
        ("npy", of_npy(FLOATS), of_npy(ROWS.astype("<i4")), "`<i4`.*`<f4`"),
        ("npy", of_npy(FLOATS), of_npy(FLOATS.astype(">f4")), "`>f4`.*`<f4`"),
        ("npy", of_npy(FLOATS.reshape(4, 2, 3)), of_npy(FLOATS.reshape(4, 3, 2)), "3, 2.*2, 3"),
        ("parquet", of_parquet(a=[1]), of_parquet(a=["x"]), "column `a` is byte_array.*int64"),
        ("parquet", of_parquet(a=[1], b=[2]), of_parquet(a=[1]), "columns `a`, and"),
        ("arrow", of_arrow(a=[1]), of_arrow(a=["x"]), "column `a` is utf8.*int 64"),
        ("arrow", of_arrow(a=[1], b=[2]), of_arrow(b=[2], a=[1]), "columns `b`, `a`"),
    ],
)
def test_files_of_one_dataset_say_the_same(
    data: Path, format: str, first: Any, second: Any, said: str
) -> None:
    first(data / "a")
    second(data / "b")
    with pytest.raises(tierfeed.Reconfigure, match=rf"/b\..*{said}"):
        build(data, format)


def test_tables_of_the_same_columns_are_one_dataset(data: Path) -> None:
    of_parquet(a=[1], b=["x"], c=[None])(data / "a")
    of_parquet(b=["y"], c=["z"], a=[2])(data / "b")
    assert len(build(data, "parquet")) == 2


@pytest.mark.parametrize("groups", [[10, 0, 10, 10], [0, 10], [10, 0], [10, 0, 0, 10], [0]])
@pytest.mark.parametrize("keys", [{}, {"unit": "column-chunk"}, {"columns": ["s"]}])
def test_an_empty_row_group_is_an_empty_table_and_takes_no_rows_of_others(
    data: Path, groups: list[int], keys: dict[str, Any]
) -> None:
    pa, pq = needs.module("pyarrow"), needs.module("pyarrow.parquet")
    whole = pa.table({"a": range(50), "s": [str(it) for it in range(50)]})
    expected, start = [], 0
    with pq.ParquetWriter(data / "a.parquet", whole.schema) as writer:
        for count in groups:
            writer.write_table(whole.slice(start, count))
            columns = [["a"], ["s"]] if "unit" in keys else [keys.get("columns", ["a", "s"])]
            expected += [whole.slice(start, count).select(names) for names in columns]
            start += count
    index = build(data, "parquet", **keys)
    found = [formats.row_group(index.read(it), index, it) for it in range(len(index))]
    assert [it.to_pydict() for it in found] == [it.to_pydict() for it in expected]
    assert all(a.schema.equals(b.schema) for a, b in zip(found, expected, strict=True))


def test_columns_come_in_the_order_of_their_selection_and_by_their_whole_names(data: Path) -> None:
    pa, pq = needs.module("pyarrow"), needs.module("pyarrow.parquet")
    images = [{"bytes": b"x", "path": "p"}]
    whole = pa.table({"image": images, "a.b": [1], "a": [2], "label": [3]})
    pq.write_table(whole, data / "a.parquet")
    for columns in [["label", "image.bytes"], ["a"], ["label", "a"]]:
        index = build(data, "parquet", columns=columns)
        found = formats.row_group(index.read(0), index, 0)
        assert found.equals(pq.ParquetFile(data / "a.parquet").read_row_group(0, columns=columns))


def write_tar(path: Path, members: list[tuple[str, bytes]]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize(
    ("odd", "label"),
    [(b"-1", -1), (b"-100", -100), (b"1_000", 1000), (b"4294967296", 1 << 32), (None, -1), (b"cat", -1)],
)
def test_a_label_is_that_of_its_sample_whatever_its_neighbours_have(
    data: Path, odd: bytes | None, label: int
) -> None:
    members = []
    for number in range(8):
        content = odd if number == 5 else str(10 + number).encode()
        members.append((f"{number}.jpg", b"j"))
        members += [(f"{number}.cls", content)] if content is not None else []
    write_tar(data / "a.tar", members[:8])
    write_tar(data / "b.tar", members[8:])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        index = build(data, "webdataset")
    assert [index.label(it) for it in range(8)] == [10, 11, 12, 13, 14, label, 16, 17]
    if odd in (None, b"cat"):
        assert "1 of 8 samples have no label, the first in b.tar at byte" in str(said[0].message)
    else:
        assert not said


def test_a_tar_that_goes_on_behind_its_end_is_told(data: Path) -> None:
    write_tar(data / "a.tar", [("0.jpg", b"j")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(data, "webdataset")
    whole = (data / "a.tar").read_bytes()
    (data / "a.tar").write_bytes(whole + whole)
    with pytest.warns(UserWarning, match="a.tar: 19456 bytes behind the end mark.*--concatenate"):
        assert len(build(data, "webdataset")) == 1
    (data / "a.idx").write_text("v1.2 1\njpg 512 1 0.jpg\n")
    with pytest.warns(UserWarning, match="a.tar: 19456 bytes behind the end mark.*--concatenate"):
        assert len(build(data, "webdataset")) == 1


def test_a_tar_with_a_label_is_read_and_a_compressed_one_named(data: Path) -> None:
    write_tar(data / "a.tar", [("0.jpg", b"j")])
    label = bytearray(512)
    label[:8], label[156:157] = b"my label", b"V"
    label[148:156] = b" " * 8
    label[148:156] = b"%06o\0 " % sum(label)
    (data / "a.tar").write_bytes(bytes(label) + (data / "a.tar").read_bytes())
    index = build(data, "webdataset")
    assert len(index) == 1 and index.extent(0).offset == 512
    (data / "a.tar").rename(data / "a.tar.gz")
    with pytest.raises(tierfeed.Reconfigure, match="such as `a.tar.gz`.*decompress it"):
        build(data, "webdataset")


def save_to_disk(folder: Path, shards: int = 2) -> list[str]:
    """What `datasets.Dataset.save_to_disk` leaves, with what `map` and `shuffle` put beside it."""
    folder.mkdir(parents=True)
    names = [f"data-{number:05}-of-{shards:05}.arrow" for number in range(shards)]
    for number, name in enumerate(names):
        of_arrow(a=[number])(folder / name)
    for name in ("cache-0123456789abcdef.arrow", "cache-0123456789abcdee_00000_of_00002.arrow"):
        of_arrow(indices=[1])(folder / name)
    (folder / "dataset_info.json").write_text("{}")
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": it} for it in names]}))
    return names


def files(index: tierfeed.Index) -> list[str]:
    return sorted({index.extent(it).path.name for it in range(len(index))})


def test_a_folder_of_save_to_disk_has_the_data_that_its_state_names(data: Path) -> None:
    names = save_to_disk(data / "saved")
    assert files(build(data / "saved", "arrow")) == names
    (data / "saved" / "state.json").unlink()
    assert files(build(data / "saved", "arrow")) == names, "a cache is no data either"
    for other in ('{"epoch": 3}', "[1]"):
        (data / "saved" / "state.json").write_text(other)
        assert files(build(data / "saved", "arrow")) == names, "a state of something else"
    (data / "saved" / "state.json").write_text('{"_data_files": 3}')
    with pytest.raises(tierfeed.Reconfigure, match="state.json.*_data_files"):
        build(data / "saved", "arrow")


def test_the_splits_of_a_dataset_dict_are_not_read_together(data: Path) -> None:
    names = [save_to_disk(data / split, count) for split, count in [("test", 1), ("train", 2)]]
    (data / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(tierfeed.Reconfigure, match="DatasetDict with the splits `test`, `train`"):
        build(data, "arrow")
    assert files(build(data, "arrow", glob="train/*")) == names[1]
    assert files(build(data / "train", "arrow")) == names[1]


@pytest.mark.parametrize(
    ("format", "train", "held_out", "glob"),
    [
        ("parquet", "train-0.parquet", "validation-0.parquet", "train-*"),
        ("webdataset", "imagenet-train-0.tar", "imagenet-val-0.tar", "*-train-*"),
        ("webdataset", "train/0.tar", "test/0.tar", "train/**"),
        ("raw", "data_batch_1.bin", "test_batch.bin", "data_batch_*.bin"),
        ("npy", "x_train.npy", "x_test.npy", "*_train.npy"),
    ],
)
def test_files_of_a_held_out_split_are_not_read_without_a_word(
    data: Path, format: str, train: str, held_out: str, glob: str
) -> None:
    keys = {"record_bytes": 5120} if format == "raw" else {}
    for name in (train, held_out):
        path = data / name
        path.parent.mkdir(exist_ok=True)
        if format == "parquet":
            of_parquet(a=[1])(path)
        elif format == "npy":
            np.save(path, FLOATS)
        else:
            write_tar(path, [("0.cls", b"1")])
    with pytest.raises(tierfeed.Reconfigure, match=f"`{held_out}` is of a test.*`{train}`.*glob"):
        build(data, format, **keys)
    assert files(build(data, format, glob=glob, **keys)) == [Path(train).name]
    assert len(build(data, format, glob="**", **keys)) > 1
    (data.parent / "list.txt").write_text(f"{held_out}\n{train}\n{train}\n")
    listed = build(data, format, manifest=data.parent / "list.txt", **keys)
    per_file = len(listed) // 3
    assert listed.extent(0).path == data / held_out
    assert listed.extent(2 * per_file).path == data / train


def test_endings_count_in_any_case_and_what_is_alike_is_told(data: Path) -> None:
    for name in ("a.PARQUET", "b.parquet.gzip", "c.pq"):
        of_parquet(a=[1])(data / name)
        (data / name).with_suffix(".parquet").rename(data / name)
    (data / "d.parquet.old").write_bytes(b"")
    (data / "README.md").write_text("")
    with pytest.warns(UserWarning, match="passes over `d.parquet.old`, because format parquet"):
        assert files(build(data, "parquet")) == ["a.PARQUET", "b.parquet.gzip", "c.pq"]


def test_a_class_that_is_a_split_or_hidden_is_told(data: Path) -> None:
    for name in ("train", "val"):
        (data / name).mkdir()
        (data / name / "1.jpg").write_bytes(b"j")
    with pytest.warns(UserWarning, match="classes are `train` and `val`, which are splits"):
        build(data, "image-folder")
    (data / ".ipynb_checkpoints").mkdir()
    (data / ".ipynb_checkpoints" / "1.jpg").write_bytes(b"j")
    with pytest.warns(UserWarning, match="hidden directory `.ipynb_checkpoints` is a class"):
        assert len(build(data, "image-folder")) == 3


def test_an_idx_that_is_wrong_in_the_middle_is_refused(data: Path) -> None:
    records = [b"%010d" % it for it in range(1000)]
    (data / "a.tfrecord").write_bytes(tfrecord(records))
    lines = [f"{26 * number} 26" for number in range(1000)]
    lines[501:503] = [f"{26 * 501} 52"]
    (data / "a.idx").write_text("\n".join(lines) + "\n")
    with pytest.raises(tierfeed.Reconfigure, match="a.idx: line 502 is a size of 52"):
        build(data, "tfrecord")


def test_names_of_hdf5_that_are_no_dataset_are_told_apart(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    h5py = needs.module("h5py")
    reading.find_hdf5_indexer(monkeypatch)
    with h5py.File(data / "a.h5", "w") as file:
        file.create_group("group").create_dataset("x", data=ROWS)
        file["link"] = h5py.ExternalLink("other.h5", "/x")
    group = "`/group` is a group; it has x"
    for name, said in [("/group", group), ("/none", "no dataset `/none`")]:
        with pytest.raises(tierfeed.Reconfigure, match=said):
            build(data, "hdf5", dataset=name)
    with pytest.raises(tierfeed.Reconfigure, match=r"libhdf5 [\d.]+ cannot open `/link`, which is"):
        build(data, "hdf5", dataset="/link")


def test_chunks_that_were_stored_without_their_filter_are_told(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    h5py = needs.module("h5py")
    reading.find_hdf5_indexer(monkeypatch)
    with h5py.File(data / "a.h5", "w") as file:
        x = file.create_dataset("x", (8, 6), "<i4", chunks=(4, 6), compression="gzip")
        x[:4] = ROWS
        x.id.write_direct_chunk((4, 0), ROWS.astype("<i4").tobytes(), filter_mask=1)
    with pytest.warns(UserWarning, match="1 of 2 chunks of /x were stored without"):
        assert len(build(data, "hdf5", dataset="/x")) == 2


def test_a_job_file_may_begin_with_a_mark_and_a_name_is_no_fraction(
    tmp_path: Path, data: Path
) -> None:
    (data / "a.bin").write_bytes(bytes(64))
    keys = {"format": "raw", "record_bytes": 8}
    build(data, **keys, path=tmp_path / "dataset.tfx")
    text = f"name: NAME\ndataset: {{ source: {data}, format: raw, record_bytes: 8 }}\nbatch_size: 4\n"
    text += "order: { shuffle: sequential }\n"
    job = tmp_path / "job.yaml"
    job.write_text("\ufeff" + text.replace("NAME", "v1"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        given = {"rank": 0, "job": str(job), "index": str(tmp_path / "dataset.tfx")}
        assert len(tierfeed.connect(**given).batch(0, 0)) == 4
        job.write_text(text.replace("NAME", "1.0"))
        with pytest.raises(tierfeed.Reconfigure, match=re.escape('for example `"1.0"`')):
            tierfeed.connect(**given)
