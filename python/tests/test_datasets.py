"""Several datasets in one training: one job, one agent, a loader for each."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

import node
import tierfeed
from cluster import STAND_IN
from conftest import SEED, World, make_world
from tierfeed.torch import TierLoader

pytestmark = pytest.mark.node

TRAINER = str(Path(__file__).with_name("passes_trainer.py"))
VALIDATION = 21
BATCH = 8

Pass = tuple[str | None, Any, int | None]


def with_validation(root: Path, *, keys: str = "", **others: Any) -> World:
    """A job over 50 samples with a validation set of 21, of other sizes and labels."""
    generator = random.Random(1)
    for number in range(VALIDATION):
        path = root / "val" / f"kind{number % 2}" / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(generator.randbytes(generator.randint(1, 3000)))
    extra = f"""\
datasets:
  validation:
    source: file://{root / "val"}
    format: image-folder
    batch_size: {BATCH}
{keys}"""
    return make_world(root, extra=extra, **others)


def expected_validation(root: Path, world: World, rank: int) -> list[tuple[list[int], list[int]]]:
    """The checksums and labels of each batch of a rank: dataset order, dealt in turns and padded."""
    files = sorted((root / "val").glob("*/*.jpg"))
    rounds = -(-len(files) // world.ranks)
    ids = [(place * world.ranks + rank) % len(files) for place in range(rounds)]
    batches = [ids[at : at + BATCH] for at in range(0, len(ids), BATCH)]
    crcs = [[zlib.crc32(files[id].read_bytes()) for id in batch] for batch in batches]
    labels = [[int(files[id].parent.name[-1]) for id in batch] for batch in batches]
    return list(zip(crcs, labels, strict=True))


def expected_training(world: World, epoch: int, rank: int) -> list[tuple[list[int], list[int]]]:
    ids = world.torch_order(epoch, rank)
    crcs = [[zlib.crc32(world.content(id)) for id in batch] for batch in ids]
    labels = [[int(world.files[id].parent.name[-1]) for id in batch] for batch in ids]
    return list(zip(crcs, labels, strict=True))


def run(root: Path, world: World, passes: list[Pass]) -> dict[str, Any]:
    """Runs the passes and checks every batch of each; returns the report."""
    line = node.command("run", world.job, "--run-dir", root / "run", "--")
    line += [sys.executable, TRAINER, str(root / "log"), json.dumps(passes)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=node.TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    check(root, world, passes)
    return node.report(root / "run")


def check(root: Path, world: World, passes: list[Pass]) -> None:
    """Compares what the passes gave each rank with what is in the files."""
    for rank in range(world.ranks):
        rows = [json.loads(line) for line in Path(f"{root / 'log'}.{rank}").read_text().splitlines()]
        begun: int | None = None
        for number, (name, epoch, batches) in enumerate(passes):
            given = [(row["crcs"], row["labels"]) for row in rows if row["pass"] == number]
            if name is not None:
                whole = expected_validation(root, world, rank)
            else:
                whole = expected_training(world, epoch if isinstance(epoch, int) else 0, rank)
            assert {row["len"] for row in rows if row["pass"] == number} == {len(whole)}
            if epoch == "go on":
                whole = whole[begun:]
            assert given == whole[:batches], f"rank {rank}, pass {number}: {name}, {epoch}"
            if epoch == "begin":
                begun = batches


@pytest.mark.parametrize("ranks", [1, 2])
def test_training_and_validation_take_turns_in_one_run(tmp_path: Path, ranks: int) -> None:
    world = with_validation(tmp_path, ranks=ranks)
    passes: list[Pass] = []
    for epoch in range(world.epochs):
        passes += [(None, epoch, None), ("validation", None, None)]
    report = run(tmp_path, world, passes)
    assert report["self_read_batches"] == 0
    assert report["wasted_bytes"] == 0
    whole = [path.stat().st_size for path in tmp_path.glob("*/*/*.jpg")]
    cold = [epoch["cold_read_bytes"] for epoch in report["epochs"]]
    named = {it["name"]: it for it in report["datasets"]}
    steps = {name: -(-samples // ranks) for name, samples in [("dataset", 50), ("validation", 21)]}
    batches = {
        "dataset": -(-steps["dataset"] // world.batch_size),
        "validation": -(-steps["validation"] // BATCH),
    }
    for name, per_rank in batches.items():
        assert named[name]["batches"] == per_rank * ranks * world.epochs
    assert sum(it["cold_read_bytes"] for it in named.values()) == sum(cold)
    assert sum(it["demand_bytes"] for it in named.values()) == report["bytes"]
    if ranks == 1:
        assert cold == [sum(whole), 0, 0], "both sets fit, so each sample is read cold once"
    else:
        # Two ranks that do not wait for each other may drop a sample that the other one needs again.
        assert sum(cold[1:]) < sum(whole) / 3


DEPARTURES: dict[str, list[Pass]] = {
    "left-out": [(None, 0, None), (None, 1, None), ("validation", None, None)],
    "left-early": [(None, 0, None), ("validation", None, 1), (None, 1, None), (None, 2, None)],
    "within-an-epoch": [
        (None, "begin", 5),
        ("validation", None, None),
        (None, "go on", None),
        ("validation", None, None),
        (None, 1, None),
    ],
    "before-the-first-epoch": [("validation", None, 2), (None, 0, None), ("validation", None, None)],
    "twice": [(None, 0, None), ("validation", None, None), ("validation", None, None), (None, 1, None)],
    "alone": [("validation", None, None), ("validation", 2, None), ("validation", 0, None)],
}


@pytest.mark.parametrize("departure", DEPARTURES)
def test_a_training_that_departs_from_the_job_gets_the_right_batches(
    tmp_path: Path, departure: str
) -> None:
    world = with_validation(tmp_path, ranks=2)
    run(tmp_path, world, DEPARTURES[departure])


def test_a_validation_after_an_epoch_without_one_is_that_of_the_next_epoch_with_one(
    tmp_path: Path,
) -> None:
    world = with_validation(tmp_path, keys="    every: 2\n", epochs=5)
    passes: list[Pass] = []
    for epoch in range(world.epochs):
        passes += [(None, epoch, None), ("validation", None, None)]
    report = run(tmp_path, world, passes)
    assert report["self_read_batches"] == 0


def connected(world: World, dataset: str | None) -> tierfeed.Feed:
    """A feed without an agent."""
    with pytest.warns(RuntimeWarning, match="directly"):
        return tierfeed.connect(
            rank=0, job=str(world.job), index=str(world.index), dataset=dataset
        )


def test_without_an_agent_each_dataset_is_read_from_its_own_files(tmp_path: Path) -> None:
    world = with_validation(tmp_path)
    beside = world.index.with_name("dataset-validation.index")
    node.run_command("index", tmp_path / "val", "--format", "image-folder", "--output", beside)
    feed = connected(world, "validation")
    assert (feed.samples, feed.batch_size, feed.steps_per_epoch) == (VALIDATION, BATCH, 3)
    loader = TierLoader(feed)
    given = [
        ([zlib.crc32(tensor.numpy()) for tensor in tensors], labels.tolist())
        for tensors, labels in loader
    ]
    assert given == expected_validation(tmp_path, world, 0)
    assert connected(world, None).samples == len(world.files)


def test_a_loader_of_another_framework_takes_the_feed_of_a_dataset(tmp_path: Path) -> None:
    from tierfeed.numpy import TierLoader as ArrayLoader

    world = with_validation(tmp_path)
    beside = world.index.with_name("dataset-validation.index")
    node.run_command("index", tmp_path / "val", "--format", "image-folder", "--output", beside)
    loader = ArrayLoader(connected(world, "validation"), decode=lambda _, label: label)
    given = [labels.tolist() for labels in loader]
    assert given == [labels for _, labels in expected_validation(tmp_path, world, 0)]


def test_a_shuffled_validation_beside_batches_that_no_feed_here_iterates_is_told_its_epoch(
    tmp_path: Path,
) -> None:
    world = with_validation(tmp_path, keys="    shuffle: torch-distributed\n")
    beside = world.index.with_name("dataset-validation.index")
    node.run_command("index", tmp_path / "val", "--format", "image-folder", "--output", beside)
    loader = TierLoader(connected(world, "validation"), decode=lambda sample, _: sample.id)
    order = loader.feed.order
    for epoch in (0, 1, 2, 1):
        loader.set_epoch(epoch)
        steps = range(order.steps_in(epoch, 0))
        assert [ids.tolist() for ids in loader] == [order.batch(epoch, step, 0) for step in steps]


def test_a_dataset_that_the_job_does_not_have_is_named_with_those_it_has(tmp_path: Path) -> None:
    world = with_validation(tmp_path)
    beside = world.index.with_name("dataset-validation.index")
    node.run_command("index", tmp_path / "val", "--format", "image-folder", "--output", beside)
    with pytest.raises(tierfeed.Reconfigure, match="beside `dataset` it has validation"):
        connected(world, "test")


def test_when_the_agent_is_killed_both_loaders_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = with_validation(tmp_path)
    with node.node(world) as started:
        started.adopt(monkeypatch)
        train, val = TierLoader(), TierLoader(dataset="validation")
        batches = iter(val)
        given = [[zlib.crc32(tensor.numpy()) for tensor in next(batches)[0]]]
        started.agent.kill()
        started.agent.wait()
        with pytest.warns(RuntimeWarning, match="directly"):
            given += [[zlib.crc32(tensor.numpy()) for tensor in tensors] for tensors, _ in batches]
            assert len(list(train)) == len(train) == 13
        assert given == [crcs for crcs, _ in expected_validation(tmp_path, world, 0)]


def test_a_folder_that_is_not_there_is_named_by_its_key(tmp_path: Path) -> None:
    world = with_validation(tmp_path)
    world.job.write_text(world.job.read_text().replace(f"{tmp_path}/val", f"{tmp_path}/none"))
    line = node.command("plan", "--simulate", world.job)
    done = subprocess.run(line, capture_output=True, text=True, timeout=node.TIMEOUT_S)
    assert done.returncode == 2
    assert "datasets.validation.source" in done.stderr


def embedded_keys(root: Path, world: World) -> dict[str, Any]:
    """The arguments that say the same as the job file."""
    return {
        "batch_size": world.batch_size,
        "seed": SEED,
        "epochs": world.epochs,
        "chunk": "1 MiB",
        "tiers": {"main-memory": {"size": "16 MiB"}},
        "datasets": {"validation": {"source": str(root / "val"), "batch_size": BATCH}},
    }


def test_a_training_that_starts_its_agent_itself_reads_both_datasets_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = with_validation(tmp_path, ranks=2)
    monkeypatch.chdir(tmp_path)
    passes: list[Pass] = []
    for epoch in range(world.epochs):
        passes += [(None, epoch, None), ("validation", None, None)]
    given = [str(tmp_path / "log"), json.dumps(passes)]
    given += [json.dumps(str(tmp_path / "data")), json.dumps(embedded_keys(tmp_path, world))]
    line = [sys.executable, str(STAND_IN / "torchrun"), "--nproc-per-node", "2", TRAINER, *given]
    done = subprocess.run(line, capture_output=True, text=True, timeout=node.TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    check(tmp_path, world, passes)
    assert len(list((tmp_path / ".tierfeed/runs").iterdir())) == 1, "one run, so one agent"


def test_the_agent_of_two_loaders_ends_with_the_last_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = with_validation(tmp_path)
    monkeypatch.chdir(tmp_path)
    train = TierLoader(str(tmp_path / "data"), **embedded_keys(tmp_path, world))
    val = TierLoader(dataset="validation")
    agent = train.feed._embedded
    assert agent is not None and val.feed._embedded is agent
    train.close()
    train.close()
    assert [labels.tolist() for _, labels in val] == [
        labels for _, labels in expected_validation(tmp_path, world, 0)
    ]
    assert (val.feed.mode, agent.has_ended) == ("agent", False)
    val.close()
    assert agent.has_ended
    with pytest.raises(tierfeed.Gone):
        TierLoader(dataset="validation")


def test_a_loader_that_is_used_again_after_its_end_holds_the_agent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = with_validation(tmp_path)
    monkeypatch.chdir(tmp_path)
    train = TierLoader(str(tmp_path / "data"), **embedded_keys(tmp_path, world))
    val = TierLoader(dataset="validation")
    train.close()
    batches = train.feed.epoch(0)
    next(batches)
    val.close()
    assert {batch.origin for batch in batches} == {"agent"}
    agent = train.feed._embedded
    train.close()
    assert agent is not None and agent.has_ended


def test_a_cell_with_both_loaders_that_is_run_again_replaces_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = with_validation(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    cells = []
    for _ in range(2):
        train = TierLoader(str(tmp_path / "data"), **embedded_keys(tmp_path, world))
        cells.append((train, TierLoader(dataset="validation")))
        assert len(list(cells[-1][1])) == 3
    (first, _), (second, validation) = cells
    assert first.feed._embedded is not None and first.feed._embedded.has_ended
    assert validation.feed._embedded is second.feed._embedded
    assert validation.feed.mode == second.feed.mode == "agent"
    for loader in cells[1]:
        loader.close()
