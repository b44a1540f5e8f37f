"""What the demo says is true: data repeat, the store is slow, tiers are named as they are."""

import dataclasses
import multiprocessing
import time

import pytest

import compare
import image_folder
import job_file
import photographs
import table
from cold_store import ColdStore

TRAINING = job_file.Training(
    dataset=None, epochs=3, batch_size=16, seed=42, cold_latency_ms=5.0, cold_mb_per_s=20.0
)
SIDE = table.Side(
    wall_s=1.0,
    stall_s=0.5,
    samples=60,
    dataset_bytes=100,
    epoch_cold_read_bytes=[100, 51],
    hits={"cxl-memory": 12},
)


def test_a_demo_that_gains_nothing_fails():
    plain = dataclasses.replace(SIDE, wall_s=2.0, epoch_cold_read_bytes=[100, 100])
    compare.check_gain(plain, SIDE)
    with pytest.raises(SystemExit, match="of the plain loader"):
        compare.check_gain(plain, dataclasses.replace(SIDE, epoch_cold_read_bytes=[100, 81]))
    with pytest.raises(SystemExit, match=r"took 2\.0 s"):
        compare.check_gain(plain, dataclasses.replace(SIDE, wall_s=2.0))


def test_a_trainer_that_reads_much_itself_fails_the_demo():
    compare.check_fed_by_agent({"samples": 100}, {"samples": 95})
    for samples in (0, 94):
        with pytest.raises(SystemExit, match="the trainer read"):
            compare.check_fed_by_agent({"samples": 100}, {"samples": samples})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    target = tmp_path_factory.mktemp("photographs") / "train"
    photographs.write_image_folder(target, images=60, seed=7)
    return target


def contents(folder):
    return [sample.path.read_bytes() for sample in image_folder.list_samples(folder)]


def test_the_same_seed_makes_the_same_photographs(folder, tmp_path):
    photographs.write_image_folder(tmp_path / "again", images=60, seed=7)
    photographs.write_image_folder(tmp_path / "other", images=60, seed=8)
    assert contents(tmp_path / "again") == contents(folder)
    assert contents(tmp_path / "other") != contents(folder)


def test_a_half_written_folder_is_made_anew(folder, tmp_path):
    target = tmp_path / "train"
    photographs.write_image_folder(target, images=60, seed=7)
    (target.with_name("train.stamp")).unlink()
    next(target.rglob("*.jpg")).unlink()
    photographs.write_image_folder(target, images=60, seed=7)
    assert contents(target) == contents(folder)


def test_photographs_have_many_sizes_and_every_class(folder):
    samples = image_folder.list_samples(folder)
    assert {sample.label for sample in samples} == set(range(photographs.CLASSES))
    sizes = sorted(sample.size_bytes for sample in samples)
    assert sizes[-1] > 4 * sizes[0]


def test_a_sample_decodes_to_the_networks_input(folder):
    pixels = image_folder.decode(memoryview(contents(folder)[0]))
    assert pixels.shape == (3, image_folder.SIDE_PX, image_folder.SIDE_PX)
    assert pixels.min() >= -1.0 and pixels.max() <= 1.0


def read_all(store, paths):
    for path in paths:
        store.read(path)


def test_all_readers_of_a_cold_store_share_one_link(tmp_path):
    paths = [tmp_path / str(number) for number in range(8)]
    for path in paths:
        path.write_bytes(b"x" * 50_000)
    store = ColdStore(latency_s=0.001, bytes_per_s=1e6)
    context = multiprocessing.get_context("fork")
    readers = [context.Process(target=read_all, args=(store, paths[i::2])) for i in range(2)]
    began_s = time.monotonic()
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert time.monotonic() - began_s >= 0.4
    assert store.read_bytes == 400_000


@pytest.fixture
def job(folder, tmp_path):
    training = dataclasses.replace(TRAINING, dataset=folder)
    samples = image_folder.list_samples(folder)
    return job_file.write_job(tmp_path / "job.yaml", training, samples, scratch_path=tmp_path)


def test_every_line_with_an_emulated_tier_says_so(job):
    lines = [line for line in table.comparison(SIDE, SIDE, job).splitlines() if "cxl" in line]
    assert lines and all("emulated" in line for line in lines)
    assert "emulate:" in job.path.read_text().split("cxl-memory")[1].splitlines()[0]


def test_tiers_are_the_promised_shares_in_whole_chunks(job, folder):
    chunk_bytes = job_file.chunk_for(1)
    staging = job_file.staging_bytes(
        image_folder.list_samples(folder), TRAINING.batch_size, chunk_bytes
    )
    kept = dict(job.tier_bytes, **{"main-memory": job.tier_bytes["main-memory"] - staging})
    for tier, share in (("main-memory", 0.15), ("cxl-memory", 0.25), ("scratch", 0.10)):
        assert kept[tier] % chunk_bytes == 0
        assert abs(kept[tier] - share * job.dataset_bytes) <= chunk_bytes


def test_a_tier_that_gave_nothing_fails_the_demo(job):
    hits = {"main-memory": 3, "cxl-memory": 12, "scratch": 1}
    compare.check_tiers(dataclasses.replace(SIDE, hits=hits), job)
    with pytest.raises(SystemExit, match="no sample came from main-memory"):
        compare.check_tiers(dataclasses.replace(SIDE, hits={**hits, "main-memory": 0}), job)
