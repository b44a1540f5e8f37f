"""Transforms that take time: a slow one holds up its own batch only, and plans count them as runs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import node
import photographs
from conftest import World, make_world
from test_transforms import CROPPED
from test_transforms_agent import assert_rows_without_agent

SAMPLES = 64

SLOW = {21, 50}
"""Images with some thousand times the pixels of the others."""

STEP_S = 0.03


def content(sample: int) -> bytes:
    if sample in SLOW:
        return photographs.black(6000, 6000)
    return photographs.black(40 + sample, 50)


def traced(world: World) -> list[dict[str, Any]]:
    """The events of a run."""
    run_dir, trace = world.job.with_name("run"), world.job.with_name("trace.json")
    line = node.command("run", world.job, "--run-dir", run_dir, "--trace", trace, "--")
    training = node.trainer(world, "feed", STEP_S)
    done = subprocess.run([*line, *training], capture_output=True, text=True, timeout=node.TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    events: list[dict[str, Any]] = json.loads(trace.read_text())["traceEvents"]
    return events


def ready_at(events: list[dict[str, Any]]) -> dict[tuple[int, int], float]:
    """When each batch was complete in staging memory, by epoch and step."""
    ends = (it for it in events if it.get("cat") == "staging" and it["ph"] == "e")
    places = ((it["name"].removeprefix("batch ").split(":"), it["ts"]) for it in ends)
    return {(int(epoch), int(step)): at for (epoch, step), at in places}


@pytest.mark.node
def test_a_sample_that_takes_long_holds_up_only_its_own_batch(tmp_path: Path) -> None:
    extra = f"threads: 2\ntransform: {json.dumps({**CROPPED, 'cache': 'stored'})}\n"
    world = make_world(tmp_path, samples=SAMPLES, epochs=6, contents=content, extra=extra)
    text = world.job.read_text().replace("size: 16 MiB", "size: 128 MiB")
    world.job.write_text(text)
    events = traced(world)
    log = node.Log.read(node.log_path(world), 0)
    assert_rows_without_agent(world, [log])

    slow = {id for id, file in enumerate(world.files) if int(file.stem) in SLOW}
    places = [(row["epoch"], row["step"]) for row in log.batches]
    held_up = [at for at, row in enumerate(log.batches) if slow & set(row["samples"])]
    ready = ready_at(events)
    overtaken = [
        at
        for at in held_up
        if any(ready[later] < ready[places[at]] for later in places[at + 1 :] if later in ready)
    ]
    # Where both are transformed at the same time, no thread is left for the others.
    assert len(overtaken) * 2 > len(held_up), (overtaken, held_up, ready)

    said = (tmp_path / "run" / "schedules.jsonl").read_text().splitlines()
    lines = [json.loads(line) for line in said]
    first, *revised = [line["schedule"] for line in lines if line["event"] == "scheduled"]
    assert "staged_batches" in first and revised, lines
    assert revised[0]["staged_batches"] > 2 * first["staged_batches"], revised
    assert "transforms samples in" in revised[0]["staged_batches_reason"], revised


def cold_bytes(of: dict[str, Any]) -> list[int]:
    return [epoch["cold_read_bytes"] for epoch in of["epochs"]]


def planned(world: World, *arguments: str) -> dict[str, Any]:
    line = node.command("plan", world.job, *arguments, "--json")
    done = subprocess.run(line, capture_output=True, text=True, timeout=node.TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.node
@pytest.mark.parametrize("cache", ["stored", "prepared", "auto"])
def test_a_plan_with_transforms_says_what_a_run_reads_and_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    monkeypatch.chdir(tmp_path)
    transform = {"steps": [{"resize": [40, 40]}, {"random_crop": 32}], "cache": cache}
    extra = f"prefetch: {{ look_ahead: off }}\ntransform: {json.dumps(transform)}\n"
    world = make_world(tmp_path, samples=SAMPLES, contents=photographs.png, extra=extra)
    # A part of the samples fits, in either form: one has 4,800 bytes prepared, and 10,000 stored.
    text = world.job.read_text().replace("chunk: 1 MiB", "chunk: 64 KiB")
    world.job.write_text(text.replace("size: 16 MiB", "size: 640 KiB"))
    node.run(world, "feed")
    report = node.report(tmp_path / "run")
    form = report["transform"]["cached"]
    assert cache in (form, "auto")
    schedule = planned(world, "--schedule")["schedule"]["transform"]
    assert schedule["form"] == form
    simulated = planned(world, "--simulate")
    assert cold_bytes(simulated) == cold_bytes(report)
    assert 0 < cold_bytes(report)[-1] < cold_bytes(report)[0], "some are kept, and not all"


@pytest.mark.node
def test_a_plan_counts_the_time_that_is_given_for_a_transform(tmp_path: Path) -> None:
    transform = json.dumps({**CROPPED, "cache": "stored"})
    extra = f"threads: 2\nstep_time: 1 ms\ntransform: {transform}\n"
    world = make_world(tmp_path, samples=SAMPLES, contents=photographs.png, extra=extra)
    slow = planned(world, "--simulate", "--transform-time", "20 ms")
    for epoch in slow["epochs"][1:]:
        assert epoch["lower_bound_s"] == pytest.approx(SAMPLES * 0.02 / 2, rel=0.01)
        assert 0.95 * epoch["lower_bound_s"] <= epoch["duration_s"] <= 1.1 * epoch["lower_bound_s"]
    for given, costs_nothing in [([], True), (["--transform-time", "20 ms"], False)]:
        line = node.command("plan", world.job, "--simulate", *given)
        done = subprocess.run(line, capture_output=True, text=True, timeout=node.TIMEOUT_S)
        assert ("transforms are taken to cost nothing" in done.stdout) == costs_nothing, done
