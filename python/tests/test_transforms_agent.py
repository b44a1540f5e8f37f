"""Samples that an agent transforms: the same rows as without one, also where its workers die."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

import node
import photographs
import tierfeed
from conftest import World
from test_transforms import CROPPED, photographed, spoil, workers_of
from tierfeed._native import Patience

PATIENCE_S = Patience().limit_s()
EMBEDDED = str(Path(__file__).with_name("embedded_trainer.py"))


def assert_rows_without_agent(world: World, logs: list[node.Log]) -> None:
    """Each rank got every batch from the agent, with the rows that it makes by itself."""
    for rank, log in enumerate(logs):
        feed = world.direct(rank)
        steps = [
            (epoch, step) for epoch in range(feed.epochs) for step in range(feed.steps_per_epoch)
        ]
        assert [(row["epoch"], row["step"]) for row in log.batches] == steps
        for row, (epoch, step) in zip(log.batches, steps, strict=True):
            batch = feed.batch(epoch, step)
            assert row["crcs"] == [zlib.crc32(sample) for sample in batch], (rank, epoch, step)
            assert row["origin"] == "agent"


def epochs_begun(world: World) -> int:
    """Those of which the trainer has written down a batch."""
    log = Path(f"{node.log_path(world)}.0")
    lines = log.read_text().splitlines() if log.exists() else []
    return len(
        {json.loads(line)["epoch"] for line in lines if '"epoch"' in line and line[-1] == "}"}
    )


def test_rows_of_an_agent_are_those_that_each_rank_makes_by_itself(tmp_path) -> None:
    world = photographed(tmp_path, {**CROPPED, "cache": "stored"}, ranks=2, epochs=2)
    logs = node.run(world, "feed")
    assert_rows_without_agent(world, logs)
    transform = node.report(tmp_path / "run")["transform"]
    assert transform["cached"] == "stored"
    assert transform["samples"] == sum(len(it["crcs"]) for log in logs for it in log.batches)
    assert transform["failed"] == transform["workers_crashed"] == 0


def narrow(root: Path, size: str = "96 KiB") -> World:
    """A world whose main memory has room for hardly more than a batch, of at most 84 KiB."""
    world = photographed(root, {**CROPPED, "cache": "stored"}, epochs=2)
    text = world.job.read_text().replace("chunk: 1 MiB", "chunk: 64 KiB")
    world.job.write_text(text.replace("size: 16 MiB", f"size: {size}"))
    return world


def test_memory_for_one_batch_costs_no_waits(tmp_path) -> None:
    world = narrow(tmp_path)
    [log] = node.run(world, "feed")
    feed = world.direct()
    steps = [(epoch, step) for epoch in range(feed.epochs) for step in range(feed.steps_per_epoch)]
    should = [[zlib.crc32(sample) for sample in feed.batch(*step)] for step in steps]
    assert [row["crcs"] for row in log.batches] == should
    assert node.report(tmp_path / "run")["stall_for_s"]["unanswered"] < PATIENCE_S


@pytest.mark.parametrize("size", ["96 KiB", "128 KiB", "192 KiB"])
def test_a_batch_out_of_turn_waits_for_no_room_that_its_trainer_has(
    tmp_path, monkeypatch, size
) -> None:
    world = narrow(tmp_path, size)
    should = world.direct().batch(1, 3).samples
    with node.node(world) as started:
        started.adopt(monkeypatch)
        feed = tierfeed.connect(rank=0)
        batches = feed.epoch(0)
        kept = next(batches)
        began = time.monotonic()
        assert feed.batch(1, 3).samples == should
        assert time.monotonic() - began < PATIENCE_S
        del kept
        assert [batch.step for batch in batches] == list(range(1, feed.steps_per_epoch))
        feed.close()


def test_tiers_may_hold_what_is_the_same_in_each_epoch(tmp_path) -> None:
    steps = {"steps": [{"resize": [40, 40]}, {"random_crop": 32}], "cache": "prepared"}
    world = photographed(tmp_path, steps, epochs=3)
    assert_rows_without_agent(world, node.run(world, "feed"))
    report = node.report(tmp_path / "run")
    assert report["transform"]["cached"] == "prepared"
    assert sum(report["tier_hits"].values()) > 0


def test_tiers_may_hold_decoded_images_that_have_their_own_size(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # where it is known what the images are
    world = photographed(tmp_path, {**CROPPED, "cache": "prepared"}, epochs=3)
    assert_rows_without_agent(world, node.run(world, "feed"))
    report = node.report(tmp_path / "run")
    assert report["transform"]["cached"] == "prepared"
    assert report["transform"]["failed"] == 0
    # Of the later epochs, each sample comes from a tier.
    assert sum(report["tier_hits"].values()) == 2 * len(world.files)
    (sizes,) = (tmp_path / ".tierfeed" / "indexes").glob("*.sizes")
    assert len(sizes.read_bytes()) == 8 + 8 + 8 * len(world.files) + 8
    replay = node.command("plan", world.job, "--simulate", "--replay", tmp_path / "run")
    done = subprocess.run(replay, capture_output=True, text=True, timeout=node.TIMEOUT_S)
    assert "equal" in done.stdout, done.stdout + done.stderr
    replay.append("--json")
    done = subprocess.run(replay, capture_output=True, text=True, timeout=node.TIMEOUT_S)
    assert json.loads(done.stdout)["assumed"] is None
    # As on another host.
    sizes.unlink()
    done = subprocess.run(replay, capture_output=True, text=True, timeout=node.TIMEOUT_S)
    assert "each is taken to" in json.loads(done.stdout)["assumed"]


def test_the_job_of_a_run_is_planned_from_anywhere_with_the_lengths_that_its_agent_found(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    world = photographed(tmp_path, {**CROPPED, "cache": "prepared"})
    keys = {
        "batch_size": world.batch_size,
        "epochs": world.epochs,
        "chunk": "64 KiB",
        "tiers": {"main-memory": {"size": "704 KiB"}},
        "transform": {**CROPPED, "cache": "prepared"},
    }
    source = str(tmp_path / "data")
    given = [node.log_path(world), "feed", "0", source, json.dumps(keys)]
    subprocess.run([sys.executable, EMBEDDED, *map(str, given)], check=True, timeout=node.TIMEOUT_S)
    (run_dir,) = (tmp_path / ".tierfeed" / "runs").iterdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    plan = node.command("plan", run_dir / "job.yaml", "--simulate", "--json")
    predicted = json.loads(subprocess.run(plan, capture_output=True, check=True).stdout)
    read = [epoch["cold_read_bytes"] for epoch in node.report(run_dir)["epochs"]]
    assert predicted["assumed"] is None
    assert [epoch["cold_read_bytes"] for epoch in predicted["epochs"]] == read
    assert 0 < min(read) < max(read), "some are read again"


def test_an_image_that_was_rewritten_in_another_size_costs_its_place_in_the_tiers(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    world = photographed(tmp_path, {**CROPPED, "cache": "prepared"}, epochs=3)
    node.run(world, "feed")
    path, before = world.files[8], world.files[8].stat()
    path.write_bytes(photographs.png_of(9, 9).ljust(before.st_size, b"\0"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    shutil.rmtree(tmp_path / "run")
    assert_rows_without_agent(world, node.run(world, "feed"))
    report = node.report(tmp_path / "run")
    assert report["transform"]["failed"] == 0
    assert sum(report["tier_hits"].values()) == 2 * (len(world.files) - 1)


def test_an_image_that_claims_more_pixels_than_allowed_is_left_out_where_decoded_images_are_kept(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    limited: dict[str, Any] = {**CROPPED, "cache": "prepared", "limits": {"pixels": 100 * 100}}
    world = photographed(tmp_path, limited, on_error="skip", epochs=2)
    path, before = world.files[9], world.files[9].stat()
    path.write_bytes(photographs.png_of(60_000, 60_000).ljust(before.st_size, b"\0"))
    (log,) = node.run(world, "feed")
    found = [sample for row in log.batches for sample in row["samples"]]
    assert 9 not in found and len(found) == 2 * (len(world.files) - 1)
    report = node.report(tmp_path / "run")
    assert report["transform"]["cached"] == "prepared"
    assert report["skipped_samples"] == 2


@pytest.mark.node
def test_status_and_report_say_what_became_of_samples(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited: dict[str, Any] = {**CROPPED, "cache": "stored", "limits": {"pixels": 100 * 100}}
    world = photographed(tmp_path, limited, on_error="{ skip: 20 % }", epochs=2)
    spoil(world, 4)
    path, before = world.files[9], world.files[9].stat()
    path.write_bytes(photographs.png_of(60_000, 60_000).ljust(before.st_size, b"\0"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with node.node(world) as running:
        running.adopt(monkeypatch)
        feed = tierfeed.connect()
        with pytest.warns(RuntimeWarning, match="is left out"):
            for batch in feed:
                batch.release()
        reasons = {it.sample: it.reason for it in feed.skipped}
        assert "but zeros" in reasons[4] and "60000 x 60000 pixels" in reasons[9]
        line = node.command("status", "--run-dir", tmp_path / "manager")

        def transforms() -> Any:
            done = subprocess.run([*line, "--json"], capture_output=True, text=True, check=True)
            found = json.loads(done.stdout)["joined"][0]["transforms"]
            return found if found and found["rows"] == 2 * (len(world.files) - 2) else None

        # The agent reports every half second.
        found = node.wait_for(transforms, "the manager to know of all rows")
        assert (found["rejected"], found["waiting"], found["replaced"]) == (4, 0, 0)
        assert found["rows_per_s"] > 0 and found["row_ns"] > 0
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        assert re.search(r"transforms: 42 rows, .*/s, .* of a core each; 1 workers, 0", done.stdout)
        running.agent.terminate()
        running.agent.wait()
    report = node.report(tmp_path / "agent")
    assert report["transform"]["failed_for"] == {"damaged": 2, "too-large": 2}
    assert {it["sample"]: it["reason"] for it in report["faults"]} == reasons


def test_auto_looks_at_images_of_own_size_and_says_why_it_chose(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    world = photographed(tmp_path, {**CROPPED, "cache": "auto"}, epochs=2)
    assert_rows_without_agent(world, node.run(world, "feed"))
    transform = node.report(tmp_path / "run")["transform"]
    reason = "an epoch takes .* with stored samples, which .* and .* with prepared ones"
    assert re.search(reason, transform["cached_because"]), transform
    # A plan on this host decides by what the agent measured.
    plan = node.command("plan", world.job, "--schedule", "--json")
    done = subprocess.run(plan, capture_output=True, text=True, timeout=node.TIMEOUT_S, check=True)
    planned = json.loads(done.stdout)["schedule"]["transform"]
    log = (tmp_path / "run" / "schedules.jsonl").read_text().splitlines()
    scheduled = json.loads(log[0])["schedule"]["transform"]
    for key in ["form", "prepare_ns", "rest_ns", "prepared_mean_bytes", "times_from"]:
        assert planned[key] == scheduled[key], (planned, scheduled)
    assert scheduled["prepare_ns"] > 0


def test_where_no_image_states_a_size_prepared_is_an_error_and_auto_takes_the_stored_form(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small: dict[str, Any] = {**CROPPED, "cache": "prepared", "limits": {"pixels": 1100}}
    world = photographed(tmp_path, small, on_error="skip", epochs=2)
    line = node.command("run", world.job, "--run-dir", tmp_path / "run", "--", "true")
    done = subprocess.run(line, capture_output=True, text=True, timeout=node.TIMEOUT_S)
    assert done.returncode == 2, done.stderr
    said = "job.yaml:12: transform.cache: tiers cannot hold prepared samples here, whose lengths"
    assert said in done.stderr
    assert "none of 23 heads states a size within `limits.pixels`" in done.stderr
    world.job.write_text(world.job.read_text().replace('"prepared"', '"auto"'))
    done = subprocess.run(line, capture_output=True, text=True, timeout=node.TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    transform = node.report(tmp_path / "run")["transform"]
    assert transform["cached"] == "stored"
    # No image becomes a row within such a limit.
    assert transform["cached_because"] == "the time of a transform was not measured"


def test_an_interrupt_ends_a_scan_of_images_at_once(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    world = photographed(tmp_path, {**CROPPED, "cache": "prepared"}, epochs=1)
    slow = "dataset:\n  emulate: { bandwidth: 1 GB/s, latency: 3 s }\n"
    world.job.write_text(world.job.read_text().replace("dataset:\n", slow))
    line = node.command("run", world.job, "--run-dir", tmp_path / "run", "--", "true")
    running = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    said = iter(running.stderr.readline, "")
    assert any("scanning the heads of images" in it for it in said)
    running.send_signal(signal.SIGINT)
    rest = "".join(said)
    assert running.wait(node.TIMEOUT_S) == 128 + signal.SIGINT, rest
    assert "stopped by SIGINT before the training was started" in rest
    assert "the sizes of images are known" not in rest
    assert "did not end within" not in rest


def test_the_form_that_tiers_hold_follows_from_the_measured_time_of_a_transform(tmp_path) -> None:
    steps = {"steps": [{"resize": [40, 40]}, {"random_crop": 32}], "cache": "auto"}
    world = photographed(tmp_path, steps, epochs=2)
    assert_rows_without_agent(world, node.run(world, "feed"))
    transform = node.report(tmp_path / "run")["transform"]
    reason = "an epoch takes .* with stored samples, which .* and .* with prepared ones"
    assert re.search(reason, transform["cached_because"]), transform


def test_workers_that_are_killed_cost_no_row(tmp_path) -> None:
    world = photographed(tmp_path, CROPPED, epochs=4)
    line = node.command("run", world.job, "--run-dir", tmp_path / "run", "--")
    training = subprocess.Popen([*line, *node.trainer(world, "feed", 0.05)])
    killed = 0
    while training.poll() is None:
        # One in each epoch: the sample of the last one is done by then, so none loses two workers.
        if killed == epochs_begun(world):
            time.sleep(0.02)
        elif found := workers_of(training.pid):
            os.kill(found.pop(), signal.SIGKILL)
            killed += 1
    assert (training.returncode, killed) == (0, world.epochs)
    assert_rows_without_agent(world, [node.Log.read(node.log_path(world), 0)])
    assert node.report(tmp_path / "run")["transform"]["workers_crashed"] >= 1


def test_an_image_that_is_none_is_left_out_with_skip_and_named(tmp_path) -> None:
    world = photographed(tmp_path, CROPPED, on_error="skip", epochs=1)
    spoil(world, 9)
    (log,) = node.run(world, "feed")
    found = [sample for row in log.batches for sample in row["samples"]]
    assert 9 not in found
    report = node.report(tmp_path / "run")
    assert (report["skipped_samples"], report["transform"]["failed"]) == (1, 1)


def test_an_image_that_is_none_ends_training_with_fail_and_is_named(tmp_path) -> None:
    world = photographed(tmp_path, CROPPED, epochs=1)
    spoil(world, 9)
    done = run_in_vain(world)
    assert "sample 9" in done.stderr and world.files[9].name in done.stderr, done.stderr


def test_an_image_larger_than_its_limit_is_refused(tmp_path) -> None:
    limited: dict[str, Any] = {**CROPPED, "limits": {"pixels": 32 * 32}}
    world = photographed(tmp_path, limited, epochs=1)
    done = run_in_vain(world)
    assert "pixels" in done.stderr, done.stderr


def run_in_vain(world: World) -> subprocess.CompletedProcess[str]:
    run_dir = world.job.with_name("run")
    line = node.command("run", world.job, "--run-dir", run_dir, "--", *node.trainer(world, "feed"))
    done = subprocess.run(line, capture_output=True, text=True, timeout=node.TIMEOUT_S)
    assert done.returncode != 0
    return done
