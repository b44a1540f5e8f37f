"""Transforms where several agents or managers work at a job: one form of samples in all tiers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import node
import photographs
from conftest import World
from test_transforms import CROPPED, photographed
from test_transforms_agent import assert_rows_without_agent


@contextmanager
def manager(world: World, listen: str = "127.0.0.1:0") -> Iterator[list[str]]:
    """The arguments by which agents find it."""
    root = world.job.parent / "manager"
    line = command("manager", world.job, "--listen", listen, "--run-dir", root)
    process = subprocess.Popen(line)
    try:
        address = node.wait_for(lambda: text_of(root / "manager.address"), "the manager")
        yield ["--manager", address, "--token-file", str(root / "token")]
    finally:
        process.kill()
        process.wait()


@contextmanager
def agent(world: World, number: int, found: list[str]) -> Iterator[Path]:
    """The run directory of an agent."""
    root = world.job.parent / f"agent{number}"
    ready = root / "trainer.json"
    ready.unlink(missing_ok=True)
    line = command("agent", *found, "--node", number, "--run-dir", root)
    process = subprocess.Popen(line)
    try:
        node.wait_for(ready.exists, "the agent to serve")
        yield root
    finally:
        process.terminate()
        process.wait(node.TIMEOUT_S)


def command(*arguments: object) -> list[str]:
    return node.command(*arguments)


def text_of(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


@pytest.mark.parametrize("form", ["stored", "prepared"])
def test_nodes_read_the_form_that_all_hold_from_each_other(tmp_path, monkeypatch, form) -> None:
    monkeypatch.chdir(tmp_path)
    transform = {**CROPPED, "cache": form}
    world = photographed(tmp_path, transform, ranks=2, nodes=2, epochs=4)
    world.job.write_text(world.job.read_text() + "policy: partitioned\n")
    with manager(world) as found, agent(world, 0, found) as first, agent(world, 1, found) as second:
        trainers = [
            subprocess.Popen(
                [*command("exec", "--run-dir", root, "--"), *node.trainer(world, "feed", 0.1)],
                env={**os.environ, "TIERFEED_RANK": str(rank)},
            )
            for rank, root in enumerate([first, second])
        ]
        assert [it.wait(node.TIMEOUT_S) for it in trainers] == [0, 0]
    logs = [node.Log.read(node.log_path(world), rank) for rank in range(2)]
    assert_rows_without_agent(world, logs)
    for root in [first, second]:
        report: dict[str, Any] = node.report(root)
        assert (report["transform"]["cached"], report["transform"]["failed"]) == (form, 0)
        assert report["peer_read_bytes"] > 0, report
        is_prepared = report["transform"]["prepared_samples"] > 0
        assert is_prepared == (form == "prepared"), report["transform"]


def test_a_node_that_finds_other_sizes_of_images_than_the_first_one_is_refused(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    world = photographed(tmp_path, {**CROPPED, "cache": "prepared"}, ranks=2, nodes=2)
    world.job.write_text(world.job.read_text() + "policy: partitioned\n")
    elsewhere = tmp_path / "elsewhere"  # where no sizes are known
    elsewhere.mkdir()
    with manager(world) as found, agent(world, 0, found):
        path, before = world.files[8], world.files[8].stat()
        path.write_bytes(photographs.png_of(9, 9).ljust(before.st_size, b"\0"))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        line = command("agent", *found, "--node", 1, "--run-dir", tmp_path / "agent1")
        limit = node.TIMEOUT_S
        done = subprocess.run(line, cwd=elsewhere, capture_output=True, text=True, timeout=limit)
    assert done.returncode == 2, done.stderr
    assert "transform.cache: tiers cannot hold prepared samples" in done.stderr
    assert "have other sizes here than on the first node" in done.stderr


def test_a_manager_that_is_restarted_keeps_the_form_that_was_chosen(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Prepared, they are shorter than stored, and no image is decoded.
    steps = {"steps": [{"resize": 9}, {"random_crop": 8}], "cache": "auto"}
    world = photographed(tmp_path, steps, epochs=5)
    with manager(world) as found, agent(world, 0, found):
        form, reason = scheduled(tmp_path)
    assert form == "prepared" and reason.startswith("an epoch takes"), reason
    world.job.write_text(world.job.read_text())
    address = found[1]
    with manager(world, address) as found, agent(world, 0, found):
        assert scheduled(tmp_path) == ("prepared", "as before the manager was restarted")


def scheduled(root: Path) -> tuple[str, str]:
    """The form that the schedule of the last agent names, and why."""
    lines = (root / "manager" / "schedules.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    transform = [it for it in records if it["event"] == "scheduled"][-1]["schedule"]["transform"]
    return transform["form"], transform["reason"]
