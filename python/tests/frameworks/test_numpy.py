"""Arrays without a framework: which bytes, which memory, in which order."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy
import page
import pytest
import records

import node
import tierfeed
from conftest import World, make_world
from tierfeed.numpy import TierLoader, stack

pytestmark = pytest.mark.node


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> records.Records:
    monkeypatch.chdir(tmp_path)
    return records.write(tmp_path)


def test_passes_are_the_epochs_of_the_order_and_arrays_lie_over_the_staged_bytes(
    dataset: records.Records,
) -> None:
    with TierLoader(dataset.path, record="float32", **dataset.keys()) as loader:
        order = loader.feed.order
        for epoch in loader.epochs_left:
            for step, (array, labels) in enumerate(loader):
                assert loader.epoch == epoch
                ids = order.batch(epoch, step, 0)
                assert numpy.array_equal(array, dataset.rows[ids])
                assert array.flags.writeable and array.ctypes.data % 64 == 0
                assert labels.tolist() == [-1] * len(ids)
            assert step + 1 == len(loader) == 7
        assert loader.stats()["batches"] == 21 and not loader.epochs_left
        with pytest.warns(RuntimeWarning, match="all 3 epochs of the job were read"):
            array, _ = next(iter(loader))
        assert numpy.array_equal(array, dataset.rows[order.batch(3, 0, 0)])
    batch = next(iter(tierfeed.connect(dataset.path, **dataset.keys())))
    array, _ = tierfeed.numpy.Rows("float32")(batch)
    assert array.ctypes.data == batch[0].address and batch.origin == "agent"


def test_an_array_keeps_its_bytes_while_it_lives(dataset: records.Records) -> None:
    with TierLoader(dataset.path, record="float32", **dataset.keys()) as loader:
        with pytest.warns(RuntimeWarning, match="it should give back"):
            arrays = [array for array, _ in loader]
        assert loader.feed.lease_copyouts, "more were kept than the agent stages"
        seen = sorted(records.Records.number(dataset, row) for array in arrays for row in array)
        assert sorted(set(seen)) == list(range(50)), "no bytes were overwritten"


@pytest.mark.parametrize("stop", [1, 7])
def test_a_loader_goes_on_where_another_one_stopped(dataset: records.Records, stop: int) -> None:
    def numbers(batches: object) -> list[list[int]]:
        return [[dataset.number(row) for row in array] for array, _ in batches]

    with TierLoader(dataset.path, record="float32", **dataset.keys()) as loader:
        loader.set_epoch(1)
        whole = numbers(loader)
        loader.set_epoch(2)
        whole += numbers(loader)
        loader.set_epoch(1)
        for step, _ in enumerate(loader, 1):
            if step == stop:
                state = pickle.loads(pickle.dumps(loader.state_dict()))
                break
    with TierLoader(dataset.path, record="float32", **dataset.keys()) as resumed:
        resumed.load_state_dict(state)
        assert resumed.epochs_left == range(1 if stop < 7 else 2, 3)
        rest = [batch for _ in resumed.epochs_left for batch in numbers(resumed)]
    assert rest == whole[stop:]


def test_a_record_is_any_dtype_of_the_length_of_a_sample(world: World, tmp_path: Path) -> None:
    even = make_world(tmp_path / "even", sizes=(72, 72))
    parts = numpy.dtype([("number", "<u8"), ("image", "u1", (4, 4, 4))])
    array, labels = next(iter(TierLoader(even.direct(), record=parts)))
    assert (array.shape, array["image"].shape, labels.dtype) == ((4,), (4, 4, 4, 4), numpy.int64)
    feed = even.direct()
    ids = feed.order.batch(0, 0, 0)
    assert array.tobytes() == b"".join(even.content(id) for id in ids)
    image, _ = next(iter(TierLoader(feed, record="(6,3,2)<u2")))
    assert (image.shape, image.dtype) == ((4, 6, 3, 2), numpy.uint16)
    assert not image.flags.owndata and image.tobytes() == array.tobytes()
    with pytest.raises(tierfeed.Reconfigure, match="samples have 72 bytes.*has 80"):
        next(iter(TierLoader(even.direct(), record="(5,4)float32")))
    with pytest.raises(tierfeed.Reconfigure, match=r"between \d+ and \d+ bytes.*pass decode="):
        next(iter(TierLoader(world.direct())))


def test_where_a_sample_was_left_out_the_others_are_gathered(tmp_path: Path) -> None:
    world = make_world(tmp_path, sizes=(100, 100), on_error="skip", shuffle="sequential", epochs=1)
    feed = world.direct()
    world.files[1].unlink()
    with pytest.warns(RuntimeWarning, match="left out|skip"):
        array, _ = next(iter(TierLoader(feed)))
    assert array.tobytes() == b"".join(world.content(id) for id in (0, 2, 3))


@pytest.mark.parametrize("threads", [0, 2])
def test_decoded_samples_are_stacked(world: World, threads: int) -> None:
    def decode(sample: tierfeed.Sample, label: int) -> dict[str, object]:
        return {"first": sample.numpy()[:1].astype("f4"), "label": label}

    feed = world.direct()
    with TierLoader(feed, decode=decode, decode_threads=threads) as loader:
        for step, batch in enumerate(loader):
            ids = feed.order.batch(0, step, 0)
            assert batch["first"].tolist() == [[world.content(id)[0]] for id in ids]
            classes = [int(world.files[id].parent.name[-1]) for id in ids]
            assert batch["label"].tolist() == classes


def test_parts_of_tuples_are_stacked_each_by_itself() -> None:
    images, labels = stack([(numpy.zeros((2, 2)), 1), (numpy.ones((2, 2)), 2)])
    assert images.shape == (2, 2, 2) and labels.tolist() == [1, 2]


def test_wrong_arguments_say_what_is_right(world: World) -> None:
    with pytest.raises(TypeError, match="did you mean batch_size="):
        TierLoader("/data", batchsize=3)
    with pytest.raises(TypeError, match=r'name the dataset first, TierLoader\("/data/train", '):
        TierLoader(batch_size=3)
    with pytest.raises(TypeError, match="path or a URL"):
        TierLoader(3)
    with pytest.raises(ValueError, match="decode and record"):
        TierLoader(world.direct(), record="u1", decode=lambda sample, label: label)
    with pytest.raises(ValueError, match="collate without decode"):
        TierLoader(world.direct(), collate=stack)


VALIDATING = """
from tierfeed.numpy import TierLoader
size = lambda sample, label: sample.nbytes
train, validation = TierLoader(decode=size), TierLoader(dataset="validation", decode=size)
for epoch in train.epochs_left:
    trained = sum(int(batch.sum()) for batch in train)
    print(train.epoch, trained, validation.feed.mode, sum(int(batch.sum()) for batch in validation))
"""


def test_a_dataset_of_the_job_has_a_loader_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "val").mkdir()
    (tmp_path / "val" / "records").write_bytes(bytes(7 * 100))
    extra = f"""datasets:
  validation: {{ source: file://{tmp_path / "val"}, format: raw, record_bytes: 100, batch_size: 3 }}
"""
    world = make_world(tmp_path, extra=extra, epochs=2)
    line = node.command("run", world.job, "--run-dir", tmp_path / "run", "--")
    done = subprocess.run([*line, sys.executable, "-c", VALIDATING], capture_output=True, text=True)
    trained = sum(map(len, map(world.content, range(len(world.files)))))
    rows = [f"{epoch} {trained} agent 700" for epoch in range(2)]
    assert [it for it in done.stdout.splitlines() if "agent 700" in it] == rows, done.stderr


def test_no_framework_is_imported() -> None:
    names = {"torch", "jax", "tensorflow", "keras"}
    script = f"import sys, tierfeed.numpy; print({names} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_script_of_the_page_trains_and_goes_on(dataset: records.Records) -> None:
    page.write_cifar(Path("cifar10"))
    said = page.run("numpy", "/data/cifar10", "cifar10")
    assert said.startswith("epoch 0: loss ") and "epoch 1: loss " in said
    assert page.run("numpy", "/data/cifar10", "cifar10") == "", "all epochs were trained"
