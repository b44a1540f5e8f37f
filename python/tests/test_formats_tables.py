"""Parquet and Arrow: what pyarrow wrote, read by pyarrow from the bytes of the samples alone."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import needs
import tierfeed
from reading import check

pa = needs.module("pyarrow")
ipc = needs.module("pyarrow.ipc")
pq = needs.module("pyarrow.parquet")


def table(rows: int = 1000, seed: int = 0):
    return pa.table(
        {
            "id": pa.array(range(seed, seed + rows)),
            "image": pa.array([bytes([it % 251]) * (it % 40) for it in range(rows)]),
            "kind": pa.array([f"class {it % 3}" for it in range(rows)]).dictionary_encode(),
            "box": pa.array([{"x": it / 2, "y": [it, -it]} for it in range(rows)]),
        }
    )


def sparse(index: tierfeed.Index, samples: range | list[int], path: Path) -> bytearray:
    """The file at `path` with nothing in it but these samples and its footer.

    What a reader gets out of it came out of the samples: the rest is zeros.
    """
    whole = path.read_bytes()
    footer = 8 + int.from_bytes(whole[-8:-4], "little")
    alone = bytearray(len(whole))
    alone[:4], alone[-footer:] = b"PAR1", whole[-footer:]
    for sample in samples:
        extent = index.extent(sample)
        assert extent.path == path
        alone[extent.offset : extent.offset + extent.len] = index.read(sample)
    return alone


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_row_groups_alone_are_the_rows_that_pyarrow_reads(
    tmp_path: Path, compression: str, version: str
) -> None:
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for seed, path in enumerate(paths):
        options = {"row_group_size": 300, "data_page_version": version, "data_page_size": 512}
        pq.write_table(table(seed=seed), path, compression=compression, **options)
    index = tierfeed.Index.build(tmp_path, format="parquet")
    assert len(index) == 2 * 4
    for number in range(8):
        path, group = paths[number // 4], number % 4
        alone = pq.ParquetFile(io.BytesIO(sparse(index, [number], path)))
        expected = pq.ParquetFile(path).read_row_group(group)
        assert alone.read_row_group(group).equals(expected)
        assert expected.num_rows == (300, 300, 300, 100)[group]


def test_row_groups_are_the_places_that_the_metadata_of_pyarrow_says(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table(), path, row_group_size=400)
    metadata, content, expected = pq.read_metadata(path), path.read_bytes(), []
    for group in range(metadata.num_row_groups):
        columns = [metadata.row_group(group).column(it) for it in range(metadata.num_columns)]
        starts = [it.dictionary_page_offset or it.data_page_offset for it in columns]
        ends = [at + it.total_compressed_size for at, it in zip(starts, columns, strict=True)]
        expected.append(content[min(starts) : max(ends)])
    check(path, "parquet", expected)


def test_column_chunks_alone_are_the_columns_that_pyarrow_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table(), path, row_group_size=400)
    columns = ["image", "box.x", "box.y.list.element"]
    index = tierfeed.Index.build(tmp_path, format="parquet", unit="column-chunk", columns=columns)
    assert len(index) == 3 * 3
    whole = pq.ParquetFile(path)
    for group in range(3):
        samples = range(group * 3, group * 3 + 3)
        alone = pq.ParquetFile(io.BytesIO(sparse(index, samples, path)))
        read = alone.read_row_group(group, columns=columns)
        assert read.equals(whole.read_row_group(group, columns=columns))
    # Each is its own chunk and no other: with one left out, that column cannot be read.
    alone = pq.ParquetFile(io.BytesIO(sparse(index, [1, 2], path)))
    assert alone.read_row_group(0, columns=columns[1:]).num_rows == 400
    with pytest.raises((OSError, pa.ArrowException)):
        alone.read_row_group(0, columns=["image"])


def test_a_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    pq.write_table(table(10), tmp_path / "a.parquet")
    with pytest.raises(tierfeed.Reconfigure, match="label"):
        tierfeed.Index.build(tmp_path, format="parquet", columns=["label"])


WRITERS = {"arrow": ipc.new_file, "arrows": ipc.new_stream}


@pytest.mark.parametrize("end", ["arrow", "arrows"])
def test_record_batches_are_the_messages_of_pyarrow(tmp_path: Path, end: str) -> None:
    path = tmp_path / f"a.{end}"
    whole = table().drop_columns(["kind"])
    with WRITERS[end](path, whole.schema) as writer:
        writer.write_table(whole, max_chunksize=300)
    reader = ipc.open_file(path) if end == "arrow" else ipc.open_stream(path)
    if end == "arrow":
        batches = [reader.get_batch(it) for it in range(reader.num_record_batches)]
    else:
        batches = list(reader)
    index = tierfeed.Index.build(tmp_path, format="arrow")
    assert len(index) == len(batches) == 4
    for sample, batch in zip(index, batches, strict=True):
        assert ipc.read_record_batch(pa.py_buffer(sample), whole.schema).equals(batch)


@pytest.mark.parametrize("end", ["arrow", "arrows"])
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_record_batches_are_those_of_pyarrow(
    tmp_path: Path, end: str, compression: str
) -> None:
    path, whole = tmp_path / f"a.{end}", table().drop_columns(["kind"])
    new = ipc.new_file if end == "arrow" else ipc.new_stream
    with new(path, whole.schema, options=ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(whole, max_chunksize=400)
    index = tierfeed.Index.build(tmp_path, format="arrow")
    found = [ipc.read_record_batch(pa.py_buffer(it), whole.schema) for it in index]
    assert pa.Table.from_batches(found).equals(whole)


def test_the_messages_of_a_stream_are_the_samples_byte_for_byte(tmp_path: Path) -> None:
    """As Hugging Face `datasets` writes: a stream with its defaults."""
    path, whole = tmp_path / "data-00000-of-00001.arrow", table().drop_columns(["kind"])
    with ipc.new_stream(path, whole.schema) as writer:
        writer.write_table(whole, max_chunksize=250)
    messages = ipc.MessageReader.open_stream(path.read_bytes())
    batches = [it.serialize().to_pybytes() for it in messages if it.type == "record batch"]
    check(tmp_path, "arrow", batches)


def test_feather_is_read(tmp_path: Path) -> None:
    feather = needs.module("pyarrow.feather")
    whole = table(500).drop_columns(["kind"])
    feather.write_feather(whole, tmp_path / "a.feather", chunksize=200)
    index = tierfeed.Index.build(tmp_path, format="arrow")
    found = [ipc.read_record_batch(pa.py_buffer(it), whole.schema) for it in index]
    assert pa.Table.from_batches(found).equals(whole)


def test_batches_with_a_dictionary_are_read_behind_what_stands_before_them(tmp_path: Path) -> None:
    whole = table(600).select(["kind"]).combine_chunks()
    path = tmp_path / "a.arrows"
    with ipc.new_stream(path, whole.schema) as writer:
        writer.write_table(whole, max_chunksize=200)
    index = tierfeed.Index.build(tmp_path, format="arrow")
    prefix = path.read_bytes()[: index.extent(0).offset]
    found = [ipc.open_stream(prefix + sample).read_next_batch() for sample in index]
    assert pa.Table.from_batches(found).equals(whole)
