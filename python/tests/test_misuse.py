"""Calls that cannot work: each fails at once, with a sentence that says what to do instead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest
import torch
from torch.utils.data import DataLoader, default_collate
from torch.utils.data.distributed import DistributedSampler

import needs
import tierfeed
from conftest import SEED, World, make_world
from tierfeed.arguments import job_file
from tierfeed.torch import TierDataset, TierDistributedSampler, TierLoader

pytestmark = pytest.mark.filterwarnings("ignore:tierfeed:RuntimeWarning")


def named(world: World, id: int) -> str:
    """A file as messages call it."""
    return str(world.files[id].relative_to(world.job.parent / "data"))


def broken(sample: tierfeed.Sample, label: int) -> torch.Tensor:
    """Fails for every third sample."""
    if sample.id % 3 == 0:
        raise ValueError(f"no picture in {sample.id}")
    return torch.tensor([sample.id])


def test_two_iterators_of_one_loader_fail_at_once(world: World) -> None:
    with TierLoader(world.direct()) as loader:
        first, second = iter(loader), iter(loader)
        next(first), next(second)
        with pytest.raises(tierfeed.Reconfigure, match="another one of the same feed or loader began"):
            next(first)
        assert len(list(second)) == 12, "the one that began last goes on"
        assert len(list(zip(range(2), loader, strict=False))) == 2, "and so does a new one"


def test_two_iterators_of_one_feed_fail_at_once_beside_an_agent(running: object) -> None:
    begun = time.monotonic()
    with tierfeed.connect() as feed:
        first, second = feed.epoch(0), feed.epoch(0)
        next(first), next(first), next(second)
        with pytest.raises(tierfeed.Reconfigure, match="handed out once"):
            for _ in first:
                pass
        assert [batch.step for batch in second] == list(range(1, 13))
    assert time.monotonic() - begun < 30, "nobody waits for a batch that another has"


def test_a_pass_that_is_over_or_forgotten_is_in_nobodys_way(world: World) -> None:
    feed = world.direct()
    whole = list(feed.epoch(0))
    forgotten = feed.epoch(0)
    next(forgotten)
    assert [batch.samples for batch in feed.epoch(1)] == world.torch_order(1, 0)
    assert [batch.samples for batch in whole] == world.torch_order(0, 0)


@pytest.mark.parametrize("threads", [0, 2])
def test_a_sample_that_cannot_be_decoded_names_its_file(world: World, threads: int) -> None:
    loader = TierLoader(world.direct(), decode=broken, decode_threads=threads)
    with loader, pytest.raises(ValueError, match="no picture in") as caught:
        list(loader)
    number = int(str(caught.value).split()[-1])
    assert caught.value.__notes__ == [f"while decoding sample {number}, {named(world, number)}"]
    dataset = TierDataset(world.direct(), decode=broken)
    with pytest.raises(ValueError) as caught:
        dataset.__getitems__([1, 6])
    assert caught.value.__notes__ == [f"while decoding sample 6, {named(world, 6)}"]


@pytest.mark.parametrize("threads", [0, 2])
def test_skipping_covers_decoding_and_lists_the_files(tmp_path, threads: int) -> None:
    world = make_world(tmp_path, on_error="skip")
    with TierLoader(world.direct(), decode=broken, decode_threads=threads) as loader:
        with pytest.warns(RuntimeWarning, match=r"left out \(ValueError: no picture in") as caught:
            batches = list(loader)
        said = [str(it.message) for it in caught if "left out" in str(it.message)]
        assert len(said) == 3, "the first one, the tenth, and the end of the epoch"
        assert "the 10th" in said[1] and "17 samples were left out in epoch 0" in said[2]
        order = [id for batch in world.torch_order(0, 0) for id in batch]
        assert [int(id) for batch in batches for id in batch] == [id for id in order if id % 3]
        left_out = {id for id in order if id % 3 == 0}
        assert {it.sample for it in loader.skipped} == left_out
        assert {it.object for it in loader.skipped} == {named(world, id) for id in left_out}
        assert loader.skipped[0].reason.startswith("ValueError: no picture in")
        assert loader.feed.faults == len(loader.skipped) == sum(1 for id in order if id % 3 == 0)


@pytest.mark.parametrize("threads", [0, 2])
def test_in_the_place_of_a_batch_of_which_nothing_is_left_another_one_is_handed_out(
    tmp_path, threads: int
) -> None:
    world = make_world(tmp_path, on_error="skip", batch_size=1)
    feeds = [world.direct(), world.direct()]
    for id in (3, 4):
        world.files[id].unlink()
    order = [id for batch in world.torch_order(0, 0) for id in batch]
    with TierLoader(feeds[0], decode=broken, decode_threads=threads) as loader:
        batches = [int(batch) for batch in loader]
        assert len(batches) == len(loader) == 50, "as many as every other rank has"
        kept = [id for id in order if id % 3 and id != 4]
        assert [it for it, id in zip(batches, order, strict=True) if id in kept] == kept
        assert set(batches) == set(kept)
        unreadable = {it.sample: it.reason for it in loader.skipped if it.sample in (3, 4)}
        assert unreadable.keys() == {3, 4}
        for sample, reason in unreadable.items():
            assert f"{world.files[sample]} is gone" in reason
        assert int(loader.batch(0, order.index(4))) in kept
    with TierLoader(feeds[1]) as loader:
        assert len(list(loader)) == 50


def test_batches_of_one_size_are_filled_up_with_what_is_left_of_them(tmp_path) -> None:
    world = make_world(tmp_path, on_error="skip")
    feeds = [world.direct(), world.direct()]
    first = world.torch_order(0, 0)[0]
    world.files[first[1]].unlink()
    left = [first[0], *first[2:], first[0]]
    for feed, decode in zip(feeds, (lambda sample, _: sample.id, None), strict=True):
        collate = list if decode is None else torch.tensor
        loader = TierLoader(feed, decode=decode, collate=collate, short_batch="drop")
        batches = list(loader)
        assert [len(batch) for batch in batches] == [4] * 12 and len(loader) == 12
        if decode is None:
            assert [bytes(it.numpy()) for it, _ in batches[0]] == [world.content(id) for id in left]
        else:
            assert batches[0].tolist() == left


def test_an_epoch_without_samples_is_an_error(tmp_path) -> None:
    world = make_world(tmp_path, on_error="skip")

    def fails(sample: tierfeed.Sample, label: int) -> None:
        raise ValueError("no picture")

    with pytest.raises(tierfeed.SampleError, match="50 samples .* epoch 0 .* leaves out 49 at most"):
        list(TierLoader(world.direct(), decode=fails))


def test_an_ordinary_loader_is_told_of_a_batch_of_which_nothing_is_left(tmp_path) -> None:
    world = make_world(tmp_path, on_error="skip")
    dataset = TierDataset(world.direct(), decode=broken)
    nothing = dataset.__getitems__([0, 3, 6, 9])
    assert nothing == [], "a collate_fn of one's own may go on"
    with pytest.raises(tierfeed.SampleError, match="nothing is left of the batch of samples 0, 3, 6, 9"):
        default_collate(nothing)
    assert len(dataset.__getitems__([0, 3, 1, 9])) == 1
    with pytest.raises(tierfeed.SampleError, match="sample 3 is left out"):
        dataset[3]


def test_permission_denied_is_said_with_its_number(world: World) -> None:
    if os.geteuid() != 0:
        needs.skip("superuser", "only root becomes another user")
    impatient = world.job.read_text().replace("format:", "patience: 0 s\n  format:", 1)
    world.job.write_text(impatient)
    code = (
        "import os, sys, tierfeed, warnings; warnings.simplefilter('ignore')\n"
        "os.setgid(65534), os.setuid(65534)\n"
        f"job, index = {str(world.job)!r}, {str(world.index)!r}\n"
        "feed = tierfeed.connect(job=job, index=index, rank=0)\n"
        "try: feed.read([5])\n"
        "except tierfeed.SampleError as error: print(error.reason, error.errno, error)"
    )
    for folder in [world.index.parent, *world.index.parents]:
        folder.chmod(folder.stat().st_mode | 0o555)
    world.files[5].chmod(0)
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert printed.stdout.startswith("permission-denied 13 "), printed
    assert str(world.files[5]) in printed.stdout


def test_what_is_no_feed_is_refused_with_what_would_be(world: World) -> None:
    for wrong in ("/data", world.index, DataLoader([1])):
        for make in (TierLoader, TierDataset, TierDistributedSampler):
            if make is TierLoader and not isinstance(wrong, DataLoader):
                continue  # the path of a dataset
            with pytest.raises(TypeError, match=r"pass what tierfeed.connect\(\) returned"):
                make(wrong)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("num_workers", "decode_threads="),
        ("batch_size", "job file says it: batch_size"),
        ("shuffle", "order.shuffle"),
        ("collate_fn", "called collate="),
        ("pin_memory_device", "pin_memory="),
        ("drop_last", 'short_batch="drop".*order={"drop_last": ...}'),
        ("persistent_workers", "no worker processes.*decode_threads="),
        ("prefetch_factor", 'prefetch={"batches": 4}'),
        ("sampler", "shuffle= beside the path.*TierDataset"),
        ("decode_thread", "did you mean decode_threads="),
        ("nonsense", "it takes decode, decode_threads, collate, pin_memory, device"),
    ],
)
def test_arguments_of_other_loaders_are_refused_with_what_they_are_here(
    world: World, name: str, advice: str
) -> None:
    for source in (world.direct(), "/data/train"):
        if source == "/data/train" and name in ("batch_size", "shuffle"):
            continue  # arguments beside the path of a dataset
        with pytest.raises(TypeError, match=f"TierLoader takes no {name}=.*{advice}"):
            TierLoader(source, **{name: 1})


def test_a_generator_of_pytorch_is_no_generator_of_a_job() -> None:
    with pytest.raises(TypeError, match="takes no generator=: the order is drawn from seed="):
        TierLoader("/data/train", batch_size=4, generator=torch.Generator())


def test_keys_of_the_order_may_stand_in_a_mapping() -> None:
    text = job_file("/data", {"seed": 1, "order": {"drop_last": True}})
    order = json.loads(text.partition("\n")[2])["order"]
    assert order == {"shuffle": "torch-distributed", "seed": 1, "drop_last": True}
    with pytest.raises(TypeError, match="seed= is given twice"):
        job_file("/data", {"seed": 1, "order": {"seed": 2}})
    with pytest.raises(TypeError, match="order is 3"):
        job_file("/data", {"order": 3})


def test_a_loader_is_not_a_dataset(world: World) -> None:
    loader = DataLoader(TierLoader(world.direct()), batch_size=2)
    with pytest.raises(TypeError, match="TierLoader is a loader itself"):
        next(iter(loader))


@pytest.mark.parametrize("make", [TierLoader, TierDataset, TierDistributedSampler])
def test_an_epoch_that_cannot_be_is_refused(world: World, make: type) -> None:
    it = make(world.direct())
    with pytest.raises(IndexError, match="epochs count from 0"):
        it.set_epoch(-1)
    with pytest.raises(TypeError):
        it.set_epoch(1.5)
    it.set_epoch(2)


@pytest.mark.parametrize("threads", [0, 2])
def test_closing_a_loader_that_is_iterated_is_an_error_of_the_iteration(
    world: World, threads: int
) -> None:
    loader = TierLoader(world.direct(), decode=lambda _, label: label, decode_threads=threads)
    batches = iter(loader)
    next(batches)
    loader.close()
    with pytest.raises(tierfeed.Reconfigure, match="closed while it was iterated"):
        next(batches)
    assert len(list(loader)) == 13, "a new iteration begins anew"


def test_a_sampler_finds_its_feed_as_its_siblings_do(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERFEED_JOB", str(world.job))
    monkeypatch.setenv("TIERFEED_INDEX", str(world.index))
    theirs = DistributedSampler(world.files, num_replicas=1, rank=0, shuffle=True, seed=SEED)
    assert list(TierDistributedSampler()) == list(theirs)


def test_a_sampler_that_repeats_an_epoch_is_told_once(world: World) -> None:
    dataset = TierDataset(world.direct(), decode=lambda _, label: label)
    loader = DataLoader(dataset, sampler=TierDistributedSampler(dataset.feed), batch_size=4)
    list(loader)
    with pytest.warns(RuntimeWarning, match="set_epoch"):
        list(loader)


def test_without_tierfeed_a_process_is_told_how_to_start_it(tmp_path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import tierfeed\ntierfeed.connect()\n")
    done = subprocess.run(
        [sys.executable, str(script), "--lr", "0.1"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert f"tierfeed run job.yaml -- python {script} --lr 0.1" in done.stderr
    assert "tierfeed exec --" in done.stderr and "TIERFEED_JOB=job.yaml" in done.stderr
