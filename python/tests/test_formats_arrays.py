"""Arrays and tokens: what the libraries wrote, read through an index as they read it themselves."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

import needs
import node
import reading
import tierfeed
from reading import FIXTURES, check


def some(shape: tuple[int, ...], dtype: str, seed: int = 1) -> np.ndarray:
    bytes_ = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(np.random.default_rng(seed).bytes(bytes_), dtype).reshape(shape)


@pytest.mark.parametrize("dtype", ["<f4", ">i2", "|u1", "<c16", "<M8[ns]", "S5", "<U3"])
def test_rows_of_npy_are_those_of_numpy(tmp_path: Path, dtype: str) -> None:
    arrays = [some((5, 3, 2), dtype, seed) for seed in (1, 2)]
    for name, array in zip("ab", arrays, strict=True):
        np.save(tmp_path / f"{name}.npy", array)
    index = check(tmp_path, "npy", [row.tobytes() for array in arrays for row in array])
    row = np.frombuffer(index.read(7), dtype).reshape(3, 2)
    assert row.tobytes() == np.load(tmp_path / "b.npy", mmap_mode="r")[2].tobytes()


def test_rows_of_a_structured_array_are_records(tmp_path: Path) -> None:
    array = some((4,), "<i8").view([("x", "<f4"), ("y", "<i4")])
    np.save(tmp_path / "pairs.npy", array)
    check(tmp_path, "npy", [row.tobytes() for row in array])


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.asfortranarray(np.ones((3, 2))), "Fortran"),
        (np.array([{}, None], dtype=object), "object"),
        (np.array(3.0), "axes"),
    ],
)
def test_arrays_without_rows_are_refused(tmp_path: Path, array: np.ndarray, said: str) -> None:
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(tierfeed.Reconfigure, match=f"a.npy.*{said}"):
        tierfeed.Index.build(tmp_path, format="npy")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_members_of_npz_are_the_arrays_of_numpy(tmp_path: Path, save) -> None:
    arrays = {"x": np.zeros((50, 40)), "y": some((3,), "<i8"), "z": np.arange(1000, dtype="u1")}
    for name in ("0.npz", "1.npz"):
        save(tmp_path / name, **arrays)
    members = []
    for name in ("0.npz", "1.npz"):
        with zipfile.ZipFile(tmp_path / name) as archive:
            members += [archive.read(member) for member in archive.namelist()]
    index = check(tmp_path, "npz", members)
    encodings = {index.extent(number).encoding for number in range(len(index))}
    assert encodings == {"plain" if save is np.savez else "deflate"}
    for number, sample in enumerate(index):
        name = "xyz"[number % 3]
        assert np.array_equal(np.load(io.BytesIO(sample)), arrays[name])


def test_chosen_members_of_npz_come_in_the_order_of_the_choice(tmp_path: Path) -> None:
    arrays = {"x": some((4, 4), "<f4"), "y": some((2,), "<i8"), "z": some((9,), "|u1")}
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    index = tierfeed.Index.build(tmp_path, format="npz", members=["z", "x"])
    found = [np.load(io.BytesIO(sample)) for sample in index]
    assert [it.tobytes() for it in found] == [arrays["z"].tobytes(), arrays["x"].tobytes()]


def test_a_deflated_member_that_was_damaged_is_not_handed_over(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=some((64,), "<i8"))
    index = tierfeed.Index.build(tmp_path, format="npz")
    extent, stat = index.extent(0), (tmp_path / "a.npz").stat()
    with open(extent.path, "r+b") as file:
        file.seek(extent.offset + extent.stored_len // 2)
        byte = file.read(1)[0]
        file.seek(-1, io.SEEK_CUR)
        file.write(bytes([byte ^ 0x10]))
    # As a disk would do it: nothing says that the file was written.
    os.utime(extent.path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(tierfeed.SampleError, match="a.npz"):
        index.read(0)


def test_tokens_are_those_of_a_memory_map(tmp_path: Path) -> None:
    length, header = 16, 256
    expected = []
    for name, tokens in (("a.bin", 100), ("b.bin", 64), ("c.bin", 5)):
        values = some((tokens,), "<u2", tokens)
        (tmp_path / name).write_bytes(b"h" * header + values.tobytes())
        mapped = np.memmap(tmp_path / name, "<u2", "r", offset=header)
        windows = range(0, len(mapped) - length + 1, length)
        expected += [mapped[at : at + length].tobytes() for at in windows]
    assert len(expected) == 6 + 4
    keys = {"dtype": "uint16", "sequence_length": length, "header_bytes": header}
    check(tmp_path, "raw", expected, **keys)


def test_records_are_those_of_cifar(tmp_path: Path) -> None:
    records = some((20, 3073), "|u1")
    (tmp_path / "data_batch_1.bin").write_bytes(records[:12].tobytes())
    (tmp_path / "data_batch_2.bin").write_bytes(records[12:].tobytes())
    check(tmp_path, "raw", [row.tobytes() for row in records], record_bytes=3073)
    with pytest.raises(tierfeed.Reconfigure, match="data_batch_1.bin"):
        tierfeed.Index.build(tmp_path, format="raw", record_bytes=3072)


def write_megatron(prefix: Path, sequences: list[np.ndarray], code: int) -> None:
    """As `IndexedDatasetBuilder` lays a dataset out, each sequence a document."""
    sizes = [len(it) for it in sequences]
    starts = np.cumsum([0, *(it.nbytes for it in sequences)])[:-1]
    prefix.with_suffix(".bin").write_bytes(b"".join(it.tobytes() for it in sequences))
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(sizes), len(sizes) + 1)
    tables = np.array(sizes, "<i4").tobytes() + starts.astype("<i8").tobytes()
    borders = np.arange(len(sizes) + 1, dtype="<i8").tobytes()
    prefix.with_suffix(".idx").write_bytes(head + tables + borders)


def test_sequences_of_megatron_are_those_of_its_index(tmp_path: Path) -> None:
    sequences = [some((length,), "<i4", length) for length in (7, 1, 0, 300)]
    write_megatron(tmp_path / "text_document", sequences, code=4)
    check(tmp_path, "megatron", [it.tobytes() for it in sequences])


@pytest.mark.parametrize("name", ["text", "modes"])
def test_sequences_that_megatron_wrote_are_those_that_it_reads(name: str, tmp_path: Path) -> None:
    for end in (".bin", ".idx"):
        (tmp_path / (name + end)).write_bytes((FIXTURES / "megatron" / (name + end)).read_bytes())
    expected = json.loads((FIXTURES / "megatron" / "expected.json").read_text())[name]
    reading.digests(expected, tierfeed.Index.build(tmp_path, format="megatron"))


def test_an_index_of_megatron_that_changed_is_read_again(tmp_path: Path) -> None:
    """An index that was built earlier was believed as long as the `.bin` was the same."""
    tokens, source, kept = np.arange(12, dtype="<i4"), tmp_path / "data", tmp_path / "kept.tfx"
    source.mkdir()
    for ends in ([0, 5, 12], [0, 2, 9, 12]):
        sequences = [tokens[start:end] for start, end in itertools.pairwise(ends)]
        write_megatron(source / "text", sequences, code=4)
        os.utime(source / "text.bin", ns=(0, 0))
        index = tierfeed.Index.build(source, format="megatron", path=kept)
        assert list(index) == [it.tobytes() for it in sequences]


def test_megatron_without_its_index_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.bin").write_bytes(b"tokens")
    with pytest.raises(tierfeed.Reconfigure, match=r"text.bin.*\.idx"):
        tierfeed.Index.build(tmp_path, format="megatron")


def test_rows_of_a_contiguous_hdf5_dataset_are_those_of_h5py(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    h5py = needs.module("h5py")
    reading.find_hdf5_indexer(monkeypatch)
    expected = []
    for name in ("a.h5", "b.h5"):
        with h5py.File(tmp_path / name, "w") as file:
            file["train/x"] = some((6, 4, 3), "<f4", ord(name[0]))
            file["train/y"] = np.arange(6)
        with h5py.File(tmp_path / name) as file:
            expected += [row.tobytes() for row in file["train/x"]]
    check(tmp_path, "hdf5", expected, dataset="/train/x")


@pytest.mark.parametrize("filters", [{}, {"compression": "gzip", "shuffle": True}])
def test_chunks_of_an_hdf5_dataset_are_those_of_h5py(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filters: dict[str, object]
) -> None:
    h5py = needs.module("h5py")
    reading.find_hdf5_indexer(monkeypatch)
    values = np.arange(70, dtype="<i4").reshape(10, 7)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(4, 7), **filters)
    with h5py.File(tmp_path / "a.h5") as file:
        x = file["x"]
        chunks = [x.id.read_direct_chunk((row, 0)) for row in range(0, 10, 4)]
    index = check(tmp_path, "hdf5", [bytes(chunk) for _, chunk in chunks], dataset="x")
    if not filters:
        rows = np.frombuffer(index.read(1), "<i4").reshape(4, 7)
        assert np.array_equal(rows, values[4:8])


@pytest.mark.parametrize("chunks", [(None, (2, 7)), ((2, 7), None)])
def test_an_hdf5_dataset_in_two_layouts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunks: tuple[object, object]
) -> None:
    """Both kinds of samples in one index were a panic."""
    h5py = needs.module("h5py")
    reading.find_hdf5_indexer(monkeypatch)
    for name, of_file in zip("ab", chunks, strict=True):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file.create_dataset("x", data=np.zeros((4, 7)), chunks=of_file)
    with pytest.raises(tierfeed.Reconfigure, match=r"b.h5.*same layout"):
        tierfeed.Index.build(tmp_path, format="hdf5", dataset="x")


def test_hdf5_without_its_program_says_how_to_build_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(600))
    # The program, without that of HDF5 beside it.
    alone = tmp_path / "bin" / "tierfeed"
    alone.parent.mkdir()
    shutil.copy(node.command()[0], alone)
    monkeypatch.setenv("TIERFEED_EXE", str(alone))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tierfeed.Reconfigure, match="cargo build --release -p tierfeed-hdf5-ind"):
        tierfeed.Index.build(data, format="hdf5", dataset="x")
