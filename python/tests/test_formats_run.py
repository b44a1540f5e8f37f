"""Every kind of sample through a real agent: whole files, records, ranges, and deflated ranges."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import random
import signal
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import node
import tierfeed
from conftest import SEED, World
from test_formats_streams import mds_sample, write_mds

pytestmark = pytest.mark.node

SAMPLES = 30


@dataclasses.dataclass(frozen=True)
class Stored(World):
    """A dataset in any format, and the job over it."""

    contents: list[bytes]
    labels: list[int]

    def content(self, sample: int) -> bytes:
        return self.contents[sample]


Written = tuple[list[bytes], list[int], str]
"""The samples, their labels, and the keys for the job."""


def blobs() -> list[bytes]:
    generator = random.Random(5)
    return [generator.randbytes(generator.randint(0, 9000)) for _ in range(SAMPLES)]


def write_files(data: Path) -> Written:
    contents = blobs()
    for number, content in enumerate(contents):
        (data / f"{number:03}.bin").write_bytes(content)
    return contents, [-1] * SAMPLES, "format: files\n  glob: '*.bin'"


def write_records(data: Path) -> Written:
    array = np.random.default_rng(5).random((SAMPLES, 17, 11))
    np.save(data / "0.npy", array[:20])
    np.save(data / "1.npy", array[20:])
    return [row.tobytes() for row in array], [-1] * SAMPLES, "format: npy"


def write_ranges(data: Path) -> Written:
    """With a class in each sample."""
    rows = [{"caption": f"{it}", "class": it % 7, "image": blob} for it, blob in enumerate(blobs())]
    samples = [mds_sample(row) for row in rows]
    data.rmdir()
    write_mds(data, [samples[:11], samples[11:12], samples[12:]])
    return samples, [it % 7 for it in range(SAMPLES)], "format: mds"


def write_tars(data: Path) -> Written:
    """Neighbours in one file, which may be fetched by one read."""
    contents = []
    for shard in range(3):
        path = data / f"{shard}.tar"
        with tarfile.open(path, "w") as archive:
            for number in range(10):
                info = tarfile.TarInfo(f"{number}.bin")
                info.size = 700 * number
                archive.addfile(info, io.BytesIO(bytes([shard]) * info.size))
        with tarfile.open(path) as archive:
            whole, members = path.read_bytes(), archive.getmembers()
        for member in members:
            end = member.offset_data + -(-member.size // 512) * 512
            contents.append(whole[member.offset : end])
    return contents, [-1] * SAMPLES, "format: webdataset"


def write_deflated(data: Path) -> Written:
    contents = []
    for number in range(10):
        path, seed = data / f"{number}.npz", np.random.default_rng(number)
        noise = seed.integers(0, 4, (40, 50))
        np.savez_compressed(path, zeros=np.zeros((number, 300)), noise=noise, none=np.array([]))
        with zipfile.ZipFile(path) as archive:
            contents += [archive.read(name) for name in archive.namelist()]
    return contents, [-1] * SAMPLES, "format: npz"


KINDS = [write_files, write_records, write_ranges, write_tars, write_deflated]


def make(
    root: Path, write: Callable[[Path], Written], *, ranks: int = 1, on_error: str = "fail"
) -> Stored:
    data = root / "data"
    data.mkdir(parents=True)
    contents, labels, keys = write(data)
    assert len(contents) == SAMPLES
    job = root / "job.yaml"
    job.write_text(
        f"""\
name: test
dataset:
  source: {data}
  {keys}
order: {{ shuffle: torch-distributed, seed: {SEED}, epochs: 3 }}
batch_size: 4
world: {{ nodes: 1, ranks_per_node: {ranks} }}
on_error: {on_error}
chunk: 1 MiB
tiers:
  main-memory: {{ size: 16 MiB }}
"""
    )
    files = [data] * len(contents)
    return Stored(job, root / "none.tfx", files, 3, 4, ranks, contents, labels)


@pytest.mark.parametrize("write", KINDS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_feeds_every_sample_with_its_bytes_and_label(tmp_path, write, ranks: int) -> None:
    stored = make(tmp_path, write, ranks=ranks)
    for rank, log in enumerate(node.run(stored, "feed")):
        log.assert_complete(stored, rank)
        assert {row["origin"] for row in log.batches} == {"agent"}
        for row in log.batches:
            assert row["labels"] == [stored.labels[it] for it in row["samples"]]
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["faults"] == []
    assert report["samples"] == 3 * -(-SAMPLES // ranks) * ranks
    demanded = sum(map(len, stored.contents))
    assert report["cold_read_bytes"] < 3 * demanded, "what was read once was not kept"


@pytest.mark.parametrize("write", KINDS)
def test_a_trainer_reads_on_when_its_agent_is_killed(tmp_path, write) -> None:
    stored = make(tmp_path, write)
    with node.node(stored) as running:
        trainer = running.train("feed", pace_s=0.02)
        try:
            path = Path(f"{node.log_path(stored)}.0")
            node.wait_for(lambda: path.exists() and len(path.read_text().splitlines()) > 3, "batches")
            running.agent.kill()
            assert trainer.wait(node.TIMEOUT_S) == 0
        finally:
            if trainer.poll() is None:
                os.killpg(trainer.pid, signal.SIGKILL)
    log = node.Log.read(node.log_path(stored), 0)
    log.assert_complete(stored, 0)
    assert {row["origin"] for row in log.batches} == {"agent", "direct"}


def damage(stored: Stored, sample: int) -> None:
    """Changes one stored byte of a deflated sample, as a disk would: size and time stay."""
    job = tierfeed.Index.build(stored.job.with_name("data"), format="npz")
    extent = job.extent(sample)
    assert extent.encoding == "deflate"
    stat = extent.path.stat()
    with open(extent.path, "r+b") as file:
        file.seek(extent.offset + extent.stored_len // 2)
        byte = file.read(1)[0]
        file.seek(-1, io.SEEK_CUR)
        file.write(bytes([byte ^ 0x55]))
    os.utime(extent.path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize("has_agent", [True, False])
@pytest.mark.parametrize("on_error", ["skip", "fail"])
def test_a_damaged_sample_is_left_out_or_named(
    tmp_path, monkeypatch: pytest.MonkeyPatch, has_agent: bool, on_error: str
) -> None:
    stored = make(tmp_path, write_deflated, on_error=on_error)
    lost = 13
    damage(stored, lost)
    with node.node(stored) as running:
        running.adopt(monkeypatch)
        feed = tierfeed.connect()
        if not has_agent:
            running.agent.kill()
            running.agent.wait()
        batches = feed.epoch(0)
        given: list[int] = []
        if on_error == "fail":
            with pytest.raises(tierfeed.SampleError, match="4.npz") as raised:
                list(batches)
            assert (raised.value.sample, raised.value.reason) == (lost, "corrupt")
            return
        skipped = []
        for batch in batches:
            given += batch.samples
            skipped += batch.skipped
            assert [bytes(it) for it in batch] == [stored.content(it) for it in batch.samples]
        expected = [it for ids in stored.torch_order(0, 0) for it in ids]
        assert given == [it for it in expected if it != lost]
        assert skipped == [lost]
        assert feed.faults == 1
