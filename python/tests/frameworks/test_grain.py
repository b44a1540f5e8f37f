"""Grain: samples at random from a data source, and the batches of an agent as a dataset."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy
import page
import pytest
import records

import needs
import tierfeed

needs.module("grain")

from absl import flags  # noqa: E402
from grain import python as grain  # noqa: E402

from tierfeed.grain import TierDataSource, TierIterDataset  # noqa: E402

pytestmark = pytest.mark.node


@pytest.fixture(autouse=True, scope="module")
def parsed_flags() -> None:
    """What `absl.app.run` does in a script; Grain asks for it where it starts processes."""
    flags.FLAGS(["test"])


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> records.Records:
    monkeypatch.chdir(tmp_path)
    return records.write(tmp_path)


def source_of(dataset: records.Records) -> TierDataSource:
    return TierDataSource(dataset.path, format="raw", record_bytes=dataset.rows[0].nbytes)


def number(element: tuple[bytes, int]) -> int:
    return int(numpy.frombuffer(element[0], "f4")[0])


def test_a_source_has_every_sample_in_any_process_and_a_name_that_stays(
    dataset: records.Records,
) -> None:
    source = source_of(dataset)
    assert isinstance(source, grain.RandomAccessDataSource) and len(source) == 50
    assert source[numpy.int64(7)] == (dataset.rows[7].tobytes(), -1)
    copy = pickle.loads(pickle.dumps(source))
    assert repr(copy) == repr(source) == repr(source_of(dataset))
    assert copy[49] == source[49]
    with pytest.raises(IndexError):
        source[50]


def test_a_pipeline_of_grain_reads_it_with_threads_and_goes_on_from_a_checkpoint(
    dataset: records.Records,
) -> None:
    shuffled = grain.MapDataset.source(source_of(dataset)).shuffle(seed=3).map(number)
    expected = [shuffled[i] for i in range(50)]
    assert sorted(expected) == list(range(50)) != expected
    read = iter(shuffled.to_iter_dataset(grain.ReadOptions(num_threads=4, prefetch_buffer_size=8)))
    assert [next(read) for _ in range(20)] == expected[:20]
    state = json.loads(json.dumps(read.get_state()))
    resumed = iter(shuffled.to_iter_dataset())
    resumed.set_state(state)
    assert list(resumed) == expected[20:]


def test_worker_processes_open_the_index_for_themselves(dataset: records.Records) -> None:
    ordered = grain.MapDataset.source(source_of(dataset)).to_iter_dataset()
    options = grain.MultiprocessingOptions(num_workers=1)
    assert [number(element) for element in ordered.mp_prefetch(options)] == list(range(50))


def batches_of(dataset: records.Records, **keys: Any) -> TierIterDataset:
    return TierIterDataset(dataset.path, record="float32", **dataset.keys(**keys))


def numbers(batches: Any) -> list[list[int]]:
    return [[int(row[0]) for row in array] for array, _ in batches]


def test_batches_are_those_of_the_agent_over_all_epochs_in_the_order_of_grain(
    dataset: records.Records,
) -> None:
    batches = batches_of(dataset, shuffle="grain", seed=3)
    read = numbers(batches)
    assert len(read) == 3 * 7
    shuffled = grain.MapDataset.source(source_of(dataset)).shuffle(seed=3).map(number)
    assert [it for batch in read[:7] for it in batch] == [shuffled[i] for i in range(50)]
    assert numbers(batches) == read, "a second iterator begins at the start"
    batches.close()


def test_a_checkpoint_of_what_follows_is_the_position_in_the_order(dataset: records.Records) -> None:
    batches = batches_of(dataset)
    firsts = batches.map(lambda batch: int(batch[0][0, 0]))
    whole = list(firsts)
    read = iter(firsts)
    assert [next(read) for _ in range(7)] == whole[:7]
    state = json.loads(json.dumps(read.get_state()))
    rest = list(read)
    resumed = iter(firsts)
    resumed.set_state(state)
    assert list(resumed) == rest == whole[7:]
    with pytest.raises(tierfeed.Reconfigure, match="leave mp_prefetch out"):
        list(batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=1)))
    batches.close()


def test_a_validation_of_the_job_is_one_pass(dataset: records.Records, tmp_path: Path) -> None:
    other = records.write(tmp_path / "validation", count=20)
    training = batches_of(dataset, **other.as_validation())
    validation = TierIterDataset(dataset="validation", record="float32")
    whole = [list(range(first, min(first + 6, 20))) for first in range(0, 20, 6)]
    for _ in training:
        pass
    for _ in range(2):
        assert numbers(validation) == whole
    read = iter(validation)
    next(read)
    states = [read.get_state(), [None for _ in read] and read.get_state()]
    for state, rest in zip(states, [whole[1:], []], strict=True):
        resumed = iter(validation)
        resumed.set_state(json.loads(json.dumps(state)))
        assert numbers(resumed) == rest
    validation.close()
    training.close()


def test_wrong_arguments_say_what_is_right(dataset: records.Records) -> None:
    with pytest.raises(tierfeed.Reconfigure, match="needs a dataset, or a training under"):
        TierDataSource()
    with pytest.raises(TypeError, match="format= only beside the path"):
        TierDataSource(source_of(dataset).index, format="raw")


def test_the_script_of_the_page_trains_and_goes_on(dataset: records.Records) -> None:
    page.write_cifar(Path("cifar10"))
    said = page.run("grain", "/data/cifar10", "cifar10")
    assert said.splitlines()[-1].startswith("step 6: loss ")
    assert page.run("grain", "/data/cifar10", "cifar10") == "", "all steps were trained"
