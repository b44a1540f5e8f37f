"""Reports of ten differently shaped runs, each compared with a stop-watch in the training."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import node
from conftest import World, make_world
from node import command, wait_for
from test_bucket import RECORD, RECORDS, Handler, Server

pytestmark = pytest.mark.node

TRAINER = str(Path(__file__).with_name("timed_trainer.py"))

# Between the two readings of a clock at an end of a wait lie some lines of Python, for each batch.
SLACK_SHARE, SLACK_BATCH_S, SLACK_S = 0.02, 0.0005, 0.02

UNITS_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
TIME = r"([\d.]+ (?:ns|us|ms|s))"
SENTENCE = re.compile(
    r"(\d+) of (\d+) batches served by the agent"
    r"(?:, (\d+) read by the (?:trainers|loader workers) themselves)?; (?:trainers|loader workers) "
    rf"(hardly waited:|waited) {TIME} of {TIME} \(([\d.]+) %\)(?:: ([^;]+))?"
    rf"(?:; {TIME} of it for the first batch)?"
    rf"(?:; the training had no processor for {TIME} \(([\d.]+) %\))?"
)

# Nothing is read ahead while no training is there.
STAGED_ONLY = "prefetch: { look_ahead: off }\n"


def emulated(world: World, store: str) -> World:
    """The job on a cold store of this speed."""
    text = world.job.read_text()
    world.job.write_text(text.replace("  format:", f"  emulate: {store}\n  format:"))
    return world


def line(watch: Path, shape: str) -> list[str]:
    """The command line of the training."""
    return [sys.executable, TRAINER, str(watch), shape]


def run(job: Path, shape: str, ranks: int = 1) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """`tierfeed run`; returns the report after comparing it with the watches, and these."""
    run_dir, watch = job.with_name("run"), job.with_name("watch")
    done = subprocess.run(
        command("run", job, "--run-dir", run_dir, "--", *line(watch, shape)),
        capture_output=True,
        text=True,
        timeout=node.TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((run_dir / "report.json").read_text())
    assert f"{report['job']}: {report['verdict']}" in done.stderr
    watches = read_watches(watch, ranks)
    compare(report, watches)
    return report, watches


def read_watches(watch: Path, ranks: int) -> list[dict[str, Any]]:
    """What the trainers measured."""
    return [json.loads(Path(f"{watch}.{rank}").read_text()) for rank in range(ranks)]


def compare(report: dict[str, Any], watches: list[dict[str, Any]]) -> None:
    """Batches, samples and waits of the report are those of the watches, and its first line is right."""
    waited_s, batches = total(watches, "waited_s"), total(watches, "batches")
    delayed_s = total(watches, "delayed_s")
    show(report, watches)
    reported_s = report["stall_s"] * max(report["readers"], 1)
    # What the kernel kept from a processor may have stood between two readings of a clock.
    slack_s = SLACK_SHARE * waited_s + SLACK_BATCH_S * batches + SLACK_S + delayed_s
    assert abs(reported_s - waited_s) <= slack_s, (reported_s, waited_s, slack_s)
    assert report["used_batches"] == batches
    assert report["used_batches"] == report["steps"] + report["self_read_batches"]
    assert report["samples"] + report["self_read_samples"] == total(watches, "samples")
    assert report["self_read_batches"] >= total(watches, "direct_batches")
    assert sum(report["stall_for_s"].values()) == pytest.approx(report["stall_s"])
    assert report["stall_s"] <= report["wall_s"] and report["lower_bound_s"] <= report["wall_s"]
    longest_s = max(it["lived_s"] for it in watches)
    assert report["wall_s"] <= longest_s + SLACK_S + delayed_s
    assert 0 <= report["no_processor_s"] <= report["wall_s"]
    compare_sentence(report)


def show(report: dict[str, Any], watches: list[dict[str, Any]]) -> None:
    """Both, as they stand in the log of a run with `-rP`."""
    shown = [
        f"waited {it['waited_s']:.3f} s for {it['batches']} batches in {it['lived_s']:.2f} s"
        f" (no processor for {it['delayed_s']:.3f} s)"
        for it in watches
    ]
    print(f"\n{report['verdict']}\n  stop-watch: {'; '.join(shown)}")


def compare_sentence(report: dict[str, Any]) -> None:
    """The first line says what the figures say."""
    found = SENTENCE.fullmatch(report["verdict"])
    assert found is not None, report["verdict"]
    served, used, self_read, waited, stall, wall, percent, causes, first, starved, _ = (
        found.groups()
    )
    assert int(served) == report["steps"] and int(used) == report["used_batches"]
    assert int(self_read or 0) == report["self_read_batches"]
    assert seconds(stall) == pytest.approx(report["stall_s"], rel=0.01, abs=1e-8)
    assert seconds(wall) == pytest.approx(report["wall_s"], rel=0.01)
    share = report["stall_s"] / report["wall_s"]
    assert float(percent) == pytest.approx(100 * share, abs=0.1)
    assert waited == ("hardly waited:" if share < 0.005 and not self_read else "waited")
    if first is not None:
        assert seconds(first) == pytest.approx(report["first_stall_s"], rel=0.01)
    assert (starved is not None) == (report["no_processor_s"] >= 0.05 * report["wall_s"])
    if starved is not None:
        assert seconds(starved) == pytest.approx(report["no_processor_s"], rel=0.01)
    parts = sorted(report["stall_for_s"].values(), reverse=True)
    said = [float(part.split(" %")[0]) for part in (causes or "").split(", ") if part]
    for percent_said, part_s in zip(said, parts, strict=False):
        assert percent_said == pytest.approx(100 * part_s / report["stall_s"], abs=0.6)


def seconds(text: str) -> float:
    """What a time of the first line means."""
    number, unit = text.split()
    return float(number) * UNITS_S[unit]


def total(watches: list[dict[str, Any]], key: str) -> Any:
    """Of all ranks together."""
    return sum(it[key] for it in watches)


def assert_mostly(report: dict[str, Any], cause: str, least: float) -> None:
    """Waits were for this cause, and the first line begins with it."""
    causes: dict[str, float] = report["stall_for_s"]
    assert causes[cause] >= least * report["stall_s"], causes
    assert PHRASES[cause] in report["verdict"].split(": ")[1].split(",")[0], report["verdict"]


PHRASES = {
    "cold-store": "for the cold store",
    "cxl-memory": "for copies from cxl-memory",
    "self-read": "reading batches themselves",
    "decoding": "decoding",
}


def changes(report: dict[str, Any]) -> set[str]:
    """What is advised."""
    return {advice["change"] for advice in report["advice"]}


def served(report: dict[str, Any], count: int) -> bool:
    """Whether all batches of the run came from the agent."""
    return bool(report["verdict"].startswith(f"{count} of {count} batches served by the agent; "))


def test_a_command_that_reads_nothing(tmp_path: Path) -> None:
    world = make_world(tmp_path, samples=4, epochs=1)
    run_dir = tmp_path / "run"
    line = command("run", world.job, "--run-dir", run_dir, "--", "true")
    done = subprocess.run(line, capture_output=True, text=True, timeout=node.TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    report = node.report(run_dir)
    assert report["verdict"] == "no batch was used: no trainer connected"
    assert (report["used_batches"], report["stall_s"], report["advice"]) == (0, 0, [])


def test_a_training_that_is_fed_in_time(tmp_path: Path) -> None:
    report, watches = run(make_world(tmp_path).job, "loader")
    assert served(report, 39)
    assert report["wall_s"] > 39 * 0.02
    assert report["stall_s"] < 0.2 * report["wall_s"] + total(watches, "delayed_s")


def test_a_training_that_other_work_keeps_from_the_processor(tmp_path: Path) -> None:
    report, (watch,) = run(make_world(tmp_path).job, "starved")
    assert served(report, 39)
    assert watch["starved_s"] > 0.3, "a third of a processor, for 0.4 s of work"
    assert report["no_processor_s"] == pytest.approx(watch["starved_s"], rel=0.15, abs=0.15)
    assert "; the training had no processor for " in report["verdict"]
    assert "processors" in changes(report)


def test_a_training_that_starves_on_decoding(tmp_path: Path) -> None:
    report, watches = run(make_world(tmp_path).job, "decoding")
    assert served(report, 39)
    assert_mostly(report, "decoding", 0.7)
    decoded_s = total(watches, "decoded_s")
    slack_s = 39 * SLACK_BATCH_S + SLACK_S + total(watches, "delayed_s")
    assert decoded_s <= report["stall_for_s"]["decoding"] <= decoded_s * 1.02 + slack_s
    assert "hardly" not in report["verdict"]
    assert changes(report) & {"decode-threads", "cheaper-decoding"}


def test_threads_that_decode_too_slowly_count_as_decoding(tmp_path: Path) -> None:
    report, _ = run(make_world(tmp_path).job, "threads")
    assert served(report, 39)
    assert_mostly(report, "decoding", 0.7)


def test_a_training_that_waits_for_the_cold_store(tmp_path: Path) -> None:
    world = make_world(tmp_path, sizes=(20_000, 30_000), extra=f"policy: none\n{STAGED_ONLY}")
    report, _ = run(emulated(world, "{ latency: 2 ms, bandwidth: 2 MB/s }").job, "feed")
    assert served(report, 39)
    assert_mostly(report, "cold-store", 0.8)
    # The store itself takes 1.9 s, a little of which passes before the training is there.
    assert report["stall_for_s"]["cold-store"] > 1.2
    assert "cold-bandwidth" in changes(report)


def test_a_sampler_that_does_not_follow_the_order(tmp_path: Path) -> None:
    world = emulated(make_world(tmp_path), "{ latency: 5 ms, bandwidth: 50 MB/s }")
    report, _ = run(world.job, "direct")
    assert report["verdict"].startswith(
        "0 of 39 batches served by the agent, 39 read by the trainers themselves; trainers waited "
    )
    assert_mostly(report, "self-read", 0.9)
    assert report["self_read_samples"] == 50 * 3
    assert changes(report) - {"processors"} == {"order"}


def test_samples_that_are_skipped(tmp_path: Path) -> None:
    world = emulated(
        make_world(tmp_path, on_error="{ skip: 20 % }"), "{ latency: 20 ms, bandwidth: 50 MB/s }"
    )
    run_dir = tmp_path / "run"
    run_dir.mkdir(mode=0o700)
    # Known to the index of the run, and gone when they are read.
    script = 'rm "$1" "$2" "$3" "$4" "$5" && shift 5 && exec "$@"'
    watch = tmp_path / "watch"
    vanish = ["sh", "-c", script, "sh", *map(str, world.files[-5:])]
    done = subprocess.run(
        command("run", world.job, "--run-dir", run_dir, "--", *vanish, *line(watch, "slow")),
        capture_output=True,
        text=True,
        timeout=node.TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    report, watches = node.report(run_dir), read_watches(watch, 1)
    compare(report, watches)
    assert served(report, 39)
    assert report["skipped_samples"] == 50 * 3 - total(watches, "samples")
    assert report["skipped_samples"] in (6, 9, 12, 15), (
        "what was read before they vanished is cached"
    )


def test_an_agent_that_was_killed(tmp_path: Path) -> None:
    world = make_world(tmp_path, epochs=4)
    watch = tmp_path / "watch"
    with node.node(world) as running:
        exe = command("exec", "--run-dir", running.root / "agent", "--", *line(watch, "slow"))
        training = subprocess.Popen(exe)
        wait_for(lambda: running.metric("tierfeed_batches_total") >= 5, "some batches")
        running.agent.kill()
        running.agent.wait()
        running.start_agent()
        assert training.wait(node.TIMEOUT_S) == 0
        running.agent.terminate()
        assert running.agent.wait(node.TIMEOUT_S) == 0
        report = node.report(running.root / "agent")
    (watched,) = watches = read_watches(watch, 1)
    show(report, watches)
    compare_sentence(report)
    assert watched["batches"] == 13 * 4
    # The rest of the epoch in which the first one died, to the batch.
    assert report["self_read_batches"] == watched["direct_batches"] > 0
    # What the first agent had served, it would have reported: the beginning of that epoch.
    assert report["used_batches"] + 5 <= watched["batches"]
    assert (report["used_batches"] - report["self_read_batches"]) % 13 == 0
    assert report["stall_s"] <= watched["waited_s"] + SLACK_S


def test_two_ranks_of_which_one_is_slow(tmp_path: Path) -> None:
    world = make_world(tmp_path, ranks=2, sizes=(20_000, 30_000), extra="policy: none\n")
    world = emulated(world, "{ latency: 2 ms, bandwidth: 3 MB/s }")
    report, watches = run(world.job, "ranks", ranks=2)
    assert report["readers"] == 2
    assert served(report, 2 * 21)
    fast, slow = (it["waited_s"] for it in watches)
    assert fast > slow
    assert_mostly(report, "cold-store", 0.7)


def test_one_batch(tmp_path: Path) -> None:
    world = make_world(tmp_path, samples=4, epochs=1, shuffle="published")
    report, _ = run(emulated(world, "{ latency: 200 ms, bandwidth: 1 MB/s }").job, "published")
    assert served(report, 1)
    assert_mostly(report, "cold-store", 0.5)
    assert report["stall_for_s"]["cold-store"] >= 0.2
    assert report["first_stall_s"] == pytest.approx(report["stall_s"])
    assert " of it for the first batch" in report["verdict"]


def test_emulated_tiers(tmp_path: Path) -> None:
    world = make_world(
        tmp_path,
        sizes=(200_000, 300_000),
        extra="  cxl-memory: { size: 16 MiB, emulate: { latency: 1 us, bandwidth: 8 MB/s } }\n",
    )
    text = world.job.read_text().replace("{ size: 16 MiB }", "{ size: 8 MiB }")
    world.job.write_text(text)
    # A tier that is much slower than the cold store is left out.
    report, _ = run(emulated(world, "{ latency: 1 ms, bandwidth: 10 MB/s }").job, "feed")
    assert served(report, 39)
    assert any(tier["emulated"] for tier in report["tiers"])
    assert report["tier_hits"]["cxl-memory"] > 0
    # What it holds is read again in two epochs, at its rate.
    least_s = 0.5 * report["tier_read_bytes"]["cxl-memory"] / 8e6
    assert_mostly(report, "cxl-memory", 0.5)
    assert report["stall_for_s"]["cxl-memory"] > least_s > 0.5


class SlowHandler(Handler):
    """One object at a time, 15 ms each."""

    turn = threading.Lock()

    def do_GET(self) -> None:
        if "list-type=2" not in self.path:
            with self.turn:
                time.sleep(0.015)
        super().do_GET()


def test_a_bucket(tmp_path: Path) -> None:
    server = Server(os.urandom(RECORD * RECORDS))
    server.RequestHandlerClass = SlowHandler
    threading.Thread(target=server.serve_forever, daemon=True).start()
    job = tmp_path / "job.yaml"
    job.write_text(
        f"""\
name: bucket
dataset:
  source: s3://bucket/data
  endpoint: http://127.0.0.1:{server.server_port}
  anonymous: true
  format: files
  glob: "*"
order: {{ shuffle: torch-distributed, seed: 7, epochs: 2 }}
batch_size: 4
chunk: 1 MiB
policy: none
{STAGED_ONLY}tiers:
  main-memory: {{ size: 16 MiB }}
"""
    )
    try:
        report, _ = run(job, "feed")
    finally:
        server.shutdown()
    assert served(report, 26)
    assert_mostly(report, "cold-store", 0.8)
    # Each of them twice, a little of which passes before the training is there.
    assert report["stall_for_s"]["cold-store"] > 0.5 * 2 * RECORDS * 0.015
    assert report["object_requests"]["requests"] >= 2 * RECORDS
