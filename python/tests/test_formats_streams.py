"""Records in streams: TFRecord, WebDataset, MDS and LitData, as their writers write them."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import random
import struct
import tarfile
from pathlib import Path

import pytest

import needs
import reading
import tierfeed
from reading import FIXTURES, check

SIZES = (7, 114, 0, 1, 3000, 65536)


def blobs(sizes: tuple[int, ...] = SIZES) -> list[bytes]:
    generator = random.Random(7)
    return [generator.randbytes(size) for size in sizes]


def crc32c(data: bytes) -> int:
    """Castagnoli's, bit by bit: slow, and nobody's code but the polynomial's."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def tfrecord(records: list[bytes]) -> bytes:
    framed = b""
    for record in records:
        length = struct.pack("<Q", len(record))
        framed += length + masked(length) + record + masked(record)
    return framed


def test_the_checksum_is_that_of_rfc_3720() -> None:
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"123456789") == 0xE3069283


def test_records_of_tfrecord_are_what_was_written(tmp_path: Path) -> None:
    records = blobs()
    (tmp_path / "train-00000-of-00002").write_bytes(tfrecord(records))
    (tmp_path / "train-00001-of-00002").write_bytes(tfrecord(records[::-1]))
    check(tmp_path, "tfrecord", records + records[::-1])


def test_records_are_those_of_tensorflow(tmp_path: Path) -> None:
    tf = needs.module("tensorflow")
    path = str(tmp_path / "a.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for record in blobs():
            writer.write(record)
    check(tmp_path, "tfrecord", tf.data.TFRecordDataset(path).as_numpy_iterator())


@pytest.mark.parametrize("has_index", [False, True])
def test_records_that_tensorflow_wrote_are_those_that_it_read(
    tmp_path: Path, has_index: bool
) -> None:
    fixtures = FIXTURES / "tfrecord"
    for name in ("records.tfrecord", *(["records.idx"] if has_index else [])):
        (tmp_path / name).write_bytes((fixtures / name).read_bytes())
    expected = json.loads((fixtures / "expected.json").read_text())["records.tfrecord"]
    reading.digests(expected, tierfeed.Index.build(tmp_path, format="tfrecord"))


def test_a_compressed_file_of_records_is_one_sample(tmp_path: Path) -> None:
    whole = tfrecord(blobs())
    (tmp_path / "a.tfrecord").write_bytes(gzip.compress(whole))
    index = check(
        tmp_path, "tfrecord", [(tmp_path / "a.tfrecord").read_bytes()], compression="gzip"
    )
    assert gzip.decompress(index.read(0)) == whole
    with pytest.raises(tierfeed.Reconfigure, match="compress"):
        tierfeed.Index.build(tmp_path, format="tfrecord")


def test_a_damaged_length_is_named_with_its_place(tmp_path: Path) -> None:
    content = bytearray(tfrecord(blobs((10, 20))))
    content[26] ^= 1
    (tmp_path / "a.tfrecord").write_bytes(content)
    with pytest.raises(tierfeed.Reconfigure, match=r"a.tfrecord.*26"):
        tierfeed.Index.build(tmp_path, format="tfrecord")


def by_webdataset(paths: list[Path]) -> list[dict[str, object]]:
    wds = needs.module("webdataset")
    urls = [str(path) for path in paths]
    return list(wds.WebDataset(urls, shardshuffle=False, empty_check=False))


def same(ours: dict[str, object], theirs: dict[str, object]) -> bool:
    """But for the name of the shard."""
    local = ("__url__", "__local_path__")
    return {k: v for k, v in ours.items() if k not in local} == {
        k: v for k, v in theirs.items() if k not in local
    }


def check_webdataset(source: Path, shards: list[Path]) -> tierfeed.Index:
    """Each sample, as a shard of its own, is what webdataset reads from the whole."""
    expected = by_webdataset(shards)
    assert expected, "nothing to compare"
    index = tierfeed.Index.build(source, format="webdataset")
    assert len(index) == len(expected)
    for number, sample in enumerate(expected):
        alone = source.parent / "alone.tar"
        alone.write_bytes(index.read(number) + bytes(1024))
        (found,) = by_webdataset([alone])
        assert same(found, sample)
    return index


KEYS = [
    "plain",
    "folder/deep/name",
    "with.two.dots/x",
    "ü" * 60,
    "long/" + "n" * 180,
    "very" * 80,
    "sp ace",
    "UPPER",
]


def test_samples_of_webdataset_are_those_of_its_own_reader(tmp_path: Path) -> None:
    wds = needs.module("webdataset")
    directory = tmp_path / "shards"
    directory.mkdir()
    pattern = str(directory / "train-%04d.tar")
    with wds.ShardWriter(pattern, maxcount=3, verbose=0, encoder=False) as writer:
        for number, key in enumerate(KEYS):
            image = random.Random(number).randbytes(number * 700)
            caption = f'{{"n": {number}}}'.encode()
            writer.write(
                {
                    "__key__": key,
                    "jpg": image,
                    "cls": str(number).encode(),
                    "seg.png": image[:5],
                    "json": caption,
                }
            )
    shards = sorted(directory.iterdir())
    assert len(shards) == 3
    index = check_webdataset(directory, shards)
    assert [index.label(it) for it in range(len(index))] == list(range(len(KEYS)))


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_samples_of_any_tar_are_those_of_webdataset(tmp_path: Path, format: int) -> None:
    directory = tmp_path / "shards"
    directory.mkdir()
    names = ["a.jpg", "a.cls", "__meta__.json", "d/b.SEG.png", "d/b.jpg", "README", ".hidden.x"]
    names += ["p" * 90 + "/" + "n" * 80 + ".jpg", "p" * 90 + "/" + "n" * 80 + ".cls", "a.jpg"]
    if format != tarfile.USTAR_FORMAT:
        names += ["q" * 150 + "/" + "m" * 150 + ".jpg", "größe.txt"]
    with tarfile.open(directory / "x.tar", "w", format=format) as archive:
        for number, name in enumerate(names):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = number * 200, 0.25 if format == tarfile.PAX_FORMAT else 0
            archive.addfile(info, io.BytesIO(bytes([number]) * info.size))
    check_webdataset(directory, [directory / "x.tar"])


def test_a_sample_of_webdataset_is_a_tar_that_tarfile_reads(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for name, content in (("a.jpg", b"image"), ("a.cls", b"3"), ("b.jpg", b"other")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    index = tierfeed.Index.build(tmp_path, format="webdataset")
    with tarfile.open(fileobj=io.BytesIO(index.read(0))) as sample:
        read = {it.name: sample.extractfile(it).read() for it in sample}
    assert read == {"a.jpg": b"image", "a.cls": b"3"}


def test_a_shard_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for name in ("a.jpg", "b.jpg"):
            info = tarfile.TarInfo(name)
            info.size = 512
            archive.addfile(info, io.BytesIO(bytes([65]) * 512))
    (tmp_path / "x.tar").write_bytes((tmp_path / "x.tar").read_bytes()[:1024])
    with pytest.raises(tierfeed.Reconfigure, match="x.tar"):
        tierfeed.Index.build(tmp_path, format="webdataset")


def offset_table(samples: list[bytes], between: bytes = b"") -> bytes:
    """`u32` number, `u32` place of each sample and of the end, then `between`, then the samples."""
    at = 4 * (2 + len(samples)) + len(between)
    places = [at + sum(map(len, samples[:number])) for number in range(len(samples) + 1)]
    head = struct.pack(f"<{len(places) + 1}I", len(samples), *places)
    return head + between + b"".join(samples)


def mds_sample(sample: dict[str, object]) -> bytes:
    """`MDSWriter.encode_sample` for `caption: str, class: int, image: bytes`: columns by name."""
    caption, image = str(sample["caption"]).encode(), sample["image"]
    sizes = struct.pack("<II", len(caption), len(image))
    return sizes + caption + struct.pack("<q", sample["class"]) + image


def write_mds(directory: Path, shards: list[list[bytes]]) -> None:
    """As `MDSWriter` lays a dataset out."""
    directory.mkdir()
    columns = {
        "column_names": ["caption", "class", "image"],
        "column_encodings": ["str", "int", "bytes"],
        "column_sizes": [None, 8, None],
    }
    described = []
    for number, samples in enumerate(shards):
        config = json.dumps({"format": "mds", **columns}).encode()
        content = offset_table(samples, config)
        name = f"shard.{number:05}.mds"
        (directory / name).write_bytes(content)
        raw = {"basename": name, "bytes": len(content), "hashes": {}}
        shard = {"format": "mds", "version": 2, "samples": len(samples), "raw_data": raw}
        shard |= {"compression": None, "hashes": [], "size_limit": 1 << 26, "zip_data": None}
        described.append(shard | columns)
    index = {"version": 2, "shards": described}
    (directory / "index.json").write_text(json.dumps(index))


def test_samples_of_mds_are_what_was_written(tmp_path: Path) -> None:
    rows = [
        {"caption": "ü" * number, "class": number % 4, "image": blob}
        for number, blob in enumerate(blobs())
    ]
    samples = [mds_sample(row) for row in rows]
    write_mds(tmp_path / "mds", [samples[:2], samples[2:]])
    labels = [row["class"] for row in rows]
    check(tmp_path / "mds", "mds", samples, labels=labels)


def test_samples_of_mds_are_those_of_streaming(tmp_path: Path) -> None:
    streaming = needs.module("streaming")
    columns = {"image": "bytes", "class": "int"}
    with streaming.MDSWriter(out=str(tmp_path / "mds"), columns=columns, size_limit=4000) as writer:
        for number, blob in enumerate(blobs()):
            writer.write({"image": blob, "class": number})
    from streaming.base.format import reader_from_json

    expected = []
    for shard in json.loads((tmp_path / "mds" / "index.json").read_text())["shards"]:
        reader = reader_from_json(str(tmp_path / "mds"), None, shard)
        expected += [reader.get_sample_data(it) for it in range(len(reader))]
    check(tmp_path / "mds", "mds", expected, labels=list(range(len(expected))))


@pytest.mark.parametrize("name", ["images", "vectors"])
def test_samples_that_streaming_wrote_are_those_that_it_read(name: str) -> None:
    expected = json.loads((FIXTURES / "mds" / "expected.json").read_text())[name]
    index = tierfeed.Index.build(FIXTURES / "mds" / name, format="mds")
    reading.digests(expected, index)
    assert [index.label(it) for it in range(len(index))] == [it[2] for it in expected]


def test_compressed_shards_are_refused_with_what_helps() -> None:
    with pytest.raises(tierfeed.Reconfigure, match="keep_zip"):
        tierfeed.Index.build(FIXTURES / "mds" / "zstd", format="mds")


def litdata_item(image: bytes, label: int) -> bytes:
    """What `BinaryWriter` makes of `(image, label)`: the sizes of the leaves, then the leaves."""
    leaves = [image, str(label).encode()]
    return struct.pack("<II", *map(len, leaves)) + b"".join(leaves)


def write_litdata(
    directory: Path, chunks: list[list[bytes]], config: dict[str, object], dims: list[int | None]
) -> None:
    """As `BinaryWriter` lays a dataset out."""
    directory.mkdir()
    described = []
    for number, (items, dim) in enumerate(zip(chunks, dims, strict=True)):
        content = offset_table(items)
        name = f"chunk-0-{number}.bin"
        (directory / name).write_bytes(content)
        size = {"chunk_bytes": len(content), "chunk_size": len(items)}
        described.append({"filename": name, "dim": dim, **size})
    config = {"compression": None, "encryption": None, "chunk_size": None, **config}
    (directory / "index.json").write_text(json.dumps({"chunks": described, "config": config}))


def test_items_of_litdata_are_what_was_written(tmp_path: Path) -> None:
    items = [litdata_item(blob, number) for number, blob in enumerate(blobs())]
    config = {"item_loader": "PyTreeLoader", "data_format": ["bytes", "int"]}
    write_litdata(tmp_path / "lit", [items[:4], items[4:]], config, [None, None])
    check(tmp_path / "lit", "litdata", items)


def test_blocks_of_litdata_are_tokens_across_items(tmp_path: Path) -> None:
    import numpy as np

    texts = [np.arange(start, start + 13 * start, dtype="<i4") for start in (1, 2, 3, 4)]
    chunks = [texts[:2], texts[2:]]
    # `no_header_tensor:16` is a tensor of torch.int32.
    config = {"item_loader": "TokensLoader", "data_format": ["no_header_tensor:16"]}
    files = [[text.tobytes() for text in chunk] for chunk in chunks]
    dims = [sum(map(len, chunk)) for chunk in chunks]
    write_litdata(tmp_path / "lit", files, config, dims)
    expected = []
    for chunk in chunks:
        tokens = np.concatenate(chunk)
        expected += [tokens[at : at + 8].tobytes() for at in range(0, len(tokens) - 7, 8)]
    check(tmp_path / "lit", "litdata", expected, sequence_length=8)
    with pytest.raises(tierfeed.Reconfigure, match="sequence_length"):
        tierfeed.Index.build(tmp_path / "lit", format="litdata")


@pytest.mark.parametrize(("name", "keys"), [("items", {}), ("tokens", {"sequence_length": 8})])
def test_items_that_litdata_wrote_are_those_that_it_read(
    name: str, keys: dict[str, int]
) -> None:
    expected = json.loads((FIXTURES / "litdata" / "expected.json").read_text())[name]
    index = tierfeed.Index.build(FIXTURES / "litdata" / name, format="litdata", **keys)
    reading.digests(expected, index)


def test_items_of_litdata_are_those_of_its_own_loader(tmp_path: Path) -> None:
    needs.module("litdata")
    from litdata.streaming.cache import Cache

    from litdata import StreamingDataset

    cache = Cache(str(tmp_path / "lit"), chunk_bytes=4000)
    for number, blob in enumerate(blobs()):
        cache[number] = pickle.dumps((blob, number))
    cache.done()
    cache.merge()
    index = tierfeed.Index.build(tmp_path / "lit", format="litdata")
    dataset = StreamingDataset(str(tmp_path / "lit"))
    found = [sample[4:] for sample in index]
    assert found == [dataset[it] for it in range(len(dataset))]
