"""`tierfeed://` addresses in pipelines that know nothing of tierfeed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import s3

import needs

tf = needs.module("tensorflow")

from tierfeed.tensorflow import files_read, register_files  # noqa: E402


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Six files of 20 records each."""
    register_files()
    paths = [tmp_path / "train" / f"{number}.tfrecord" for number in range(6)]
    paths[0].parent.mkdir()
    for path in paths:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in range(20):
                writer.write(f"{path.name} {record} ".encode() * 1000)
    return paths


def address(path: Path) -> str:
    return f"tierfeed://{path}"


def test_a_pipeline_over_addresses_reads_what_one_over_paths_reads(shards: list[Path]) -> None:
    plain = [it.numpy() for it in tf.data.TFRecordDataset([str(path) for path in shards])]
    ours = [it.numpy() for it in tf.data.TFRecordDataset([address(path) for path in shards])]
    assert ours == plain and len(ours) == 120
    listed = tf.data.Dataset.list_files(f"{address(shards[0].parent)}/*.tfrecord", shuffle=False)
    assert [it.numpy().decode() for it in listed] == [address(path) for path in shards]
    interleaved = listed.interleave(tf.data.TFRecordDataset, cycle_length=3, num_parallel_calls=3)
    assert sorted(it.numpy() for it in interleaved) == sorted(plain)
    assert tf.io.gfile.glob(f"{address(shards[0].parent)}/[01].tfrecord") == [
        address(path) for path in shards[:2]
    ]
    assert tf.io.read_file(address(shards[2])).numpy() == shards[2].read_bytes()
    assert tf.io.gfile.stat(address(shards[3])).length == shards[3].stat().st_size
    assert tf.io.gfile.isdir(address(shards[0].parent)) and not tf.io.gfile.isdir(address(shards[0]))


def test_the_files_of_the_pass_before_are_read_ahead(shards: list[Path]) -> None:
    pipeline = tf.data.TFRecordDataset([address(path) for path in shards])
    before = files_read()
    assert sum(1 for _ in pipeline) == 120
    first = files_read()
    assert (first.opened - before.opened, first.foreseen - before.foreseen) == (6, 0)
    assert sum(1 for _ in pipeline) == 120
    second = files_read()
    assert (second.opened - first.opened, second.foreseen - first.foreseen) == (6, 5)


def test_names_need_not_be_utf_8(shards: list[Path]) -> None:
    register_files()
    name = os.fsencode(shards[0].parent) + b"/\xff.bin"
    Path(os.fsdecode(name)).write_bytes(b"content")
    found = tf.io.matching_files(b"tierfeed://" + os.fsencode(shards[0].parent) + b"/*.bin").numpy()
    assert found.tolist() == [b"tierfeed://" + name]
    assert tf.io.read_file(found[0]).numpy() == b"content"
    with pytest.raises(tf.errors.InvalidArgumentError, match="neither a file"):
        tf.io.read_file(b"tierfeed://s3/bucket/\xff")


@pytest.mark.node
def test_a_pipeline_reads_a_bucket_in_blocks(shards: list[Path]) -> None:
    with s3.serving(shards[0].parents[1]) as bucket:
        register_files(endpoint=bucket.endpoint, region="x", anonymous=True)
        folder = "tierfeed://s3/bucket/train"
        listed = tf.data.Dataset.list_files(f"{folder}/*.tfrecord", shuffle=False)
        assert [it.numpy().decode() for it in listed] == [f"{folder}/{path.name}" for path in shards]
        plain = tf.data.TFRecordDataset([str(path) for path in shards])
        ours = listed.interleave(tf.data.TFRecordDataset, cycle_length=1)
        bucket.requests.clear()
        before = files_read()
        assert [it.numpy() for it in ours] == [it.numpy() for it in plain]
        # Each is smaller than a range, and read once.
        assert len(bucket.ranges()) == len(shards)
        assert sum(1 for _ in ours) == 120
        read = files_read()
        # Nothing is read of an object before it is opened, in no pass.
        assert (read.opened - before.opened, read.foreseen - before.foreseen) == (12, 0)
        assert tf.io.gfile.isdir(folder) and tf.io.gfile.stat(f"{folder}/0.tfrecord").length > 0
        with pytest.raises(tf.errors.NotFoundError, match="train/none does not exist"):
            tf.io.read_file(f"{folder}/none")


def test_a_wrong_address_says_what_would_be_right(shards: list[Path]) -> None:
    register_files()
    with pytest.raises(tf.errors.NotFoundError, match="tierfeed:///data/none: No such file"):
        tf.io.read_file("tierfeed:///data/none")
    with pytest.raises(tf.errors.InvalidArgumentError, match="neither a file, tierfeed:///data/train"):
        tf.io.read_file("tierfeed://data/train/0.tfrecord")
    with pytest.raises(tf.errors.FailedPreconditionError, match="is a directory"):
        tf.io.read_file(address(shards[0].parent))
    with pytest.raises(tf.errors.UnimplementedError):
        tf.io.write_file(f"{address(shards[0].parent)}/new", "text")
    assert not tf.io.gfile.exists("tierfeed:///data/none")
